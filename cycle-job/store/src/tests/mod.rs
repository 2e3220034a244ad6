//! Tests of the crate as a whole, on real stores.

mod cycles;
mod servers;
mod stores;
