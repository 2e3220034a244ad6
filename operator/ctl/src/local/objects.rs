//! What an API server would give the objects of a folder: UIDs, owners, and the sight of each other.

use cicada_crds::{AgentCycle, PersistentAgent};
use cicada_operator_core::peers::PeerView;
use cicada_operator_core::spec::OperatorDefaults;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};

use super::DEFAULT_NAMESPACE;

/// Stable, so that a restart is not taken for another agent of the same name.
pub(super) fn uid(namespace: &str, name: &str) -> String {
    let mut uid = cicada_contract::text::sha256_hex(format!("local/{namespace}/{name}"));
    uid.truncate(32);
    uid
}

/// Those agents of the folder that the manifest names as peers.
pub(super) fn peers(
    agent: &PersistentAgent,
    folder: &[PersistentAgent],
    defaults: &OperatorDefaults,
) -> Vec<PeerView> {
    let namespace = agent.metadata.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let known = |peer: &PersistentAgent| {
        let mut peer = peer.clone();
        peer.metadata.uid = Some(uid(namespace, peer.metadata.name.as_deref().unwrap_or_default()));
        PeerView::new(agent, &peer, defaults)
    };
    let is_named = |peer: &&PersistentAgent| {
        agent.spec.peers.iter().any(|named| super::is(peer, namespace, &named.name))
    };
    folder.iter().filter(is_named).map(known).collect()
}

/// A cycle that belongs to an agent.
pub(super) fn owned(agent: &PersistentAgent, name: &str, spec: cicada_crds::AgentCycleSpec) -> AgentCycle {
    let now = Timestamp::now();
    let mut cycle = AgentCycle::new(name, spec);
    cycle.metadata.namespace.clone_from(&agent.metadata.namespace);
    cycle.metadata.uid = Some(format!("{name}-{}", now.as_nanosecond()));
    cycle.metadata.creation_timestamp = Some(Time(now));
    cycle.metadata.owner_references = Some(vec![OwnerReference {
        uid: agent.metadata.uid.clone().unwrap_or_default(),
        name: agent.metadata.name.clone().unwrap_or_default(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
    cycle
}
