//! Chains of archives: a whole file and the deltas on it, and when the next archive may be a delta.
//!
//! A delta saves an upload and costs every later restore. So there are few of them in a row, together they are
//! much smaller than what they save, and none builds on a file that a person put in place.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};

use crate::head::{ArchiveRef, Head};

/// Smallest file that deltas are made of, bytes. Below it a whole archive is uploaded in about a second.
pub const DELTA_FROM: u64 = 64 << 20;
/// Most deltas on one whole archive.
pub const CHAIN_MAX: usize = 16;
/// Most links that are followed: a HEAD with longer chains is damaged, or its links form a ring.
const LINKS_MAX: usize = 64;
/// Age from which a whole archive gets no more deltas: what a bucket's rules, or people, do to single old
/// objects then costs a week at most.
const WHOLE_EVERY: SignedDuration = SignedDuration::from_hours(7 * 24);

/// HEAD does not name all the archives of a chain. The memory may be whole; its list is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("HEAD names no archive {parent}, which {key} builds on: restore HEAD from the bucket's versions")]
pub struct ChainError {
    /// The delta.
    pub key: String,
    /// What it builds on.
    pub parent: String,
}

impl ChainError {
    /// Nothing but another HEAD helps.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// What a delta may be made against.
#[derive(Debug, Clone, PartialEq)]
pub struct DeltaBase {
    /// The archive of the file that it holds the changes against.
    pub parent: ArchiveRef,
    /// Largest archive, in bytes.
    pub max_bytes: u64,
}

impl ArchiveRef {
    /// The archives that make its file: a whole one, then deltas in the order of their use, itself last.
    pub fn links(&self) -> Result<Vec<&Self>, ChainError> {
        let mut links = vec![self];
        let mut last = self;
        while let Some(parent) = &last.parent {
            let missing = || ChainError { key: last.key.clone(), parent: parent.clone() };
            last = last.base.as_deref().ok_or_else(missing)?;
            links.push(last);
        }
        links.reverse();
        Ok(links)
    }

    /// True if its file is made without other archives.
    pub fn is_whole(&self) -> bool {
        self.parent.is_none()
    }
}

impl Head {
    /// Every archive that listed snapshots need, also those that only deltas build on.
    pub fn archives(&self) -> impl Iterator<Item = &ArchiveRef> {
        self.snapshots.iter().flat_map(|snapshot| snapshot.archives()).chain(&self.bases)
    }

    /// What the next memory archive may be a delta against; None = it must be a whole one. `smallest` is
    /// [`DELTA_FROM`] outside tests.
    pub fn delta_base(&self, smallest: u64, now: Timestamp) -> Option<DeltaBase> {
        let parent = self.current()?.memory.as_ref()?;
        let links = parent.links().ok()?;
        let (whole, deltas) = links.split_first()?;
        let used: u64 = deltas.iter().map(|delta| delta.archive_size).sum();
        let max_bytes = (whole.archive_size / 2).saturating_sub(used);
        let is_young = whole.made_at.is_some_and(|at| now.duration_since(at) < WHOLE_EVERY);
        let may = !self.whole_next
            && is_young
            && deltas.len() < CHAIN_MAX
            && parent.file_size >= smallest
            && max_bytes > 0;
        may.then(|| DeltaBase { parent: parent.clone(), max_bytes })
    }

    /// After reading: gives each delta what it builds on.
    pub(crate) fn link(&mut self) {
        let known: BTreeMap<String, ArchiveRef> =
            self.archives().map(|archive| (archive.key.clone(), archive.clone())).collect();
        let listed = self.snapshots.iter_mut().flat_map(|s| [&mut s.memory, &mut s.ledger]).flatten();
        for archive in listed.chain(&mut self.bases) {
            archive.base = base_of(archive, &known, LINKS_MAX);
        }
    }

