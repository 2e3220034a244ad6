//! The SQLite engine of Cicada: an agent's memory and its ledger.
//!
//! The process that holds credentials never opens a SQLite file. [`MemoryWorker`] and [`LedgerWorker`]
//! are blocking handles of sandboxed children (the same program, executed again), which speak JSON lines
//! over pipes; [`unpack`] uses a third for archives. A child that crashes or hangs costs one statement,
//! never the cycle.
//!
//! ## Why
//! - SQL comes from a language model and files come from a bucket: both are hostile input to a large C
//!   library. A process of its own is the only border that also holds when the library has a fault.
//! - The memory worker never sees the ledger, and the ledger worker never runs the agent's SQL.
//! - Mounted tables are TEMP tables, which this build of SQLite keeps in RAM whatever a pragma says, so
//!   that nothing of the platform can enter the memory file.

mod capi;
mod child;
mod flags;
mod functions;
mod guard;
pub mod ledger;
mod memory;
pub mod mounts;
mod prompt;
mod protocol;
mod sandbox;
pub mod sql;
mod sys;
pub mod tool;
mod unpack;
mod value;
mod worker;

pub use child::{Killer, Launcher, WorkerError};
pub use ledger::ingest::normalise as normalised_address;
pub use ledger::{LedgerOptions, LedgerWorker};
pub use memory::{Check, MemoryOptions, MemoryWorker, Sealed};
pub use mounts::{MOUNTS, MountEdit, MountPolicy, Mounts};
pub use prompt::PromptOptions;
pub use protocol::FaultKind;
pub use sandbox::Sandbox;
pub use tool::{BatchError, BatchResult, StatementResult};
pub use unpack::{UnpackError, UnpackLimits, Unpacked, unpack, unpack_chain};
pub use value::{Row, Rows, Value};
pub use worker::{Link, worker_main};
