//! Metrics, each beside a word on what it is good for.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError, atomic::AtomicU64};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::index::Key;

/// Labels of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct AgentLabels {
    /// Namespace.
    pub namespace: String,
    /// Agent.
    pub agent: String,
}

impl AgentLabels {
    fn state(&self, state: &str) -> StateLabels {
        StateLabels { namespace: self.namespace.clone(), agent: self.agent.clone(), state: state.to_owned() }
    }

    fn result(&self, result: &str) -> ResultLabels {
        ResultLabels {
            namespace: self.namespace.clone(),
            agent: self.agent.clone(),
            result: result.to_owned(),
        }
    }
}

impl From<&Key> for AgentLabels {
    fn from(key: &Key) -> Self {
        Self { namespace: key.namespace.to_string(), agent: key.name.to_string() }
    }
}

/// Labels of a cycle's end.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ResultLabels {
    /// Namespace.
    pub namespace: String,
    /// Agent.
    pub agent: String,
    /// Reason of the cycle's end.
    pub result: String,
}

/// Labels of an outcome of ours.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabels {
    /// What it was.
    pub kind: String,
}

#[derive(Debug, Default)]
struct Series {
    state: Option<&'static str>,
    results: BTreeSet<String>,
}

type FloatGauge = Gauge<f64, AtomicU64>;

/// All families.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Which series with a further label each agent has, so that they can go with it.
    series: Mutex<HashMap<AgentLabels, Series>>,
    /// Looks at an agent, by how they went.
    pub reconciles: Family<KindLabels, Counter>,
    /// How long a look takes.
    pub reconcile_seconds: Histogram,
    /// Errors, by kind.
    pub errors: Family<KindLabels, Counter>,
    /// Writes that another writer was faster with.
    pub conflicts: Counter,
    /// Time between a slot and the creation of its Job.
    pub creation_skew_seconds: Histogram,
    /// Slots that were skipped.
    pub missed_slots: Family<AgentLabels, Counter>,
    /// Cycles that ended.
    pub cycles: Family<ResultLabels, Counter>,
    /// Time of the last success, in seconds since the Unix epoch.
    pub last_success: Family<AgentLabels, FloatGauge>,
    /// Time between two slots, for "no success in two intervals".
    pub expected_interval: Family<AgentLabels, FloatGauge>,
    /// Bytes of the memory.
    pub memory_bytes: Family<AgentLabels, Gauge>,
    /// Bytes of its archive.
    pub archive_bytes: Family<AgentLabels, Gauge>,
    /// Tokens of all cycles so far.
    pub tokens: Family<AgentLabels, Gauge>,
    /// Cost of this day.
    pub cost_today: Family<AgentLabels, FloatGauge>,
    /// Messages that wait to leave.
    pub pending_deliveries: Family<AgentLabels, Gauge>,
    /// Messages that were given up.
    pub failed_deliveries: Family<AgentLabels, Counter>,
    /// Memories that were not deleted with their agents.
    pub left_memories: Counter,
    /// 1 in the state in which an agent is.
    pub state: Family<StateLabels, Gauge>,
    /// Agents and cycles that are known.
    pub objects: Family<KindLabels, Gauge>,
    /// 1 if this replica holds the Lease.
    pub leader: Gauge,
    /// 1 if the served schema lacks a field that is written.
    pub schema_outdated: Gauge,
}

/// Labels of an agent's state.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StateLabels {
    /// Namespace.
    pub namespace: String,
    /// Agent.
    pub agent: String,
    /// State.
    pub state: String,
}

impl Default for Metrics {
    fn default() -> Self {
        let seconds =
            || Histogram::new([0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0]);
        let mut this = Self {
            registry: Registry::with_prefix("cicada"),
            series: Mutex::default(),
            reconciles: Family::default(),
            reconcile_seconds: seconds(),
            errors: Family::default(),
            conflicts: Counter::default(),
            creation_skew_seconds: seconds(),
            missed_slots: Family::default(),
            cycles: Family::default(),
            last_success: Family::default(),
            expected_interval: Family::default(),
            memory_bytes: Family::default(),
            archive_bytes: Family::default(),
            tokens: Family::default(),
            cost_today: Family::default(),
            pending_deliveries: Family::default(),
            failed_deliveries: Family::default(),
            left_memories: Counter::default(),
            state: Family::default(),
            objects: Family::default(),
            leader: Gauge::default(),
            schema_outdated: Gauge::default(),
        };
        this.register();
        this
    }
}

