//! restore: from the snapshot in HEAD to two open databases, each in a child of its own.
//!
//! Only two things are "corrupt": bytes whose SHA-256 differs from HEAD's after a second download, and
//! bytes with the right hash that do not unpack or fail the integrity check. Everything else (a missing
//! object, a full disk, a limit, a killed child) has its own class and never blames the memory.

use std::path::Path;
use std::time::Duration;

use cicada_contract::FailureClass;
use cicada_memory::{
    Check, FaultKind, LedgerOptions, LedgerWorker, MemoryOptions, MemoryWorker, UnpackError, UnpackLimits,
    WorkerError,
};
use cicada_store::{ArchiveRef, StoreError};
use tokio::task::block_in_place;

use crate::context::Context;
use crate::failure::{Classified, Failure};
use crate::phase::acquire::{Claim, store_class};

/// Longest time to unpack one archive: a gigabyte takes two seconds here.
const UNPACK_TIMEOUT: Duration = Duration::from_secs(120);

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
    #[error(
        "{key} has SHA-256 {found}, HEAD says {expected}: run cicadactl verify, then cicadactl restore with a sound snapshot of cicadactl snapshots"
    )]
    WrongHash {
        /// Key of the archive.
        key: String,
        /// What was found.
        found: String,
        /// What HEAD says.
        expected: String,
    },
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
            Self::Download { source: StoreError::NotFound { .. }, .. } => FailureClass::MemoryMissing,
            Self::Download { source, .. } if source.is_retryable() => FailureClass::RestoreFailed,
            Self::Download { source, .. } => store_class(source),
            Self::WrongHash { .. } => FailureClass::RestoreCorrupt,
            Self::Unpack { source, .. } => match source {
                UnpackError::Bomb { .. } => FailureClass::RestoreBomb,
                UnpackError::Corrupt { .. } => FailureClass::RestoreCorrupt,
                UnpackError::Timeout { .. } => FailureClass::RestoreTimeout,
                _ => FailureClass::RestoreFailed,
            },
            Self::Open { source, .. } => engine_class(source, FailureClass::RestoreFailed),
            Self::Fenced { .. } => FailureClass::PersistFenced,
        }
    }
}

/// Class of an engine error; `otherwise` is the phase's own.
pub(crate) fn engine_class(error: &WorkerError, otherwise: FailureClass) -> FailureClass {
    match error.fault() {
        Some(FaultKind::Corrupt) => FailureClass::RestoreCorrupt,
        Some(FaultKind::Schema) => FailureClass::UnknownVersion,
        _ => otherwise,
    }
}

/// Opens both databases at the state of the claim's base.
pub async fn restore(cx: &Context, claim: &Claim) -> Result<Restored, Failure> {
    if let Some(base) = claim.base() {
        for (archive, file) in [(&base.memory, cx.work.memory_db()), (&base.ledger, cx.work.ledger_db())] {
            if let Some(archive) = archive {
                fetch(cx, claim, archive, &file).await?;
            }
        }
    }
    Ok(open(cx)?)
}

/// Opens whatever lies in the working directory; an absent file is made.
fn open(cx: &Context) -> Result<Restored, RestoreError> {
    block_in_place(|| {
        let memory_failed = |source| RestoreError::Open { what: "memory", source };
        let mut memory = MemoryWorker::spawn(&cx.launcher, &cx.work.memory(), memory_options(cx))
            .map_err(memory_failed)?;
        memory.check(Check::Quick).map_err(memory_failed)?;
        Ok(Restored { memory, ledger: open_ledger(cx)? })
    })
}

/// Opens the ledger in the working directory.
pub(crate) fn open_ledger(cx: &Context) -> Result<LedgerWorker, RestoreError> {
    let memory = &cx.plan.config.memory;
    let options = LedgerOptions::new(memory.size_limit, memory.ledger_size_limit);
    LedgerWorker::spawn(&cx.launcher, &cx.work.ledger(), options)
        .map_err(|source| RestoreError::Open { what: "ledger", source })
}

fn memory_options(cx: &Context) -> MemoryOptions {
    let memory = &cx.plan.config.memory;
    let sql_timeout = Duration::from_secs(cx.plan.config.limits.sql_timeout);
    MemoryOptions::new(memory.size_limit, memory.ledger_size_limit, sql_timeout)
}

/// Downloads one archive, checks its bytes and unpacks it to `target`.
pub(crate) async fn fetch(
    cx: &Context,
    claim: &Claim,
    archive: &ArchiveRef,
    target: &Path,
) -> Result<(), RestoreError> {
    let name = archive.key.rsplit('/').next().unwrap_or("archive");
    let packed = cx.archive(name);
    download(claim, archive, &packed).await?;
    let limits = UnpackLimits {
        // HEAD's own number: an archive that unpacks to more is not the one that was published.
        max_bytes: archive.file_size,
        timeout: UNPACK_TIMEOUT,
        address_space: cx.resources.ledger_address_space,
    };
    tracing::debug!(key = archive.key, bytes = archive.archive_size, "unpacking");
    block_in_place(|| cicada_memory::unpack(&cx.launcher, &packed, target, limits, &archive.file_sha256))
        .map_err(|source| RestoreError::Unpack { key: archive.key.clone(), source })?;
    Ok(())
}

/// Downloads with a second try for a missing object or wrong bytes; in between HEAD is read again, because
/// a later cycle may have replaced and collected what this one is looking for.
async fn download(claim: &Claim, archive: &ArchiveRef, to: &Path) -> Result<(), RestoreError> {
    let key = claim.store.key(&archive.key);
    let mut second = false;
    loop {
        let error = match claim.store.store().download(&key, to, archive.archive_size).await {
            Ok(found) if found.sha256 == archive.archive_sha256 => return Ok(()),
            Ok(found) => RestoreError::WrongHash {
                key: archive.key.clone(),
                found: found.sha256,
                expected: archive.archive_sha256.clone(),
            },
            // More bytes than HEAD says can't have HEAD's hash.
            Err(StoreError::TooLarge { .. }) => RestoreError::WrongHash {
                key: archive.key.clone(),
                found: format!("of more than {} bytes", archive.archive_size),
                expected: archive.archive_sha256.clone(),
            },
            Err(source) => RestoreError::Download { key: archive.key.clone(), source },
        };
        if let Ok(Some(at)) = claim.store.read_head().await
            && at.head.epoch != claim.writer.epoch()
        {
            return Err(RestoreError::Fenced { epoch: at.head.epoch });
        }
        if second {
            return Err(error);
        }
        second = true;
    }
}
