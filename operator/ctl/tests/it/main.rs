//! The program as people use it: real processes, real stores, real mistakes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, where a panic is the report")]

mod compare;
mod exits;
mod formats;
mod helps;
mod interrupts;
mod local;
mod moves;
mod peers;
mod people;
mod repair;
mod s3;
mod support;
#[path = "../../../../cycle-job/store/src/tests/versitygw.rs"]
#[allow(dead_code, reason = "shared with the tests of the store")]
mod versitygw;
