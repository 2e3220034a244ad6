//! Making a state the current one: new archives under new keys first, then HEAD by compare-and-swap.
//!
//! Only the process that holds the newest epoch can publish; it swaps from the version of its own last
//! write. Nothing that was uploaded is deleted when a publish fails: its answer may have been lost.

use std::time::Instant;

use cicada_contract::FailureClass;
use jiff::{SignedDuration, Timestamp};
use rand::Rng;

use crate::{
    agent_store::{AgentStore, HeadAt, ReadHeadError, SNAPSHOTS, next_write, writer_id},
    archive::PackedArchive,
    head::{AppliedRestore, ArchiveRef, Dropped, Head, Holder, Snapshot, SnapshotKind, order, snapshot_id},
    store::{Condition, ETag, StoreError},
    swap::{SwapError, Swapped},
};

/// How long HEAD remembers that a snapshot left its list. Collection needs an hour of it.
const DROPPED_KEPT: SignedDuration = SignedDuration::from_hours(24);
/// Tries of one upload, on top of the store's own.
const UPLOAD_TRIES: u32 = 3;

/// The right to publish: the newest epoch, as long as nobody raised it again.
#[derive(Debug)]
pub struct Writer {
    agent: AgentStore,
    head: Head,
    etag: ETag,
    attempt: u32,
    seq: u64,
    retried: bool,
    /// A write of HEAD may yet land: nothing of this epoch may be deleted.
    unclear: bool,
}

/// Which archive a new snapshot names.
#[derive(Debug, Clone, PartialEq)]
pub enum Archive {
    /// The same as the current snapshot: nothing is uploaded.
    Keep,
    /// A new one.
    New(PackedArchive),
    /// What another snapshot names (restore); None = none.
    Existing(Option<ArchiveRef>),
}

/// How many snapshots HEAD lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotRetention {
    /// Most of kind `final` or `interrupted`; at least the current one stays.
    pub count: u32,
    /// Oldest, in seconds; 0 = of any age.
    pub max_age: u64,
}

impl Default for SnapshotRetention {
    fn default() -> Self {
        Self { count: 30, max_age: 90 * 86_400 }
    }
}

/// What to publish.
#[derive(Debug, Clone)]
pub struct PublishRequest {
    /// What the snapshot is worth.
    pub kind: SnapshotKind,
    /// Its memory.
    pub memory: Archive,
    /// Its ledger.
    pub ledger: Archive,
    /// Requests that are handled with it.
    pub handled_keys: Vec<String>,
    /// The cycle's last write: clears the holder.
    pub done: bool,
    /// The memory was checked as a whole before.
    pub checked: bool,
    /// Restore request that this publish carries out.
    pub applied_restore: Option<AppliedRestore>,
    /// Snapshot whose archives are taken over; what is newer than it gets pinned.
    pub restored_from: Option<String>,
    /// What HEAD goes on listing.
    pub retention: SnapshotRetention,
    /// When the uploads must be done; later HEAD is not written.
    pub upload_by: Option<Instant>,
    /// The time.
    pub now: Timestamp,
}

impl PublishRequest {
    /// A request that keeps both archives and everything else as it is.
    pub fn new(kind: SnapshotKind, now: Timestamp) -> Self {
        Self {
            kind,
            memory: Archive::Keep,
            ledger: Archive::Keep,
            handled_keys: vec![],
            done: false,
            checked: false,
            applied_restore: None,
            restored_from: None,
            retention: SnapshotRetention::default(),
            upload_by: None,
            now,
        }
    }
}

/// A state that is now current.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// It.
    pub snapshot: Snapshot,
    /// Its epoch.
    pub epoch: u64,
    /// Bytes uploaded.
    pub uploaded: u64,
    /// It took more than one try.
    pub retried: bool,
}

