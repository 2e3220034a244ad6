//! What the operator decides: what is due, what to do, which Job to build, which conditions to show.
//!
//! Pure: no client, no clock, no input or output; `now` is always an argument. `cicadactl local` uses the
//! same decisions with child processes in place of Jobs.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod active;
pub mod agent_container;
pub mod agent_status;
pub mod approvals;
mod charter;
mod conclude;
pub mod conditions;
pub mod cycle_status;
pub mod decide;
pub mod deletion;
pub mod due;
pub mod expected;
pub mod gate;
pub mod job;
mod memory_status;
pub mod names;
pub mod observed;
mod pause;
pub mod peers;
pub mod plan;
pub mod reasons;
pub mod result;
pub mod schedule;
pub mod spec;

pub use decide::{Action, Plan, decide};
pub use observed::Observed;
pub use plan::{plan_config, plan_run};
pub use spec::{OperatorDefaults, SpecError};

/// Annotation of an agent: a new value asks for one cycle now.
pub const RUN_NOW: &str = "cicada.dev/run-now";
/// Annotation of an agent or a namespace: nothing starts and nothing is delivered while it is there.
pub const HOLD: &str = "cicada.dev/hold";
/// Annotation of an agent: proposals that a person approves, each `<proposal>-<hash>`, separated by commas.
pub const APPROVE: &str = "cicada.dev/approve";
/// Annotation of an agent: proposals that a person rejects, as with [`APPROVE`].
pub const REJECT: &str = "cicada.dev/reject";
/// Annotation of an agent: the snapshot whose loss a person accepts.
pub const ACCEPT_MEMORY_LOSS: &str = "cicada.dev/accept-memory-loss";

#[cfg(test)]
mod argo_tests;
#[cfg(test)]
mod field_tests;
#[cfg(test)]
mod fuzz_tests;
