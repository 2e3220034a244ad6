//! What keeps an agent from starting a cycle, and which cycles it lets through all the same.

use cicada_contract::{Ending, FailureClass};
use cicada_crds::{
    PersistentAgentSpec, PersistentAgentStatus, agent::PAUSE_AFTER_FAILURES, cycle::TriggerKind,
    status::State,
};
use jiff::{SignedDuration, Timestamp, ToSpan as _};

use crate::{
    HOLD, conditions,
    decide::{OWN_PREFIX, Step},
    memory_status,
    observed::CycleView,
    spec::day_zone,
};

/// Result of a cycle whose pod never started: it never counts, and is tried again after a while.
pub const NOT_STARTED: &str = "NotStarted";
/// Reason of an agent whose memory lies elsewhere than its manifest says.
pub(crate) const STORE_MOVED: &str = "StoreMoved";
const PAUSED: &str = "Paused";
const OVER_BUDGET: &str = "OverBudget";
/// Wait after a cycle that did not start: quota and images rarely come back sooner.
const NOT_STARTED_WAIT: SignedDuration = SignedDuration::from_mins(5);
/// Default of `limits.cyclesPerDay`.
const CYCLES_PER_DAY: u32 = 96;
/// Wait after the first failure in a row; doubles with each.
const BACKOFF_FIRST: SignedDuration = SignedDuration::from_mins(1);
/// Longest wait between failed cycles.
const BACKOFF_MAX: SignedDuration = SignedDuration::from_hours(1);

/// Why no cycle starts by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// What the agent shows.
    pub state: State,
    /// CamelCase, also the reason of the cycles that wait.
    pub reason: String,
    /// One line.
    pub message: String,
    /// When it opens by itself.
    pub until: Option<Timestamp>,
    passes: Passes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passes {
    Nothing,
    Requests,
    Deliveries,
    /// Slots too: only the state is shown.
    Everything,
}

impl Gate {
    /// This cycle may start although the gate stands.
    pub fn lets(&self, cycle: &CycleView) -> bool {
        match self.passes {
            Passes::Nothing => false,
            Passes::Requests => cycle.is_request(),
            Passes::Deliveries => cycle.is_delivery() || cycle.restore.is_some(),
            Passes::Everything => true,
        }
    }

    /// Slots may start although the gate stands.
    pub fn lets_slots(&self) -> bool {
        self.passes == Passes::Everything
    }
}

fn gate(state: State, reason: impl Into<String>, message: impl Into<String>, passes: Passes) -> Gate {
    Gate { state, reason: reason.into(), message: message.into(), until: None, passes }
}

/// The first gate that stands, in the order in which a person would want to know.
pub(crate) fn find(step: &Step<'_>) -> Option<Gate> {
    if let Some(problem) = &step.problem {
        return Some(gate(State::Stalled, problem.reason(), problem.to_string(), Passes::Nothing));
    }
    if step.seen.agent.spec.suspend == Some(true) {
        return Some(gate(State::Suspended, "Suspended", "spec.suspend is true", Passes::Nothing));
    }
    if let Some(why) = held(step) {
        return Some(gate(State::Held, "Held", why, Passes::Nothing));
    }
    let (spec, status) = (&step.seen.agent.spec, &step.status);
    store_moved(step)
        .or_else(|| stalled(step))
        .or_else(|| paused(spec, status))
        .or_else(|| over_budget(spec, status, step.now))
        .or_else(|| backing_off(step))
}

fn held(step: &Step<'_>) -> Option<String> {
    let annotation = step.seen.agent.metadata.annotations.as_ref().and_then(|a| a.get(HOLD));
    annotation.cloned().or_else(|| step.seen.environment.hold.clone())
}

/// Why a person must act, if one must: reason and message.
pub(crate) fn stall(step: &Step<'_>) -> Option<(&'static str, String)> {
    if let Some(problem) = &step.problem {
        return Some((problem.reason(), problem.to_string()));
    }
    let moved = store_moved(step).map(|gate| (STORE_MOVED, gate.message));
    moved.or_else(|| stall_of_cycle(step).map(|(class, message)| (class.reason(), message)))
}

/// What else stops an agent although nobody said so: reason and message.
pub(crate) fn stops(
    spec: &PersistentAgentSpec,
    status: &PersistentAgentStatus,
    now: Timestamp,
) -> Vec<(&'static str, String)> {
    let paused = paused(spec, status).map(|gate| (PAUSED, gate.message));
    let over_budget = over_budget(spec, status, now).map(|gate| (OVER_BUDGET, gate.message));
    paused.into_iter().chain(over_budget).collect()
}

/// A changed default or manifest must not make an agent start anew somewhere else. A request is let
/// through: it finds the memory in its new place, or fails before it writes anything.
fn store_moved(step: &Step<'_>) -> Option<Gate> {
    let (from, to) = memory_status::moved(step)?;
    let message = format!(
        "the memory is in {from}, but the manifest or the operator now names {to}: copy it with cicadactl copy and ask for a cycle, or set the store back"
    );
    Some(gate(State::Stalled, STORE_MOVED, message, Passes::Requests))
}

