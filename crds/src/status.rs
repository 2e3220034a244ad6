//! Status of a [`PersistentAgent`](crate::PersistentAgent): what the operator has seen.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::Time;
use crate::cycle::TriggerKind;

/// What the operator has seen of an agent. Printable text only; never a message, an address or a cell.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PersistentAgentStatus {
    /// Generation of the spec that this status is about; -1 before the first look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What the agent is doing, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub state: Option<State>,
    /// The instance of the operator that works on this agent: namespace and name of its Lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub operator: Option<String>,
    /// Its schedules in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 300))]
    pub schedule: Option<String>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// State of each schedule of the manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 40), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub schedules: Vec<ScheduleStatus>,
    /// Schedules of the agent's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 12), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"]))]
    pub agent_schedules: Vec<AgentScheduleStatus>,
    /// Until this time schedules of the agent's own start no cycle: it said so itself. At most 30 days ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub agent_paused_until: Option<Timestamp>,
    /// Newest slot that started a cycle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub last_schedule_time: Option<Timestamp>,
    /// Earliest coming slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub next_schedule_time: Option<Timestamp>,
    /// End of the newest cycle that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub last_successful_time: Option<Timestamp>,
    /// End of the newest cycle that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub last_failure_time: Option<Timestamp>,
    /// Failed cycles since the last success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consecutive_failures: Option<u32>,
    /// Cycles in a row that ended without an outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unstated_in_a_row: Option<u32>,
    /// Value of spec.runToken that was taken up last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub last_handled_run_token: Option<String>,
    /// Value of the annotation cicada.dev/run-now that was taken up last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub last_handled_run_now: Option<String>,
    /// The one cycle that is at work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_cycle: Option<ActiveCycle>,
    /// The newest cycle that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_cycle: Option<LastCycle>,
    /// The memory, as the last report said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStatus>,
    /// The charter in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charter: Option<CharterStatus>,
    /// What waits to be delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryStatus>,
    /// Changes that wait for a person's approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub proposals: Vec<AskStatus>,
    /// Questions that wait for a person's answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub human_requests: Vec<AskStatus>,
    /// Spend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageStatus>,
}

/// What an agent is doing, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum State {
    /// It sleeps.
    Idle,
    /// A cycle waits for a free place.
    Queued,
    /// A cycle is at work.
    Running,
    /// spec.suspend is true.
    Suspended,
    /// The annotation cicada.dev/hold is set on it, its namespace, or the operator holds everything.
    Held,
    /// Its last cycle failed; it waits before the next.
    BackingOff,
    /// Too many cycles failed in a row; an edit of the spec or a request resumes it.
    Paused,
    /// The day's budget is spent; it goes on at midnight of limits.timeZone.
    OverBudget,
    /// A person must act: see the condition Stalled.
    Stalled,
    /// A state of a later release.
    #[schemars(skip)]
    #[serde(other)]
    Unknown,
}

impl State {
    /// As the column shows it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::Queued => "Queued",
            Self::Running => "Running",
            Self::Suspended => "Suspended",
            Self::Held => "Held",
            Self::BackingOff => "BackingOff",
            Self::Paused => "Paused",
            Self::OverBudget => "OverBudget",
            Self::Stalled => "Stalled",
            Self::Unknown => "Unknown",
        }
    }
}

/// State of one schedule of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleStatus {
    /// Its name.
    #[schemars(length(max = 63))]
    pub name: String,
    /// No slot before this time counts: creation, last edit, or the end of a suspension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub since: Option<Timestamp>,
    /// Newest slot that started a cycle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub last_slot: Option<Timestamp>,
    /// Newest slot that was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub last_missed: Option<Timestamp>,
    /// Coming slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub next: Option<Timestamp>,
    /// Expression and zone that the above was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 300))]
    pub observed: Option<String>,
}

/// A schedule of the agent's own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentScheduleStatus {
    /// Its key.
    #[schemars(length(max = 16))]
    pub key: String,
    /// Cron expression or RFC 3339 time.
    #[schemars(length(max = 64))]
    pub schedule: String,
    /// IANA time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub time_zone: Option<String>,
    /// No slot before this time counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub since: Option<Timestamp>,
    /// Newest slot that started a cycle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub last_slot: Option<Timestamp>,
    /// Newest slot that was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub last_missed: Option<Timestamp>,
}

/// The one cycle that is at work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActiveCycle {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its UID.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// When it was taken up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub since: Option<Timestamp>,
    /// Location of the memory that it works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub store: Option<String>,
}

/// The newest cycle that ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastCycle {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Why it ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub triggers: Vec<TriggerKind>,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub started: Option<Timestamp>,
    /// How long it took, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<i64>,
    /// What the agent said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub outcome: Option<String>,
    /// Reason with which it ended, as in its conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub result: Option<String>,
    /// One line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub message: Option<String>,
}

/// The memory, as the last report said. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryStatus {
    /// Resolved location.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub store: Option<String>,
    /// Current snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub snapshot: Option<String>,
    /// Epoch in HEAD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Memory file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Memory archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive_size: Option<u64>,
    /// Durable tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<u32>,
    /// When the snapshot was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub persisted_at: Option<Timestamp>,
    /// When the store was last read for this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub checked_at: Option<Timestamp>,
    /// Location that was looked at in vain after `store` was no longer what the manifest names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub looked: Option<String>,
    /// The restore that was applied last: snapshot and token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 300))]
    pub applied_restore: Option<String>,
    /// Agent and snapshot that the memory was started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub seeded_from: Option<String>,
    /// Size and tables in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub summary: Option<String>,
}

/// The charter in force, as the last report said. Hashes are lower-case hexadecimal SHA-256 of the text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CharterStatus {
    /// Who put it in force.
    #[schemars(length(max = 32))]
    pub source: CharterSource,
    /// Of the text in force.
    #[schemars(length(max = 64))]
    pub hash: String,
    /// Of the manifest's text that it was put over; an edit of that ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub base: Option<String>,
}

/// Who put a charter in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum CharterSource {
    /// It is the manifest's.
    #[default]
    Manifest,
    /// The agent, whose manifest lets it.
    Agent,
    /// A person approved what the agent proposed.
    Person,
    /// One of a later release.
    #[schemars(skip)]
    #[serde(other)]
    Unknown,
}

/// What waits to be delivered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryStatus {
    /// Objects in the inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox: Option<u32>,
    /// Messages in the outbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbox: Option<u32>,
    /// Delivery cycles so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// When something was first left over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub since: Option<Timestamp>,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub next: Option<Timestamp>,
}

/// Something that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AskStatus {
    /// Its id.
    #[schemars(length(max = 64))]
    pub id: String,
    /// Kind.
    #[schemars(length(max = 32))]
    pub kind: String,
    /// Hash of its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub hash: Option<String>,
    /// The beginning of a question; of a proposal its size. At most 80 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 80))]
    pub summary: Option<String>,
}

/// Spend. A day starts at midnight of limits.timeZone.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageStatus {
    /// The day that the numbers below are about, as YYYY-MM-DD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10))]
    pub day: Option<String>,
    /// Tokens in this day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_today: Option<u64>,
    /// Cost in this day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_today: Option<f64>,
    /// Cycles in this day that count towards limits.cyclesPerDay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles_today: Option<u32>,
    /// Tokens since the agent was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_total: Option<u64>,
}
