//! What stays of a cycle that failed: the memory as at the start, and a ledger that tells of the failure.
//!
//! The ledger is taken from the base anew, so that nothing of the failed cycle but its record is in it:
//! the inbox stays untouched, no message leaves.

use cicada_memory::WorkerError;
use cicada_memory::ledger::{EndKind, FinishCycle};
use cicada_store::{Archive, SnapshotKind};
use tokio::task::block_in_place;

use crate::context::Context;
use crate::failure::Failure;
use crate::phase::acquire::Claim;
use crate::phase::ingest::begin;
use crate::phase::persist::{PersistError, pack, publish};
use crate::phase::restore::{RestoreError, ledger_of};

/// Why the failure could not be recorded. The cycle's own failure is what people are told.
#[derive(Debug, thiserror::Error)]
enum RecordError {
    #[error("could not restore the ledger")]
    Restore(#[from] RestoreError),
    #[error("could not write the ledger")]
    Engine(#[from] WorkerError),
    #[error("could not publish the ledger")]
    Persist(#[from] PersistError),
}

/// Records the failure where HEAD allows; else at least clears the holder, so that people's commands
/// need not wait for its deadline.
pub async fn persist_failure(cx: &Context, claim: &mut Claim, failure: &Failure) {
    let Err(error) = record(cx, claim, failure).await else { return };
    tracing::warn!(error = crate::failure::chain(&error), "could not record the failure in the ledger");
    if let Err(error) = claim.writer.release(cx.now()).await {
        tracing::warn!(error = crate::failure::chain(&error), "could not clear the holder in HEAD");
    }
}

async fn record(cx: &Context, claim: &mut Claim, failure: &Failure) -> Result<(), RecordError> {
    let mut ledger = ledger_of(cx, claim.origin(), claim.base(), &cx.work.ledger()).await?;
    let now = cx.now();
    block_in_place(|| {
        ledger.begin_cycle(&begin(cx, claim, now))?;
        cx.intents().iter().try_for_each(|intent| ledger.record_step(intent))?;
        ledger.finish_cycle(&FinishCycle {
            cycle: cx.plan.run.cycle.name.clone(),
            attempt: claim.attempt(),
            kind: EndKind::Failed,
            class: Some(failure.class.label().to_owned()),
            outcome: None,
            summary: Some(failure.message.clone()),
            usage: cx.spent(),
            report_json: None,
            at: now,
        })?;
        ledger.seal(&cx.plan.config.memory.retention, now)?;
        ledger.close();
        Ok::<_, WorkerError>(())
    })?;
    let ledger = pack(cx, "ledger", true).await?;
    publish(cx, claim, SnapshotKind::Failed, None, Archive::Keep, ledger).await?;
    Ok(())
}
