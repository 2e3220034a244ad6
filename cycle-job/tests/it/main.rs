//! Cycles of the built program, end to end on this machine.

#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, reason = "a test program")]

mod agent;
mod attachments;
mod container;
mod damage;
mod delete;
mod delivery;
mod endings;
mod full_disk;
mod large;
mod matrix;
mod mcp;
mod model;
#[path = "../../../tests/src/model_server/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the end-to-end tests")]
mod model_server;
mod peers;
mod processes;
#[path = "../../store/src/tests/proxy.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests of the store")]
mod proxy;
mod put_back;
mod rolled_back;
mod safety;
mod seed;
mod small_disk;
mod upgrade;
#[path = "../../store/src/tests/versitygw.rs"]
#[allow(dead_code, reason = "shared with the tests of the store")]
mod versitygw;
