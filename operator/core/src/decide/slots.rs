//! Slots of schedules: which are due, and the one cycle for all of them.

use cicada_crds::{
    agent::Schedule,
    cycle::{CycleTrigger, TriggerKind},
    status::State,
};
use jiff::{SignedDuration, Timestamp};

use super::{OWN_PREFIX, Step};
use crate::{due, gate, names, observed::CycleView};

/// Default of `selfManagement.schedules.minInterval`, in seconds.
const OWN_MIN_INTERVAL: u64 = 1800;
/// Default of `selfManagement.schedules.maxActive`.
const OWN_MAX_ACTIVE: u32 = 12;

impl Step<'_> {
    pub(super) fn evaluate_schedules(&mut self) {
        let created = self.seen.agent.metadata.creation_timestamp.as_ref().map_or(self.now, |t| t.0);
        let at = due::Circumstances { created, suspended: self.seen.agent.spec.suspend == Some(true) };
        let before = std::mem::take(&mut self.status.schedules);
        for schedule in &self.seen.agent.spec.schedules {
            let mut known = before.iter().find(|s| s.name == schedule.name).cloned();
            // A cycle that was made before an earlier status write got lost says the same as that write.
            if let (Some(known), Some(slot)) = (known.as_mut(), newest_slot(self.seen.cycles, &schedule.name))
            {
                known.last_slot = known.last_slot.max(Some(slot));
            }
            let Ok(parsed) = due::parse(schedule) else {
                self.status.schedules.extend(known);
                continue;
            };
            let result = due::evaluate(schedule, &parsed, known.as_ref(), at, self.now);
            if let Some(missed) = result.missed {
                let text = format!(
                    "schedule {}: the slot of {missed} was missed and is not caught up",
                    schedule.name
                );
                self.note(true, "MissSchedule", text, None);
            }
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
        let min_interval = rules
            .min_interval
            .as_ref()
            .and_then(cicada_crds::units::Span::seconds)
            .unwrap_or(OWN_MIN_INTERVAL);
        let min_interval = SignedDuration::from_secs(i64::try_from(min_interval).unwrap_or(i64::MAX / 4));
        let most = rules.max_active.unwrap_or(OWN_MAX_ACTIVE) as usize;
        for own in &mut self.status.agent_schedules {
            let slot = newest_slot(self.seen.cycles, &format!("{OWN_PREFIX}{}", own.key));
            own.last_slot = own.last_slot.max(slot);
        }
        let newest = self.status.agent_schedules.iter().filter_map(|s| s.last_slot).max();
        let full = gate::cycles_per_day_spent(self);
        let mut earliest: Option<Timestamp> = None;
        for own in self.status.agent_schedules.clone().into_iter().take(most) {
            let Some((schedule, parsed, before)) = due::own(&own) else { continue };
            let result = due::evaluate(&schedule, &parsed, Some(&before), at, self.now);
            if let Some(next) = result.status.next {
                self.look_again_at(newest.map_or(next, |n| next.max(n + min_interval)));
                earliest = Some(earliest.map_or(next, |e| e.min(next)));
            }
            let far_enough = |slot: Timestamp| newest.is_none_or(|n| slot >= n + min_interval);
            if let Some(slot) = result.due.filter(|slot| !full && far_enough(*slot)) {
                self.due.push((format!("{OWN_PREFIX}{}", own.key), slot));
            }
        }
        earliest
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
                self.note(true, "UnexpectedCycle", text, None);
            }
            // Ours: its triggers were taken up by `evaluate_schedules` unless the schedule is another now.
            let due = std::mem::take(&mut self.due);
            let slot_of =
                |name: &str| due.iter().find(|(schedule, _)| schedule == name).map(|(_, slot)| *slot);
            for status in &mut self.status.schedules {
                status.last_slot = status.last_slot.max(slot_of(&status.name));
            }
            for status in &mut self.status.agent_schedules {
                status.last_slot = status.last_slot.max(slot_of(&format!("{OWN_PREFIX}{}", status.key)));
            }
            return;
        }
        self.create_cycle(name, triggers, None);
    }
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
