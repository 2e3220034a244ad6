//! seed: an agent that has no memory yet starts from the memory of another one in the same store.
//!
//! The other agent's archives are read with this agent's own credentials: what those can't read, nobody gets by
//! naming it. What was read is published as the first snapshot before anything is executed, so that a death in
//! between costs a second download at most, and the other memory, which goes on, is never looked at again.

use std::collections::BTreeSet;
use std::sync::Arc;

use cicada_contract::FailureClass;
use cicada_contract::plan::SeedFrom;
use cicada_memory::ledger::{OutboxRow, OutboxState, OutboxUpdate};
use cicada_memory::{Check, LedgerWorker, MemoryWorker, WorkerError};
use cicada_store::head::SeededFrom;
use cicada_store::{
    AgentStore, Head, PublishRequest, ReadHeadError, Snapshot, SnapshotKind, Start, StoreError,
};
use tokio::task::block_in_place;

use crate::context::Context;
use crate::executor::model::files;
use crate::failure::{Classified, Failure, worker_class};
use crate::phase::acquire::{Claim, store_class};
use crate::phase::ingest::begin;
use crate::phase::persist::{PersistError, pack, retention};
use crate::phase::put_back::not_listed;
use crate::phase::restore::{Origin, RestoreError, Restored, open_at, open_ledger, open_memory};

/// Most objects that a seed takes over beside the archives: more than any ledger names.
const BLOBS_MAX: usize = 1_000_000;

