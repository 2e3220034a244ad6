//! Tests of the crate as a whole, on real stores.

mod bucket;
mod cycles;
mod deaths;
mod deltas;
mod kill;
mod messages;
mod model;
mod proxy;
mod servers;
mod stores;
mod wire;
