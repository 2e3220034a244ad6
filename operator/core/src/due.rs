//! Which slots are due, which were missed, and when to look again: per schedule, from its state in status.
//!
//! A slot counts if it is after the schedule's base (creation, last edit, end of a suspension) and after
//! its last slot. Only the newest such slot can start a cycle, so an operator that was down for a week
//! starts one cycle, not thousands, and spends the same time on it.

use cicada_crds::{
    agent::Schedule,
    status::{AgentScheduleStatus, ScheduleStatus},
};
use jiff::{SignedDuration, Timestamp};

use crate::schedule::{Recurring, ScheduleError};

/// Without `startingDeadlineSeconds`, a missed slot is caught up if it is younger than one interval and this.
const CATCH_UP_MAX: SignedDuration = SignedDuration::from_hours(24);

/// A schedule of the manifest, read once.
#[derive(Debug, Clone)]
pub enum Parsed {
    /// A cron expression.
    Recurring(Box<Recurring>),
    /// One time.
    Once(Timestamp),
}

/// Reads a schedule.
pub fn parse(schedule: &Schedule) -> Result<Parsed, ScheduleError> {
    match (&schedule.cron, schedule.at) {
        (Some(cron), _) => {
            Recurring::parse(cron, schedule.time_zone.as_deref()).map(|r| Parsed::Recurring(Box::new(r)))
        }
        (None, Some(at)) => Ok(Parsed::Once(at)),
        (None, None) => Err(ScheduleError::Unparseable {
            cron: String::new(),
            problem: "neither cron nor at is given".into(),
        }),
    }
}

/// Expression and zone in one line: a change of it is an edit.
pub fn observed(schedule: &Schedule) -> String {
    match (&schedule.cron, schedule.at) {
        (Some(cron), _) => format!("{cron} {}", schedule.time_zone.as_deref().unwrap_or("UTC")),
        (None, Some(at)) => at.to_string(),
        (None, None) => String::new(),
    }
}

/// An agent's own schedule in the form of the manifest's: its cron expression or time, and its state.
/// None if the agent wrote something that can't be read; the cycle job refuses that before it gets here.
pub fn own(from: &AgentScheduleStatus) -> Option<(Schedule, Parsed, ScheduleStatus)> {
    let at: Option<Timestamp> = from.schedule.parse().ok();
    let schedule = Schedule {
        name: from.key.clone(),
        cron: at.is_none().then(|| from.schedule.clone()),
        at,
        time_zone: from.time_zone.clone(),
        ..Schedule::default()
    };
    let parsed = parse(&schedule).ok()?;
    let state = ScheduleStatus {
        name: from.key.clone(),
        since: from.since,
        last_slot: from.last_slot,
        last_missed: None,
        // Any time will do: its absence would mean the end of a suspension.
        next: Some(Timestamp::MAX),
        observed: Some(observed(&schedule)),
    };
    Some((schedule, parsed, state))
}

/// What is true of one schedule at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluated {
    /// Its state, as status should say.
    pub status: ScheduleStatus,
    /// The slot that should start a cycle now.
    pub due: Option<Timestamp>,
    /// A slot that was skipped and has not been reported yet.
    pub missed: Option<Timestamp>,
    /// Length of the interval in which `now` lies; for metrics and deadlines.
    pub interval: Option<SignedDuration>,
}

/// Circumstances of the agent that move the base.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances {
    /// When the agent was made.
    pub created: Timestamp,
    /// Nothing may start, and no slot of this time counts later.
    pub suspended: bool,
}

/// Evaluates one schedule. `before` is its state in status, if it has one.
pub fn evaluate(
    schedule: &Schedule,
    parsed: &Parsed,
    before: Option<&ScheduleStatus>,
    at: Circumstances,
    now: Timestamp,
) -> Evaluated {
    let observed = observed(schedule);
    let mut status = before.cloned().unwrap_or_default();
    status.name.clone_from(&schedule.name);
    let edited = before.is_some_and(|b| b.observed.as_deref() != Some(&observed));
    // `next` is absent while an agent is suspended: its return is the end of the suspension.
    let resumed =
        before.is_some_and(|b| b.next.is_none()) && !at.suspended && matches!(parsed, Parsed::Recurring(_));
    if before.is_none() {
        status.since = Some(at.created);
    } else if edited || resumed {
        status.since = Some(now);
    }
    if edited {
        (status.last_slot, status.last_missed) = (None, None);
    }
    status.observed = Some(observed);
    match parsed {
        Parsed::Recurring(cron) => recurring(schedule, cron, status, at.suspended, now),
        Parsed::Once(slot) => once(*slot, status, at.suspended, now),
    }
}

fn recurring(
    schedule: &Schedule,
    cron: &Recurring,
    mut status: ScheduleStatus,
    suspended: bool,
    now: Timestamp,
) -> Evaluated {
    let next = cron.next_after(now);
    let newest = cron.previous_at_or_before(now);
    let interval = next.zip(newest).map(|(n, p)| n.duration_since(p));
    if suspended {
        status.next = None;
        return Evaluated { status, due: None, missed: None, interval };
    }
    status.next = next;
    let base = status.since.max(status.last_slot);
    let candidate =
        newest.filter(|slot| base.is_none_or(|b| *slot > b) && status.last_missed.is_none_or(|m| *slot > m));
    let Some(slot) = candidate else { return Evaluated { status, due: None, missed: None, interval } };
    let deadline = match schedule.starting_deadline_seconds {
        Some(seconds) => SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX)),
        None => interval.unwrap_or(CATCH_UP_MAX).min(CATCH_UP_MAX),
    };
    if now.duration_since(slot) > deadline {
        status.last_missed = Some(slot);
        return Evaluated { status, due: None, missed: Some(slot), interval };
    }
    // Older slots between base and this one are skipped together, and reported once.
    let older = cron.previous_at_or_before(slot - SignedDuration::from_nanos(1));
    let missed = older.filter(|o| base.is_none_or(|b| *o > b) && status.last_missed.is_none_or(|m| *o > m));
    if missed.is_some() {
        status.last_missed = missed;
    }
    Evaluated { status, due: Some(slot), missed, interval }
}

/// A one-off runs once, however late, unless it lay in the past when it was written.
fn once(slot: Timestamp, mut status: ScheduleStatus, suspended: bool, now: Timestamp) -> Evaluated {
    let open = status.since.is_none_or(|since| slot >= since) && status.last_slot != Some(slot);
    status.next = (open && slot > now).then_some(slot);
    let due = (open && !suspended && slot <= now).then_some(slot);
    Evaluated { status, due, missed: None, interval: None }
}

#[cfg(test)]
#[path = "due_tests.rs"]
mod tests;
