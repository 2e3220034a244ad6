//! Removing what nobody can need any more. The fence decides, not the clock.
//!
//! The listing is taken first and HEAD is read after it. An object that HEAD does not name may go only if the
//! epoch in its key is below HEAD's: whoever made it can't publish it any more. Objects of HEAD's own epoch
//! go only by the hand of their holder, and not after an answer of its was lost. Archives go by key,
//! never by folder: a later snapshot may name an earlier one's archive, or its delta may build on it. Without a readable HEAD nothing goes.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::{
    agent_store::{AgentStore, HEAD_KEY, HeadAt, ReadHeadError, SNAPSHOTS},
    files::{BLOBS, blob_epoch},
    head::{Head, order},
    probe::PROBE,
    publish::Writer,
    store::{ObjectMeta, StoreError},
};

/// Exports that a person asked for, kept [`EXPORTS_KEPT`].
const EXPORTS: &str = "exports/";
const EXPORTS_KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);
/// A snapshot that left HEAD's list stays readable for those who had read HEAD before.
const READERS: SignedDuration = SignedDuration::from_hours(1);
/// Age from which a probe's object or an unfinished upload is a dead process's. A cycle ends within a day.
const LEFTOVER: SignedDuration = SignedDuration::from_hours(48);

/// A blob that the ledger has dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedBlob {
    /// Its key below the agent's prefix.
    pub key: String,
    /// Epoch of the cycle that dropped it.
    pub epoch: u64,
}

/// What may go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Collectable {
    /// Keys below the agent's prefix, with sizes in bytes.
    pub objects: Vec<(String, u64)>,
    /// Objects that will go later: readers may still need them.
    pub later: usize,
}

/// What went.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Collected {
    /// Keys below the agent's prefix.
    pub removed: Vec<String>,
    /// Bytes.
    pub freed: u64,
    /// Objects that will go later.
    pub later: usize,
    /// Unfinished uploads of dead processes.
    pub swept: usize,
}

/// Why nothing (more) was collected.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// There is no HEAD, so nothing can be told from garbage.
    #[error("there is no HEAD: nothing is collected")]
    NoHead,
    /// The memory was not purged.
    #[error("HEAD is no tombstone: nothing is purged")]
    NotDeleted,
    /// HEAD could not be read.
    #[error(transparent)]
    Read(#[from] ReadHeadError),
    /// The store failed. What has gone, has gone; the rest goes the next time.
    #[error("could not collect")]
    Store(#[from] StoreError),
}

impl CollectError {
    /// True if the same call may work later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NoHead | Self::NotDeleted => false,
            Self::Read(error) => error.is_retryable(),
            Self::Store(error) => error.is_retryable(),
        }
    }
}

/// Decides what may go from a listing (keys below the agent's prefix) that was taken before `head` was
/// read. `own` is true for the holder of HEAD's epoch.
pub fn collectable(
    listing: &[ObjectMeta],
    head: &Head,
    blobs: &[DroppedBlob],
    own: bool,
    now: Timestamp,
) -> Collectable {
    let named: BTreeSet<&str> = head.archives().map(|archive| archive.key.as_str()).collect();
    let read: BTreeSet<&str> = head
        .dropped
        .iter()
        .filter(|dropped| now.duration_since(dropped.at) < READERS)
        .flat_map(|dropped| dropped.keys.iter().map(String::as_str))
        .collect();
    let may_go = |epoch: u64| epoch < head.epoch || (own && epoch == head.epoch);
    // A blob whose cycle published no result was never in a ledger that is listed. Another goes when every listed snapshot was made by the cycle that dropped it, or later: then no
    // listed ledger points to it any more.
    let oldest =
        head.snapshots.iter().filter_map(|snapshot| order(&snapshot.id)).map(|(epoch, _)| epoch).min();
    let dropped_blobs: BTreeSet<&str> = blobs
        .iter()
        .filter(|blob| oldest.is_some_and(|oldest| blob.epoch <= oldest) && may_go(blob.epoch))
        .map(|blob| blob.key.as_str())
        .collect();
    let mut found = Collectable::default();
    for object in listing {
        let key = object.key.as_str();
        let goes = if let Some(rest) = key.strip_prefix(SNAPSHOTS) {
            let epoch = rest.split('/').next().and_then(order).map(|(epoch, _)| epoch);
            let garbage = epoch.is_some_and(may_go) && !named.contains(key);
            if garbage && read.contains(key) {
                found.later += 1;
            }
            garbage && !read.contains(key)
        } else if key.starts_with(BLOBS) {
            let abandoned = blob_epoch(key).is_some_and(|epoch| head.is_abandoned(epoch) && may_go(epoch));
            abandoned || dropped_blobs.contains(key)
        } else if key.starts_with(EXPORTS) {
            now.duration_since(object.modified) > EXPORTS_KEPT
        } else if key.starts_with(PROBE) {
            now.duration_since(object.modified) > LEFTOVER
        } else {
            // HEAD, inbox, outbox, usage, files, quarantine, erasures, and what a later release puts there.
            false
        };
        if goes {
            found.objects.push((key.to_owned(), object.size));
        }
    }
    found
}

