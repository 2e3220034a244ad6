//! write back: the agent's edits of mounts become rows of the ledger; what a person changed meanwhile wins.

use cicada_contract::CycleReport;
use cicada_contract::FailureClass;
use cicada_contract::report::{AgentSchedule, Ask, CharterReport};
use cicada_memory::{LedgerWorker, MemoryWorker, MountEdit, WorkerError};
use jiff::Timestamp;
use tokio::task::block_in_place;

use crate::context::Context;
use crate::executor::Work;
use crate::failure::{Classified, Failure, worker_class};
use crate::phase::execute::Executed;

/// The mounts have nothing more to say.
pub struct WrittenBack {
    pub(crate) memory: MemoryWorker,
    pub(crate) ledger: LedgerWorker,
    pub(crate) work: Work,
    pub(crate) notes: Notes,
}

/// What the report tells beside the work itself.
#[derive(Debug, Clone, Default)]
pub struct Notes {
    /// Short lines.
    pub(crate) warnings: Vec<String>,
    /// Schedules of the agent's own.
    pub(crate) agent_schedules: Vec<AgentSchedule>,
    /// The agent holds them back until then.
    pub(crate) paused_until: Option<Timestamp>,
    /// What waits for a person.
    pub(crate) asks: Vec<Ask>,
    /// The charter in force.
    pub(crate) charter: Option<CharterReport>,
}

impl Notes {
    /// Puts what the ledger says into a report; warnings of the work itself stay.
    pub(crate) fn put_into(self, report: &mut CycleReport) {
        report.agent_schedules = self.agent_schedules;
        report.agent_paused_until = self.paused_until.map(Timestamp::as_second);
        report.asks = self.asks;
        report.charter = self.charter;
        report.warnings.extend(self.warnings);
    }
}

/// The ledger could not take the edits.
#[derive(Debug, thiserror::Error)]
#[error("could not write the edits of mounted tables back")]
pub struct WriteBackError(#[from] WorkerError);

impl Classified for WriteBackError {
    fn class(&self) -> FailureClass {
        worker_class(&self.0, FailureClass::SqlitePersistenceFailed)
    }
}

/// Applies the edits.
pub async fn write_back(cx: &Context, executed: Executed) -> Result<WrittenBack, Failure> {
    let Executed { memory, mut ledger, work, warnings } = executed;
    let mut notes = apply(cx, &mut ledger, &memory.edits()).map_err(WriteBackError)?;
    notes.warnings.splice(0..0, warnings);
    Ok(WrittenBack { memory, ledger, work, notes })
}

/// What a ledger says that no executor works on: nothing that the operator knows of the agent may get lost by a
/// cycle that only delivers or restores.
pub(crate) fn standing(cx: &Context, ledger: &mut LedgerWorker) -> Result<Notes, WorkerError> {
    apply(cx, ledger, &[])
}

fn apply(cx: &Context, ledger: &mut LedgerWorker, edits: &[MountEdit]) -> Result<Notes, WorkerError> {
    let cycle = &cx.plan.run.cycle.name;
    let done = block_in_place(|| ledger.apply_edits(edits, &cx.plan.config, cycle, cx.now()))?;
    Ok(Notes {
        warnings: [done.conflicts, done.refused].concat(),
        agent_schedules: done.schedules,
        paused_until: done.paused_until,
        asks: done.asks,
        charter: done.charter,
    })
}
