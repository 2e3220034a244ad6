//! What the watches have seen, in the small form that decisions need.
//!
//! The index is only ever a hint. Whatever is written carries a name that follows from what it stands for,
//! a resourceVersion or a UID, so that a stale index costs a refused request, never a second Job.

mod cycles;
mod jobs;
mod waiting;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cicada_crds::{AgentCycle, PersistentAgent};
use cicada_operator_core::{observed::CycleView, peers::PeerView, spec::OperatorDefaults};
use jiff::Timestamp;
use kube::ResourceExt as _;

use self::cycles::Cycles;
pub use self::jobs::{JobEntry, stray};
use crate::stored::{Credential, StoredAgent, StoredCycle, Uid};

/// Namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// From its parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What is in an agent's name.
#[derive(Debug, Default)]
pub struct Index {
    agents: HashMap<Key, StoredAgent>,
    cycles: Cycles,
    /// Each namespace's name once, whatever the number of its objects.
    namespaces: HashSet<Arc<str>>,
    /// Cycles that wait for a free place, each with its agent and its age.
    waiters: HashMap<Key, (Key, Timestamp)>,
    jobs: HashMap<Key, JobEntry>,
    jobs_of: HashMap<String, HashSet<Key>>,
    /// UIDs whose deletion we have seen or caused: a late event must not bring them back.
    gone: HashMap<String, Timestamp>,
    /// Lists that are being read: UIDs of what was put meanwhile, by the list or by ourselves.
    listing: HashMap<(Kind, Option<String>), HashSet<Uid>>,
    /// Jobs that were there once, by cycle UID.
    had_job: HashSet<String>,
    /// UIDs of Jobs that have our labels and are not ours.
    strays: HashSet<String>,
    holds: HashMap<Arc<str>, String>,
    namespace_uids: HashMap<Arc<str>, String>,
    /// How many agents of a namespace sign in with each credential.
    signed: HashMap<(Arc<str>, Credential), usize>,
}

impl Index {
    fn key(&mut self, namespace: &str, name: &str) -> Key {
        let namespace = self.namespaces.get(namespace).cloned().unwrap_or_else(|| {
            let namespace: Arc<str> = namespace.into();
            self.namespaces.insert(namespace.clone());
            namespace
        });
        Key { namespace, name: name.into() }
    }

    fn note_listed(&mut self, kind: Kind, uid: &str) {
        for ((of_kind, _), listed) in &mut self.listing {
            if *of_kind == kind {
                listed.insert(Uid::new(uid));
            }
        }
    }

    /// A full list of a kind begins.
    pub fn begin_list(&mut self, kind: Kind, scope: Option<&str>) {
        self.listing.insert((kind, scope.map(str::to_owned)), HashSet::new());
    }

    /// Takes in an agent, without its long texts.
    pub fn put_agent(&mut self, agent: PersistentAgent) -> Key {
        let key = self.key(&agent.namespace().unwrap_or_default(), &agent.name_any());
        let stored = StoredAgent::new(agent);
        self.note_listed(Kind::Agent, &stored.uid);
        let older = self.agents.get(&key).is_some_and(|k| k.uid == stored.uid && k.version > stored.version);
        if !older && !self.gone.contains_key(&*stored.uid) {
            *self.signed.entry((key.namespace.clone(), stored.credential.clone())).or_default() += 1;
            let before = self.agents.insert(key.clone(), stored);
            self.signed_out(&key, before);
        }
        key
    }

