//! Metrics, each beside a word on what it is good for.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError, atomic::AtomicU64};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use cicada_operator_core::decide::Ended;

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

    fn result(&self, result: &str, outcome: &str) -> ResultLabels {
        ResultLabels {
            namespace: self.namespace.clone(),
            agent: self.agent.clone(),
            result: result.to_owned(),
            outcome: outcome.to_owned(),
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
    /// What the agent said of it; empty where it said nothing.
    pub outcome: String,
}

/// Label of a part of a cycle.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PhaseLabels {
    /// `whole`, or a phase of the cycle job.
    pub phase: String,
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
    results: BTreeSet<(String, String)>,
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
    /// How long cycles take, whole and by phase; of all agents together, since a histogram has many series.
    pub cycle_seconds: Family<PhaseLabels, Histogram, fn() -> Histogram>,
    /// How long an agent's newest cycle took.
    pub last_cycle_seconds: Family<AgentLabels, Gauge>,
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
    /// Looks at agents that another instance works on.
    pub foreign: Family<KindLabels, Counter>,
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
            cycle_seconds: Family::new_with_constructor(cycle_histogram),
            last_cycle_seconds: Family::default(),
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
            foreign: Family::default(),
            schema_outdated: Gauge::default(),
        };
        this.register();
        this
    }
}

/// From a statement's time to the longest `limits.timeout`.
fn cycle_histogram() -> Histogram {
    Histogram::new([0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0])
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
        r.register("cycle_seconds", "How long cycles take, whole and by phase", self.cycle_seconds.clone());
        r.register("last_cycle_seconds", "How long the newest cycle took", self.last_cycle_seconds.clone());
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
        r.register("foreign", "Looks at agents of another instance", self.foreign.clone());
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
        self.last_cycle_seconds.remove(&labels);
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
        for (result, outcome) in &series.results {
            self.cycles.remove(&labels.result(result, outcome));
        }
    }

    /// Counts a cycle that ended, and its time.
    #[expect(clippy::cast_precision_loss, reason = "a cycle takes no millions of years")]
    pub fn ended(&self, labels: &AgentLabels, ended: &Ended) {
        let (result, outcome) = (ended.result.clone(), ended.outcome.clone());
        self.cycles.get_or_create(&labels.result(&result, &outcome)).inc();
        let seconds = i64::try_from(ended.seconds).unwrap_or(i64::MAX);
        self.last_cycle_seconds.get_or_create(labels).set(seconds);
        let observe = |phase: &str, seconds: f64| {
            self.cycle_seconds.get_or_create(&PhaseLabels { phase: phase.to_owned() }).observe(seconds);
        };
        observe("whole", ended.seconds as f64);
        for (phase, ms) in &ended.phases {
            observe(phase, *ms as f64 / 1000.0);
        }
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.entry(labels.clone()).or_default().results.insert((result, outcome));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ended() -> Ended {
        Ended {
            result: "Completed".into(),
            outcome: "done".into(),
            seconds: 12,
            phases: vec![("persist".into(), 1500), ("execute".into(), 9000)],
        }
    }

    #[test]
    fn a_cycle_is_counted_by_result_and_outcome_and_timed_by_phase() {
        let metrics = Metrics::default();
        let key = Key::new("shop", "price-watch");
        metrics.ended(&AgentLabels::from(&key), &ended());
        let text = metrics.render();
        for line in [
            r#"cicada_cycles_total{namespace="shop",agent="price-watch",result="Completed",outcome="done"} 1"#,
            r#"cicada_last_cycle_seconds{namespace="shop",agent="price-watch"} 12"#,
            r#"cicada_cycle_seconds_sum{phase="whole"} 12.0"#,
            r#"cicada_cycle_seconds_sum{phase="persist"} 1.5"#,
            r#"cicada_cycle_seconds_count{phase="execute"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    /// velero c7c441364: series of what was deleted stayed for ever.
    #[test]
    fn no_series_names_an_agent_that_is_gone() {
        let metrics = Metrics::default();
        let (gone, stays) = (Key::new("n", "gone"), Key::new("n", "stays"));
        for key in [&gone, &stays] {
            let labels = AgentLabels::from(key);
            metrics.ended(&labels, &ended());
            metrics.show_state(&labels, "Idle");
            metrics.missed_slots.get_or_create(&labels).inc();
            for family in [&metrics.last_success, &metrics.expected_interval, &metrics.cost_today] {
                family.get_or_create(&labels).set(1.0);
            }
            for family in
                [&metrics.memory_bytes, &metrics.archive_bytes, &metrics.tokens, &metrics.pending_deliveries]
            {
                family.get_or_create(&labels).set(1);
            }
        }
        metrics.forget(&gone);
        let text = metrics.render();
        assert!(!text.contains("\"gone\""), "{text}");
        assert_eq!(text.lines().filter(|l| l.contains("\"stays\"")).count(), 11, "{text}");
    }

    /// A name that nobody exports leaves a panel empty and an alert silent.
    #[test]
    fn dashboard_and_alerts_name_metrics_that_exist() {
        let chart = [
            include_str!("../../charts/cicada/files/dashboard.json"),
            include_str!("../../charts/cicada/templates/prometheusrule.yaml"),
        ];
        let mut names = BTreeSet::new();
        for text in chart {
            for part in text.split("cicada_").skip(1) {
                let end = part.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(part.len());
                let name = &part[..end];
                names.insert(
                    ["_total", "_bucket", "_count"].iter().find_map(|s| name.strip_suffix(s)).unwrap_or(name),
                );
            }
        }
        assert!(names.len() >= 12, "{names:?}");
        for name in names {
            assert!(include_str!("metrics.rs").contains(&format!("\"{name}\",")), "cicada_{name}");
        }
    }
}
