//! cicada-crds
