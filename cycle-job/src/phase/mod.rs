//! The phases of a cycle, each one file with its own errors, and the states between them.

pub mod acquire;
pub mod base;
pub mod checkpoint;
mod checks;
pub mod collect;
pub mod deliver;
pub mod execute;
mod fetch;
pub mod ingest;
pub mod mount;
pub mod persist;
pub mod persist_failure;
pub mod report;
pub mod restore;
pub mod seal;
pub mod unmount;
pub mod write_back;
