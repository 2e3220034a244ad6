//! restore: from the snapshot in HEAD to two open databases, each in a child of its own.
//!
//! Only two things are "corrupt": bytes whose SHA-256 differs from HEAD's after a second download, and
//! bytes with the right hash that do not unpack or fail the integrity check. Everything else (a missing
//! object, a full disk, a limit, a killed child) has its own class and never blames the memory.

use std::time::Duration;

use cicada_contract::FailureClass;
use cicada_memory::{
    FaultKind, LedgerOptions, LedgerWorker, MemoryOptions, MemoryWorker, UnpackError, WorkerError,
};
use cicada_store::{ChainError, DELTA_FROM, StoreError};
use tokio::task::{JoinError, spawn_blocking};

use crate::context::Context;
use crate::failure::{Classified, Failure};
use crate::phase::acquire::{Claim, store_class};
use crate::phase::checks;
use crate::phase::fetch::{fetch, fetch_hashed};

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
                _ => FailureClass::RestoreFailed,
            },
            Self::Open { source, .. } => engine_class(source, FailureClass::RestoreFailed),
            Self::Thread(_) => FailureClass::WorkerCrashed,
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

/// Opens both databases at the state of the claim's base. Memory and ledger share nothing, so neither waits for
/// the other.
pub async fn restore(cx: &Context, claim: &Claim) -> Result<Restored, Failure> {
    let (memory, ledger) = tokio::join!(restore_memory(cx, claim), restore_ledger(cx, claim));
    Ok(Restored { memory: memory?, ledger: ledger? })
}

async fn restore_memory(cx: &Context, claim: &Claim) -> Result<MemoryWorker, RestoreError> {
    if let Some(archive) = claim.base().and_then(|base| base.memory.as_ref()) {
        let file = cx.work.memory_db();
        let next = claim.writer.head().delta_base(DELTA_FROM, cx.now());
        if next.is_some_and(|base| base.parent.key == archive.key) {
            if let Some(pages) = fetch_hashed(cx, claim, archive, &file).await? {
                cx.base.note_pages(archive, pages);
            }
        } else {
            fetch(cx, claim, archive, &file).await?;
        }
    }
    let check = claim.base().and_then(|base| checks::at_restore(claim.writer.head(), base));
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

async fn restore_ledger(cx: &Context, claim: &Claim) -> Result<LedgerWorker, RestoreError> {
    if let Some(archive) = claim.base().and_then(|base| base.ledger.as_ref()) {
        fetch(cx, claim, archive, &cx.work.ledger_db()).await?;
    }
    let (launcher, folder, options) = (cx.launcher.clone(), cx.work.ledger(), ledger_options(cx));
    let opened = spawn_blocking(move || LedgerWorker::spawn(&launcher, &folder, options));
    opened.await?.map_err(|source| RestoreError::Open { what: "ledger", source })
}

/// Opens the ledger in the working directory.
pub(crate) fn open_ledger(cx: &Context) -> Result<LedgerWorker, RestoreError> {
    LedgerWorker::spawn(&cx.launcher, &cx.work.ledger(), ledger_options(cx))
        .map_err(|source| RestoreError::Open { what: "ledger", source })
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
