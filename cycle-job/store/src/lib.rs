//! cicada-store
