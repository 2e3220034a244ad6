//! Which slots are due, which were missed, and when to look again: per schedule, from its state in status.
//!
//! A slot counts if it is after the schedule's base (creation, last edit, end of a suspension) and after
//! its last slot. Only the newest such slot can start a cycle, so an operator that was down for a week
//! starts one cycle, not thousands, and spends the same time on it. The others are skipped, and told as one.

use cicada_crds::{
    agent::Schedule,
    status::{AgentScheduleStatus, ScheduleStatus},
};
use jiff::{SignedDuration, Timestamp};

use crate::schedule::{Recurring, ScheduleError};

/// Without `startingDeadlineSeconds`, a missed slot is caught up if it is younger than one interval and this.
const CATCH_UP_MAX: SignedDuration = SignedDuration::from_hours(24);
/// Skipped slots of one gap are counted one by one up to this: a schedule of each minute skips half a million in a
/// year, and each costs some microseconds. CronJob's controller stops to count at the same number.
pub const COUNTED_MAX: u32 = 100;

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
        last_missed: from.last_missed,
        // Any time will do: its absence would mean the end of a suspension.
        next: Some(Timestamp::MAX),
        observed: Some(observed(&schedule)),
    };
    Some((schedule, parsed, state))
}

/// Slots of one schedule that are skipped: no cycle was or will be started for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skipped {
    /// The first.
    pub oldest: Timestamp,
    /// The last.
    pub newest: Timestamp,
    /// How many, at most [`COUNTED_MAX`].
    pub count: u32,
    /// They were more than that.
    pub more: bool,
}

impl Skipped {
    /// Those after `floor` up to `newest`, which is one of them.
    fn between(cron: &Recurring, floor: Option<Timestamp>, newest: Timestamp) -> Self {
        let first = floor.and_then(|f| cron.next_after(f)).unwrap_or(newest).min(newest);
        let (mut at, mut count) = (first, 1);
        while at < newest && count < COUNTED_MAX {
            at = cron.next_after(at).unwrap_or(newest);
            count += 1;
        }
        Self { oldest: first, newest, count, more: at < newest }
    }

    /// Those between two slots, neither of which is skipped.
    fn before(cron: &Recurring, floor: Option<Timestamp>, slot: Timestamp) -> Option<Self> {
        let newest = cron.previous_at_or_before(slot - SignedDuration::from_nanos(1))?;
        floor.is_some_and(|f| newest > f).then(|| Self::between(cron, floor, newest))
    }

    /// These, then later ones.
    fn and(self, later: Self) -> Self {
        let count = self.count + later.count;
        Self {
            oldest: self.oldest,
            newest: later.newest,
            count: count.min(COUNTED_MAX),
            more: self.more || later.more || count > COUNTED_MAX,
        }
    }
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { oldest, newest, count, more } = self;
        match (count, more) {
            (1, false) => write!(f, "the slot of {newest}"),
            (_, false) => write!(f, "{count} slots from {oldest} to {newest}"),
            (_, true) => write!(f, "more than {count} slots from {oldest} to {newest}"),
        }
    }
}

/// What is true of one schedule at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluated {
    /// Its state, as status should say.
    pub status: ScheduleStatus,
    /// The slot that should start a cycle now.
    pub due: Option<Timestamp>,
    /// Slots that are skipped and that `before` did not know of.
    pub skipped: Option<Skipped>,
    /// Length of the interval in which `now` lies; for metrics and deadlines.
    pub interval: Option<SignedDuration>,
}

/// Circumstances of the agent that move the base.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances {
    /// Since when a schedule counts of which status knows nothing: the creation of an agent that nobody has looked
    /// at, else now, since the schedule was added.
    pub added: Timestamp,
    /// Nothing may start, and no slot of this time counts later.
    pub suspended: bool,
}

/// Evaluates one schedule. `before` is its state in status, if it has one; `started` the newest slot for which
/// there is a cycle, of which status may not know yet.
pub fn evaluate(
    schedule: &Schedule,
    parsed: &Parsed,
    before: Option<&ScheduleStatus>,
    started: Option<Timestamp>,
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
        status.since = Some(at.added);
    } else if edited || resumed {
        status.since = Some(now);
    }
    if edited {
        (status.last_slot, status.last_missed) = (None, None);
    }
    status.observed = Some(observed);
    // One from before an edit says nothing about what the schedule is now.
    let started = started.filter(|slot| before.is_some() && !edited && Some(*slot) > status.last_slot);
    match parsed {
        Parsed::Recurring(cron) => recurring(schedule, cron, status, started, at.suspended, now),
        Parsed::Once(slot) => {
            status.last_slot = status.last_slot.max(started);
            once(*slot, status, at.suspended, now)
        }
    }
}

fn recurring(
    schedule: &Schedule,
    cron: &Recurring,
    mut status: ScheduleStatus,
    started: Option<Timestamp>,
    suspended: bool,
    now: Timestamp,
) -> Evaluated {
    let next = cron.next_after(now);
    let newest = cron.previous_at_or_before(now);
    let interval = next.zip(newest).map(|(n, p)| n.duration_since(p));
    // All up to here have started, were told as skipped, or don't count.
    let known = status.since.max(status.last_slot).max(status.last_missed);
    status.last_slot = status.last_slot.max(started);
    if suspended {
        status.next = None;
        return Evaluated { status, due: None, skipped: None, interval };
    }
    status.next = next;
    let overtaken = started.and_then(|slot| Skipped::before(cron, known, slot));
    let floor = known.max(started);
    let Some(slot) = newest.filter(|slot| floor.is_none_or(|f| *slot > f)) else {
        status.last_missed = status.last_missed.max(overtaken.map(|s| s.newest));
        return Evaluated { status, due: None, skipped: overtaken, interval };
    };
    let deadline = match schedule.starting_deadline_seconds {
        Some(seconds) => SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX)),
        None => interval.unwrap_or(CATCH_UP_MAX).min(CATCH_UP_MAX),
    };
    let due = Some(slot).filter(|slot| now.duration_since(*slot) <= deadline);
    let later = match due {
        Some(slot) => Skipped::before(cron, floor, slot),
        None => Some(Skipped::between(cron, floor, slot)),
    };
    let skipped = overtaken.into_iter().chain(later).reduce(Skipped::and);
    status.last_missed = status.last_missed.max(skipped.map(|s| s.newest));
    Evaluated { status, due, skipped, interval }
}

/// A one-off runs once, however late, unless it lay in the past when it was written.
fn once(slot: Timestamp, mut status: ScheduleStatus, suspended: bool, now: Timestamp) -> Evaluated {
    let open = status.since.is_none_or(|since| slot >= since) && status.last_slot != Some(slot);
    status.next = (open && slot > now).then_some(slot);
    let due = (open && !suspended && slot <= now).then_some(slot);
    Evaluated { status, due, skipped: None, interval: None }
}

#[cfg(test)]
#[path = "due_tests.rs"]
mod tests;
