//! cicada-operator
