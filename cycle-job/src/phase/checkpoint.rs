//! checkpoint: before a call that may change the world, what it is about is made durable.
//!
//! Published are the memory's archive of the cycle's start and a ledger that is the start's plus the
//! intents so far. A pod that is killed after the call leaves behind that it was started; what the cycle
//! did to its memory meanwhile is not part of it.

use cicada_contract::FailureClass;
use cicada_memory::WorkerError;
use cicada_memory::ledger::StepRecord;
use cicada_store::{Archive, PackError, PublishError, PublishRequest, SnapshotKind};
use tokio::task::block_in_place;

use crate::context::Context;
use crate::failure::{Classified, worker_class};
use crate::phase::acquire::Claim;
use crate::phase::ingest::begin;
use crate::phase::persist::retention;
use crate::phase::restore::{RestoreError, ledger_of};

/// Why a checkpoint could not be published. The call that it was for is not made.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The ledger of the start could not be fetched.
    #[error("could not fetch the ledger of the start")]
    Restore(#[from] RestoreError),
    /// The ledger could not be written.
    #[error("could not write the ledger")]
    Engine(#[from] WorkerError),
    /// The ledger could not be packed.
    #[error("could not pack the ledger")]
    Pack(#[from] PackError),
    /// It could not be made current.
    #[error("could not publish the snapshot")]
    Publish(#[from] PublishError),
}

impl Classified for CheckpointError {
    fn class(&self) -> FailureClass {
        match self {
            Self::Restore(e) => e.class(),
            Self::Engine(e) => worker_class(e, FailureClass::WorkerCrashed),
            Self::Pack(e) if e.is_disk_full() => FailureClass::DiskBudget,
            Self::Pack(_) => FailureClass::SqlitePersistenceFailed,
            Self::Publish(e) => e.class(),
        }
    }
}

/// Publishes `intents`; the last one is the call that is about to be made.
pub async fn checkpoint(
    cx: &Context,
    claim: &mut Claim,
    intents: &[StepRecord],
) -> Result<(), CheckpointError> {
    cx.note_intents(intents);
    let folder = cx.work.scratch().join("checkpoint");
    let mut ledger = ledger_of(cx, claim.origin(), claim.base(), &folder).await?;
    let now = cx.now();
    let keep = &cx.plan.config.memory.retention;
    block_in_place(|| {
        ledger.begin_cycle(&begin(cx, claim, now))?;
        intents.iter().try_for_each(|intent| ledger.record_step(intent))?;
        ledger.seal(keep, now)?;
        ledger.close();
        Ok::<_, WorkerError>(())
    })?;
    let packed = cicada_store::pack(&folder.join("ledger.db"), &cx.archive("checkpoint.new.zst")).await?;
    let request = PublishRequest {
        ledger: Archive::New(packed),
        retention: retention(cx),
        ..PublishRequest::new(SnapshotKind::Checkpoint, now)
    };
    let published = claim.writer.publish(request).await?;
    tracing::info!(snapshot = published.snapshot.id, intents = intents.len(), "checkpoint published");
    Ok(())
}
