//! Who may start where only so many cycles may run at once: those who have waited longest, each agent in its turn.

use std::collections::{HashMap, HashSet};

use cicada_crds::cycle::Phase;
use cicada_operator_core::observed::CycleView;
use jiff::Timestamp;

use super::{Index, Key};
use crate::config::Capacity;

/// Reason of a cycle that could start if there were a place.
const WAITS: &str = "WaitingForCapacity";

/// True if nothing but a free place keeps the cycle from starting.
pub(super) fn waits(cycle: &CycleView) -> bool {
    cycle.phase == Some(Phase::Pending) && cycle.reason.as_deref() == Some(WAITS) && !cycle.deleting
}

impl Index {
    /// No place is free for `agent`, whose oldest cycle was made at `since`. A place counts as taken while an
    /// agent waits for it longer; None = it has no cycle that waits, and is ahead of nobody.
    pub fn is_full(&self, agent: &Key, since: Option<Timestamp>, capacity: &Capacity) -> bool {
        let (most, most_here) = (capacity.cycles, capacity.cycles_per_namespace);
        if most == 0 && most_here == 0 {
            return false;
        }
        let mut running: HashMap<&str, usize> = HashMap::new();
        for (key, _) in self.agents.iter().filter(|(_, a)| a.active) {
            *running.entry(&key.namespace).or_default() += 1;
        }
        let mut ahead: HashMap<&str, HashSet<&Key>> = HashMap::new();
        for (other, at) in self.waiters.values() {
            if since.is_some_and(|since| other != agent && (*at, other) < (since, agent)) {
                ahead.entry(&other.namespace).or_default().insert(other);
            }
        }
        // Those who wait for a place in a full namespace take none from the others.
        let room = |namespace: &str| match most_here {
            0 => usize::MAX,
            most => most.saturating_sub(running.get(namespace).copied().unwrap_or(0)),
        };
        let before = |namespace: &str| ahead.get(namespace).map_or(0, HashSet::len).min(room(namespace));
        let taken = running.values().sum::<usize>() + ahead.keys().map(|n| before(n)).sum::<usize>();
        let here = most_here > 0 && before(&agent.namespace) >= room(&agent.namespace);
        here || (most > 0 && taken >= most)
    }
}
