//! `decide`: from what is observed about one agent to what is done next.
//!
//! One step at a time: a plan either makes objects, or claims the agent for a cycle, or starts that
//! cycle's Job, or takes up its end. `again` says that the next step can follow at once. Each step is safe
//! to repeat: names follow from what they stand for, and the claim is one write with a precondition.

use cicada_contract::plan::{JOINED_MAX, MESSAGES_MAX_BYTES};
use cicada_crds::{
    AgentCycleSpec, AgentCycleStatus, PersistentAgentStatus,
    agent::{HISTORY_LIMIT, Schedule},
    cycle::{AgentRef, CycleRef, CycleRestore, CycleTrigger, Phase, TriggerKind},
    status::{ActiveCycle, State},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    RUN_NOW, active, agent_status, conclude, cycle_status, deletion, due,
    gate::{self, Gate},
    memory_status, names,
    observed::{CycleView, Observed},
    plan,
    result::CycleEnd,
    spec::SpecError,
};

/// Longest token of a request that is kept.
const TOKEN_MAX: usize = 120;
/// Before the key of an agent's own schedule where it stands beside names of the manifest's.
pub const OWN_PREFIX: &str = "agent/";
/// Default of `selfManagement.schedules.minInterval`, in seconds.
const OWN_MIN_INTERVAL: u64 = 1800;
/// Default of `selfManagement.schedules.maxActive`.
const OWN_MAX_ACTIVE: u32 = 12;
/// Time between two looks for a free place.
const CAPACITY_WAIT: SignedDuration = SignedDuration::from_secs(5);
/// The sweep looks at every agent once a minute anyway; a longer wait is cut to this.
const LOOK_AGAIN_MAX: SignedDuration = SignedDuration::from_hours(1);

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Done first, in order.
    pub actions: Vec<Action>,
    /// Then written, if it differs from what is there; with the resourceVersion that was observed.
    pub status: PersistentAgentStatus,
    /// For people, after all of the above worked.
    pub notes: Vec<Note>,
    /// For metrics: the cycle whose end this takes up.
    pub ended: Option<Ended>,
    /// The status may be left to the next step, which says the same and more: saves a write.
    pub defer_status: bool,
    /// Observe and decide again at once.
    pub again: bool,
    /// Else look again then.
    pub look_again: Timestamp,
}

/// One thing to do. All of them can be repeated.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Create an AgentCycle that the agent owns; one of this name that it owns already is as good.
    CreateCycle {
        /// Its name.
        name: String,
        /// Its spec.
        spec: Box<AgentCycleSpec>,
    },
    /// Create the ConfigMap and the Job of the cycle.
    StartJob {
        /// The lead.
        lead: CycleRef,
        /// Those that it takes along.
        joined: Vec<CycleRef>,
    },
    /// Put our finalizer on the agent, or take it off.
    SetFinalizer {
        /// Put it on.
        present: bool,
    },
    /// Create the Job that deletes the agent's memory.
    StartDeleteJob,
    /// Let the agent go without its memory, and tell people.
    Abandon {
        /// Where the memory lies, and how to remove it.
        memory: String,
        /// Why it was not deleted.
        why: String,
    },
    /// Create the Job that reads the store for a cycle whose report was lost.
    StartReportJob {
        /// The cycle.
        cycle: CycleRef,
    },
    /// Create the Job that looks into the store for the agent, without a cycle.
    StartLook,
    /// Write a cycle's status.
    SetCycle {
        /// The cycle.
        cycle: CycleRef,
        /// Its whole status.
        status: Box<AgentCycleStatus>,
    },
    /// Delete a cycle, with the UID as precondition.
    DeleteCycle {
        /// The cycle.
        cycle: CycleRef,
    },
    /// Delete a Job in the background, with the UID as precondition.
    DeleteJob {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
}

/// Something that people should hear of: an event on the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Warning or Normal.
    pub warning: bool,
    /// CamelCase; CronJob's words where they fit.
    pub reason: &'static str,
    /// One line.
    pub text: String,
    /// The cycle that it is about.
    pub cycle: Option<CycleRef>,
    /// How many of what it tells there were, for metrics.
    pub count: u64,
    /// Heading of the runbook that says what to do.
    pub heading: Option<String>,
}

/// A cycle that has ended, in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Reason with which it ended.
    pub result: String,
    /// What the agent said of it: done, nothing_to_do, blocked, unstated; empty where it said nothing.
    pub outcome: String,
    /// From its start to its end.
    pub seconds: u64,
    /// Each phase with its milliseconds.
    pub phases: Vec<(String, u64)>,
}

