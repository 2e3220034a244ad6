//! Status of an agent: what a cycle's end changes.

use cicada_contract::{
    CycleReport, FailureClass,
    report::{Ask, CycleResult},
};
use cicada_crds::{
    PersistentAgentStatus,
    cycle::{Phase, TriggerKind},
    status::{AgentScheduleStatus, AskStatus, DeliveryStatus, LastCycle, UsageStatus},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    charter,
    conditions::{self, Wanted},
    cycle_status::{line, number},
    decide::{Ended, Step},
    gate::{self, NOT_STARTED},
    memory_status,
    observed::CycleView,
    pause,
    result::CycleEnd,
    spec::day_zone,
};

/// Waits before the first delivery cycles; after them every two hours.
const DELIVERY_WAITS: [SignedDuration; 3] =
    [SignedDuration::from_mins(1), SignedDuration::from_mins(5), SignedDuration::from_mins(30)];
const DELIVERY_WAIT: SignedDuration = SignedDuration::from_hours(2);
/// Cycles in a row that may end without an outcome.
const UNSTATED_MAX: u32 = 3;
/// After this long an undelivered message is given up; the cycle job marks it as failed.
const DELIVERY_GIVE_UP: SignedDuration = SignedDuration::from_hours(24);

/// Reason of the event that tells of messages that were given up.
pub const DELIVERY_FAILED: &str = "DeliveryFailed";

/// An edit of the spec clears what stopped the agent.
pub(crate) fn forget_failures(status: &mut PersistentAgentStatus) {
    status.consecutive_failures = None;
    status.conditions.retain(|c| c.type_ != "Stalled");
    if let Some(last) = status.last_cycle.as_mut().filter(|l| l.result.as_deref() == Some(NOT_STARTED)) {
        last.duration = Some(0);
    }
}

/// Why a cycle ran, each kind once.
pub(crate) fn kinds(cycle: &CycleView) -> Vec<TriggerKind> {
    let mut kinds = vec![];
    for trigger in &cycle.triggers {
        if !kinds.contains(&trigger.kind) {
            kinds.push(trigger.kind);
        }
    }
    kinds
}

/// A model that does not say how it went is asked once in the cycle; the third cycle in a row that ends
/// without an answer is a failure, so that somebody looks.
pub(crate) fn count_unstated(step: &mut Step<'_>, end: &CycleEnd) -> CycleEnd {
    if !end.is_unstated() || step.seen.agent.spec.executor.model.is_none() {
        if end.phase == Phase::Succeeded {
            step.status.unstated_in_a_row = None;
        }
        return end.clone();
    }
    let count = step.status.unstated_in_a_row.unwrap_or(0) + 1;
    step.status.unstated_in_a_row = Some(count);
    if count < UNSTATED_MAX {
        return end.clone();
    }
    CycleEnd {
        report: end.report.clone(),
        ..CycleEnd::failed(
            "Unstated",
            format!("{count} cycles in a row ended without a word on how they went"),
            true,
        )
    }
}

