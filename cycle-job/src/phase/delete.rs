//! delete: everything below the agent's prefix goes, and a tombstone stays in HEAD's place.
//!
//! The tombstone comes first, by epoch + 1 as for any cycle: no pod that still runs can publish after it, and
//! a pod of the same agent that starts late finds it. Killed anywhere, the Job is simply run again.

use cicada_contract::CycleReport;
use cicada_contract::FailureClass;
use cicada_contract::report::{CycleResult, MemoryReport, Outcome};
use cicada_store::{
    AcquireError, AcquireRequest, Acquisition, AgentStore, CollectError, PublishError, Writer,
};

use crate::context::Context;
use crate::failure::{Classified, Failure};
use crate::phase::acquire::{AcquirePhaseError, open_store, request, store_class};

/// Why the memory was not deleted as a whole. Running it again goes on.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// The store can't be used, or HEAD says no.
    #[error(transparent)]
    Acquire(#[from] AcquirePhaseError),
    /// The tombstone could not be written: nothing was removed.
    #[error("could not write the tombstone")]
    Bury(#[from] PublishError),
    /// Not everything went.
    #[error("could not empty {location}")]
    Purge {
        /// Where the memory lies.
        location: String,
        /// Why.
        #[source]
        source: CollectError,
    },
}

impl Classified for DeleteError {
    fn class(&self) -> FailureClass {
        match self {
            Self::Acquire(e) => e.class(),
            Self::Bury(e) => e.class(),
            Self::Purge { source: CollectError::Store(e), .. } => store_class(e),
            Self::Purge { source: CollectError::Read(e), .. } => e.class(FailureClass::StoreRefused),
            // Another writer replaced the tombstone: the name is in use again.
            Self::Purge { .. } => FailureClass::PersistFenced,
        }
    }
}

/// Deletes the memory.
pub async fn delete(cx: &Context) -> Result<CycleReport, Failure> {
    Ok(try_delete(cx).await?)
}

async fn try_delete(cx: &Context) -> Result<CycleReport, DeleteError> {
    let store = open_store(cx).await?;
    if let Some(mut writer) = cx.phase("acquire", take(cx, &store)).await? {
        writer.bury(cx.now()).await?;
    }
    let removed = cx.phase("purge", store.purge()).await;
    let removed = removed.map_err(|source| DeleteError::Purge { location: store.location(), source })?;
    let mut report = CycleReport::new(CycleResult::Done);
    report.outcome = Outcome::Done;
    report.message =
        format!("{removed} objects below {} were removed; the tombstone stays", store.location());
    report.memory = Some(MemoryReport::default());
    report.phases = cx.times();
    Ok(report)
}

/// The right to write the tombstone; None if an earlier attempt wrote it.
async fn take(cx: &Context, store: &AgentStore) -> Result<Option<Writer>, AcquirePhaseError> {
    let mut accept_memory_loss = None;
    loop {
        let request = AcquireRequest {
            expect: cicada_contract::plan::Expect::default(),
            accept_memory_loss: accept_memory_loss.clone(),
            handled_keys: vec![],
            ..request(cx)
        };
        match store.acquire(request).await {
            Ok(Acquisition::Held(acquired)) => return Ok(Some(acquired.writer)),
            // Only requests with keys are ever handled before, and this one has none.
            Ok(Acquisition::AlreadyHandled(_)) => return Err(AcquireError::Outrun.into()),
            Err(AcquireError::Deleted { .. }) => return Ok(None),
            // Archives without a HEAD are to go as well.
            // And so is what an older HEAD, put back by hand, does not name.
            Err(AcquireError::MemoryMissing { token, .. } | AcquireError::RolledBack { token, .. })
                if accept_memory_loss.as_ref() != Some(&token) =>
            {
                accept_memory_loss = Some(token);
            }
            Err(error) => return Err(error.into()),
        }
    }
}
