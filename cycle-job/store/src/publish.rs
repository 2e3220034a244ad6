//! Making a state the current one: new archives under new keys first, then HEAD by compare-and-swap.
//!
//! Only the process that holds the newest epoch can publish; it swaps from the version of its own last
//! write. Nothing that was uploaded is deleted when a publish fails: its answer may have been lost.

mod next;
mod request;

use std::time::Instant;

use jiff::Timestamp;
use rand::Rng;

use self::next::with_snapshot;
pub use self::request::{Archive, PublishError, PublishRequest, Published, SnapshotRetention};
use crate::{
    agent_store::{AgentStore, HeadAt, ReadHeadError, SNAPSHOTS, next_write, writer_id},
    head::{ArchiveRef, Head, Holder, Snapshot, snapshot_id},
    store::{Condition, ETag},
    swap::{SwapError, Swapped},
};

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
        let mut next = with_snapshot(&self.head, snapshot.clone(), &request);
        if let (Some(began), Archive::New(_)) = (request.began, &request.memory) {
            next.persist_ms = u64::try_from(began.elapsed().as_millis()).ok();
        }
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
            abandoned: vec![],
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
            Err(ReadHeadError::Head(error)) => PublishError::HeadUnreadable(error),
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
        return PublishError::HeadRemoved;
    };
    let by = &head.acquired_by;
    if by.cycle.uid == ours.acquired_by.cycle.uid && head.epoch > ours.epoch {
        return PublishError::Superseded { attempt: by.attempt, epoch: head.epoch };
    }
    if head.epoch <= ours.epoch {
        // Nobody lowers an epoch: a backup was put back, or a file copied, under a running cycle.
        return PublishError::HeadPutBack { epoch: head.epoch };
    }
    PublishError::Fenced { by: by.cycle.name.clone(), epoch: head.epoch }
}

/// True if a holder of another cycle is before its deadline.
pub fn is_held(head: &Head, now: Timestamp) -> Option<&Holder> {
    head.holder.as_ref().filter(|holder| now < holder.deadline)
}
