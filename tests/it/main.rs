//! End-to-end tests, one binary. What needs the cluster is ignored by a plain `cargo test` and runs by
//! `tests/run`.
