//! Waiting for something to come true.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Asks twice a second until there is an answer. Panics with `what` when it takes longer than `seconds`.
#[track_caller]
pub fn until<T>(what: &str, seconds: u64, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "{what}: not within {seconds} s");
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Looks twice a second until `good`; panics with the last thing seen.
#[track_caller]
pub fn until_seen<T: Debug>(
    what: &str,
    seconds: u64,
    mut look: impl FnMut() -> T,
    good: impl Fn(&T) -> bool,
) -> T {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        let seen = look();
        if good(&seen) {
            return seen;
        }
        assert!(Instant::now() < end, "{what}: not within {seconds} s; last seen: {seen:#?}");
        std::thread::sleep(Duration::from_millis(500));
    }
}
