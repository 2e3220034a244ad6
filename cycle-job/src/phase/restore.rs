//! restore: from the snapshot in HEAD to two open databases, each in a child of its own.
//!
//! Only two things are "corrupt": bytes whose SHA-256 differs from HEAD's after a second download, and
//! bytes with the right hash that do not unpack or fail the integrity check. Everything else (a missing
//! object, a full disk, a limit, a killed child) has its own class and never blames the memory.

use std::path::Path;
use std::time::Duration;

use cicada_contract::FailureClass;
use cicada_memory::{
    Check, FaultKind, LedgerOptions, LedgerWorker, MemoryOptions, MemoryWorker, UnpackError, WorkerError,
};
use cicada_store::{AgentStore, ArchiveRef, ChainError, DELTA_FROM, Snapshot, StoreError};
use tokio::task::{JoinError, spawn_blocking};

use crate::context::Context;
use crate::failure::{Classified, Failure, disk_class, worker_class};
use crate::phase::acquire::{Claim, store_class};
use crate::phase::checks;
use crate::phase::fall_back::after_damage;
use crate::phase::fetch::{fetch, fetch_hashed};
use crate::phase::seed::seed;

/// Both databases are open at the state of the base.
pub struct Restored {
    /// The agent's own tables.
    pub(crate) memory: MemoryWorker,
    /// The platform's tables about the agent.
    pub(crate) ledger: LedgerWorker,
}

/// Why the base could not be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// An object that HEAD names is not there, or the store failed.
    #[error("could not download {key}")]
    Download {
        /// Key of the archive.
        key: String,
        /// What the store said.
        #[source]
        source: StoreError,
    },
    /// The bytes differ from HEAD's SHA-256, twice.
    #[error("{key} has SHA-256 {found}, HEAD says {expected}")]
    WrongHash {
        /// Key of the archive.
        key: String,
        /// What was found.
        found: String,
        /// What HEAD says.
        expected: String,
    },
    /// HEAD does not name all that a delta builds on.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// The archive did not unpack.
    #[error("could not unpack {key}")]
    Unpack {
        /// Key of the archive.
        key: String,
        /// What the child said.
        #[source]
        source: UnpackError,
    },
    /// The databases could not be opened or did not pass their checks.
    #[error("could not open the restored {what}")]
    Open {
        /// `memory` or `ledger`.
        what: &'static str,
        /// What the engine said.
        #[source]
        source: WorkerError,
    },
    /// A thread of this process died.
    #[error("a thread of this process died")]
    Thread(#[from] JoinError),
    /// More than the pod's disk is made for.
    #[error("{key} needs {needed} bytes of disk, the pod has {budget}: raise memory.sizeLimit")]
    Disk {
        /// Key of the archive.
        key: String,
        /// Bytes of archive and file, as HEAD says.
        needed: u64,
        /// Bytes that the pod has.
        budget: u64,
    },
    /// A folder of this machine could not be emptied.
    #[error("could not prepare the ledger's folder")]
    Folder(#[source] std::io::Error),
    /// Another cycle raised the epoch while this one restored.
    #[error("another cycle raised the epoch to {epoch} during restore")]
    Fenced {
        /// The epoch found.
        epoch: u64,
    },
}

impl Classified for RestoreError {
    fn class(&self) -> FailureClass {
        match self {
            // HEAD names it, so it was there: the bucket lost it, or somebody cleaned by hand.
            Self::Download { source: StoreError::NotFound { .. }, .. } | Self::Chain(_) => {
                FailureClass::MemoryMissing
            }
            Self::Download { source, .. } if source.is_retryable() => FailureClass::RestoreFailed,
            Self::Download { source, .. } => store_class(source),
            Self::WrongHash { .. } => FailureClass::RestoreCorrupt,
            Self::Unpack { source, .. } => match source {
                UnpackError::Bomb { .. } => FailureClass::RestoreBomb,
                UnpackError::Corrupt { .. } => FailureClass::RestoreCorrupt,
                UnpackError::Version { .. } => FailureClass::UnknownVersion,
                UnpackError::Timeout { .. } => FailureClass::RestoreTimeout,
                UnpackError::DiskFull { .. } => FailureClass::DiskBudget,
                _ => FailureClass::RestoreFailed,
            },
            Self::Open { source, .. } => engine_class(source, FailureClass::RestoreFailed),
            Self::Thread(_) => FailureClass::WorkerCrashed,
            Self::Folder(source) => disk_class(source, FailureClass::RestoreFailed),
            Self::Disk { .. } => FailureClass::DiskBudget,
            Self::Fenced { .. } => FailureClass::PersistFenced,
        }
    }
}

impl RestoreError {
    /// Key of the damaged archive of `base`, if damage is what failed.
    pub(crate) fn damaged<'k>(&'k self, base: &'k Snapshot) -> Option<&'k str> {
        if self.class() != FailureClass::RestoreCorrupt {
            return None;
        }
        let of = |archive: &'k Option<ArchiveRef>| archive.as_ref().map(|a| a.key.as_str());
        match self {
            Self::WrongHash { key, .. } | Self::Unpack { key, .. } => Some(key),
            Self::Open { what: "memory", .. } => of(&base.memory),
            _ => of(&base.ledger),
        }
    }
}

/// Where a snapshot is read from, and the epoch that HEAD had when it named it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) store: &'a AgentStore,
    pub(crate) epoch: u64,
}

