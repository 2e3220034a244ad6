//! Cycles that wait: the one that is next, those that it takes along, and why the others wait.

use cicada_contract::plan::{JOINED_MAX, MESSAGES_MAX_BYTES};
use cicada_crds::{
    cycle::{CycleRef, Phase},
    status::ActiveCycle,
};
use jiff::SignedDuration;

use super::Step;
use crate::{
    cycle_status,
    gate::{self, Gate},
    memory_status,
    observed::CycleView,
};

/// Time between two looks for a free place.
const CAPACITY_WAIT: SignedDuration = SignedDuration::from_secs(5);

impl<'a> Step<'a> {
    /// Takes up the oldest cycle that may run; the others wait, and say why.
    pub(super) fn claim(&mut self, gate: Option<&Gate>) {
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
                    self.wait_for_midnight();
                    ("CyclesPerDay".into(), "limits.cyclesPerDay is reached; it waits for midnight".into())
                }
                _ => ("WaitingForCapacity".into(), "as many cycles run as may run".into()),
            };
            self.keep_waiting(cycle, &reason, &message);
        }
    }

    /// What the day's limits hold back goes on then.
    pub(super) fn wait_for_midnight(&mut self) {
        if let Some(midnight) = gate::midnight(&self.seen.agent.spec, self.now) {
            self.look_again_at(midnight);
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
}
