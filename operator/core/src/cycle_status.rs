//! Status of an AgentCycle in each of its phases.

use cicada_contract::{
    report::{REPORT_TABLES, TableChange},
    text::{cut, printable},
};
use cicada_crds::{
    AgentCycleStatus,
    cycle::{CycleRef, CycleUsage, Phase},
};
use jiff::Timestamp;

use crate::{
    conditions::{self, Wanted},
    observed::CycleView,
    result::{CycleEnd, JobEnd},
};

/// The spec of a cycle never changes, so there is one generation.
const GENERATION: i64 = 1;

/// Longest message, in bytes; the definition allows as many characters. A status that the API server refuses is
/// never written, and its cycle stands still.
const MESSAGE_MAX: usize = 512;
/// Longest name of an image.
const IMAGE_MAX: usize = 512;

/// Text of others as one line of a status: what a scheduler, an annotation or a report says has any length.
pub(crate) fn line(text: &str, max: usize) -> String {
    cut(&printable(text), max)
}

fn message(text: &str) -> Option<String> {
    Some(line(text, MESSAGE_MAX)).filter(|m| !m.is_empty())
}

fn base(view: &CycleView, phase: Phase, reason: &str) -> AgentCycleStatus {
    AgentCycleStatus {
        observed_generation: Some(GENERATION),
        phase: Some(phase),
        reason: Some(reason.to_owned()),
        job: view.job.clone(),
        started: view.started,
        joined: view.joined.clone(),
        ..AgentCycleStatus::default()
    }
}

fn condition(
    status: &mut AgentCycleStatus,
    type_: &'static str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    conditions::apply(
        &mut status.conditions,
        Wanted::new(type_, true, reason, message),
        Some(GENERATION),
        now,
    );
}

/// It waits.
pub fn pending(view: &CycleView, reason: &str, message: &str, now: Timestamp) -> AgentCycleStatus {
    let mut status = base(view, Phase::Pending, reason);
    status.message = self::message(message);
    condition(&mut status, "Reconciling", reason, message, now);
    status
}

/// It is at work, with those that it takes along.
pub fn running(view: &CycleView, job: &str, joined: &[CycleRef], now: Timestamp) -> AgentCycleStatus {
    let mut status = base(view, Phase::Running, "Running");
    status.job = Some(job.to_owned());
    status.started = Some(view.started.unwrap_or(now));
    status.joined = joined.to_vec();
    condition(&mut status, "Reconciling", "Running", "", now);
    status
}

/// A number that the API server can hold: its integers have a sign.
pub(crate) fn number(n: u64) -> u64 {
    n.min(i64::MAX.unsigned_abs())
}

/// It ended. `lead` is the cycle that took it along.
pub fn ended(
    view: &CycleView,
    end: &CycleEnd,
    job: Option<&JobEnd>,
    lead: Option<CycleRef>,
    now: Timestamp,
) -> AgentCycleStatus {
    let mut status = base(view, end.phase, &end.reason);
    status.finished = Some(job.and_then(|j| j.at).unwrap_or(now));
    status.message = message(&end.message);
    status.class = end.class.map(|c| c.label().to_owned());
    status.image = job.and_then(|j| j.image.as_deref()).map(|image| line(image, IMAGE_MAX));
    status.attempts = job.map(|j| j.attempts);
    status.lead = lead;
    if let Some(report) = &end.report {
        status.outcome =
            serde_json::to_value(report.outcome).ok().and_then(|v| v.as_str().map(str::to_owned));
        status.recovered = report.recovered.then_some(true);
        status.ended_by = report.ended_by.as_ref().map(|by| line(by, 32));
        let snapshot = |name: &String| line(name, 128);
        status.snapshot_before = report.memory.as_ref().and_then(|m| m.before.as_ref()).map(snapshot);
        // A recovered attempt starts from what an earlier one of this cycle had published.
        let published = report.memory.as_ref().and_then(|m| m.snapshot.as_ref()).map(snapshot);
        status.snapshot_after =
            published.filter(|s| report.recovered || Some(s) != status.snapshot_before.as_ref());
        status.tables = report.tables.iter().take(REPORT_TABLES).map(|t| line(&table(t), 160)).collect();
        status.warnings = report.warnings.iter().take(5).map(|w| line(w, 120)).collect();
        let usage = &report.usage;
        status.usage = Some(CycleUsage {
            model_calls: Some(usage.model_calls),
            tool_calls: Some(usage.tool_calls),
            tokens: Some(number(usage.input_tokens.saturating_add(usage.output_tokens))),
            cost: Some(usage.cost).filter(|c| c.is_finite()),
            messages: Some(usage.messages),
        });
        if report.attempt > 0 {
            status.attempts = Some(report.attempt);
        }
    }
    match end.phase {
        Phase::Failed => {
            condition(&mut status, "Failed", &end.reason, &end.message, now);
            condition(&mut status, "Stalled", &end.reason, &end.message, now);
        }
        _ => condition(&mut status, "Complete", &end.reason, &end.message, now),
    }
    status
}

/// `prices: 560 rows (new)`, `prices: 600 rows (+40 ~3 -1)`, `prices: dropped`.
fn table(change: &TableChange) -> String {
    let Some(rows) = change.rows else { return format!("{}: dropped", change.name) };
    if change.before.is_none() {
        return format!("{}: {rows} rows (new)", change.name);
    }
    format!("{}: {rows} rows (+{} ~{} -{})", change.name, change.inserted, change.updated, change.deleted)
}
