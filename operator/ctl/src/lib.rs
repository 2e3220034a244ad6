//! cicadactl
