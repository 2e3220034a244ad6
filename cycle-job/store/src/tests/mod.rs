//! Tests of the crate as a whole, on real stores.

mod bucket;
mod cycles;
mod proxy;
mod servers;
mod stores;
mod wire;