/// Why a state did not become current.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// Another cycle raised the epoch.
    #[error("fenced: {by} holds the memory now, at epoch {epoch}")]
    Fenced {
        /// That cycle.
        by: String,
        /// Its epoch.
        epoch: u64,
    },
    /// A later attempt of the same cycle raised the epoch.
    #[error("superseded by attempt {attempt} of the same cycle, at epoch {epoch}")]
    Superseded {
        /// That attempt.
        attempt: u32,
        /// Its epoch.
        epoch: u64,
    },
    /// HEAD was removed, purged or made unreadable while the cycle ran.
    #[error("HEAD was {what} while the cycle ran; nothing was published")]
    HeadLost {
        /// `removed`, `purged`, ...
        what: String,
    },
    /// A delta builds on an archive that HEAD does not name (any more).
    #[error("HEAD names no archive {parent}, which the new one builds on; nothing was published")]
    BaseGone {
        /// Its key.
        parent: String,
    },
    /// The archive could not be uploaded; HEAD was not touched.
    #[error("could not upload {key}")]
    Upload {
        /// Its key below the agent's prefix.
        key: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// The uploads took longer than they may; HEAD was not touched.
    #[error(
        "the upload was not done before the pod's grace period ended; HEAD is unchanged: raise \
         pod.terminationGracePeriodSeconds"
    )]
    TooLate,
    /// HEAD was not written and will not be.
    #[error("could not write HEAD")]
    Store(#[source] StoreError),
    /// It is not known whether HEAD was written. Nothing may be deleted.
    #[error("it is not known whether the snapshot was published")]
    Unclear(#[source] StoreError),
}

impl PublishError {
    /// True if another attempt of the same Job may help.
    pub fn is_retryable(&self) -> bool {
        self.class().is_retryable()
    }

    /// True if another writer has the memory: neither success nor failure of this cycle.
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Fenced { .. } | Self::Superseded { .. })
    }

    /// What the cycle reports.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Fenced { .. } => FailureClass::PersistFenced,
            Self::Superseded { .. } => FailureClass::Superseded,
            Self::HeadLost { .. } => FailureClass::MemoryMissing,
            Self::BaseGone { .. } => FailureClass::SqlitePersistenceFailed,
            Self::TooLate => FailureClass::GraceTooShort,
            Self::Upload { source, .. } | Self::Store(source) if !source.is_retryable() => {
                source.class(FailureClass::SqlitePersistenceFailed)
            }
            Self::Upload { .. } | Self::Store(_) | Self::Unclear(_) => {
                FailureClass::SqlitePersistenceUploadFailed
            }
        }
    }
}

impl Writer {
    pub(crate) fn new(agent: AgentStore, head: Head, etag: ETag, attempt: u32, retried: bool) -> Self {
        Self { agent, head, etag, attempt, seq: 0, retried, unclear: false }
    }

    /// HEAD as this writer wrote it last.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The epoch that this writer holds.
    pub fn epoch(&self) -> u64 {
        self.head.epoch
    }

    /// Number of the attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Uploads what is new and makes it current. On an error HEAD still names the old state, except for
    /// [`PublishError::Unclear`].
    pub async fn publish(&mut self, request: PublishRequest) -> Result<Published, PublishError> {
        let id = snapshot_id(self.head.epoch, self.seq + 1, rand::rng().random());
        self.seq += 1;
        let current = self.head.current();
        let kept = |of: fn(&Snapshot) -> Option<&ArchiveRef>| Placed {
            archive: current.and_then(of).cloned(),
            ..Placed::default()
        };
        let (memory_name, ledger_name) = (format!("{id}/memory"), format!("{id}/ledger"));
        let uploads = async {
            tokio::join!(
                self.place(&request.memory, kept(|s| s.memory.as_ref()), &memory_name, request.now),
                self.place(&request.ledger, kept(|s| s.ledger.as_ref()), &ledger_name, request.now),
            )
        };
        let in_time = |at: Instant| Instant::now() <= at;
        let (memory, ledger) = match request.upload_by {
            Some(at) => {
                tokio::time::timeout_at(at.into(), uploads).await.map_err(|_| PublishError::TooLate)?
            }
            None => uploads.await,
        };
        // An upload that had no need to wait is never interrupted.
        if !request.upload_by.is_none_or(in_time) {
            return Err(PublishError::TooLate);
        }
        let (memory, ledger) = (memory?, ledger?);
        let uploaded = memory.uploaded + ledger.uploaded;
        let mut retried = std::mem::take(&mut self.retried) | memory.retried | ledger.retried;
        let snapshot = Snapshot {
            id,
            kind: request.kind,
            cycle: self.head.acquired_by.cycle.clone(),
            attempt: self.attempt,
            created_at: request.now,
            memory: memory.archive,
            ledger: ledger.archive,
            pinned: None,
            restored_from: request.restored_from.clone(),
            unknown: std::collections::BTreeMap::new(),
        };
        let next = with_snapshot(&self.head, snapshot.clone(), &request);
        retried |= self.replace(next, request.now).await?;
        Ok(Published { snapshot, epoch: self.head.epoch, uploaded, retried })
    }

