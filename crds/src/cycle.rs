//! `AgentCycle`: one cycle of an agent, and the way to ask for one.
#![allow(clippy::duplicated_attributes, reason = "each print column names the same parts")]

use cicada_contract::attachment::{
    ATTACHMENT_NAME_MAX, ATTACHMENT_SIZE_MAX, ATTACHMENT_TYPE_MAX, ATTACHMENT_URL_MAX, ATTACHMENTS_MAX,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::Time;

/// One cycle. The smallest request is `agentRef: {name: price-watch}`. It never changes after it was made.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cicada.dev",
    version = "v1alpha1",
    kind = "AgentCycle",
    plural = "agentcycles",
    shortname = "pac",
    category = "cicada",
    namespaced,
    status = "AgentCycleStatus",
    derive = "PartialEq",
    doc = "One cycle of a PersistentAgent, and the way to ask for one.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Agent", type_ = "string", json_path = ".spec.agentRef.name"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Outcome", type_ = "string", json_path = ".status.outcome"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self == oldSelf", "message": "the spec of an AgentCycle is immutable: create another one"},
]))]
pub struct AgentCycleSpec {
    /// The agent, in the same namespace.
    pub agent_ref: AgentRef,
    /// Why it runs. Default: one Request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub triggers: Vec<CycleTrigger>,
    /// What to do this time: trusted text of a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20_000))]
    pub instruction: Option<String>,
    /// A message to the agent: untrusted text. It lies in etcd; larger or private ones go through the inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<CycleMessage>,
    /// Makes an older snapshot current; nothing is executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<CycleRestore>,
    /// Seconds after its end when a cycle that somebody else made is deleted. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 31_536_000))]
    pub ttl_seconds_after_finished: Option<u64>,
}

/// The agent of a cycle.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Why a cycle runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CycleTrigger {
    /// Kind of trigger.
    #[serde(rename = "type", default)]
    #[schemars(extend("default" = "Request"))]
    pub kind: TriggerKind,
    /// Name of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub schedule: Option<String>,
    /// The slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub slot: Option<Timestamp>,
    /// Token of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub token: Option<String>,
}

/// Kind of trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum TriggerKind {
    /// A cron slot or a one-off.
    Schedule,
    /// A person or a program asked.
    #[default]
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

/// An untrusted message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CycleMessage {
    /// Channel it came by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub channel: Option<String>,
    /// Sender's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 320))]
    pub from: Option<String>,
    /// Subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 998))]
    pub subject: Option<String>,
    /// Text, at most 32 KiB.
    #[schemars(length(max = 32_768))]
    pub body: String,
    /// Files that came with it, as its sender describes them. The files themselves are not here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = ATTACHMENTS_MAX))]
    pub attachments: Vec<Attachment>,
}

/// A file that came with a message. Nothing of it is checked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// Its name.
    #[schemars(length(min = 1, max = ATTACHMENT_NAME_MAX))]
    pub name: String,
    /// Media type, such as application/pdf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = ATTACHMENT_TYPE_MAX))]
    pub content_type: Option<String>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = ATTACHMENT_SIZE_MAX))]
    pub size: Option<u64>,
    /// Where it lies. The platform never fetches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = ATTACHMENT_URL_MAX))]
    pub url: Option<String>,
}

/// Makes an older snapshot current.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CycleRestore {
    /// Id of the snapshot.
    #[schemars(length(min = 1, max = 128))]
    pub snapshot: String,
}

/// Where a cycle stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// It waits.
    #[default]
    Pending,
    /// It is at work.
    Running,
    /// It ended as it should.
    Succeeded,
    /// It failed.
    Failed,
}

impl Phase {
    /// Succeeded or Failed: it never runs again.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// What the operator has seen of a cycle.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentCycleStatus {
    /// Generation that this status is about; -1 before the first look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Why it waits, or how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,
    /// Conditions: Complete, Failed, Reconciling, Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Its Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub job: Option<String>,
    /// Image that ran, with its digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub image: Option<String>,
    /// Attempts so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// When its Job was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub started: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub finished: Option<Timestamp>,
    /// Snapshot at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub snapshot_before: Option<String>,
    /// Snapshot that it published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub snapshot_after: Option<String>,
    /// What the agent says of it: done, nothing_to_do, blocked, unstated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub outcome: Option<String>,
    /// Failure class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub class: Option<String>,
    /// Nothing was executed again: an earlier attempt had published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered: Option<bool>,
    /// Limit that ended the work before the agent did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub ended_by: Option<String>,
    /// Row changes of the most changed tables, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), inner(length(max = 160)))]
    pub tables: Vec<String>,
    /// Spend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<CycleUsage>,
    /// Warnings, short.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), inner(length(max = 120)))]
    pub warnings: Vec<String>,
    /// One line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub message: Option<String>,
    /// Cycles that this one takes along.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub joined: Vec<CycleRef>,
    /// The cycle that takes this one along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<CycleRef>,
}

/// Another cycle of the same agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CycleRef {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its UID.
    #[schemars(length(max = 64))]
    pub uid: String,
}

/// Spend of a cycle.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CycleUsage {
    /// Model calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<u32>,
    /// Tool calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u32>,
    /// Input and output tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Outgoing messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<u32>,
}
