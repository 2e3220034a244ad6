//! What the end-to-end tests share: the cluster and its tools as typed helpers, the bucket as plain
//! files, a proxy that stops a cycle at a chosen request, and the check of every persisted memory.
//!
//! Everything is looked at from outside, by the programs that a user has: kubectl, helm, cicadactl,
//! `zstd` and `sqlite3`. A test fails by a panic whose message says what was seen.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a panic is how a test reports"
)]

pub mod bucket;
pub mod cluster;
pub mod data;
pub mod gate;
pub mod memory;
pub mod model_server;
pub mod namespace;
pub mod shell;
pub mod wait;