/// A decision in the making.
pub(crate) struct Step<'a> {
    pub(crate) seen: &'a Observed<'a>,
    pub(crate) now: Timestamp,
    pub(crate) problem: Option<SpecError>,
    pub(crate) status: PersistentAgentStatus,
    pub(crate) actions: Vec<Action>,
    pub(crate) notes: Vec<Note>,
    pub(crate) ended: Option<Ended>,
    pub(crate) again: bool,
    pub(crate) look_again: Timestamp,
    /// Slots that are due, each with its schedule.
    due: Vec<(String, Timestamp)>,
}

/// Decides the next step.
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let mut step = Step::new(seen, now);
    step.take_up_generation();
    step.evaluate_schedules();
    if seen.agent.metadata.deletion_timestamp.is_none() {
        deletion::keep(&mut step);
    }
    let gate = if seen.agent.metadata.deletion_timestamp.is_some() {
        deletion::proceed(&mut step);
        None
    } else if let Some(active) = step.status.active_cycle.clone() {
        active::proceed(&mut step, &active);
        None
    } else {
        step.idle()
    };
    step.prune();
    step.finish(gate.as_ref())
}

/// Ends the cycle that is at work for a reason that the caller saw itself, such as a Job that the API
/// server refuses.
pub fn end_active(seen: &Observed<'_>, end: &CycleEnd, now: Timestamp) -> Plan {
    let mut step = Step::new(seen, now);
    let active = step.status.active_cycle.as_ref().map(|a| a.uid.clone());
    if let Some(cycle) = seen.cycles.iter().find(|c| Some(&c.uid) == active.as_ref()) {
        active::finish(&mut step, cycle, end, None);
    }
    step.finish(None)
}

impl<'a> Step<'a> {
    fn new(seen: &'a Observed<'a>, now: Timestamp) -> Self {
        Self {
            seen,
            now,
            problem: plan::problems(seen.agent, seen.defaults),
            status: seen.agent.status.clone().unwrap_or_default(),
            actions: vec![],
            notes: vec![],
            ended: None,
            again: false,
            look_again: now + LOOK_AGAIN_MAX,
            due: vec![],
        }
    }

    fn finish(mut self, gate: Option<&Gate>) -> Plan {
        conclude::conclude(&mut self, gate);
        Plan {
            defer_status: self.actions.iter().any(|a| matches!(a, Action::CreateCycle { .. })),
            look_again: self.look_again.max(self.now),
            actions: self.actions,
            status: self.status,
            notes: self.notes,
            ended: self.ended,
            again: self.again,
        }
    }

