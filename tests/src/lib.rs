//! cicada-tests
