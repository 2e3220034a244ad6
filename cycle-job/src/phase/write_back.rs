//! write back: the agent's edits of mounts become rows of the ledger; what a person changed meanwhile wins.

use cicada_contract::FailureClass;
use cicada_contract::report::{AgentSchedule, Ask};
use cicada_memory::{LedgerWorker, MemoryWorker, WorkerError};
use tokio::task::block_in_place;

use crate::context::Context;
use crate::executor::Work;
use crate::failure::{Classified, Failure};
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
    /// What waits for a person.
    pub(crate) asks: Vec<Ask>,
}

/// The ledger could not take the edits.
#[derive(Debug, thiserror::Error)]
#[error("could not write the edits of mounted tables back")]
pub struct WriteBackError(#[from] WorkerError);

impl Classified for WriteBackError {
    fn class(&self) -> FailureClass {
        FailureClass::SqlitePersistenceFailed
    }
}

/// Applies the edits.
pub async fn write_back(cx: &Context, executed: Executed) -> Result<WrittenBack, Failure> {
    let Executed { memory, mut ledger, work, mut warnings } = executed;
    let edits = memory.edits();
    let report =
        block_in_place(|| ledger.apply_edits(&edits, &cx.plan.config, &cx.plan.run.cycle.name, cx.now()))
            .map_err(WriteBackError)?;
    warnings.extend(report.conflicts);
    warnings.extend(report.refused);
    let notes = Notes { warnings, agent_schedules: report.schedules, asks: report.asks };
    Ok(WrittenBack { memory, ledger, work, notes })
}