/// Takes a cycle's end into the status of its agent.
pub(crate) fn take_up(step: &mut Step<'_>, cycle: &CycleView, end: &CycleEnd, at: Timestamp) {
    let started = cycle.started.unwrap_or(cycle.created);
    let outcome = end.report.as_ref().and_then(|r| serde_json::to_value(r.outcome).ok());
    let outcome = outcome.and_then(|v| v.as_str().map(str::to_owned));
    let seconds = at.duration_since(started).as_secs().max(0);
    let phases = end.report.iter().flat_map(|r| &r.phases).map(|p| (p.phase.clone(), p.ms));
    step.ended = Some(Ended {
        result: end.reason.clone(),
        outcome: outcome.clone().unwrap_or_default(),
        seconds: seconds.unsigned_abs(),
        cost: end.report.as_ref().map_or(0.0, |r| r.usage.cost),
        phases: phases.collect(),
    });
    step.status.last_cycle = Some(LastCycle {
        name: cycle.name.clone(),
        triggers: kinds(cycle),
        started: Some(started),
        duration: Some(seconds),
        outcome,
        result: Some(end.reason.clone()),
        message: Some(line(&end.message, 256)).filter(|m| !m.is_empty()),
    });
    // Whether messages leave says nothing about how the agent does its work.
    if !cycle.is_delivery() {
        note_result(step, end, at);
    }
    // A person's own restore of a snapshot that is not there is that person's to mend; one of the manifest stays
    // asked for.
    if cycle.own || end.class != Some(FailureClass::SnapshotMissing) {
        note_stall(step, end);
    }
    if end.phase == Phase::Succeeded {
        note_restore(step, cycle);
    }
    if let Some(report) = &end.report {
        take_up_report(step, cycle, report, at);
    }
    // A cycle that failed before it could say what is left was not the last that delivers.
    let told = end.report.as_ref().is_some_and(tells_what_waits);
    let due = |d: &&mut DeliveryStatus| d.next.is_some_and(|next| cycle.is_delivery() || next <= at);
    if let Some(delivery) = step.status.delivery.as_mut().filter(|_| !told).filter(due) {
        let attempts = delivery.attempts.unwrap_or(0) + 1;
        let wait = DELIVERY_WAITS.get(attempts as usize).copied().unwrap_or(DELIVERY_WAIT);
        (delivery.attempts, delivery.next) = (Some(attempts), Some(at + wait));
    }
}

fn note_result(step: &mut Step<'_>, end: &CycleEnd, at: Timestamp) {
    let failed = end.phase != Phase::Succeeded;
    if failed {
        step.status.last_failure_time = Some(at);
        let failures = step.status.consecutive_failures.unwrap_or(0) + u32::from(end.counts);
        step.status.consecutive_failures = Some(failures).filter(|n| *n > 0);
    } else {
        step.status.last_successful_time = Some(at);
        step.status.consecutive_failures = None;
    }
    let message = if failed { end.message.as_str() } else { "" };
    let result = Wanted::new("LastCycleFailed", failed, end.reason.clone(), message);
    let (generation, now) = (step.status.observed_generation, step.now);
    conditions::apply(&mut step.status.conditions, result, generation, now);
}

fn note_stall(step: &mut Step<'_>, end: &CycleEnd) {
    let wanted = match end.phase {
        Phase::Succeeded => Wanted::absent("Stalled"),
        _ if end.stalls => Wanted::new("Stalled", true, end.reason.clone(), &end.message),
        _ => return,
    };
    let (generation, now) = (step.status.observed_generation, step.now);
    conditions::apply(&mut step.status.conditions, wanted, generation, now);
}

/// The restore that the manifest asks for; one of a person's AgentCycle says nothing about it.
fn note_restore(step: &mut Step<'_>, cycle: &CycleView) {
    let wanted = step.seen.agent.spec.memory.as_ref().and_then(|m| m.restore_from.as_ref());
    let Some(wanted) = wanted.filter(|w| cycle.own && cycle.restore.as_ref() == Some(&w.snapshot)) else {
        return;
    };
    let applied = format!("{}/{}", wanted.snapshot, wanted.token.as_deref().unwrap_or_default());
    step.status.memory.get_or_insert_default().applied_restore = Some(applied);
}

/// One that failed counts only if it came as far as to send: it may have been told to stop on the way.
fn tells_what_waits(report: &CycleReport) -> bool {
    report.result != CycleResult::Failed || report.pending.inbox > 0 || report.pending.outbox > 0
}

/// A cycle that found its request handled, or an earlier release's that only delivers or restores, did not look at
/// the agent's own schedules and proposals: they stay as they are.
fn tells_of_the_agent(cycle: &CycleView, report: &CycleReport) -> bool {
    let whole = !cycle.is_delivery() && cycle.restore.is_none();
    report.charter.is_some() || (report.result == CycleResult::Done && whole)
}

