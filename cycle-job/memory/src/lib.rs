//! cicada-memory
