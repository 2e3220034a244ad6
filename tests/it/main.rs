//! End-to-end tests, one binary. What needs the cluster is ignored by a plain `cargo test` and runs by
//! `tests/run`.

mod agents;
mod api;
mod bad_input;
mod idle;
mod kill;
mod local;
mod operator;
mod persist_path;
mod price_watch;
