//! Cycles that have ended and are kept for a while.

use cicada_crds::{
    agent::HISTORY_LIMIT,
    cycle::{CycleRef, Phase},
};
use jiff::SignedDuration;

use super::{Action, Step};
use crate::observed::CycleView;

impl Step<'_> {
    /// Deletes what the history limits leave over, and people's cycles whose own ttl has passed.
    pub(super) fn prune(&mut self) {
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
