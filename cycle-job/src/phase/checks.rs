//! How thoroughly a memory is checked, and when. Pure.
//!
//! A file whose SHA-256 is HEAD's is byte for byte what an earlier cycle had checked before it published it,
//! so it is not checked again at each start. It is where that says too little: nobody has checked it as a
//! whole yet, a person put it in place, or it was long ago.

use cicada_memory::Check;
use cicada_store::{DELTA_FROM, Head, Snapshot};

/// Snapshots from one check of the whole memory to the next: a quarter of the time of a check is
/// spent on each cycle without one.
const WHOLE_EVERY: u64 = 16;

/// The check of what was restored; None = none is needed.
pub(crate) fn at_restore(head: &Head, base: &Snapshot) -> Option<Check> {
    let from_elsewhere = head.whole_next || base.restored_from.is_some();
    let long_ago = head.snapshots_since_check().is_none_or(|since| since > WHOLE_EVERY);
    (from_elsewhere || long_ago).then_some(Check::Integrity)
}

/// The check of a finished memory of `size` bytes that has changed. `is_delta` tells that the next archive
/// may be one.
pub(crate) fn at_seal(head: &Head, size: u64, is_delta: bool) -> Check {
    let is_due = head.snapshots_since_check().is_none_or(|since| since + 1 >= WHOLE_EVERY);
    // What sixteen others will build on.
    let is_base = size >= DELTA_FROM && !is_delta;
    if is_due || is_base { Check::Integrity } else { Check::Quick }
}
