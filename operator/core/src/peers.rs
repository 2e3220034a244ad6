//! Agents that exchange messages: which of them can be reached, and whom a cycle has woken.
//!
//! A message goes from one agent's cycle into the inbox of the other, in the store. What the operator adds is
//! the cycle that reads it: one for each cycle that sent something, named by both, so that whoever takes up
//! the same end twice makes one cycle.

use cicada_contract::{
    CycleReport,
    plan::{PeerProblem, UnreachablePeer},
    text::sha256_hex,
};
use cicada_crds::{
    AgentCycleSpec, PersistentAgent,
    cycle::{AgentRef, CycleTrigger, TriggerKind},
};

use crate::{
    decide::{Action, Step},
    names,
    observed::CycleView,
    plan::{store_config, store_location},
    spec::OperatorDefaults,
};

/// An agent that a manifest names as a peer, and that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerView {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Why it can't be reached.
    pub problem: Option<PeerProblem>,
}

impl PeerView {
    /// How `agent` sees `peer`, an agent of the same namespace.
    pub fn new(agent: &PersistentAgent, peer: &PersistentAgent, defaults: &OperatorDefaults) -> Self {
        let location = |agent: &PersistentAgent| {
            store_config(&agent.spec, defaults).ok().map(|store| store_location(&store))
        };
        let names_us = peer.spec.peers.iter().any(|p| Some(&p.name) == agent.metadata.name.as_ref());
        let problem = if peer.metadata.deletion_timestamp.is_some() {
            Some(PeerProblem::Missing)
        } else if !names_us {
            Some(PeerProblem::NotMutual)
        } else if location(agent) != location(peer) {
            Some(PeerProblem::OtherStore)
        } else {
            None
        };
        let metadata = &peer.metadata;
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            problem,
        }
    }
}

/// Peers of the manifest that can't be reached; `there` are those that are there.
pub fn unreachable(agent: &PersistentAgent, there: &[PeerView]) -> Vec<UnreachablePeer> {
    let problem = |name: &str| match there.iter().find(|p| p.name == name) {
        Some(peer) => peer.problem,
        None => Some(PeerProblem::Missing),
    };
    let unreachable = |name: &String| Some(UnreachablePeer { name: name.clone(), problem: problem(name)? });
    agent.spec.peers.iter().filter_map(|p| unreachable(&p.name)).collect()
}

/// Makes a cycle for each peer that this one has woken.
pub(crate) fn wake(step: &mut Step<'_>, cycle: &CycleView, report: &CycleReport) {
    let sender = step.agent_name().to_owned();
    for peer in &step.seen.environment.peers {
        // An agent of the manifest, whatever the report says.
        if peer.problem.is_some() || !report.wakes.contains(&peer.name) {
            continue;
        }
        let name = names::peer_cycle(&peer.name, &peer.uid, &sender, &cycle.uid);
        // By it the store remembers that it was done, should the object be made once more.
        let token = format!("peer:{}", &sha256_hex(format!("{sender}/{}", cycle.uid))[..32]);
        let trigger = CycleTrigger { kind: TriggerKind::Peer, token: Some(token), ..CycleTrigger::default() };
        let spec = AgentCycleSpec {
            agent_ref: AgentRef { name: peer.name.clone() },
            triggers: vec![trigger],
            ..AgentCycleSpec::default()
        };
        step.actions.push(Action::WakePeer {
            peer: peer.name.clone(),
            uid: peer.uid.clone(),
            name,
            spec: Box::new(spec),
        });
    }
}
