//! From status and notes to metrics.

use cicada_crds::{PersistentAgent, status::State};
use cicada_operator_core::{
    agent_status::DELIVERY_FAILED,
    decide::{MISSED, Note, OCCUPIED},
    due, expected,
};
use jiff::Timestamp;

use crate::{context::Context, index::Key};

#[expect(clippy::cast_precision_loss, reason = "seconds since 1970 fit")]
fn seconds(t: Timestamp) -> f64 {
    t.as_millisecond() as f64 / 1000.0
}

/// Gauges of an agent that has settled.
pub fn note(context: &Context, key: &Key, agent: &PersistentAgent) {
    let status = agent.status.clone().unwrap_or_default();
    let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let (memory, usage) = (status.memory.unwrap_or_default(), status.usage);
    let pending = status.delivery.as_ref().and_then(|d| d.outbox).unwrap_or(0);
    let (now, state) = (Timestamp::now(), status.state.map(State::as_str));
    let interval = interval(agent, now);
    context.metrics.agents.change(key, |numbers| {
        numbers.last_success = status.last_successful_time.map(seconds);
        numbers.memory = memory.size.map(whole);
        numbers.archive = memory.archive_size.map(whole);
        numbers.tokens = usage.as_ref().map(|u| whole(u.tokens_total.unwrap_or(0)));
        numbers.cost_today = usage.as_ref().map(|u| u.cost_today.unwrap_or(0.0));
        let told = pending > 0 || numbers.pending_deliveries.is_some();
        numbers.pending_deliveries = told.then_some(pending.into());
        numbers.expected_interval = interval;
        if numbers.state == Some(State::Held.as_str()) && state != numbers.state {
            numbers.released = Some(now);
        }
        numbers.success_due = expected::success_due(agent, numbers.released).map(seconds);
        numbers.state = state;
    });
}

/// Shortest interval of the agent's schedules, in seconds.
fn interval(agent: &PersistentAgent, now: Timestamp) -> Option<f64> {
    let of = |schedule| match due::parse(schedule) {
        Ok(due::Parsed::Recurring(cron)) => cron
            .next_after(now)
            .zip(cron.previous_at_or_before(now))
            .map(|(n, p)| n.duration_since(p).as_secs_f64()),
        _ => None,
    };
    agent.spec.schedules.iter().filter_map(of).min_by(f64::total_cmp)
}

/// Counts what is told.
pub fn told(context: &Context, key: &Key, notes: &[Note]) {
    let count = |reason: &str| notes.iter().filter(|n| n.reason == reason).map(|n| n.count).sum::<u64>();
    let (missed, failed) = (count(MISSED) + count(OCCUPIED), count(DELIVERY_FAILED));
    if missed + failed > 0 {
        context.metrics.agents.change(key, |numbers| {
            numbers.missed_slots += missed;
            numbers.failed_deliveries += failed;
        });
    }
}
