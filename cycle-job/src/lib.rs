//! cicada-cycle-job
