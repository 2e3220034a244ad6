//! Keys with the time at which each is to be looked at. One key is never worked on twice at once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use std::time::Duration;

use tokio::{sync::Notify, time::Instant};

use crate::index::Key;

/// Keys that wait, the earliest first. What has its time comes before what is only to be looked at once: a new leader's
/// first look at thousands of agents must not keep a slot waiting.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    timed: Order,
    first_looks: Order,
    working: HashSet<Key>,
    closed: bool,
}

/// Keys by their time, each once.
#[derive(Debug, Default)]
struct Order {
    keys: BTreeMap<(Instant, u64), Key>,
    place: HashMap<Key, (Instant, u64)>,
    serial: u64,
}

impl Order {
    /// False if it is there already with this time or an earlier one.
    fn add(&mut self, key: Key, at: Instant) -> bool {
        if self.place.get(&key).is_some_and(|(known, _)| *known <= at) {
            return false;
        }
        self.remove(&key);
        self.serial += 1;
        self.keys.insert((at, self.serial), key.clone());
        self.place.insert(key, (at, self.serial));
        true
    }

    fn remove(&mut self, key: &Key) {
        if let Some(place) = self.place.remove(key) {
            self.keys.remove(&place);
        }
    }

    fn ready(&self, working: &HashSet<Key>, now: Instant) -> Option<Key> {
        let due = self.keys.iter().take_while(|((at, _), _)| *at <= now);
        due.map(|(_, key)| key).find(|key| !working.contains(*key)).cloned()
    }

    fn next_after(&self, now: Instant) -> Option<Instant> {
        self.keys.keys().map(|(at, _)| *at).find(|at| *at > now)
    }

    fn lag(&self, now: Instant) -> (usize, Duration) {
        let overdue = self.keys.keys().take_while(|(at, _)| *at <= now).count();
        let oldest = self.keys.keys().next().map(|(at, _)| now.saturating_duration_since(*at));
        (overdue, oldest.unwrap_or(Duration::ZERO))
    }
}

impl Queue {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic while holding it leaves a consistent state: each change below is one insert or remove.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Looks at `key` after `delay`, or earlier if that was asked for already.
    pub fn add(&self, key: Key, delay: Duration) {
        if self.state().timed.add(key, Instant::now() + delay) {
            self.changed.notify_one();
        }
    }

    /// Looks at `key` after `delay`, whenever nothing else is due.
    pub fn add_first_look(&self, key: Key, delay: Duration) {
        if self.state().first_looks.add(key, Instant::now() + delay) {
            self.changed.notify_one();
        }
    }

    /// Forgets all that waits.
    pub fn clear(&self) {
        let mut state = self.state();
        (state.timed, state.first_looks) = (Order::default(), Order::default());
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
                let ready = state.timed.ready(&state.working, now);
                if let Some(key) = ready.or_else(|| state.first_looks.ready(&state.working, now)) {
                    // A later time of its own stands.
                    if state.timed.place.get(&key).is_some_and(|(at, _)| *at <= now) {
                        state.timed.remove(&key);
                    }
                    state.first_looks.remove(&key);
                    state.working.insert(key.clone());
                    drop(state);
                    // Another worker may have a key to take as well.
                    self.changed.notify_one();
                    return Some(key);
                }
                state.timed.next_after(now).into_iter().chain(state.first_looks.next_after(now)).min()
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
        let ((timed, oldest), (looks, longest)) = (state.timed.lag(now), state.first_looks.lag(now));
        drop(state);
        (timed + looks, oldest.max(longest))
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

    /// A new leader, or a watch that lists anew, has thousands to look at while slots come.
    #[tokio::test]
    async fn what_is_due_comes_before_first_looks() {
        let queue = Queue::default();
        for name in ["a", "b", "c"] {
            queue.add_first_look(key(name), Duration::ZERO);
        }
        queue.add(key("c"), Duration::from_millis(20));
        assert_eq!(queue.next().await, Some(key("a")), "nothing is due yet");
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert_eq!(queue.next().await, Some(key("c")));
        assert_eq!(queue.next().await, Some(key("b")), "c was looked at");
        for name in ["a", "b", "c"] {
            queue.done(&key(name));
        }
        assert!(tokio::time::timeout(Duration::from_millis(30), queue.next()).await.is_err());
        queue.add(key("d"), Duration::from_millis(60));
        queue.add_first_look(key("d"), Duration::ZERO);
        assert_eq!(queue.next().await, Some(key("d")), "its first look");
        queue.done(&key("d"));
        assert_eq!(queue.next().await, Some(key("d")), "and its own time");
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
