//! The phases of a cycle, each one file with its own errors, and the states between them.

pub mod acquire;
pub mod base;
pub mod checkpoint;
mod checks;
pub mod collect;
pub mod delete;
pub mod deliver;
pub mod delivery;
pub mod execute;
pub mod fall_back;
mod fetch;
pub mod ingest;
pub mod mount;
pub mod persist;
pub mod persist_failure;
pub mod put_back;
pub mod report;
pub mod restore;
pub mod seal;
pub mod seed;
pub mod unmount;
pub mod write_back;
