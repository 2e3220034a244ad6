//! Numbers of each agent. Kept in one small form and turned into series when they are asked for: a family of
//! metrics keeps each agent's labels again, which for ten thousand agents is more than all the agents.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};

use crate::index::Key;

/// What is told of one agent; None or empty where there is nothing to tell.
#[derive(Debug, Clone, Default)]
pub struct Numbers {
    /// Time of the last success, in seconds since the Unix epoch.
    pub last_success: Option<f64>,
    /// Seconds between the slots around the last look.
    pub expected_interval: Option<f64>,
    /// When a success should be there, in seconds since the Unix epoch; None while none is expected.
    pub success_due: Option<f64>,
    /// When a hold ended, as far as this process has seen it.
    pub released: Option<Timestamp>,
    /// How many seconds the newest cycle took.
    pub last_cycle: Option<i64>,
    /// Bytes of the memory.
    pub memory: Option<i64>,
    /// Bytes of its archive.
    pub archive: Option<i64>,
    /// Tokens of all cycles so far.
    pub tokens: Option<i64>,
    /// Cost of this day, in the currency of the prices.
    pub cost_today: Option<f64>,
    /// Messages in the outbox that wait to leave.
    pub pending_deliveries: Option<i64>,
    /// The state in which it is.
    pub state: Option<&'static str>,
    /// What the cycles that this process saw end have cost, in the currency of the prices.
    pub cost: f64,
    /// Slots that were skipped.
    pub missed_slots: u64,
    /// Messages that were given up.
    pub failed_deliveries: u64,
    /// Cycles that ended, by result and outcome.
    pub cycles: BTreeMap<(String, String), u64>,
}

/// Numbers of all agents.
#[derive(Debug, Clone, Default)]
pub struct Series(Arc<Mutex<HashMap<Key, Box<Numbers>>>>);

impl Series {
    fn all(&self) -> MutexGuard<'_, HashMap<Key, Box<Numbers>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes those of an agent.
    pub fn change(&self, key: &Key, change: impl FnOnce(&mut Numbers)) {
        change(self.all().entry(key.clone()).or_default());
    }

    /// The series of an agent go with it.
    pub fn forget(&self, key: &Key) {
        self.all().remove(key);
    }
}

fn labels(key: &Key) -> [(&'static str, &str); 2] {
    [("namespace", &key.namespace), ("agent", &key.name)]
}

type Told = fn(&Numbers, &mut MetricEncoder<'_>) -> fmt::Result;

/// Each with whether there is something to tell, and how.
const GAUGES: [(&str, &str, fn(&Numbers) -> bool, Told); 9] = [
    (
        "last_success_timestamp_seconds",
        "Time of the last success",
        |n| n.last_success.is_some(),
        |n, e| e.encode_gauge(&n.last_success.unwrap_or_default()),
    ),
    (
        "expected_interval_seconds",
        "Time between two slots of the most frequent schedule",
        |n| n.expected_interval.is_some(),
        |n, e| e.encode_gauge(&n.expected_interval.unwrap_or_default()),
    ),
    (
        "success_due_timestamp_seconds",
        "Two intervals after the last success; none while suspended or on hold",
        |n| n.success_due.is_some(),
        |n, e| e.encode_gauge(&n.success_due.unwrap_or_default()),
    ),
    (
        "last_cycle_seconds",
        "How long the newest cycle took",
        |n| n.last_cycle.is_some(),
        |n, e| e.encode_gauge(&n.last_cycle.unwrap_or_default()),
    ),
    (
        "memory_bytes",
        "Bytes of the memory",
        |n| n.memory.is_some(),
        |n, e| e.encode_gauge(&n.memory.unwrap_or_default()),
    ),
    (
        "archive_bytes",
        "Bytes of the memory's archive",
        |n| n.archive.is_some(),
        |n, e| e.encode_gauge(&n.archive.unwrap_or_default()),
    ),
    (
        "tokens",
        "Tokens of all cycles so far",
        |n| n.tokens.is_some(),
        |n, e| e.encode_gauge(&n.tokens.unwrap_or_default()),
    ),
    (
        "cost_today",
        "Cost of this day, in the currency of the prices",
        |n| n.cost_today.is_some(),
        |n, e| e.encode_gauge(&n.cost_today.unwrap_or_default()),
    ),
    (
        "pending_deliveries",
        "Messages in the outbox that wait to leave",
        |n| n.pending_deliveries.is_some(),
        |n, e| e.encode_gauge(&n.pending_deliveries.unwrap_or_default()),
    ),
];

/// Told from 0 on: a rise from nothing to 1 is none for `increase`.
const COUNTERS: [(&str, &str, Told); 3] = [
    ("missed_slots", "Slots that were skipped, of one gap 100 at most", |n, e| count(e, n.missed_slots)),
    ("failed_deliveries", "Messages that were given up", |n, e| count(e, n.failed_deliveries)),
    ("cost", "Cost of the cycles that ended, in the currency of the prices", |n, e| {
        e.encode_counter::<NoLabelSet, _, u64>(&n.cost, None)
    }),
];

fn count(encoder: &mut MetricEncoder<'_>, count: u64) -> fmt::Result {
    encoder.encode_counter::<NoLabelSet, _, u64>(&count, None)
}

impl Collector for Series {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.all();
        for (name, help, is_told, told) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (key, numbers) in all.iter().filter(|(_, n)| is_told(n)) {
                told(numbers, &mut family.encode_family(&labels(key))?)?;
            }
        }
        for (name, help, told) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (key, numbers) in all.iter() {
                told(numbers, &mut family.encode_family(&labels(key))?)?;
            }
        }
        let help = "Cycles that ended, by result";
        let mut family = encoder.encode_descriptor("cycles", help, None, MetricType::Counter)?;
        for (key, numbers) in all.iter() {
            for ((result, outcome), n) in &numbers.cycles {
                let [namespace, agent] = labels(key);
                let labels = [namespace, agent, ("result", result.as_str()), ("outcome", outcome.as_str())];
                count(&mut family.encode_family(&labels)?, *n)?;
            }
        }
        let help = "1 in the state in which an agent is";
        let mut family = encoder.encode_descriptor("agent_state", help, None, MetricType::Gauge)?;
        for (key, state) in all.iter().filter_map(|(key, n)| Some((key, n.state?))) {
            let [namespace, agent] = labels(key);
            family.encode_family(&[namespace, agent, ("state", state)])?.encode_gauge(&1i64)?;
        }
        Ok(())
    }
}
