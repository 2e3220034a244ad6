//! Keys with the time at which each is to be looked at. One key is never worked on twice at once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use std::time::Duration;

use tokio::{sync::Notify, time::Instant};

use crate::index::Key;

/// Keys that wait, the earliest first.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    order: BTreeMap<(Instant, u64), Key>,
    place: HashMap<Key, (Instant, u64)>,
    working: HashSet<Key>,
    serial: u64,
    closed: bool,
}

impl Queue {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic while holding it leaves a consistent state: each change below is one insert or remove.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Looks at `key` after `delay`, or earlier if that was asked for already.
    pub fn add(&self, key: Key, delay: Duration) {
        let mut state = self.state();
        let at = Instant::now() + delay;
        if let Some(place) = state.place.get(&key).copied() {
            if place.0 <= at {
                return;
            }
            state.order.remove(&place);
        }
        state.serial += 1;
        let place = (at, state.serial);
        state.order.insert(place, key.clone());
        state.place.insert(key, place);
        drop(state);
        self.changed.notify_one();
    }

    /// Waits for the next key; None once the queue is closed.
    pub async fn next(&self) -> Option<Key> {
        loop {
            let changed = self.changed.notified();
            let wait = {
                let mut state = self.state();
                if state.closed {
                    return None;
                }
                let now = Instant::now();
                let ready = state
                    .order
                    .iter()
                    .take_while(|((at, _), _)| *at <= now)
                    .find(|(_, k)| !state.working.contains(*k));
                if let Some((place, key)) = ready.map(|(p, k)| (*p, k.clone())) {
                    state.order.remove(&place);
                    state.place.remove(&key);
                    state.working.insert(key.clone());
                    drop(state);
                    // Another worker may have a key to take as well.
                    self.changed.notify_one();
                    return Some(key);
                }
                state.order.keys().map(|(at, _)| *at).find(|at| *at > now)
            };
            match wait {
                Some(at) => {
                    tokio::select! { () = changed => {}, () = tokio::time::sleep_until(at) => {} }
                }
                None => changed.await,
            }
        }
    }

    /// The work on `key` is done.
    pub fn done(&self, key: &Key) {
        self.state().working.remove(key);
        self.changed.notify_one();
    }

    /// Hands out nothing any more; true once nobody works.
    pub fn close(&self) -> bool {
        let mut state = self.state();
        state.closed = true;
        let idle = state.working.is_empty();
        drop(state);
        self.changed.notify_waiters();
        self.changed.notify_one();
        idle
    }

    /// Keys that are overdue, and by how much the oldest.
    pub fn lag(&self) -> (usize, Duration) {
        let state = self.state();
        let now = Instant::now();
        let overdue = state.order.keys().take_while(|(at, _)| *at <= now).count();
        let oldest =
            state.order.keys().next().map_or(Duration::ZERO, |(at, _)| now.saturating_duration_since(*at));
        drop(state);
        (overdue, oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("n", name)
    }

    #[tokio::test]
    async fn the_earliest_wish_wins() {
        let queue = Queue::default();
        queue.add(key("a"), Duration::from_hours(1));
        queue.add(key("a"), Duration::ZERO);
        queue.add(key("a"), Duration::from_mins(1));
        assert_eq!(queue.next().await, Some(key("a")));
        queue.done(&key("a"));
        assert!(tokio::time::timeout(Duration::from_millis(30), queue.next()).await.is_err());
    }

    /// argo-workflows#4638: two workers on one object started it twice.
    #[tokio::test]
    async fn one_key_is_never_worked_on_twice_at_once() {
        let queue = Queue::default();
        queue.add(key("a"), Duration::ZERO);
        assert_eq!(queue.next().await, Some(key("a")));
        queue.add(key("a"), Duration::ZERO);
        queue.add(key("b"), Duration::ZERO);
        assert_eq!(queue.next().await, Some(key("b")), "a waits for its worker");
        assert!(tokio::time::timeout(Duration::from_millis(30), queue.next()).await.is_err());
        queue.done(&key("a"));
        assert_eq!(queue.next().await, Some(key("a")), "what came in between is not lost");
    }

    #[tokio::test]
    async fn a_closed_queue_hands_out_nothing() {
        let queue = std::sync::Arc::new(Queue::default());
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.next().await }
        });
        tokio::task::yield_now().await;
        assert!(queue.close());
        assert_eq!(waiting.await.unwrap(), None);
    }
}