/// A stall that a cycle caused stands until a cycle succeeds or the spec is edited.
pub(crate) fn stall_of_cycle(step: &Step<'_>) -> Option<(FailureClass, String)> {
    let stalled = conditions::find(&step.status.conditions, "Stalled").filter(|c| c.status == "True")?;
    let class = FailureClass::all().find(|c| c.ending() == Ending::Stall && c.reason() == stalled.reason)?;
    Some((class, stalled.message.clone()))
}

fn stalled(step: &Step<'_>) -> Option<Gate> {
    let (class, message) = stall_of_cycle(step)?;
    // The operator reads no Secret, so the next slot is how it learns that a missing one was created;
    // such an attempt ends before it costs anything.
    let probes = matches!(
        class,
        FailureClass::SecretMissing
            | FailureClass::ConfigMissing
            | FailureClass::SeedMissing
            | FailureClass::StoreRefused
    );
    let passes = if probes && paused(&step.seen.agent.spec, &step.status).is_none() {
        Passes::Everything
    } else {
        Passes::Requests
    };
    Some(gate(State::Stalled, class.reason(), message, passes))
}

fn paused(spec: &PersistentAgentSpec, status: &PersistentAgentStatus) -> Option<Gate> {
    let limit = spec.pause_after_failures.unwrap_or(PAUSE_AFTER_FAILURES);
    let failures = status.consecutive_failures.unwrap_or(0);
    let message =
        format!("{failures} cycles failed in a row; an edit of the spec or a request resumes the agent");
    (limit > 0 && failures >= limit).then(|| gate(State::Paused, PAUSED, message, Passes::Requests))
}

fn over_budget(spec: &PersistentAgentSpec, status: &PersistentAgentStatus, now: Timestamp) -> Option<Gate> {
    let zone = day_zone(spec).ok()?;
    let today = now.to_zoned(zone);
    let usage = status.usage.as_ref().filter(|u| u.day.as_deref() == Some(&today.date().to_string()))?;
    let limits = spec.limits.clone().unwrap_or_default();
    let tokens = limits.tokens_per_day.unwrap_or(cicada_contract::plan::Limits::default().tokens_per_day);
    let cost = limits.cost_per_day.unwrap_or(0.0);
    let spent = match (usage.tokens_today.unwrap_or(0), usage.cost_today.unwrap_or(0.0)) {
        (t, _) if tokens > 0 && t >= tokens => format!("{t} of {tokens} tokens of this day are spent"),
        (_, c) if cost > 0.0 && c >= cost => format!("{c:.2} of {cost:.2} of this day are spent"),
        _ => return None,
    };
    let mut gate = gate(State::OverBudget, OVER_BUDGET, spent, Passes::Deliveries);
    gate.until = midnight(spec, now);
    Some(gate)
}

/// When the agent's day ends, and with it what the day's limits hold back.
pub(crate) fn midnight(spec: &PersistentAgentSpec, now: Timestamp) -> Option<Timestamp> {
    let today = now.to_zoned(day_zone(spec).ok()?);
    let tomorrow = today.date().checked_add(1.day()).ok()?;
    Some(tomorrow.to_zoned(today.time_zone().clone()).ok()?.timestamp())
}

fn backing_off(step: &Step<'_>) -> Option<Gate> {
    let last = step.status.last_cycle.as_ref()?;
    let failures = step.status.consecutive_failures.unwrap_or(0);
    let not_started = last.result.as_deref() == Some(NOT_STARTED);
    let (since, wait, reason) = if not_started {
        let end = last.started? + SignedDuration::from_secs(last.duration.unwrap_or(0));
        (end, NOT_STARTED_WAIT, NOT_STARTED)
    } else {
        (step.status.last_failure_time.filter(|_| failures > 0)?, backoff(failures), "BackingOff")
    };
    let until = since + wait;
    if until <= step.now {
        return None;
    }
    let mut gate = gate(
        State::BackingOff,
        reason,
        format!("the last cycle failed; the next may start at {until}"),
        Passes::Requests,
    );
    if not_started {
        gate.passes = Passes::Nothing;
    }
    gate.until = Some(until);
    Some(gate)
}

/// Wait after this many failures in a row.
pub fn backoff(failures: u32) -> SignedDuration {
    (BACKOFF_FIRST * 2i32.pow(failures.saturating_sub(1).min(6))).min(BACKOFF_MAX)
}

/// Cycles that a message, a peer, a commitment or a schedule of the agent's own caused count towards
/// cyclesPerDay; what people ask for and the manifest's schedules don't.
pub fn counts_towards_cycles_per_day(cycle: &CycleView) -> bool {
    cycle.triggers.iter().any(|t| match t.kind {
        TriggerKind::Message | TriggerKind::Peer | TriggerKind::Commitment => true,
        TriggerKind::Schedule => t.schedule.as_ref().is_some_and(|s| s.starts_with(OWN_PREFIX)),
        _ => false,
    })
}

/// As many of these ran today as may run.
pub(crate) fn cycles_per_day_spent(step: &Step<'_>) -> bool {
    let limits = step.seen.agent.spec.limits.clone().unwrap_or_default();
    let most = limits.cycles_per_day.unwrap_or(CYCLES_PER_DAY);
    let Ok(zone) = day_zone(&step.seen.agent.spec) else { return false };
    let today = step.now.to_zoned(zone).date().to_string();
    let usage = step.status.usage.as_ref().filter(|u| u.day.as_deref() == Some(today.as_str()));
    most > 0 && usage.and_then(|u| u.cycles_today).unwrap_or(0) >= most
}