impl Metrics {
    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("reconciles", "Looks at an agent, by how they went", self.reconciles.clone());
        r.register("reconcile_seconds", "How long a look takes", self.reconcile_seconds.clone());
        r.register("errors", "Errors, by kind", self.errors.clone());
        r.register("conflicts", "Writes that another writer was faster with", self.conflicts.clone());
        r.register(
            "creation_skew_seconds",
            "Time between a slot and the creation of its Job",
            self.creation_skew_seconds.clone(),
        );
        r.register("missed_slots", "Slots that were skipped", self.missed_slots.clone());
        r.register("cycles", "Cycles that ended, by result", self.cycles.clone());
        r.register("last_success_timestamp_seconds", "Time of the last success", self.last_success.clone());
        r.register("expected_interval_seconds", "Time between two slots", self.expected_interval.clone());
        r.register("memory_bytes", "Bytes of the memory", self.memory_bytes.clone());
        r.register("archive_bytes", "Bytes of the memory's archive", self.archive_bytes.clone());
        r.register("tokens", "Tokens of all cycles so far", self.tokens.clone());
        r.register("cost_today", "Cost of this day, in the currency of the prices", self.cost_today.clone());
        r.register("pending_deliveries", "Messages that wait to leave", self.pending_deliveries.clone());
        r.register("failed_deliveries", "Messages that were given up", self.failed_deliveries.clone());
        r.register(
            "left_memories",
            "Memories that were not deleted with their agents",
            self.left_memories.clone(),
        );
        r.register("agent_state", "1 in the state in which an agent is", self.state.clone());
        r.register("objects", "Agents and cycles that are known", self.objects.clone());
        r.register("leader", "1 if this replica holds the Lease", self.leader.clone());
        r.register(
            "schema_outdated",
            "1 if the served schema lacks a field that is written",
            self.schema_outdated.clone(),
        );
    }

    /// All families as text.
    pub fn render(&self) -> String {
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            text.clear();
        }
        text
    }

    /// Counts an error.
    pub fn error(&self, kind: &str) {
        self.errors.get_or_create(&KindLabels { kind: kind.to_owned() }).inc();
    }

    /// The series of an agent go with it.
    pub fn forget(&self, key: &Key) {
        let labels = AgentLabels::from(key);
        self.missed_slots.remove(&labels);
        self.last_success.remove(&labels);
        self.expected_interval.remove(&labels);
        self.memory_bytes.remove(&labels);
        self.archive_bytes.remove(&labels);
        self.tokens.remove(&labels);
        self.cost_today.remove(&labels);
        self.pending_deliveries.remove(&labels);
        self.failed_deliveries.remove(&labels);
        let series =
            self.series.lock().unwrap_or_else(PoisonError::into_inner).remove(&labels).unwrap_or_default();
        if let Some(state) = series.state {
            self.state.remove(&labels.state(state));
        }
        for result in &series.results {
            self.cycles.remove(&labels.result(result));
        }
    }

    /// Counts a cycle that ended.
    pub fn ended(&self, labels: &AgentLabels, result: &str) {
        self.cycles.get_or_create(&labels.result(result)).inc();
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.entry(labels.clone()).or_default().results.insert(result.to_owned());
    }

    /// Shows the state of an agent, and no other.
    pub fn show_state(&self, labels: &AgentLabels, state: &'static str) {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let before = series.entry(labels.clone()).or_default().state.replace(state);
        if before == Some(state) {
            return;
        }
        if let Some(before) = before {
            self.state.remove(&labels.state(before));
        }
        self.state.get_or_create(&labels.state(state)).set(1);
    }
}