/// Why the other memory could not be taken over. This agent still has none.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// There is no memory.
    #[error(
        "memory.seedFrom names {from}, which has no memory in this store: create it first, correct the name, or \
         remove seedFrom to start empty"
    )]
    NoMemory {
        /// Namespace and name.
        from: String,
    },
    /// Its HEAD does not list the snapshot.
    #[error("memory.seedFrom: {0}")]
    Unknown(String),
    /// Its HEAD could not be read.
    #[error("could not read the memory of {from}, which memory.seedFrom names")]
    Head {
        /// Namespace and name.
        from: String,
        /// Why.
        #[source]
        source: Box<ReadHeadError>,
    },
    /// Its HEAD was put back.
    #[error(
        "the memory of {from}, which memory.seedFrom names, was rolled back: its HEAD is at epoch {epoch}, and snapshot \
         {newer} is of a later one; put the newer HEAD.json back (cicadactl verify {from}) or name \
         memory.seedFrom.snapshot"
    )]
    RolledBack {
        /// Namespace and name.
        from: String,
        /// Epoch of that HEAD.
        epoch: u64,
        /// The newest snapshot that it does not know.
        newer: String,
    },
    /// The snapshot can't be used.
    #[error(
        "snapshot {snapshot} of {from} can't be the seed: name a sound one in memory.seedFrom.snapshot \
         (cicadactl snapshots {from})"
    )]
    Unsound {
        /// Namespace and name.
        from: String,
        /// Its id.
        snapshot: String,
        /// Why.
        #[source]
        source: Box<RestoreError>,
    },
    /// A stored result or file could not be copied.
    #[error("could not copy {key} of {from}")]
    Blob {
        /// Namespace and name.
        from: String,
        /// Its key.
        key: String,
        /// Why.
        #[source]
        source: Box<StoreError>,
    },
    /// What was read could not be opened or written.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The files could not be finished.
    #[error("could not finish the seed")]
    Engine(#[from] WorkerError),
    /// It could not be published.
    #[error(transparent)]
    Persist(#[from] PersistError),
}

impl Classified for SeedError {
    fn class(&self) -> FailureClass {
        match self {
            Self::NoMemory { .. } => FailureClass::SeedMissing,
            Self::Unknown(_) => FailureClass::SnapshotMissing,
            Self::Blob { source, .. } => store_class(source),
            Self::Head { source, .. } => source.class(FailureClass::StoreRefused),
            Self::RolledBack { .. } => FailureClass::StoreRolledBack,
            // The other agent went on meanwhile: its next HEAD names what there is now.
            Self::Unsound { source, .. } if matches!(**source, RestoreError::Fenced { .. }) => {
                FailureClass::RestoreFailed
            }
            Self::Unsound { source, .. } => source.class(),
            Self::Restore(source) => source.class(),
            Self::Engine(e) => worker_class(e, FailureClass::WorkerCrashed),
            Self::Persist(source) => source.class(),
        }
    }
}

/// Takes the other memory over, if one is named and this agent has none; then both databases are open, and the
/// claim starts from them.
pub(crate) async fn seed(cx: &Context, claim: &mut Claim) -> Result<Option<Restored>, Failure> {
    // A cycle that failed has left a ledger, and no memory.
    let has_memory = claim.base().is_some_and(|base| base.memory.is_some());
    match &cx.plan.config.memory.seed_from {
        Some(from) if !has_memory => Ok(Some(take_over(cx, claim, from).await?)),
        _ => Ok(None),
    }
}

async fn take_over(cx: &Context, claim: &mut Claim, from: &SeedFrom) -> Result<Restored, SeedError> {
    let path = format!("{}/{}", from.namespace, from.name);
    let no_memory = || SeedError::NoMemory { from: path.clone() };
    let source = AgentStore::new(Arc::clone(claim.store.store()), &from.namespace, &from.name);
    let source = source.map_err(|_| no_memory())?;
    let unread = |source| SeedError::Head { from: path.clone(), source: Box::new(source) };
    // Before HEAD: an epoch is raised there before anything is uploaded under it.
    let beside = source.snapshot_ids().await.map_err(|error| unread(error.into()))?;
    let head = source.read_head().await.map_err(unread)?.ok_or_else(no_memory)?.head;
    if from.snapshot.is_none() {
        head.check_current().map_err(|error| unread(error.into()))?;
        check_rollback(&head, &beside, &path)?;
    }
    let snapshot = choose(&head, from, &path)?;
    let origin = Origin { store: &source, epoch: head.epoch };
    let opened = open_at(cx, origin, &snapshot).await;
    let Restored { memory, mut ledger } = opened.map_err(|source| SeedError::Unsound {
        from: path.clone(),
        snapshot: snapshot.id.clone(),
        source: Box::new(source),
    })?;
    copy_blobs(claim, &source, &path, &mut ledger).await?;
    copy_files(cx, claim, &source, &path).await?;
    let seeded = SeededFrom {
        namespace: from.namespace.clone(),
        name: from.name.clone(),
        snapshot: snapshot.id,
        at: cx.now(),
    };
    let line = format!(
        "your memory was started from snapshot {} of {path}, made at {}: what that agent did after it is not in it, and \
         messages that waited there leave from there",
        seeded.snapshot, snapshot.created_at
    );
    finish(cx, claim, memory, ledger, &line)?;
    publish(cx, claim, seeded).await?;
    tracing::info!(from = path, "the memory starts from another agent's");
    Ok(Restored { memory: open_memory(cx, None).await?, ledger: open_ledger(cx, &cx.work.ledger()).await? })
}

/// As a cycle of that agent would: from an older state than there was nobody starts unawares. Whoever names a
/// snapshot knows which.
fn check_rollback(head: &Head, beside: &[String], path: &str) -> Result<(), SeedError> {
    match head.newer(beside.iter().map(String::as_str)) {
        None => Ok(()),
        Some(newer) => {
            Err(SeedError::RolledBack { from: path.to_owned(), epoch: head.epoch, newer: newer.to_owned() })
        }
    }
}

/// The snapshot that is named, else the current one. One without a memory is no seed.
fn choose(head: &Head, from: &SeedFrom, path: &str) -> Result<Snapshot, SeedError> {
    let chosen = match &from.snapshot {
        Some(id) => Some(head.snapshot(id).ok_or_else(|| SeedError::Unknown(not_listed(head, id, path)))?),
        None => head.current(),
    };
    let chosen = chosen.filter(|snapshot| snapshot.memory.is_some() && !head.is_tombstone());
    chosen.cloned().ok_or_else(|| SeedError::NoMemory { from: path.to_owned() })
}

/// Results that lie beside the ledger. One that the other agent's store has lost is lost here as well: a recall
/// tells.
async fn copy_blobs(
    claim: &Claim,
    source: &AgentStore,
    path: &str,
    ledger: &mut LedgerWorker,
) -> Result<(), SeedError> {
    let sql = "SELECT blob_key FROM tool_results WHERE blob_key IS NOT NULL UNION \
               SELECT blob_key FROM files WHERE blob_key IS NOT NULL";
    let rows = block_in_place(|| ledger.query(sql, BLOBS_MAX))?;
    let keys: BTreeSet<String> =
        rows.rows.iter().filter_map(|row| row.first()?.as_str().map(str::to_owned)).collect();
    for key in keys {
        let copied = async {
            let bytes = source.get_blob(&key).await?;
            claim.store.copy_blob(&key, bytes).await
        };
        match copied.await {
            Ok(()) => {}
            Err(StoreError::NotFound { .. }) => {
                tracing::warn!(key, from = path, "a stored result is missing")
            }
            Err(source) => {
                return Err(SeedError::Blob { from: path.to_owned(), key, source: Box::new(source) });
            }
        }
    }
    Ok(())
}

/// Files that the other agent wrote itself, as they now are: they belong to no snapshot. Those that people put there
/// stay theirs to put.
async fn copy_files(cx: &Context, claim: &Claim, source: &AgentStore, path: &str) -> Result<(), SeedError> {
    let failed = |key: &str| {
        let (from, key) = (path.to_owned(), format!("files/{key}"));
        move |source| SeedError::Blob { from, key, source: Box::new(source) }
    };
    let scratch = cx.work.scratch().join("seed");
    for file in source.list_files().await.map_err(failed(""))? {
        if !file.key.starts_with(files::PREFIX) {
            continue;
        }
        match source.fetch_file(&file.key, &scratch, files::FILE_BYTES).await {
            Ok(_) => claim.store.put_file(&file.key, &scratch).await.map_err(failed(&file.key))?,
            // No cycle would take it up either.
            Err(StoreError::NotFound { .. } | StoreError::TooLarge { .. }) => {}
            Err(source) => return Err(failed(&file.key)(source)),
        }
    }
    Ok(())
}

/// Makes both files ones of this agent. What waits in the other outbox is the other's to send.
fn finish(
    cx: &Context,
    claim: &Claim,
    mut memory: MemoryWorker,
    mut ledger: LedgerWorker,
    line: &str,
) -> Result<(), SeedError> {
    let now = cx.now();
    block_in_place(|| {
        let theirs = |row: &OutboxRow| OutboxUpdate {
            id: row.message.id.clone(),
            state: OutboxState::Unknown,
            attempts: Some(row.attempts),
            error: Some("it waited in the memory that this one started from, which sends it".into()),
            next_at: None,
        };
        let updates: Vec<_> = ledger.pending_outgoing()?.iter().map(theirs).collect();
        ledger.update_outgoing(&updates, now)?;
        ledger.add_notices(&[line.to_owned()], now)?;
        ledger.begin_cycle(&begin(cx, claim, now))?;
        ledger.seal(&cx.plan.config.memory.retention, now)?;
        ledger.close();
        memory.seal_checked(Check::Quick)?;
        memory.close();
        Ok::<_, WorkerError>(())
    })?;
    Ok(())
}

/// A checkpoint: the memory as at the start of the first cycle, whatever becomes of that.
async fn publish(cx: &Context, claim: &mut Claim, seeded: SeededFrom) -> Result<(), PersistError> {
    let (memory, ledger) = tokio::try_join!(pack(cx, "memory", true), pack(cx, "ledger", true))?;
    let request = PublishRequest {
        memory,
        ledger,
        checked: true,
        seeded_from: Some(seeded),
        retention: retention(cx),
        upload_by: cx.upload_by(),
        ..PublishRequest::new(SnapshotKind::Checkpoint, cx.now())
    };
    let published = claim.writer.publish(request).await?;
    tracing::info!(snapshot = published.snapshot.id, "checkpoint published");
    claim.start = Start::Current(published.snapshot);
    Ok(())
}
