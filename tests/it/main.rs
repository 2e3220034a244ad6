//! End-to-end tests, one binary. What needs the cluster is ignored by a plain `cargo test` and runs by
//! `tests/run`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, where a panic is the report")]

mod agents;
mod api;
mod bad_input;
mod chart;
mod charter;
mod deletion;
mod deliveries;
mod idle;
mod kill;
mod kubelet;
mod lifecycle;
mod local;
mod model_agents;
mod model_pods;
mod operator;
mod own_image;
mod persist_path;
mod price_watch;
mod rights;
mod trust;
