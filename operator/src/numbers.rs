//! From status and notes to metrics.

use cicada_crds::PersistentAgent;
use cicada_operator_core::{
    agent_status::DELIVERY_FAILED,
    decide::{Ended, Note},
    due,
};
use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::{context::Context, index::Key, metrics::AgentLabels};

#[expect(clippy::cast_precision_loss, reason = "seconds since 1970 fit")]
fn seconds(t: Timestamp) -> f64 {
    t.as_millisecond() as f64 / 1000.0
}

/// Gauges of an agent that has settled.
pub fn note(context: &Context, key: &Key, agent: &PersistentAgent) {
    let (metrics, labels) = (&context.metrics, AgentLabels::from(key));
    let status = agent.status.clone().unwrap_or_default();
    if let Some(at) = status.last_successful_time {
        metrics.last_success.get_or_create(&labels).set(seconds(at));
    }
    if let Some(memory) = &status.memory {
        let gauge = |bytes: Option<u64>| i64::try_from(bytes.unwrap_or(0)).unwrap_or(i64::MAX);
        metrics.memory_bytes.get_or_create(&labels).set(gauge(memory.size));
        metrics.archive_bytes.get_or_create(&labels).set(gauge(memory.archive_size));
    }
    if let Some(usage) = &status.usage {
        let tokens = i64::try_from(usage.tokens_total.unwrap_or(0)).unwrap_or(i64::MAX);
        metrics.tokens.get_or_create(&labels).set(tokens);
        metrics.cost_today.get_or_create(&labels).set(usage.cost_today.unwrap_or(0.0));
    }
    let pending = status.delivery.as_ref().and_then(|d| d.outbox).unwrap_or(0);
    if pending > 0 || metrics.pending_deliveries.get(&labels).is_some() {
        metrics.pending_deliveries.get_or_create(&labels).set(pending.into());
    }
    if let Some(interval) = interval(agent) {
        metrics.expected_interval.get_or_create(&labels).set(interval);
    }
    if let Some(state) = status.state {
        metrics.show_state(&labels, state.as_str());
    }
}

/// Shortest interval of the agent's schedules, in seconds.
fn interval(agent: &PersistentAgent) -> Option<f64> {
    let now = Timestamp::now();
    let of = |schedule| match due::parse(schedule) {
        Ok(due::Parsed::Recurring(cron)) => cron
            .next_after(now)
            .zip(cron.previous_at_or_before(now))
            .map(|(n, p)| n.duration_since(p).as_secs_f64()),
        _ => None,
    };
    agent.spec.schedules.iter().filter_map(of).min_by(f64::total_cmp)
}

/// Counts a cycle that ended, and its time.
pub fn ended(context: &Context, agent: &PersistentAgent, ended: &Ended) {
    let labels = AgentLabels { namespace: agent.namespace().unwrap_or_default(), agent: agent.name_any() };
    context.metrics.ended(&labels, ended);
}

/// Counts what is told.
pub fn told(context: &Context, agent: &PersistentAgent, notes: &[Note]) {
    let labels = AgentLabels { namespace: agent.namespace().unwrap_or_default(), agent: agent.name_any() };
    let metrics = &context.metrics;
    for (reason, family) in
        [("MissSchedule", &metrics.missed_slots), (DELIVERY_FAILED, &metrics.failed_deliveries)]
    {
        let count: u64 = notes.iter().filter(|n| n.reason == reason).map(|n| n.count).sum();
        if count > 0 {
            family.get_or_create(&labels).inc_by(count);
        }
    }
}
