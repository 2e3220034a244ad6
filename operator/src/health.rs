//! Whether the process still does its work.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// A watch that has only failed for this long makes the process unhealthy.
const WATCH_FAULT: Duration = Duration::from_mins(5);
/// A failing watch is retried twice a minute at least: one that was silent for longer works again.
const WATCH_RECOVERED: Duration = Duration::from_mins(2);
/// The sweep runs each minute; three missed ones are a fault.
const SWEEP_FAULT: Duration = Duration::from_secs(200);

#[derive(Debug, Clone, Copy)]
struct WatchState {
    listed: bool,
    failing_since: Option<Instant>,
    failed_last: Option<Instant>,
}

/// Signs of life.
#[derive(Debug, Default)]
pub struct Health {
    watches: Mutex<HashMap<String, WatchState>>,
    sweep: Mutex<Option<Instant>>,
}

impl Health {
    fn watch(&self, name: &str, change: impl FnOnce(&mut WatchState)) {
        let mut watches = self.watches.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(watches.entry(name.to_owned()).or_insert(WatchState {
            listed: false,
            failing_since: None,
            failed_last: None,
        }));
    }

    /// A watch was started.
    pub fn watch_started(&self, name: &str) {
        self.watch(name, |_| {});
    }

    /// A watch has listed everything.
    pub fn watch_listed(&self, name: &str) {
        self.watch(name, |w| (w.listed, w.failing_since) = (true, None));
    }

    /// A watch delivered something.
    pub fn watch_alive(&self, name: &str) {
        self.watch(name, |w| w.failing_since = None);
    }

    /// A watch failed; it is retried.
    pub fn watch_failed(&self, name: &str) {
        self.watch(name, |w| {
            let again = w.failed_last.is_some_and(|at| at.elapsed() < WATCH_RECOVERED);
            w.failing_since = w.failing_since.filter(|_| again).or(Some(Instant::now()));
            w.failed_last = Some(Instant::now());
        });
    }

    /// A watch is not allowed: the rest goes on without it.
    pub fn watch_forbidden(&self, name: &str) {
        self.watch(name, |w| (w.listed, w.failing_since) = (true, None));
    }

    /// The sweep ran.
    pub fn swept(&self) {
        *self.sweep.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(Instant::now());
    }

    /// All watches have listed.
    pub fn is_ready(&self) -> bool {
        let watches = self.watches.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        !watches.is_empty() && watches.values().all(|w| w.listed)
    }

    /// What stands still, if anything does.
    pub fn fault(&self) -> Option<String> {
        let sweep = *self.sweep.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if sweep.is_some_and(|at| at.elapsed() > SWEEP_FAULT) {
            return Some("the sweep has not run for three minutes".into());
        }
        let watches = self.watches.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let stale = watches.iter().find(|(_, w)| {
            let lately = w.failed_last.is_some_and(|at| at.elapsed() < WATCH_RECOVERED);
            lately && w.failing_since.is_some_and(|at| at.elapsed() > WATCH_FAULT)
        });
        stale.map(|(name, _)| format!("the watch of {name} has failed for five minutes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_only_fails_is_a_fault() {
        let health = Health::default();
        assert!(!health.is_ready());
        health.watch_started("jobs");
        assert!(!health.is_ready());
        health.watch_listed("jobs");
        assert!(health.is_ready());
        for _ in 0..5 {
            health.watch_failed("jobs");
            assert_eq!(health.fault(), None);
            tokio::time::advance(Duration::from_mins(1)).await;
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(health.fault().unwrap().contains("jobs"));
        tokio::time::advance(Duration::from_mins(2)).await;
        assert_eq!(
            health.fault(),
            None,
            "a quiet watch that reconnected says nothing, but it fails no more either"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_sweep_that_stands_still_is_a_fault() {
        let health = Health::default();
        health.swept();
        tokio::time::advance(Duration::from_secs(201)).await;
        assert!(health.fault().is_some());
    }
}
