//! unmount: drops the eight tables and asserts that nothing of them is left.

use cicada_contract::FailureClass;
use cicada_memory::{LedgerWorker, MemoryWorker, WorkerError};
use tokio::task::block_in_place;

use crate::executor::Work;
use crate::failure::{Classified, Failure, worker_class};
use crate::phase::write_back::{Notes, WrittenBack};

/// Only the agent's own tables are left in the memory. The one state that can be sealed.
pub struct Unmounted {
    pub(crate) memory: MemoryWorker,
    pub(crate) ledger: LedgerWorker,
    pub(crate) work: Work,
    pub(crate) notes: Notes,
}

/// A mount could not be dropped, or something of one was left.
#[derive(Debug, thiserror::Error)]
#[error("the mounted tables could not be removed; nothing is published")]
pub struct UnmountError(#[from] WorkerError);

impl Classified for UnmountError {
    fn class(&self) -> FailureClass {
        // A worker that is gone has said nothing about what was left.
        let is_told = self.0.fault().is_some();
        let otherwise = if is_told { FailureClass::EphemeralResidue } else { FailureClass::WorkerCrashed };
        worker_class(&self.0, otherwise)
    }
}

/// Drops the mounts.
pub async fn unmount(written: WrittenBack) -> Result<Unmounted, Failure> {
    let WrittenBack { mut memory, ledger, work, notes } = written;
    block_in_place(|| memory.unmount()).map_err(UnmountError)?;
    Ok(Unmounted { memory, ledger, work, notes })
}