fn take_up_report(step: &mut Step<'_>, cycle: &CycleView, report: &CycleReport, at: Timestamp) {
    memory_status::take_up(step, report, at);
    if tells_of_the_agent(cycle, report) {
        step.status.agent_schedules = own_schedules(&step.status.agent_schedules, report, at);
        pause::take_up(step, report, at);
        let (proposals, questions): (Vec<&Ask>, Vec<&Ask>) =
            report.asks.iter().partition(|a| a.kind != "human");
        step.status.proposals = proposals.into_iter().take(10).map(ask).collect();
        step.status.human_requests = questions.into_iter().take(5).map(ask).collect();
    }
    if let Some(charter) = &report.charter {
        charter::take_up(step, charter);
    }
    if tells_what_waits(report) {
        step.status.delivery = delivery(step.status.delivery.as_ref(), report, cycle, at);
    }
    if report.pending.failed > 0 {
        let text = format!("{} messages could not be delivered and are given up", report.pending.failed);
        step.warn(DELIVERY_FAILED, text, Some(cycle.reference()), report.pending.failed.into());
    }
    step.status.usage = usage(step, cycle, report, at);
}

fn ask(from: &Ask) -> AskStatus {
    AskStatus {
        id: line(&from.id, 64),
        kind: line(&from.kind, 32),
        hash: Some(line(&from.hash, 64)).filter(|h| !h.is_empty()),
        summary: Some(line(&from.summary, 80)),
    }
}

fn own_schedules(
    before: &[AgentScheduleStatus],
    report: &CycleReport,
    at: Timestamp,
) -> Vec<AgentScheduleStatus> {
    report
        .agent_schedules
        .iter()
        .take(12)
        .map(|s| {
            let known = before
                .iter()
                .find(|b| b.key == s.key && b.schedule == s.schedule && b.time_zone == s.time_zone);
            known.cloned().unwrap_or_else(|| AgentScheduleStatus {
                key: line(&s.key, 16),
                schedule: line(&s.schedule, 64),
                time_zone: s.time_zone.as_ref().map(|zone| line(zone, 64)),
                since: Some(at),
                last_slot: None,
                last_missed: None,
            })
        })
        .collect()
}

fn delivery(
    before: Option<&DeliveryStatus>,
    report: &CycleReport,
    cycle: &CycleView,
    at: Timestamp,
) -> Option<DeliveryStatus> {
    let pending = &report.pending;
    if pending.inbox == 0 && pending.outbox == 0 {
        return None;
    }
    let attempts = before.and_then(|b| b.attempts).unwrap_or(0) + u32::from(cycle.is_delivery());
    let since = before.and_then(|b| b.since).unwrap_or(at);
    let wait = DELIVERY_WAITS.get(attempts as usize).copied().unwrap_or(DELIVERY_WAIT);
    let told = pending.next_delivery.and_then(|s| Timestamp::from_second(s).ok());
    let next = told.map_or(at + wait, |t| t.max(at + DELIVERY_WAITS[0]));
    Some(DeliveryStatus {
        inbox: Some(pending.inbox),
        outbox: Some(pending.outbox),
        attempts: Some(attempts),
        since: Some(since),
        // One more cycle after that time lets the job mark what it gives up.
        next: (at.duration_since(since) <= DELIVERY_GIVE_UP).then_some(next),
    })
}

fn usage(step: &Step<'_>, cycle: &CycleView, report: &CycleReport, at: Timestamp) -> Option<UsageStatus> {
    let zone = day_zone(&step.seen.agent.spec).ok()?;
    let day = at.to_zoned(zone).date().to_string();
    let before = step.status.usage.clone().unwrap_or_default();
    let today = before.day.as_deref() == Some(day.as_str());
    let tokens = report.usage.input_tokens.saturating_add(report.usage.output_tokens);
    let plus = |before: u64| number(before.saturating_add(tokens));
    let kept = |value: Option<u64>| if today { value.unwrap_or(0) } else { 0 };
    Some(UsageStatus {
        tokens_today: Some(plus(kept(before.tokens_today))),
        cost_today: Some(if today { before.cost_today.unwrap_or(0.0) } else { 0.0 } + report.usage.cost),
        cycles_today: Some(
            if today { before.cycles_today.unwrap_or(0) } else { 0 }
                + u32::from(gate::counts_towards_cycles_per_day(cycle)),
        ),
        tokens_total: Some(plus(before.tokens_total.unwrap_or(0))),
        day: Some(day),
    })
}
