//! Cycles, beside their agent: sixty thousand of them are most of what is kept.

use std::collections::{HashMap, HashSet};

use cicada_operator_core::observed::CycleView;
use jiff::Timestamp;

use super::Key;
use crate::stored::{StoredCycle, Uid};

/// All cycles, by the key of the agent to which they refer; each agent's sorted by name.
#[derive(Debug, Default)]
pub(super) struct Cycles {
    of: HashMap<Key, Vec<StoredCycle>>,
    /// The agent of each cycle that is not named after it.
    odd: HashMap<Key, Key>,
    count: usize,
}

/// The agent after which a cycle is named; those that we make are named after theirs.
fn stem(name: &str) -> &str {
    name.rsplit_once('-').map_or("", |(stem, _)| stem)
}

impl Cycles {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Keys of all agents to which cycles refer.
    pub(super) fn agents(&self) -> impl Iterator<Item = &Key> {
        self.of.keys()
    }

    pub(super) fn uids(&self) -> impl Iterator<Item = &Uid> {
        self.of.values().flatten().map(|c| &c.uid)
    }

    /// Takes in a cycle. One of this name that another agent had is gone.
    pub(super) fn put(&mut self, agent: Key, cycle: StoredCycle) {
        let key = Key { namespace: agent.namespace.clone(), name: (*cycle.name).into() };
        if let Some(holder) = self.holder(&key).filter(|holder| *holder != agent) {
            self.drop(&holder, &key);
        }
        if stem(&key.name) != &*agent.name {
            self.odd.insert(key, agent.clone());
        }
        let list = self.of.entry(agent).or_default();
        match list.binary_search_by(|c| c.name.cmp(&cycle.name)) {
            Ok(i) if list[i].uid == cycle.uid && list[i].version > cycle.version => {}
            Ok(i) => list[i] = cycle,
            Err(i) => {
                // A vector doubles; a history has a handful and stays.
                if list.len() < 16 {
                    list.reserve_exact(1);
                }
                list.insert(i, cycle);
                self.count += 1;
            }
        }
    }

    pub(super) fn get(&self, agent: &Key, name: &str) -> Option<&StoredCycle> {
        let list = self.of.get(agent)?;
        list.binary_search_by(|c| (*c.name).cmp(name)).ok().map(|i| &list[i])
    }

    /// The agent that has the cycle of this name.
    fn holder(&self, key: &Key) -> Option<Key> {
        let named = || Key { namespace: key.namespace.clone(), name: stem(&key.name).into() };
        self.odd
            .get(key)
            .cloned()
            .or_else(|| Some(named()).filter(|agent| self.get(agent, &key.name).is_some()))
    }

    fn drop(&mut self, agent: &Key, key: &Key) {
        self.odd.remove(key);
        self.retain_of(agent, |c| *c.name != *key.name);
    }

    /// Removes the cycle of this name and UID; returns the key of its agent.
    pub(super) fn remove(&mut self, key: &Key, uid: &Uid) -> Option<Key> {
        let agent = self.holder(key)?;
        self.get(&agent, &key.name).filter(|c| c.uid == *uid)?;
        self.drop(&agent, key);
        Some(agent)
    }

    /// Removes what a full list of this scope did not contain; returns the keys of the agents concerned.
    pub(super) fn retain(&mut self, scope: Option<&str>, listed: &HashSet<Uid>) -> Vec<Key> {
        let stale = |(key, list): &(&Key, &Vec<StoredCycle>)| {
            scope.is_none_or(|s| s == &*key.namespace) && list.iter().any(|c| !listed.contains(&c.uid))
        };
        let agents: Vec<Key> = self.of.iter().filter(stale).map(|(key, _)| key.clone()).collect();
        for agent in &agents {
            self.retain_of(agent, |c| listed.contains(&c.uid));
        }
        let mut odd = std::mem::take(&mut self.odd);
        odd.retain(|key, agent| self.get(agent, &key.name).is_some());
        self.odd = odd;
        agents
    }

    fn retain_of(&mut self, agent: &Key, keep: impl Fn(&StoredCycle) -> bool) {
        let Some(list) = self.of.get_mut(agent) else { return };
        let before = list.len();
        list.retain(keep);
        self.count -= before - list.len();
        if list.is_empty() {
            self.of.remove(agent);
        }
    }

    /// All cycles of an agent. Those are its own whose owner has its UID.
    pub(super) fn views(&self, agent: &Key, agent_uid: &str) -> Vec<CycleView> {
        let uid = Uid::new(agent_uid);
        self.of.get(agent).into_iter().flatten().map(|c| c.view(&uid)).collect()
    }

    /// Makes small what has ended a while ago.
    pub(super) fn settle(&mut self, now: Timestamp) {
        self.of.values_mut().flatten().for_each(|c| c.settle(now));
    }
}
