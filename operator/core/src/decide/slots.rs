//! Slots of schedules: which are due, and the one cycle for all of them.

use cicada_crds::{
    agent::Schedule,
    cycle::{CycleTrigger, TriggerKind},
    status::{AgentScheduleStatus, State},
};
use jiff::{SignedDuration, Timestamp};

use super::{OWN_PREFIX, Step};
use crate::{
    due::{self, Parsed, Skipped},
    gate, names,
    observed::CycleView,
    pause,
};

/// Reason of the event that tells of skipped slots; CronJob's word.
pub const MISSED: &str = "MissSchedule";
/// Reason of the event that tells of a slot whose place somebody else's cycle has.
pub const OCCUPIED: &str = "UnexpectedCycle";

/// Default of `selfManagement.schedules.minInterval`, in seconds.
const OWN_MIN_INTERVAL: u64 = 1800;
/// Default of `selfManagement.schedules.maxActive`.
const OWN_MAX_ACTIVE: u32 = 12;

impl Step<'_> {
    pub(super) fn evaluate_schedules(&mut self) {
        let at = self.circumstances();
        let before = std::mem::take(&mut self.status.schedules);
        for schedule in &self.seen.agent.spec.schedules {
            let known = before.iter().find(|s| s.name == schedule.name);
            let Ok(parsed) = due::parse(schedule) else {
                self.status.schedules.extend(known.cloned());
                continue;
            };
            // A cycle that was made before an earlier status write got lost says the same as that write.
            let started = newest_slot(self.seen.cycles, &schedule.name);
            let result = due::evaluate(schedule, &parsed, known, started, at, self.now);
            self.tell_skipped(&schedule.name, result.skipped);
            if let Some(next) = result.status.next {
                self.look_again_at(next);
            }
            self.due.extend(result.due.map(|slot| (schedule.name.clone(), slot)));
            self.status.schedules.push(result.status);
        }
        let next_own = self.evaluate_own_schedules(at);
        let own = self.status.agent_schedules.iter().filter_map(|s| s.last_slot);
        let last = self.status.schedules.iter().filter_map(|s| s.last_slot).chain(own).max();
        self.status.last_schedule_time = last.or(self.status.last_schedule_time);
        self.status.next_schedule_time =
            self.status.schedules.iter().filter_map(|s| s.next).chain(next_own).min();
        self.status.schedule = describe(&self.seen.agent.spec.schedules);
    }

    fn circumstances(&self) -> due::Circumstances {
        let agent = self.seen.agent;
        let created = agent.metadata.creation_timestamp.as_ref().map_or(self.now, |t| t.0);
        let seen = agent.status.as_ref().and_then(|s| s.observed_generation).is_some_and(|g| g >= 0);
        due::Circumstances {
            added: if seen { self.now } else { created },
            suspended: agent.spec.suspend == Some(true),
        }
    }

    /// One event for all slots of a schedule that this look finds skipped. It goes with the status that says so.
    fn tell_skipped(&mut self, schedule: &str, skipped: Option<Skipped>) {
        let Some(skipped) = skipped else { return };
        self.warn(MISSED, format!("schedule {schedule} skipped {skipped}"), None, skipped.count.into());
    }

    /// Schedules that the agent made itself, within what its manifest allows; gives their earliest coming slot.
    fn evaluate_own_schedules(&mut self, at: due::Circumstances) -> Option<Timestamp> {
        let rules =
            self.seen.agent.spec.self_management.clone().unwrap_or_default().schedules.unwrap_or_default();
        if rules.allow == Some(false) || at.suspended {
            return None;
        }
        if self.status.state == Some(State::Suspended) {
            // No slot of a suspension counts after it.
            self.status.agent_schedules.iter_mut().for_each(|own| own.since = Some(self.now));
        }
        let span = rules.min_interval.as_ref().and_then(cicada_crds::units::Span::seconds);
        let seconds = i64::try_from(span.unwrap_or(OWN_MIN_INTERVAL)).unwrap_or(i64::MAX / 4);
        let most = rules.max_active.unwrap_or(OWN_MAX_ACTIVE) as usize;
        let mut all = std::mem::take(&mut self.status.agent_schedules);
        let started = all.iter().map(|own| newest_slot(self.seen.cycles, &own_name(own))).collect::<Vec<_>>();
        let newest =
            all.iter().filter_map(|own| own.last_slot).chain(started.iter().copied().flatten()).max();
        // Before this time no other slot starts a cycle.
        let open = newest.map(|n| n + SignedDuration::from_secs(seconds));
        let mut earliest: Option<Timestamp> = None;
        for (own, started) in all.iter_mut().zip(started).take(most) {
            let next = self.evaluate_own(own, started, open, at);
            earliest = earliest.into_iter().chain(next).min();
        }
        self.status.agent_schedules = all;
        earliest
    }

    /// Evaluates one of them; gives its coming slot.
    fn evaluate_own(
        &mut self,
        own: &mut AgentScheduleStatus,
        started: Option<Timestamp>,
        open: Option<Timestamp>,
        at: due::Circumstances,
    ) -> Option<Timestamp> {
        let (schedule, parsed, mut before) = due::own(own)?;
        let until = self.status.agent_paused_until;
        before.since = pause::base(before.since, until);
        let result = due::evaluate(&schedule, &parsed, Some(&before), started, at, self.now);
        (own.last_slot, own.last_missed) = (result.status.last_slot, result.status.last_missed);
        self.tell_skipped(&own_name(own), result.skipped);
        let once = matches!(parsed, Parsed::Once(_));
        // One of many slots that comes too early is skipped; a single time waits.
        let now = self.now;
        let early = |slot: Timestamp| open.is_some_and(|open| open > if once { now } else { slot });
        let ready = result.due.filter(|&slot| !early(slot));
        let spent = ready.is_some() && gate::cycles_per_day_spent(self);
        if spent {
            self.wait_for_midnight();
        }
        let starts = ready.filter(|_| !spent);
        let waits = open.filter(|_| once && result.due.is_some_and(early));
        let coming = pause::next(&parsed, result.status.next, until, now);
        let next = coming.map(|next| open.map_or(next, |open| open.max(next)));
        waits.into_iter().chain(next).for_each(|at| self.look_again_at(at));
        self.due.extend(starts.map(|slot| (own_name(own), slot)));
        coming
    }

    pub(super) fn create_slot_cycle(&mut self) {
        // One that waits for its turn stands for all slots until then: there is at most one catch-up.
        let scheduled = |c: &&CycleView| c.own && c.triggers.iter().any(|t| t.kind == TriggerKind::Schedule);
        if self.waiting().iter().any(scheduled) {
            return;
        }
        let Some(newest) = self.due.iter().map(|(_, slot)| *slot).max() else { return };
        let triggers = self.due.iter().map(|(schedule, slot)| CycleTrigger {
            kind: TriggerKind::Schedule,
            schedule: Some(schedule.clone()),
            slot: Some(*slot),
            token: None,
        });
        let triggers = triggers.collect();
        let name = names::slot_cycle(self.agent_name(), newest);
        if let Some(other) = self.seen.cycles.iter().find(|c| c.name == name) {
            if !other.own {
                let text = format!(
                    "slot skipped: an AgentCycle {name} that this agent does not own is in its place"
                );
                self.warn(OCCUPIED, text, None, u64::try_from(self.due.len()).unwrap_or(u64::MAX));
            }
            // Ours: its triggers were taken up by `evaluate_schedules` unless the schedule is another now.
            let due = std::mem::take(&mut self.due);
            let slot_of =
                |name: &str| due.iter().find(|(schedule, _)| schedule == name).map(|(_, slot)| *slot);
            for status in &mut self.status.schedules {
                status.last_slot = status.last_slot.max(slot_of(&status.name));
            }
            for status in &mut self.status.agent_schedules {
                status.last_slot = status.last_slot.max(slot_of(&own_name(status)));
            }
            return;
        }
        self.create_cycle(name, triggers, None);
    }
}

/// Its name in triggers, where the manifest may have one of the same name.
fn own_name(own: &AgentScheduleStatus) -> String {
    format!("{OWN_PREFIX}{}", own.key)
}

fn newest_slot(cycles: &[CycleView], schedule: &str) -> Option<Timestamp> {
    let own = cycles.iter().filter(|c| c.own).flat_map(|c| &c.triggers);
    own.filter(|t| t.kind == TriggerKind::Schedule && t.schedule.as_deref() == Some(schedule))
        .filter_map(|t| t.slot)
        .max()
}

/// All schedules in one line.
fn describe(schedules: &[Schedule]) -> Option<String> {
    let first = schedules.first()?;
    let text = due::observed(first);
    let text = text.strip_suffix(" UTC").unwrap_or(&text);
    Some(match schedules.len() {
        1 => text.to_owned(),
        n => format!("{text} +{}", n - 1),
    })
}
