//! The `sql` tool as its callers see it: what a batch gave, and the text of it for a model.

pub(crate) mod digest;
pub(crate) mod render;

use serde::{Deserialize, Serialize};

use crate::protocol::FaultKind;
use crate::value::Row;

pub use digest::preview;

/// Most rows of one statement in a batch's result.
pub const ROWS_MAX: usize = 100;
/// Most bytes of one statement's rows in a batch's result.
pub const BYTES_MAX: usize = 8000;

/// One statement that ran.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StatementResult {
    /// The statement as it ran, cut at 200 bytes.
    pub sql: String,
    /// Columns; empty for a statement that returns none.
    pub columns: Vec<String>,
    /// Rows, at most [`ROWS_MAX`] and about [`BYTES_MAX`]; long cells are cut.
    pub rows: Vec<Row>,
    /// Rows that were left out.
    pub left_out: u64,
    /// True if even more were left out than were counted.
    pub more: bool,
    /// Changed rows, for a statement that changes some.
    pub changed: Option<u64>,
    /// What it did, where neither rows nor a count say it.
    pub note: Option<String>,
    /// What the model should know about it.
    pub warnings: Vec<String>,
    /// Milliseconds.
    pub ms: u64,
}

/// Why a batch was undone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchError {
    /// Number of the statement, from 1; None if it is not one statement's.
    pub statement: Option<usize>,
    /// The statement, cut at 200 bytes.
    pub sql: String,
    /// Kind of fault; None if the worker died or was killed.
    pub kind: Option<FaultKind>,
    /// What went wrong, and what to do.
    pub message: String,
}

/// What a batch gave. With an `error` nothing of it was kept.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BatchResult {
    /// Statements that ran, also those before the failed one.
    pub statements: Vec<StatementResult>,
    /// Why it was undone.
    pub error: Option<BatchError>,
    /// About the whole batch: repairs, lost scratch tables.
    pub warnings: Vec<String>,
    /// All of it as the model reads it.
    pub text: String,
}

impl BatchResult {
    /// True if everything was committed.
    pub fn is_ok(&self) -> bool {
        self.error.is_none()
    }
}

/// What the worker answers to a batch.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct BatchOutcome {
    pub(crate) result: BatchResult,
    /// Tables that the batch read or wrote.
    pub(crate) used: Vec<String>,
}