    pub(crate) fn agent_name(&self) -> &str {
        self.seen.agent.metadata.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn agent_uid(&self) -> &str {
        self.seen.agent.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(crate) fn note(
        &mut self,
        warning: bool,
        reason: &'static str,
        text: String,
        cycle: Option<CycleRef>,
    ) {
        let heading = warning.then(|| reason.to_owned());
        self.notes.push(Note { warning, reason, text, cycle, count: 1, heading });
    }

    pub(crate) fn look_again_at(&mut self, t: Timestamp) {
        self.look_again = self.look_again.min(t);
    }

    pub(crate) fn set_cycle(&mut self, cycle: CycleRef, status: AgentCycleStatus) {
        self.actions.push(Action::SetCycle { cycle, status: Box::new(status) });
    }

    /// An edit of the spec is how a person says "try again".
    fn take_up_generation(&mut self) {
        let generation = self.seen.agent.metadata.generation;
        if self.status.observed_generation.is_some_and(|seen| seen >= 0)
            && self.status.observed_generation != generation
        {
            agent_status::forget_failures(&mut self.status);
        }
        self.status.observed_generation = generation;
    }

    fn evaluate_schedules(&mut self) {
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
        self.evaluate_own_schedules(at);
        self.status.last_schedule_time =
            self.status.schedules.iter().filter_map(|s| s.last_slot).max().or(self.status.last_schedule_time);
        self.status.next_schedule_time = self.status.schedules.iter().filter_map(|s| s.next).min();
        self.status.schedule = describe(&self.seen.agent.spec.schedules);
    }

    /// Schedules that the agent made itself, within what its manifest allows.
    fn evaluate_own_schedules(&mut self, at: due::Circumstances) {
        let rules =
            self.seen.agent.spec.self_management.clone().unwrap_or_default().schedules.unwrap_or_default();
        if rules.allow == Some(false) || at.suspended {
            return;
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
        for own in self.status.agent_schedules.clone().into_iter().take(most) {
            let Some((schedule, parsed, before)) = due::own(&own) else { continue };
            let result = due::evaluate(&schedule, &parsed, Some(&before), at, self.now);
            if let Some(next) = result.status.next {
                self.look_again_at(newest.map_or(next, |n| next.max(n + min_interval)));
            }
            let far_enough = |slot: Timestamp| newest.is_none_or(|n| slot >= n + min_interval);
            if let Some(slot) = result.due.filter(|slot| !full && far_enough(*slot)) {
                self.due.push((format!("{OWN_PREFIX}{}", own.key), slot));
            }
        }
    }

    /// No cycle is at work: make the cycles that are asked for, then take one up.
    fn idle(&mut self) -> Option<Gate> {
        let gate = gate::find(self);
        if let Some(until) = gate.as_ref().and_then(|g| g.until) {
            self.look_again_at(until);
        }
        self.create_requests();
        if gate.as_ref().is_none_or(Gate::lets_slots) {
            self.create_slot_cycle();
        }
        if !self.actions.is_empty() {
            self.again = true;
            return gate;
        }
        self.claim(gate.as_ref());
        if self.status.active_cycle.is_none() {
            memory_status::look(self, gate.as_ref());
        }
        gate
    }

    fn create_slot_cycle(&mut self) {
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

    fn create_cycle(&mut self, name: String, triggers: Vec<CycleTrigger>, restore: Option<String>) {
        let spec = AgentCycleSpec {
            agent_ref: AgentRef { name: self.agent_name().to_owned() },
            triggers,
            restore: restore.map(|snapshot| CycleRestore { snapshot }),
            ..AgentCycleSpec::default()
        };
        self.actions.push(Action::CreateCycle { name, spec: Box::new(spec) });
    }

    /// Cycles for spec.runToken, the annotation run-now, memory.restoreFrom and pending deliveries.
    fn create_requests(&mut self) {
        let agent = self.seen.agent;
        let token =
            agent.spec.run_token.clone().filter(|t| self.status.last_handled_run_token.as_ref() != Some(t));
        if let Some(token) = token {
            let before = self.actions.len();
            self.create_request("run-token", &token, TriggerKind::Request, None);
            if self.actions.len() == before {
                self.status.last_handled_run_token = Some(token);
            }
        }
        let annotation = agent.metadata.annotations.as_ref().and_then(|a| a.get(RUN_NOW));
        let wanted = annotation.map(|v| cicada_contract::text::cut(v, TOKEN_MAX)).filter(|v| !v.is_empty());
        if let Some(token) = wanted.filter(|t| self.status.last_handled_run_now.as_ref() != Some(t)) {
            let before = self.actions.len();
            self.create_request("run-now", &token, TriggerKind::Request, None);
            if self.actions.len() == before {
                self.status.last_handled_run_now = Some(token);
            }
        }
        let restore = agent.spec.memory.as_ref().and_then(|m| m.restore_from.clone());
        if let Some(restore) = restore {
            let token = format!("{}/{}", restore.snapshot, restore.token.unwrap_or_default());
            let applied = self.status.memory.as_ref().and_then(|m| m.applied_restore.clone());
            if applied.as_deref() != Some(token.as_str()) {
                self.create_request("restore", &token, TriggerKind::Request, Some(restore.snapshot));
            }
        }
        self.create_delivery();
    }

    fn create_delivery(&mut self) {
        let Some(delivery) = self.status.delivery.clone() else { return };
        let Some(next) = delivery.next else { return };
        if next > self.now {
            self.look_again_at(next);
            return;
        }
        let epoch = self.status.memory.as_ref().and_then(|m| m.epoch).unwrap_or_default();
        let token = format!("{epoch}-{}", delivery.attempts.unwrap_or_default());
        self.create_request("delivery", &token, TriggerKind::Delivery, None);
    }

    /// Creates the cycle of a request unless it is there. One that is there was created by an earlier step.
    fn create_request(&mut self, kind: &str, token: &str, trigger: TriggerKind, restore: Option<String>) {
        let name = names::request_cycle(self.agent_name(), self.agent_uid(), kind, token);
        if self.seen.cycles.iter().any(|c| c.name == name) {
            return;
        }
        // The kind keeps equal tokens of annotation and spec apart in the store's list of handled requests.
        let token = if kind == "run-token" { token.to_owned() } else { format!("{kind}:{token}") };
        let trigger = CycleTrigger { kind: trigger, token: Some(token), ..CycleTrigger::default() };
        self.create_cycle(name, vec![trigger], restore);
    }

    /// Takes up the oldest cycle that may run; the others wait, and say why.
    fn claim(&mut self, gate: Option<&Gate>) {
        let waiting = self.waiting();
        let spent = gate::cycles_per_day_spent(self);
        let rationed = |c: &CycleView| spent && !c.is_request() && gate::counts_towards_cycles_per_day(c);
        let lead = waiting.iter().find(|c| gate.is_none_or(|g| g.lets(c)) && !rationed(c)).copied();
        if let Some(lead) = lead.filter(|_| !self.seen.environment.full) {
            self.status.active_cycle = Some(ActiveCycle {
                name: lead.name.clone(),
                uid: lead.uid.clone(),
                since: Some(self.now),
                store: memory_status::location(self),
            });
            self.again = true;
            return;
        }
        if lead.is_some() {
            // Nobody tells us when another agent's cycle ends.
            self.look_again_at(self.now + CAPACITY_WAIT);
        }
        for cycle in waiting {
            let (reason, message) = match gate {
                Some(gate) if !gate.lets(cycle) => (gate.reason.clone(), gate.message.clone()),
                _ if rationed(cycle) => {
                    ("CyclesPerDay".into(), "limits.cyclesPerDay is reached; it waits for midnight".into())
                }
                _ => ("WaitingForCapacity".into(), "as many cycles run as may run".into()),
            };
            self.keep_waiting(cycle, &reason, &message);
        }
    }

    pub(crate) fn keep_waiting(&mut self, cycle: &CycleView, reason: &str, message: &str) {
        if cycle.phase != Some(Phase::Pending) || cycle.reason.as_deref() != Some(reason) {
            self.set_cycle(cycle.reference(), cycle_status::pending(cycle, reason, message, self.now));
        }
    }

    /// Cycles that have not ended, oldest first; deliveries last, since every other cycle delivers too.
    pub(crate) fn waiting(&self) -> Vec<&'a CycleView> {
        let mut waiting: Vec<_> =
            self.seen.cycles.iter().filter(|c| !c.is_terminal() && !c.deleting).collect();
        waiting.sort_by(|a, b| {
            let key = |c: &CycleView| (c.is_delivery(), c.created);
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        waiting
    }

    /// Those that the lead takes along. One that only delivers answers no request.
    pub(crate) fn joined(&self, lead: &CycleView) -> Vec<CycleRef> {
        if lead.restore.is_some() {
            return vec![];
        }
        let mut bytes = lead.bytes;
        self.waiting()
            .into_iter()
            .filter(|c| c.uid != lead.uid && c.restore.is_none() && (c.is_delivery() || !lead.is_delivery()))
            .take_while(|c| {
                bytes += c.bytes;
                bytes <= MESSAGES_MAX_BYTES
            })
            .take(JOINED_MAX)
            .map(CycleView::reference)
            .collect()
    }

    /// Deletes what the history limits leave over, and people's cycles whose own ttl has passed.
    fn prune(&mut self) {
        let spec = &self.seen.agent.spec;
        let active = self.status.active_cycle.as_ref().map(|a| a.uid.clone());
        let ended = |phase| {
            let mut list: Vec<_> = self
                .seen
                .cycles
                .iter()
                .filter(|c| c.phase == Some(phase) && c.own && !c.deleting && Some(&c.uid) != active.as_ref())
                .collect();
            list.sort_by_key(|c| std::cmp::Reverse((c.finished.unwrap_or(c.created), c.created)));
            list
        };
        let keep = [
            (Phase::Succeeded, spec.successful_cycles_history_limit.unwrap_or(HISTORY_LIMIT)),
            (Phase::Failed, spec.failed_cycles_history_limit.unwrap_or(HISTORY_LIMIT)),
        ];
        let mut doomed: Vec<CycleRef> = vec![];
        for (phase, keep) in keep {
            doomed.extend(ended(phase).into_iter().skip(keep as usize).map(CycleView::reference));
        }
        let mut ends = vec![];
        for cycle in self.seen.cycles.iter().filter(|c| !c.own && c.is_terminal() && !c.deleting) {
            let Some((ttl, finished)) = cycle.ttl.zip(cycle.finished) else { continue };
            let end = finished + SignedDuration::from_secs(i64::try_from(ttl).unwrap_or(i64::MAX / 4));
            if end <= self.now { doomed.push(cycle.reference()) } else { ends.push(end) }
        }
        for end in ends {
            self.look_again_at(end);
        }
        self.actions.extend(doomed.into_iter().map(|cycle| Action::DeleteCycle { cycle }));
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

/// State that goes with no gate and no active cycle.
pub(crate) const RESTING: State = State::Idle;

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