/// Class of an engine error; `otherwise` is the phase's own.
pub(crate) fn engine_class(error: &WorkerError, otherwise: FailureClass) -> FailureClass {
    match error.fault() {
        Some(FaultKind::Corrupt) => FailureClass::RestoreCorrupt,
        Some(FaultKind::Schema) => FailureClass::UnknownVersion,
        _ => worker_class(error, otherwise),
    }
}

/// Opens both databases at the state of the claim's base; if that is damaged and the manifest says so, at the
/// newest sound snapshot before it, which is the claim's base from then on.
pub async fn restore(cx: &Context, claim: &mut Claim) -> Result<Restored, Failure> {
    if let Some(seeded) = seed(cx, claim).await? {
        return Ok(seeded);
    }
    match open_base(cx, claim).await {
        Ok(restored) => Ok(restored),
        Err(error) => after_damage(cx, claim, error).await,
    }
}

/// As [`restore`], for cycles that need the ledger only.
pub async fn restore_ledger(cx: &Context, claim: &mut Claim) -> Result<LedgerWorker, Failure> {
    match ledger_of(cx, claim.origin(), claim.base(), &cx.work.ledger()).await {
        Ok(ledger) => Ok(ledger),
        Err(error) => Ok(after_damage(cx, claim, error).await?.ledger),
    }
}

/// Memory and ledger share nothing, so neither waits for the other.
async fn open_base(cx: &Context, claim: &Claim) -> Result<Restored, RestoreError> {
    let folder = cx.work.ledger();
    let (memory, ledger) =
        tokio::join!(base_memory(cx, claim), ledger_of(cx, claim.origin(), claim.base(), &folder));
    Ok(Restored { memory: memory?, ledger: ledger? })
}

async fn base_memory(cx: &Context, claim: &Claim) -> Result<MemoryWorker, RestoreError> {
    if let Some(archive) = claim.base().and_then(|base| base.memory.as_ref()) {
        let file = cx.work.memory_db();
        let next = claim.writer.head().delta_base(DELTA_FROM, cx.now());
        if next.is_some_and(|base| base.parent.key == archive.key) {
            if let Some(pages) = fetch_hashed(cx, claim.origin(), archive, &file).await? {
                cx.base.note_pages(archive, pages);
            }
        } else {
            fetch(cx, claim.origin(), archive, &file).await?;
        }
    }
    let check = claim.base().and_then(|base| checks::at_restore(claim.writer.head(), base));
    open_memory(cx, check).await
}

/// Opens the memory that lies in the working directory.
pub(crate) async fn open_memory(cx: &Context, check: Option<Check>) -> Result<MemoryWorker, RestoreError> {
    let (launcher, folder, options) = (cx.launcher.clone(), cx.work.memory(), memory_options(cx));
    let opened = spawn_blocking(move || {
        let mut memory = MemoryWorker::spawn(&launcher, &folder, options)?;
        check.map_or(Ok(()), |check| memory.check(check))?;
        Ok(memory)
    });
    let memory = opened.await?.map_err(|source| RestoreError::Open { what: "memory", source })?;
    if check.is_some() {
        cx.base.note_checked();
    }
    Ok(memory)
}

/// Opens both databases at the state of an older snapshot, which is checked as a whole.
pub(crate) async fn open_at(
    cx: &Context,
    origin: Origin<'_>,
    snapshot: &Snapshot,
) -> Result<Restored, RestoreError> {
    if let Some(archive) = &snapshot.memory {
        fetch(cx, origin, archive, &cx.work.memory_db()).await?;
    }
    let ledger = ledger_of(cx, origin, Some(snapshot), &cx.work.ledger()).await?;
    Ok(Restored { memory: open_memory(cx, Some(Check::Integrity)).await?, ledger })
}

/// Opens the ledger of `snapshot` anew in `folder`, which is emptied; without one, the ledger is made.
pub(crate) async fn ledger_of(
    cx: &Context,
    origin: Origin<'_>,
    snapshot: Option<&Snapshot>,
    folder: &Path,
) -> Result<LedgerWorker, RestoreError> {
    match std::fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(RestoreError::Folder(e)),
        _ => std::fs::create_dir_all(folder).map_err(RestoreError::Folder)?,
    }
    if let Some(archive) = snapshot.and_then(|s| s.ledger.as_ref()) {
        fetch(cx, origin, archive, &folder.join("ledger.db")).await?;
    }
    open_ledger(cx, folder).await
}

/// Opens the ledger that lies in `folder`.
pub(crate) async fn open_ledger(cx: &Context, folder: &Path) -> Result<LedgerWorker, RestoreError> {
    let (launcher, folder, options) = (cx.launcher.clone(), folder.to_owned(), ledger_options(cx));
    let opened = spawn_blocking(move || LedgerWorker::spawn(&launcher, &folder, options));
    opened.await?.map_err(|source| RestoreError::Open { what: "ledger", source })
}

fn ledger_options(cx: &Context) -> LedgerOptions {
    let memory = &cx.plan.config.memory;
    LedgerOptions::new(memory.size_limit, memory.ledger_size_limit)
}

fn memory_options(cx: &Context) -> MemoryOptions {
    let memory = &cx.plan.config.memory;
    let sql_timeout = Duration::from_secs(cx.plan.config.limits.sql_timeout);
    MemoryOptions::new(memory.size_limit, memory.ledger_size_limit, sql_timeout)
}