impl AgentStore {
    /// What [`Self::collect`] would remove now.
    pub async fn collectable(
        &self,
        blobs: &[DroppedBlob],
        now: Timestamp,
    ) -> Result<Collectable, CollectError> {
        self.look_for_garbage(blobs, None, now).await
    }

    /// Removes what no snapshot in HEAD needs and nobody can publish any more. Safe beside a running cycle.
    pub async fn collect(&self, blobs: &[DroppedBlob], now: Timestamp) -> Result<Collected, CollectError> {
        let found = self.look_for_garbage(blobs, None, now).await?;
        self.remove(found, now).await
    }

    /// Empties the prefix of a memory that was buried ([`Writer::bury`]); the tombstone stays. Gives the
    /// number of objects removed.
    pub async fn purge(&self) -> Result<usize, CollectError> {
        let listing = self.store().list(&self.key("")).await?;
        let head = self.read_head().await?.ok_or(CollectError::NoHead)?.head;
        if !head.is_tombstone() {
            return Err(CollectError::NotDeleted);
        }
        let mut removed = 0;
        for object in listing.iter().filter(|object| self.relative(&object.key) != HEAD_KEY) {
            self.store().delete(&object.key).await?;
            removed += 1;
        }
        self.sweep(Timestamp::MAX).await;
        Ok(removed)
    }

    async fn look_for_garbage(
        &self,
        blobs: &[DroppedBlob],
        holder: Option<&Writer>,
        now: Timestamp,
    ) -> Result<Collectable, CollectError> {
        let mut listing = self.store().list(&self.key("")).await?;
        let HeadAt { head, .. } = self.read_head().await?.ok_or(CollectError::NoHead)?;
        head.check_current().map_err(ReadHeadError::Head)?;
        for object in &mut listing {
            object.key = self.relative(&object.key).to_owned();
        }
        let own = holder.is_some_and(|writer| writer.is_clear() && writer.epoch() == head.epoch);
        Ok(collectable(&listing, &head, blobs, own, now))
    }

    async fn remove(&self, found: Collectable, now: Timestamp) -> Result<Collected, CollectError> {
        let mut done = Collected { later: found.later, ..Collected::default() };
        for (key, size) in found.objects {
            self.store().delete(&self.key(&key)).await?;
            done.freed += size;
            done.removed.push(key);
        }
        done.swept = self.sweep(now - LEFTOVER).await;
        Ok(done)
    }

    /// Credentials that may not list unfinished uploads are common; a rule of the bucket does it for them.
    async fn sweep(&self, before: Timestamp) -> usize {
        self.store().sweep(&self.key(""), before).await.unwrap_or_else(|error| {
            tracing::debug!(error = &error as &dyn std::error::Error, "unfinished uploads were not swept");
            0
        })
    }
}

