//! The engine from outside: real children, real files.

#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, reason = "a test program")]

mod attacks;
mod chains;
mod corrupt;
mod decisions;
mod faults;
mod foreign;
mod kills;
mod ledger;
mod path;
mod prompt;
mod repair;
mod support;