    /// An agent is no longer what it was.
    fn signed_out(&mut self, key: &Key, before: Option<StoredAgent>) {
        let Some(before) = before else { return };
        let place = (key.namespace.clone(), before.credential);
        if let Some(count) = self.signed.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.signed.remove(&place);
            }
        }
    }

    /// Another agent of the namespace signs in to its store with the same Secret.
    pub fn shares_credentials(&self, key: &Key, defaults: &OperatorDefaults) -> bool {
        let Some(agent) = self.agents.get(key) else { return false };
        let default =
            defaults.store.as_ref().and_then(|s| s.s3.as_ref()?.credentials.as_ref()?.secret_name.as_deref());
        let secret = match &agent.credential {
            Credential::Default => default,
            Credential::Secret(name) => Some(&**name),
            Credential::Other => None,
        };
        let Some(secret) = secret else { return false };
        let count = |credential| self.signed.get(&(key.namespace.clone(), credential)).copied().unwrap_or(0);
        let by_default = if default == Some(secret) { count(Credential::Default) } else { 0 };
        count(Credential::Secret(secret.into())) + by_default > 1
    }

    /// SHA-256 of an agent's charter, where another one is in force.
    pub fn charter_sha256(&self, key: &Key) -> Option<String> {
        self.agents.get(key)?.charter_sha256.as_deref().map(str::to_owned)
    }

    /// Our finalizer is on an agent of this namespace.
    pub fn has_kept_agents(&self, namespace: &str) -> bool {
        self.agents.iter().any(|(key, agent)| agent.kept && &*key.namespace == namespace)
    }

    /// Forgets an agent.
    pub fn remove_agent(&mut self, key: &Key, uid: Option<&str>, now: Timestamp) {
        if uid.is_none_or(|uid| self.agents.get(key).is_some_and(|a| &*a.uid == uid)) {
            self.drop_agent(key);
        }
        self.gone.extend(uid.map(|u| (u.to_owned(), now)));
    }

    fn drop_agent(&mut self, key: &Key) {
        let before = self.agents.remove(key);
        self.signed_out(key, before);
    }

    /// The agent of this key, without its long texts.
    pub fn agent(&self, key: &Key) -> Option<Arc<PersistentAgent>> {
        self.agents.get(key).and_then(StoredAgent::agent)
    }

    /// The agents that this one's manifest names as peers, as far as they are there.
    pub fn peers(&self, agent: &PersistentAgent, defaults: &OperatorDefaults) -> Vec<PeerView> {
        let namespace = agent.namespace().unwrap_or_default();
        let peers = agent.spec.peers.iter().filter_map(|p| self.agent(&Key::new(&namespace, &p.name)));
        peers.map(|peer| PeerView::new(agent, &peer, defaults)).collect()
    }

    /// Keys of all agents, and of all that cycles refer to.
    pub fn keys(&self) -> Vec<Key> {
        let orphans = self.cycles.agents().filter(|k| !self.agents.contains_key(k));
        self.agents.keys().chain(orphans).cloned().collect()
    }

    /// Number of agents and cycles.
    pub fn sizes(&self) -> (usize, usize) {
        (self.agents.len(), self.cycles.len())
    }

    /// Takes in a cycle; returns the key of its agent.
    pub fn put_cycle(&mut self, cycle: &AgentCycle, now: Timestamp) -> Key {
        let uid = cycle.metadata.uid.as_deref().unwrap_or_default();
        self.note_listed(Kind::Cycle, uid);
        let agent = self.key(&cycle.namespace().unwrap_or_default(), &cycle.spec.agent_ref.name);
        if !self.gone.contains_key(uid) {
            self.cycles.put(agent.clone(), StoredCycle::new(cycle, now));
        }
        let key = Key { namespace: agent.namespace.clone(), name: cycle.name_any().into() };
        let known = self.cycles.get(&agent, &key.name).and_then(StoredCycle::whole);
        match known.filter(|view| waiting::waits(view)).map(|view| view.created) {
            Some(created) => drop(self.waiters.insert(key, (agent.clone(), created))),
            None => drop(self.waiters.remove(&key)),
        }
        agent
    }

    /// Forgets a cycle; returns the key of its agent.
    pub fn remove_cycle(&mut self, key: &Key, uid: &str, now: Timestamp) -> Option<Key> {
        self.gone.insert(uid.to_owned(), now);
        let agent = self.cycles.remove(key, &Uid::new(uid))?;
        self.waiters.remove(key);
        Some(agent)
    }

    /// All cycles of an agent. Those are its own whose owner has its UID.
    pub fn cycles(&self, agent: &Key, agent_uid: &str) -> Vec<CycleView> {
        self.cycles.views(agent, agent_uid)
    }

    /// The reason why a namespace is on hold.
    pub fn hold(&self, namespace: &str) -> Option<String> {
        self.holds.get(namespace).cloned()
    }

    /// UID of a namespace; empty where it is not known.
    pub fn namespace_uid(&self, namespace: &str) -> String {
        self.namespace_uids.get(namespace).cloned().unwrap_or_default()
    }

    /// Notes the UID of a namespace.
    pub fn set_namespace_uid(&mut self, namespace: &str, uid: Option<String>) {
        if let Some(uid) = uid {
            self.namespace_uids.insert(namespace.into(), uid);
        }
    }

    /// Sets or lifts the hold of a namespace; true if that changed something.
    pub fn set_hold(&mut self, namespace: &str, reason: Option<String>) -> bool {
        match reason {
            Some(reason) => self.holds.insert(namespace.into(), reason.clone()).as_ref() != Some(&reason),
            None => self.holds.remove(namespace).is_some(),
        }
    }

    /// A full list of a kind has ended: removes what it did not contain, but for what was put meanwhile.
    /// Returns the keys of the agents concerned.
    pub fn end_list(&mut self, kind: Kind, scope: Option<&str>) -> Vec<Key> {
        let Some(listed) = self.listing.remove(&(kind, scope.map(str::to_owned))) else { return vec![] };
        let in_scope = |key: &Key| scope.is_none_or(|s| s == &*key.namespace);
        let is_stale = |key: &Key, uid: &str| in_scope(key) && !listed.contains(&Uid::new(uid));
        match kind {
            Kind::Agent => {
                let stale = self.agents.iter().filter(|(key, agent)| is_stale(key, &agent.uid));
                let stale: Vec<_> = stale.map(|(key, _)| key.clone()).collect();
                for key in &stale {
                    self.drop_agent(key);
                }
                stale
            }
            Kind::Cycle => {
                let touched = self.cycles.retain(scope, &listed);
                let Self { waiters, cycles, .. } = self;
                waiters.retain(|key, (agent, _)| cycles.get(agent, &key.name).is_some());
                touched
            }
            Kind::Job => {
                let stale = self.jobs.iter().filter(|(key, job)| is_stale(key, &job.view.uid));
                let stale: Vec<_> = stale.map(|(key, _)| key.clone()).collect();
                stale.iter().filter_map(|key| self.drop_job(key)).collect()
            }
        }
    }

    /// Forgets deletions that no late event can undo any more.
    pub fn forget_gone(&mut self, before: Timestamp) {
        self.gone.retain(|_, at| *at >= before);
        let Self { had_job, cycles, jobs_of, .. } = self;
        if had_job.len() > 2 * jobs_of.len() + 1024 {
            let alive: HashSet<&Uid> = cycles.uids().collect();
            had_job.retain(|uid| alive.contains(&Uid::new(uid)));
        }
    }

    /// Makes small what has ended a while ago.
    pub fn settle(&mut self, now: Timestamp) {
        self.cycles.settle(now);
    }
}

/// Kinds that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// PersistentAgent.
    Agent,
    /// AgentCycle.
    Cycle,
    /// Job.
    Job,
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
