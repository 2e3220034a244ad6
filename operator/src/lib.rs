//! The operator: watches PersistentAgents, AgentCycles and Jobs, and does what `cicada-operator-core`
//! decides. It never opens a memory, reads no Secret and writes no bucket.
//!
//! [`watch`] feeds the [`index`] and the [`queue`]; [`reconcile`] takes a key, gathers what a decision
//! needs ([`observe`]), and does what was decided ([`act`]).

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod act;
pub mod args;
pub mod check;
pub mod config;
pub mod context;
pub mod error;
pub mod foreign;
pub mod health;
pub mod index;
pub mod lease;
pub mod metrics;
pub mod namespaces;
pub mod numbers;
pub mod observe;
pub mod parts;
pub mod queue;
pub mod reconcile;
pub mod run;
pub mod said;
pub mod schema;
pub mod series;
pub mod server;
pub mod stored;
pub mod telemetry;
pub mod tidy;
pub mod uninstall;
pub mod watch;

/// Field manager of everything that the operator writes.
pub const FIELD_MANAGER: &str = "cicada-operator";