impl Writer {
    /// As [`AgentStore::collect`], and also what this cycle itself has left unnamed. Call it after the last
    /// publish.
    pub async fn collect(
        &mut self,
        blobs: &[DroppedBlob],
        now: Timestamp,
    ) -> Result<Collected, CollectError> {
        let agent = self.agent().clone();
        let found = agent.look_for_garbage(blobs, Some(self), now).await?;
        agent.remove(found, now).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{
        Dropped, SnapshotKind,
        tests::{archive, at, head, snapshot},
    };

    fn object(key: &str) -> ObjectMeta {
        ObjectMeta { key: key.into(), size: 7, modified: at(0) }
    }

    fn keys(listing: &[&str], head: &Head, blobs: &[DroppedBlob], own: bool, now: Timestamp) -> Vec<String> {
        let listing: Vec<_> = listing.iter().map(|key| object(key)).collect();
        collectable(&listing, head, blobs, own, now).objects.into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn only_what_nobody_can_publish_any_more_goes() {
        let head = head(5, vec![snapshot("3-1-aa", SnapshotKind::Final, "c")]);
        let listing = [
            "HEAD.json",
            "snapshots/3-1-aa/memory.db.zst",
            "snapshots/3-1-aa/ledger.db.zst",
            "snapshots/3-1-aa/later.zst",
            "snapshots/4-2-bb/memory.db.zst",
            "snapshots/5-1-cc/memory.db.zst",
            "snapshots/6-1-dd/memory.db.zst",
            "snapshots/strange/memory.db.zst",
            "snapshots/1",
            "inbox/a.json",
            "outbox/a/claim-1",
            "usage/c/1.json",
            "files/a.csv",
            "erasures/1.json",
            "quarantine/inbox/a.json",
            "invented/later",
        ];
        let below = ["snapshots/3-1-aa/later.zst", "snapshots/4-2-bb/memory.db.zst"];
        assert_eq!(keys(&listing, &head, &[], false, at(0)), below);
        let with_own = [below[0], below[1], "snapshots/5-1-cc/memory.db.zst"];
        assert_eq!(keys(&listing, &head, &[], true, at(0)), with_own);
        assert_eq!(keys(&listing, &head, &[], false, at(10_000_000)), below, "age alone never decides");
    }

    #[test]
    fn an_archive_that_a_later_snapshot_names_stays() {
        let mut later = snapshot("4-1-bb", SnapshotKind::Final, "d");
        later.memory = Some(archive("snapshots/2-1-aa/memory.db.zst"));
        let head = head(4, vec![later]);
        let listing = ["snapshots/2-1-aa/memory.db.zst", "snapshots/2-1-aa/ledger.db.zst"];
        assert_eq!(keys(&listing, &head, &[], false, at(0)), ["snapshots/2-1-aa/ledger.db.zst"]);
    }

    #[test]
    fn what_a_listed_delta_builds_on_stays() {
        let mut delta = snapshot("4-1-bb", SnapshotKind::Final, "d");
        delta.memory.as_mut().unwrap().parent = Some("snapshots/3-1-aa/memory.delta.zst".into());
        let mut head = head(5, vec![delta]);
        let mut middle = archive("snapshots/3-1-aa/memory.delta.zst");
        middle.parent = Some("snapshots/2-1-aa/memory.db.zst".into());
        head.bases = vec![archive("snapshots/2-1-aa/memory.db.zst"), middle];
        let listing = [
            "snapshots/1-1-aa/memory.db.zst",
            "snapshots/2-1-aa/memory.db.zst",
            "snapshots/2-1-aa/ledger.db.zst",
            "snapshots/3-1-aa/memory.delta.zst",
            "snapshots/4-1-bb/memory.db.zst",
        ];
        assert_eq!(keys(&listing, &head, &[], true, at(0)), [listing[0], listing[2]]);
    }

    #[test]
    fn readers_of_a_dropped_snapshot_have_an_hour() {
        let mut head = head(4, vec![snapshot("3-1-bb", SnapshotKind::Final, "d")]);
        let keys_of_it = ["snapshots/1-1-aa/memory.db.zst", "snapshots/2-1-bb/ledger.db.zst"];
        let keys_of_it = keys_of_it.map(str::to_owned).to_vec();
        head.dropped.push(Dropped { id: "2-1-bb".into(), at: at(0), keys: keys_of_it });
        let listing = ["snapshots/1-1-aa/memory.db.zst", "snapshots/2-1-bb/ledger.db.zst"];
        assert_eq!(keys(&listing, &head, &[], false, at(3599)), [""; 0]);
        let listed: Vec<_> = listing.iter().map(|key| object(key)).collect();
        assert_eq!(collectable(&listed, &head, &[], false, at(10)).later, 2);
        assert_eq!(keys(&listing, &head, &[], false, at(3601)), listing);
    }

    #[test]
    fn a_blob_goes_when_no_snapshot_is_older_than_its_drop() {
        let blob = |key: &str, epoch| DroppedBlob { key: key.into(), epoch };
        let blobs = [blob("blobs/1-a", 3), blob("blobs/1-b", 4), blob("blobs/1-c", 5)];
        let head = head(
            6,
            vec![snapshot("4-1-aa", SnapshotKind::Final, "c"), snapshot("5-1-bb", SnapshotKind::Final, "d")],
        );
        let listing = ["blobs/1-a", "blobs/1-b", "blobs/1-c", "blobs/1-d"];
        assert_eq!(keys(&listing, &head, &blobs, false, at(0)), ["blobs/1-a", "blobs/1-b"]);
        let empty = crate::head::tests::head(6, vec![]);
        assert_eq!(keys(&listing, &empty, &blobs, true, at(0)), [""; 0]);
    }

    #[test]
    fn a_blob_whose_cycle_published_nothing_goes_when_it_is_fenced() {
        let mut head = head(7, vec![snapshot("4-1-aa", SnapshotKind::Final, "c")]);
        head.abandoned = vec![5, 7];
        let listing = ["blobs/4-a", "blobs/5-a", "blobs/5-b", "blobs/6-a", "blobs/7-a", "blobs/x-5"];
        assert_eq!(keys(&listing, &head, &[], false, at(0)), ["blobs/5-a", "blobs/5-b"]);
        let seeded_from = Some(crate::head::SeededFrom {
            namespace: "shop".into(),
            name: "other".into(),
            snapshot: "9-1-aa".into(),
            at: at(0),
        });
        let seeded = Head { seeded_from, ..head.clone() };
        assert_eq!(keys(&listing, &seeded, &[], false, at(0)), [""; 0], "keys with another agent's epochs");
        let empty = Head { snapshots: vec![], ..head };
        assert_eq!(keys(&listing, &empty, &[], false, at(0)), ["blobs/5-a", "blobs/5-b"]);
    }

    #[test]
    fn exports_go_after_a_week_and_probes_after_two_days() {
        let head = head(4, vec![]);
        let listing = ["exports/4-a.jsonl", "probe/x"];
        let day = 86_400;
        assert_eq!(keys(&listing, &head, &[], false, at(day)), [""; 0]);
        assert_eq!(keys(&listing, &head, &[], false, at(3 * day)), ["probe/x"]);
        assert_eq!(keys(&listing, &head, &[], false, at(8 * day)), listing);
    }
}
