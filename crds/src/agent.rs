//! `PersistentAgent`: what an agent is.
#![allow(clippy::duplicated_attributes, reason = "each print column names the same parts")]

use jiff::Timestamp;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::executor::Executor;
use crate::people::{
    AgentFile, AgentSecret, Channel, Contact, Http, Inbound, McpServer, PEERS_MAX, Peer, Skill,
};
use crate::pod::Pod;
use crate::status::PersistentAgentStatus;
use crate::store::{Memory, Store};
use crate::units::Span;

/// Default of `successfulCyclesHistoryLimit` and `failedCyclesHistoryLimit`.
pub const HISTORY_LIMIT: u32 = 3;
/// Default of `backoffLimit`.
pub const BACKOFF_LIMIT: u32 = 2;
/// Default of `pauseAfterFailures`.
pub const PAUSE_AFTER_FAILURES: u32 = 5;

/// What an agent is: standing instructions, schedules, an executor, a memory.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cicada.dev",
    version = "v1alpha1",
    kind = "PersistentAgent",
    plural = "persistentagents",
    shortname = "pa",
    category = "cicada",
    namespaced,
    status = "PersistentAgentStatus",
    derive = "PartialEq",
    doc = "An agent that sleeps, wakes on a slot, a message or a request, does one cycle in a Job, and remembers in one SQLite database.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Schedule", type_ = "string", json_path = ".status.schedule"),
    printcolumn(name = "Last success", type_ = "date", json_path = ".status.lastSuccessfulTime"),
    printcolumn(name = "Memory", type_ = "string", json_path = ".status.memory.summary"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PersistentAgentSpec {
    /// Standing instructions, written by people. At most 20,000 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20_000))]
    pub charter: Option<String>,
    /// No new cycle starts by itself; the running one ends as it would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub suspend: Option<bool>,
    /// A new value asks for one cycle now. For Git; by hand the annotation cicada.dev/run-now does the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub run_token: Option<String>,
    /// When the agent wakes by itself. All schedules that are due start one cycle together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 40), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub schedules: Vec<Schedule>,
    /// How a cycle works. Exactly one of model, sql, container.
    pub executor: Executor,
    /// A SELECT that must return a row at the end of a cycle, else its outcome is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 10_000))]
    pub success: Option<String>,
    /// Bounds and retention of the memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Where the memory lives. Default: the operator's store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Store>,
    /// Bounds of one cycle and one day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// What the agent may change about itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_management: Option<SelfManagement>,
    /// Proposals of the agent that a person approves, each `<proposal>-<hash>` as `status.proposals` shows them.
    /// For Git; by hand the annotation cicada.dev/approve does the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 12, max = 160)), extend("x-kubernetes-list-type" = "set"))]
    pub approvals: Vec<String>,
    /// Texts that the agent reads when it needs them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub skills: Vec<Skill>,
    /// Channels for outgoing messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub channels: Vec<Channel>,
    /// People with whom the agent exchanges messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["channel", "address"]))]
    pub contacts: Vec<Contact>,
    /// Who may write to the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "KnownContacts"))]
    pub inbound: Option<Inbound>,
    /// Other agents with which the agent exchanges messages. Each must name the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = PEERS_MAX), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub peers: Vec<Peer>,
    /// MCP servers whose tools the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub mcp_servers: Vec<McpServer>,
    /// Secrets that http_request may send.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub secrets: Vec<AgentSecret>,
    /// Where http_request may go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    /// Files in the agent's working directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["path"]))]
    pub files: Vec<AgentFile>,
    /// Cycles of the operator's own that are kept after success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100), extend("default" = HISTORY_LIMIT))]
    pub successful_cycles_history_limit: Option<u32>,
    /// Cycles of the operator's own that are kept after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100), extend("default" = HISTORY_LIMIT))]
    pub failed_cycles_history_limit: Option<u32>,
    /// Attempts of a cycle after its first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 9), extend("default" = BACKOFF_LIMIT))]
    pub backoff_limit: Option<u32>,
    /// Failed cycles in a row after which the agent is Paused; 0 = never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000), extend("default" = PAUSE_AFTER_FAILURES))]
    pub pause_after_failures: Option<u32>,
    /// The part of the pod that may be shaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Pod>,
}

/// When the agent wakes by itself. Exactly one of cron and at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.cron) != has(self.at)",
    "message": "exactly one of cron and at is needed in a schedule",
}]))]
pub struct Schedule {
    /// Its name.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
    /// Cron expression with 5 fields, or @hourly, @daily, @weekly, @monthly, @yearly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub cron: Option<String>,
    /// One time, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub at: Option<Timestamp>,
    /// IANA time zone of cron. Default UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
    /// What to do at this time: trusted text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8000))]
    pub instruction: Option<String>,
    /// Oldest missed slot that is still caught up, in seconds. Default: one interval, at most a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 31_536_000))]
    pub starting_deadline_seconds: Option<u64>,
}

/// Schema of a point in time.
#[derive(JsonSchema)]
#[schemars(inline, extend("format" = "date-time"))]
#[expect(dead_code, reason = "only its schema is used")]
pub struct Time(String);

/// Bounds of one cycle and one day. 0 = none, but timeout is never 0.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// From the start of a cycle to its orderly end; 1m to 24h. Default 30m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Model calls in a cycle. Default 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100_000))]
    pub max_model_calls: Option<u32>,
    /// Tool calls in a cycle. Default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100_000))]
    pub max_tool_calls: Option<u32>,
    /// Tokens in a cycle. Default 200000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_000_000_000_000u64))]
    pub tokens_per_cycle: Option<u64>,
    /// Tokens in a day. Default 1000000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_000_000_000_000u64))]
    pub tokens_per_day: Option<u64>,
    /// Cost in a day, in the currency of the prices. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0))]
    pub cost_per_day: Option<f64>,
    /// Outgoing messages in a cycle. Default 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100_000))]
    pub messages_per_cycle: Option<u32>,
    /// Outgoing messages in a day. Default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100_000))]
    pub messages_per_day: Option<u32>,
    /// Cycles in a day that the agent causes itself or that messages cause. Default 96.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1440))]
    pub cycles_per_day: Option<u32>,
    /// For one statement. Default 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sql_timeout: Option<Span>,
    /// Time zone whose midnight starts a day. Default UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
}

/// What the agent may change about itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelfManagement {
    /// What happens to its edits of the charter. Default Propose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charter: Option<CharterPolicy>,
    /// Schedules of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedules: Option<OwnSchedules>,
    /// It may write skills. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<bool>,
}

/// What happens to an edit of the charter by the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum CharterPolicy {
    /// It becomes a proposal that a person approves.
    #[default]
    Propose,
    /// It is in force from the next cycle.
    Apply,
    /// It is refused.
    Deny,
}

/// Schedules of the agent's own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnSchedules {
    /// It may have some. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<bool>,
    /// Most active ones. Default 12.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 12))]
    pub max_active: Option<u32>,
    /// Shortest interval. Default 30m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_interval: Option<Span>,
}