    /// The agent's part of the store.
    pub(crate) fn agent(&self) -> &AgentStore {
        &self.agent
    }

    /// True if nothing that this writer began can land any more.
    pub(crate) fn is_clear(&self) -> bool {
        !self.unclear
    }

    /// Ends a cycle that has nothing (more) to publish: clears the holder.
    pub async fn release(&mut self, now: Timestamp) -> Result<(), PublishError> {
        if self.head.holder.is_some() {
            let next = Head { holder: None, ..self.head.clone() };
            self.replace(next, now).await?;
        }
        Ok(())
    }

    /// Leaves a tombstone in place of the memory; see [`AgentStore::purge`] for what lies behind it.
    pub async fn bury(&mut self, now: Timestamp) -> Result<(), PublishError> {
        let next = Head {
            deleted_at: Some(now),
            holder: None,
            current: None,
            snapshots: vec![],
            bases: vec![],
            dropped: vec![],
            handled: vec![],
            ended: vec![],
            ..self.head.clone()
        };
        self.replace(next, now).await.map(|_| ())
    }

    /// Writes the next HEAD of this epoch; true if it took more than one try.
    async fn replace(&mut self, mut next: Head, now: Timestamp) -> Result<bool, PublishError> {
        writer_id().clone_into(&mut next.writer);
        next.write = next_write();
        next.written_at = now;
        match self.agent.swap(&next, Some(&self.etag)).await {
            Ok(Swapped::Done { etag, retries }) => {
                self.head = next;
                self.etag = etag;
                Ok(retries > 0)
            }
            Ok(Swapped::Lost) => Err(self.lost().await),
            Err(SwapError::Refused(error)) => Err(PublishError::Store(error)),
            Err(SwapError::Unclear(error)) => {
                self.unclear = true;
                Err(PublishError::Unclear(error))
            }
        }
    }

    /// Who has the memory now?
    async fn lost(&self) -> PublishError {
        match self.agent.read_head().await {
            Ok(found) => explain_loss(&self.head, found.as_ref()),
            Err(ReadHeadError::Store(error)) => PublishError::Store(error),
            Err(ReadHeadError::Head(_)) => PublishError::HeadLost { what: "made unreadable".into() },
        }
    }

    /// Uploads an archive if it is new; gives what the snapshot names. `name` is its place below the folder
    /// of snapshots.
    async fn place(
        &self,
        archive: &Archive,
        kept: Placed,
        name: &str,
        now: Timestamp,
    ) -> Result<Placed, PublishError> {
        let packed = match archive {
            Archive::Keep => return Ok(kept),
            Archive::Existing(archive) => {
                return Ok(Placed { archive: archive.clone(), ..Placed::default() });
            }
            Archive::New(packed) => packed,
        };
        if let Some(parent) = &packed.parent
            && !self.head.archives().any(|known| known.key == parent.key)
        {
            return Err(PublishError::BaseGone { parent: parent.key.clone() });
        }
        let form = if packed.parent.is_some() { "delta" } else { "db" };
        let key = format!("{SNAPSHOTS}{name}.{form}.zst");
        let mut tries = 0;
        // The key has a random part that only this process knows, so an unconditional write can't hit
        // anybody else's object, and repeating it is harmless.
        while let Err(source) =
            self.agent.store().upload(&self.agent.key(&key), &packed.path, Condition::Any).await
        {
            tries += 1;
            if !source.is_retryable() || tries >= UPLOAD_TRIES {
                return Err(PublishError::Upload { key, source });
            }
            tokio::time::sleep(self.agent.pause * (1 << tries)).await;
        }
        Ok(Placed {
            archive: Some(packed.to_ref(key, now)),
            uploaded: packed.archive_size,
            retried: tries > 0,
        })
    }
}

/// An archive as the next HEAD names it.
#[derive(Default)]
struct Placed {
    archive: Option<ArchiveRef>,
    /// Bytes.
    uploaded: u64,
    /// It took more than one try.
    retried: bool,
}

