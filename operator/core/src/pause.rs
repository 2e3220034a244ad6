//! Until when an agent holds its own schedules back. It says so itself, and only they rest: schedules of the
//! manifest, requests and messages start cycles all the same.

use cicada_contract::{CycleReport, plan::PAUSE_MAX};
use jiff::{SignedDuration, Timestamp};

use crate::{decide::Step, due::Parsed};

/// No slot before the end of a pause counts, then or later; one at the end itself does.
const BEFORE: SignedDuration = SignedDuration::from_secs(1);

/// Base of a schedule of the agent's own; see [`crate::due`].
pub(crate) fn base(since: Option<Timestamp>, until: Option<Timestamp>) -> Option<Timestamp> {
    since.max(until.map(|end| end - BEFORE))
}

/// Coming slot of a schedule of the agent's own, where `next` is the one without a pause.
pub(crate) fn next(
    parsed: &Parsed,
    next: Option<Timestamp>,
    until: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    match (parsed, until.filter(|end| *end > now)) {
        (Parsed::Recurring(cron), Some(end)) => cron.next_after(end - BEFORE),
        _ => next,
    }
}

/// Takes up what a report says. The time of an earlier pause stays skipped, also where it ends before it would have.
pub(crate) fn take_up(step: &mut Step<'_>, report: &CycleReport, at: Timestamp) {
    let said = report.agent_paused_until.and_then(|second| Timestamp::from_second(second).ok());
    let until = said.filter(|end| *end > at).map(|end| end.min(at + PAUSE_MAX));
    let before = std::mem::replace(&mut step.status.agent_paused_until, until);
    if before != until {
        let ended = before.map(|end| end.min(at));
        step.status.agent_schedules.iter_mut().for_each(|own| own.since = base(own.since, ended));
    }
}
