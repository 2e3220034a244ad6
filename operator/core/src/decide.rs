//! `decide`: from what is observed about one agent to what is done next.
//!
//! One step at a time: a plan either makes objects, or claims the agent for a cycle, or starts that
//! cycle's Job, or takes up its end. `again` says that the next step can follow at once. Each step is safe
//! to repeat: names follow from what they stand for, and the claim is one write with a precondition.

mod action;
mod history;
mod queue;
mod requests;
mod slots;

use cicada_crds::{AgentCycleStatus, PersistentAgentStatus, cycle::CycleRef, status::State};
use jiff::{SignedDuration, Timestamp};

pub use self::{
    action::{Action, Ended, Note, Plan},
    slots::{MISSED, OCCUPIED},
};
use crate::{
    active, agent_status, conclude, deletion,
    gate::{self, Gate},
    memory_status,
    observed::Observed,
    plan,
    result::CycleEnd,
    spec::SpecError,
};
pub(crate) use cicada_contract::plan::OWN_SCHEDULE as OWN_PREFIX;

/// A longer wait is cut to this.
const LOOK_AGAIN_MAX: SignedDuration = SignedDuration::from_hours(1);

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
    /// None while nothing asked for a look.
    look_again: Option<Timestamp>,
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
            look_again: None,
            due: vec![],
        }
    }

    fn finish(mut self, gate: Option<&Gate>) -> Plan {
        conclude::conclude(&mut self, gate);
        let look_again = self.next_look();
        Plan {
            defer_status: self.actions.iter().any(|a| matches!(a, Action::CreateCycle { .. })),
            look_again,
            actions: self.actions,
            status: self.status,
            notes: self.notes,
            ended: self.ended,
            again: self.again,
        }
    }

    /// When to look again. Never beyond an hour (kube-rs#1779: a wait without bound overflowed the queue), or not at
    /// all: a manifest that only an edit can help, such as a cron expression that never fires, is not worth a look
    /// until somebody edits it, of which the watch tells.
    fn next_look(&self) -> Option<Timestamp> {
        let hopeless = self.problem.as_ref().is_some_and(|problem| !problem.is_retryable());
        let busy =
            self.status.active_cycle.is_some() || self.seen.agent.metadata.deletion_timestamp.is_some();
        let longest = self.now + LOOK_AGAIN_MAX;
        match self.look_again {
            Some(at) => Some(at.clamp(self.now, longest)),
            None => (busy || !hopeless).then_some(longest),
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

    /// A warning about several things of a kind.
    pub(crate) fn warn(&mut self, reason: &'static str, text: String, cycle: Option<CycleRef>, count: u64) {
        let heading = Some(reason.to_owned());
        self.notes.push(Note { warning: true, reason, text, cycle, count, heading });
    }

    pub(crate) fn look_again_at(&mut self, t: Timestamp) {
        self.look_again = Some(self.look_again.map_or(t, |at| at.min(t)));
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
}

/// State that goes with no gate and no active cycle.
pub(crate) const RESTING: State = State::Idle;

#[cfg(test)]
mod tests;