/// Why a compare-and-swap from `ours` failed, seen from what HEAD is now.
fn explain_loss(ours: &Head, found: Option<&HeadAt>) -> PublishError {
    let Some(HeadAt { head, .. }) = found else {
        return PublishError::HeadLost { what: "removed".into() };
    };
    let by = &head.acquired_by;
    if by.cycle.uid == ours.acquired_by.cycle.uid && head.epoch > ours.epoch {
        return PublishError::Superseded { attempt: by.attempt, epoch: head.epoch };
    }
    if head.epoch <= ours.epoch {
        // Nobody lowers an epoch: a backup was put back, or a file copied, under a running cycle.
        return PublishError::HeadLost { what: format!("put back to epoch {}", head.epoch) };
    }
    PublishError::Fenced { by: by.cycle.name.clone(), epoch: head.epoch }
}

/// The next HEAD with a new current snapshot. Pure.
fn with_snapshot(head: &Head, snapshot: Snapshot, request: &PublishRequest) -> Head {
    let mut next = head.clone();
    if let Some(base) = &snapshot.restored_from {
        pin_newer(&mut next, base);
    }
    match &request.memory {
        Archive::Keep => {}
        Archive::New(packed) if packed.parent.is_some() => {}
        Archive::New(_) => next.whole_next = false,
        // What a person chose is the last that builds on its chain.
        Archive::Existing(_) => next.whole_next = true,
    }
    next.current = Some(snapshot.id.clone());
    if snapshot.kind == SnapshotKind::Final {
        next.add_ended(&snapshot.cycle);
    }
    next.snapshots.push(snapshot);
    next.published += 1;
    if request.checked {
        next.checked_at = Some(next.published);
    }
    next.add_handled(&request.handled_keys);
    if let Some(applied) = &request.applied_restore {
        next.applied_restore = Some(applied.clone());
    }
    next.holder = if request.done { None } else { head.holder.clone() };
    retain(&mut next, request.retention, request.now);
    next
}

/// What a restore leaves behind is kept for people to look at.
fn pin_newer(head: &mut Head, base: &str) {
    let bar = order(base);
    for snapshot in &mut head.snapshots {
        // Checkpoints and failures too: their ledgers alone tell of calls with unknown outcome.
        if order(&snapshot.id) > bar && snapshot.pinned.is_none() {
            snapshot.pinned = Some(format!("left behind by the restore of {base}"));
        }
    }
}

/// Drops from the list what retention does not keep. The current snapshot and pinned ones always stay;
/// failed ones and checkpoints go as soon as they are not current.
fn retain(head: &mut Head, retention: SnapshotRetention, now: Timestamp) {
    let current = head.current.clone();
    let counted =
        head.snapshots.iter().filter(|snapshot| snapshot.kind.is_counted() && snapshot.pinned.is_none());
    let mut surplus = counted.count().saturating_sub(retention.count.max(1) as usize);
    let age = SignedDuration::from_secs(i64::try_from(retention.max_age).unwrap_or(i64::MAX));
    let known = head.archives().map(|archive| (archive.key.clone(), archive.clone())).collect();
    let mut left = vec![];
    head.snapshots.retain(|snapshot| {
        let is_current = current.as_ref() == Some(&snapshot.id);
        if is_current || snapshot.pinned.is_some() {
            return true;
        }
        let too_many = snapshot.kind.is_counted() && surplus > 0;
        let too_old = retention.max_age > 0 && now.duration_since(snapshot.created_at) > age;
        if too_many {
            surplus -= 1;
        }
        let stays = snapshot.kind.is_counted() && !too_many && !too_old;
        if !stays {
            left.push(Dropped { id: snapshot.id.clone(), at: now, keys: vec![] });
        }
        stays
    });
    let mut keys = head.settle(known);
    // Those of archives that nothing but a delta had needed go with the first that left.
    for (n, dropped) in left.iter_mut().enumerate().rev() {
        let folder = format!("{SNAPSHOTS}{}/", dropped.id);
        let (own, others) = keys.into_iter().partition(|key: &String| n == 0 || key.starts_with(&folder));
        dropped.keys = own;
        keys = others;
    }
    head.dropped.retain(|dropped| now.duration_since(dropped.at) < DROPPED_KEPT);
    head.dropped.append(&mut left);
}

/// True if a holder of another cycle is before its deadline.
pub fn is_held(head: &Head, now: Timestamp) -> Option<&Holder> {
    head.holder.as_ref().filter(|holder| now < holder.deadline)
}
