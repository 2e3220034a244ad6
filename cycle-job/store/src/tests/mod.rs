//! Tests of the crate as a whole, on real stores.

mod bucket;
mod cycles;
mod deaths;
mod deltas;
mod kill;
mod messages;
mod model;
#[allow(dead_code, reason = "shared with the fault matrix of whole cycles")]
mod proxy;
mod servers;
mod stores;
#[allow(dead_code, reason = "shared with the tests of other crates")]
mod versitygw;
mod wire;
