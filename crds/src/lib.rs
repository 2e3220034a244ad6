//! The custom resources of Cicada: [`PersistentAgent`] (what an agent is) and [`AgentCycle`] (one of
//! its cycles, and the way to ask for one).
//!
//! Types only: no client, no input or output. The Rust types are lenient on purpose (unknown fields are
//! ignored, every field that came later is optional), so that an object written by any release decodes;
//! what is wrong is refused by the schema and its CEL rules ([`generate`]) or reported as a condition.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod agent;
pub mod cycle;
pub mod executor;
pub mod generate;
pub mod people;
pub mod pod;
pub mod status;
pub mod store;
pub mod units;

pub use agent::{PersistentAgent, PersistentAgentSpec};
pub use cycle::{AgentCycle, AgentCycleSpec, AgentCycleStatus};
pub use status::PersistentAgentStatus;

/// API group of all kinds.
pub const GROUP: &str = "cicada.dev";
/// The one version.
pub const VERSION: &str = "v1alpha1";
/// Longest name of a PersistentAgent: leaves room for `-<minutes>` and for the names of its Jobs.
pub const AGENT_NAME_MAX: usize = 52;
