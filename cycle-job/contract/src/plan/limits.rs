//! Bounds of a cycle and a day, and what the agent may change about itself.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// Longest time for which an agent can hold its own schedules back: one that forgets about it comes to itself again.
pub const PAUSE_MAX: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Bounds of one cycle and one day. 0 = none, but `timeout` is never 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Seconds from process start to the orderly end; 60 to 86,400.
    pub timeout: u64,
    /// Model calls in a cycle.
    pub max_model_calls: u32,
    /// Tool calls in a cycle.
    pub max_tool_calls: u32,
    /// Tokens in a cycle.
    pub tokens_per_cycle: u64,
    /// Tokens in a day.
    pub tokens_per_day: u64,
    /// Cost in a day, in the currency of `prices`.
    #[serde(default)]
    pub cost_per_day: f64,
    /// Outgoing messages in a cycle.
    pub messages_per_cycle: u32,
    /// Outgoing messages in a day.
    pub messages_per_day: u32,
    /// Seconds for one statement.
    pub sql_timeout: u64,
    /// Zone whose midnight starts a day.
    pub time_zone: String,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: 1800,
            max_model_calls: 50,
            max_tool_calls: 100,
            tokens_per_cycle: 200_000,
            tokens_per_day: 1_000_000,
            cost_per_day: 0.0,
            messages_per_cycle: 20,
            messages_per_day: 100,
            sql_timeout: 30,
            time_zone: "UTC".into(),
        }
    }
}

/// What the agent may change about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SelfManagement {
    /// Its charter.
    pub charter: CharterPolicy,
    /// Schedules of its own.
    pub schedules: bool,
    /// Most active schedules of its own.
    pub max_active_schedules: u32,
    /// Shortest interval of its own schedules, in seconds.
    pub min_interval: u64,
    /// Skills of its own.
    pub skills: bool,
}

impl Default for SelfManagement {
    fn default() -> Self {
        Self {
            charter: CharterPolicy::Propose,
            schedules: true,
            max_active_schedules: 12,
            min_interval: 1800,
            skills: true,
        }
    }
}

/// What happens to an edit of the charter by the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum CharterPolicy {
    /// It becomes a proposal that a person approves.
    #[default]
    Propose,
    /// It is in force from the next cycle.
    Apply,
    /// It is refused.
    Deny,
}