    /// After the list has changed: keeps in `bases` what it still needs of `known`. Gives the keys of
    /// `known` that nothing needs any more.
    pub(crate) fn settle(&mut self, known: BTreeMap<String, ArchiveRef>) -> Vec<String> {
        let listed: BTreeSet<&str> =
            self.snapshots.iter().flat_map(|snapshot| snapshot.archives()).map(|a| a.key.as_str()).collect();
        let mut needed = BTreeSet::new();
        for key in &listed {
            let mut next = known.get(*key);
            while let Some(archive) = next.filter(|archive| needed.insert(archive.key.clone())) {
                next = archive.parent.as_ref().and_then(|parent| known.get(parent));
            }
        }
        let bases = known.values().filter(|a| needed.contains(&a.key) && !listed.contains(a.key.as_str()));
        let bases = bases.cloned().collect();
        self.bases = bases;
        known.into_keys().filter(|key| !needed.contains(key)).collect()
    }
}

/// What `archive` builds on, linked down to a whole archive. A ring ends after `most` links, with one missing.
fn base_of(
    archive: &ArchiveRef,
    known: &BTreeMap<String, ArchiveRef>,
    most: usize,
) -> Option<Arc<ArchiveRef>> {
    let parent = known.get(archive.parent.as_ref()?).filter(|_| most > 0)?;
    Some(Arc::new(ArchiveRef { base: base_of(parent, known, most - 1), ..parent.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{
        HEAD_VERSION, HEAD_VERSION_DELTAS, SnapshotKind,
        tests::{at, head, snapshot},
    };

    /// A memory with a whole archive of 100 bytes and `deltas` of 3, each in a snapshot of its own.
    fn chained(deltas: u64) -> Head {
        let mut head = head(9, vec![]);
        for n in 0..=deltas {
            let mut link = snapshot(&format!("9-{n}-aa"), SnapshotKind::Final, "c");
            let memory = link.memory.as_mut().unwrap();
            memory.made_at = Some(at(0));
            memory.archive_size = if n == 0 { 100 } else { 3 };
            memory.parent = head.snapshots.last().map(|s| s.memory.as_ref().unwrap().key.clone());
            head.current = Some(link.id.clone());
            head.snapshots.push(link);
        }
        head.link();
        head
    }

    fn current(head: &Head) -> &ArchiveRef {
        head.current().unwrap().memory.as_ref().unwrap()
    }

    #[test]
    fn a_chain_begins_with_a_whole_archive_and_has_the_order_of_use() {
        let head = chained(3);
        let keys: Vec<_> = current(&head).links().unwrap().iter().map(|a| a.key.clone()).collect();
        let expected: Vec<_> = (0..4).map(|n| format!("snapshots/9-{n}-aa/memory.db.zst")).collect();
        assert_eq!(keys, expected);
    }

    #[test]
    fn a_link_that_head_does_not_name_and_a_ring_are_errors() {
        let mut head = chained(3);
        let gone = head.snapshots.remove(1).memory.unwrap().key;
        head.link();
        assert_eq!(current(&head).links().unwrap_err().parent, gone);
        assert_eq!(head.delta_base(0, at(1)), None);
        let mut ring = chained(1);
        ring.snapshots[0].memory.as_mut().unwrap().parent =
            Some(ring.snapshots[1].memory.as_ref().unwrap().key.clone());
        ring.link();
        assert!(current(&ring).links().is_err());
    }

    #[test]
    fn a_delta_is_made_only_where_it_saves_more_than_it_costs() {
        let of = |head: &Head, smallest, second| head.delta_base(smallest, at(second)).map(|b| b.max_bytes);
        assert_eq!(of(&chained(0), 8192, 1), Some(50));
        assert_eq!(of(&chained(15), 8192, 1), Some(5), "half of the whole archive for all of them");
        assert_eq!(of(&chained(16), 8192, 1), None, "sixteen in a row are enough");
        assert_eq!(of(&chained(0), 8193, 1), None, "small files are uploaded whole");
        assert_eq!(of(&chained(0), 8192, 7 * 86_400), None, "a week is enough");
        let restored = Head { whole_next: true, ..chained(0) };
        assert_eq!(of(&restored, 8192, 1), None);
        let mut early = chained(0);
        early.snapshots[0].memory.as_mut().unwrap().made_at = None;
        assert_eq!(of(&early, 8192, 1), None, "of unknown age");
        assert_eq!(of(&head(1, vec![]), 0, 1), None);
    }

    #[test]
    fn a_head_with_deltas_is_of_a_version_that_earlier_releases_refuse() {
        let version = |head: &Head| {
            serde_json::from_slice::<serde_json::Value>(&head.render()).unwrap()["version"].clone()
        };
        let mut head = chained(2);
        assert_eq!(version(&head), HEAD_VERSION_DELTAS);
        head.snapshots.truncate(1);
        assert_eq!(version(&head), HEAD_VERSION, "without deltas an upgrade can be taken back");
        let mut kept = chained(2);
        let listed = kept.snapshots.pop().unwrap();
        kept.bases = std::mem::take(&mut kept.snapshots).into_iter().filter_map(|s| s.memory).collect();
        kept.snapshots.push(listed);
        let read = Head::parse(&kept.render()).unwrap();
        assert_eq!(current(&read).links().unwrap().len(), 3);
    }
}
