//! Executors: what works between mount and write back.

pub mod container;
pub mod model;
pub mod sql;

use cicada_contract::report::{Outcome, Usage};
use cicada_store::SnapshotKind;

/// What an executor leaves.
#[derive(Debug, Clone)]
pub struct Work {
    /// What the agent says of its cycle.
    pub outcome: Outcome,
    /// One line for people; never a cell of the memory.
    pub message: String,
    /// Limit that ended the work before the agent did.
    pub ended_by: Option<&'static str>,
    /// Spend.
    pub usage: Usage,
    /// `Final`, or `Interrupted` where what is committed is kept and the work goes on later.
    pub kind: SnapshotKind,
}
