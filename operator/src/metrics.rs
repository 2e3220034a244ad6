//! Metrics, each beside a word on what it is good for.

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use cicada_operator_core::decide::Ended;

use crate::{index::Key, series::Series};

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

/// All families.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Numbers of each agent.
    pub agents: Series,
    /// Looks at an agent, by how they went.
    pub reconciles: Family<KindLabels, Counter>,
    /// How long a look takes.
    pub reconcile_seconds: Histogram,
    /// Errors, by kind.
    pub errors: Family<KindLabels, Counter>,
    /// Writes to the API server that another writer was faster with. Those to a store end a cycle as fenced, as
    /// superseded or as a conflict, which is its result.
    pub api_conflicts: Counter,
    /// Time between a slot and the creation of its Job.
    pub creation_skew_seconds: Histogram,
    /// How long cycles take, whole and by phase; of all agents together, since a histogram has many series.
    pub cycle_seconds: Family<PhaseLabels, Histogram, fn() -> Histogram>,
    /// Memories that were not deleted with their agents.
    pub left_memories: Counter,
    /// Agents and cycles that are known.
    pub objects: Family<KindLabels, Gauge>,
    /// 1 if this replica holds the Lease.
    pub leader: Gauge,
    /// Looks at agents that another instance works on.
    pub foreign: Family<KindLabels, Counter>,
    /// 1 if the served schema lacks a field that is written.
    pub schema_outdated: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let seconds =
            || Histogram::new([0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0]);
        let mut this = Self {
            registry: Registry::with_prefix("cicada"),
            agents: Series::default(),
            reconciles: Family::default(),
            reconcile_seconds: seconds(),
            errors: Family::default(),
            api_conflicts: Counter::default(),
            creation_skew_seconds: seconds(),
            cycle_seconds: Family::new_with_constructor(cycle_histogram),
            left_memories: Counter::default(),
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
        r.register(
            "api_conflicts",
            "Writes to the API server that another writer was faster with",
            self.api_conflicts.clone(),
        );
        r.register(
            "creation_skew_seconds",
            "Time between a slot and the creation of its Job",
            self.creation_skew_seconds.clone(),
        );
        r.register("cycle_seconds", "How long cycles take, whole and by phase", self.cycle_seconds.clone());
        r.register_collector(Box::new(self.agents.clone()));
        r.register(
            "left_memories",
            "Memories that were not deleted with their agents",
            self.left_memories.clone(),
        );
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

    /// Counts a cycle that ended, and its time.
    #[expect(clippy::cast_precision_loss, reason = "a cycle takes no millions of years")]
    pub fn ended(&self, key: &Key, ended: &Ended) {
        self.agents.change(key, |numbers| {
            *numbers.cycles.entry((ended.result.clone(), ended.outcome.clone())).or_default() += 1;
            numbers.cost += ended.cost;
            numbers.last_cycle = i64::try_from(ended.seconds).ok();
        });
        let observe = |phase: &str, seconds: f64| {
            self.cycle_seconds.get_or_create(&PhaseLabels { phase: phase.to_owned() }).observe(seconds);
        };
        observe("whole", ended.seconds as f64);
        for (phase, ms) in &ended.phases {
            observe(phase, *ms as f64 / 1000.0);
        }
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
            cost: 0.25,
            phases: vec![("persist".into(), 1500), ("execute".into(), 9000)],
        }
    }

    #[test]
    fn a_cycle_is_counted_by_result_and_outcome_and_timed_by_phase() {
        let metrics = Metrics::default();
        let key = Key::new("shop", "price-watch");
        metrics.ended(&key, &ended());
        let text = metrics.render();
        for line in [
            r#"cicada_cycles_total{namespace="shop",agent="price-watch",result="Completed",outcome="done"} 1"#,
            r#"cicada_cost_total{namespace="shop",agent="price-watch"} 0.25"#,
            r#"cicada_missed_slots_total{namespace="shop",agent="price-watch"} 0"#,
            r#"cicada_failed_deliveries_total{namespace="shop",agent="price-watch"} 0"#,
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
            metrics.ended(key, &ended());
            metrics.agents.change(key, |n| {
                (n.last_success, n.expected_interval, n.cost_today) = (Some(1.0), Some(1.0), Some(1.0));
                (n.memory, n.archive, n.tokens, n.pending_deliveries) = (Some(1), Some(1), Some(1), Some(0));
                (n.missed_slots, n.failed_deliveries, n.state) = (1, 1, Some("Idle"));
                n.success_due = Some(1.0);
            });
        }
        metrics.agents.forget(&gone);
        let text = metrics.render();
        assert!(!text.contains("\"gone\""), "{text}");
        assert_eq!(text.lines().filter(|l| l.contains("\"stays\"")).count(), 14, "{text}");
    }

    #[test]
    fn every_metric_stands_in_the_documentation() {
        let text = Metrics::default().render();
        let names = text.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split(' ').next());
        let names: Vec<&str> = names.collect();
        assert!(names.len() >= 20, "{names:?}");
        let documentation = include_str!("../../docs/metrics.md");
        for name in names {
            let known = ["`", "_total`"].iter().any(|end| documentation.contains(&format!("`{name}{end}")));
            assert!(known, "{name}");
        }
    }

    /// A name that nobody exports leaves a panel empty and an alert silent.
    #[test]
    fn dashboard_and_alerts_name_metrics_that_exist() {
        let chart = [
            include_str!("../../charts/cicada/files/dashboard.json"),
            include_str!("../../charts/cicada/templates/prometheusrule.yaml"),
        ];
        let mut names = std::collections::BTreeSet::new();
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
        let exported = [include_str!("metrics.rs"), include_str!("series.rs")].concat();
        for name in names {
            assert!(exported.contains(&format!("\"{name}\",")), "cicada_{name}");
        }
    }
}
