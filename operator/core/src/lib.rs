//! cicada-operator-core
