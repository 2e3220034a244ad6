//! What belongs to one cycle.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Approval;
use crate::attachment::Attachment;

/// What belongs to one cycle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanRun {
    /// [`super::PLAN_VERSION`].
    pub version: u32,
    /// SHA-256 of the config part's bytes.
    pub config_sha256: String,
    /// The cycle.
    pub cycle: CycleIdentity,
    /// Why it runs.
    pub triggers: Vec<Trigger>,
    /// Trusted text of people, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<String>,
    /// Untrusted messages of AgentCycles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<PlanMessage>,
    /// Decisions of people about what the agent proposed: all that the agent's object names now. One that
    /// the ledger knows already changes nothing, so the same may come with each cycle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Approval>,
    /// Peers of the manifest to which nothing can be delivered now, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable_peers: Vec<UnreachablePeer>,
    /// What the operator has seen of the store.
    #[serde(default)]
    pub expect: Expect,
    /// What this Job is for.
    #[serde(default)]
    pub mode: Mode,
}

impl PlanRun {
    /// Keys by which HEAD remembers that requests were handled: a token, a one-off slot, or the content
    /// of a people's AgentCycle. Never a UID, so that a re-applied Git folder starts nothing twice.
    pub fn handled_keys(&self) -> Vec<String> {
        self.triggers.iter().filter_map(|t| t.handled_key.clone()).collect()
    }

    /// Why nothing can be delivered to this peer, if it can't.
    pub fn peer_problem(&self, name: &str) -> Option<PeerProblem> {
        self.unreachable_peers.iter().find(|p| p.name == name).map(|p| p.problem)
    }
}

/// A peer to which nothing can be delivered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnreachablePeer {
    /// Its name.
    pub name: String,
    /// Why.
    pub problem: PeerProblem,
}

/// Why nothing can be delivered to a peer. A person must change a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PeerProblem {
    /// There is no such agent.
    Missing,
    /// Its memory is in another store.
    OtherStore,
    /// Its manifest does not name this agent.
    NotMutual,
}

impl PeerProblem {
    /// What to do, for the agent and for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Missing => "there is no agent of this name in the namespace",
            Self::OtherStore => "that agent keeps its memory in another store",
            Self::NotMutual => "the spec.peers of that agent does not name this one",
        }
    }
}

/// What a Job is for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// A whole cycle.
    #[default]
    Cycle,
    /// Deliver pending messages only.
    Delivery,
    /// Make an older snapshot current.
    Restore {
        /// Its id.
        snapshot: String,
    },
    /// Purge the whole prefix and leave a tombstone.
    Delete,
}

/// One AgentCycle.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CycleIdentity {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// Why a cycle runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    /// Kind of trigger.
    #[serde(rename = "type")]
    pub kind: TriggerKind,
    /// Name of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// The slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Timestamp>,
    /// Token of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// See [`PlanRun::handled_keys`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled_key: Option<String>,
}

/// Before the key of an agent's own schedule where it stands beside names of the manifest's, which have no slash.
pub const OWN_SCHEDULE: &str = "agent/";

impl Trigger {
    /// Key of the agent's own schedule that fired.
    pub fn own_schedule(&self) -> Option<&str> {
        self.schedule.as_deref()?.strip_prefix(OWN_SCHEDULE)
    }
}

/// Kind of trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TriggerKind {
    /// A cron slot or a one-off.
    Schedule,
    /// A person or a program asked.
    Request,
    /// A message arrived.
    Message,
    /// Another agent asked.
    Peer,
    /// A card's trigger fired.
    Commitment,
    /// A person answered.
    HumanReply,
    /// Messages are waiting to leave.
    Delivery,
}

/// An untrusted message inside the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanMessage {
    /// Unique and stable: the cycle's UID.
    pub id: String,
    /// Channel it came by.
    pub channel: String,
    /// Sender's address.
    pub from: String,
    /// Subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Text.
    pub body: String,
    /// Files that came with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// When it was written.
    pub at: Timestamp,
}

/// What the operator has seen of the store. All None before the first cycle.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Expect {
    /// Snapshot that was current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Epoch at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}
