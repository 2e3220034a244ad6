//! Moving a memory to another store: every object first, HEAD last.
//!
//! The source is held (its epoch was raised) while it is copied, so no cycle writes meanwhile. The copy
//! exists from the moment at which its HEAD does; one that broke off is begun again and overwrites itself.
//!
//! A store may hold a snapshot that is damaged (a restore leaves it behind on purpose). It is left out, and the
//! caller is told; the current snapshot must be sound.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use cicada_contract::{plan::Owner, text::cut};
use jiff::Timestamp;

use crate::{
    agent_store::{AgentStore, HEAD_KEY, ReadHeadError, SNAPSHOTS, next_write, writer_id},
    head::{ArchiveRef, Head, HeadOwner, Snapshot},
    probe::PROBE,
    publish::Writer,
    store::{Condition, ObjectMeta, StoreError},
    swap::{SwapError, Swapped},
};

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyProgress {
    /// Bytes copied.
    pub bytes: u64,
    /// Bytes in all.
    pub total: u64,
    /// Objects copied.
    pub objects: usize,
}

/// A snapshot that the copy does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its id.
    pub snapshot: String,
    /// What is wrong with it.
    pub why: String,
}

/// A copy that is whole, but for what is named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Copied {
    /// What was copied.
    pub progress: CopyProgress,
    /// Damaged snapshots that stayed behind, oldest first.
    pub left_out: Vec<LeftOut>,
}

/// Why a memory was not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// There is a memory, or a part of another one.
    #[error("{location} already holds {what}; a memory is never copied over another")]
    TargetNotEmpty {
        /// Where.
        location: String,
        /// `a HEAD`, `snapshot ...`.
        what: String,
    },
    /// The current snapshot is damaged: a copy of the others would not be the memory.
    #[error(
        "the current snapshot {snapshot} is damaged ({why}); make a sound one current first \
         (cicadactl snapshots, cicadactl restore), then copy"
    )]
    Damaged {
        /// Its id.
        snapshot: String,
        /// What is wrong with it.
        why: String,
    },
    /// HEAD could not be read.
    #[error(transparent)]
    Read(#[from] ReadHeadError),
    /// One of the stores failed; running the same copy again goes on.
    #[error("could not copy {key}")]
    Store {
        /// Key below the agent's prefix.
        key: String,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl CopyError {
    /// True if the same call may work later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::TargetNotEmpty { .. } | Self::Damaged { .. } => false,
            Self::Read(error) => error.is_retryable(),
            Self::Store { source, .. } => source.is_retryable(),
        }
    }
}

impl Writer {
    /// Copies the memory that this writer holds to `target`, which must have none. `owner` is whose memory
    /// the copy is; None = the source's owner. `scratch` is a directory for one object at a time. The source
    /// stays as it is. Snapshots other than the current one that are damaged are left out.
    pub async fn copy_to(
        &mut self,
        target: &AgentStore,
        owner: Option<&Owner>,
        scratch: &Path,
        now: Timestamp,
        mut progress: impl FnMut(CopyProgress) + Send,
    ) -> Result<Copied, CopyError> {
        let source = self.agent().clone();
        let listing = source.store().list(&source.key("")).await.map_err(at(""))?;
        let mut damage = Damage::new(self.head().clone());
        let wanted = wanted(&source, listing, &damage.archives);
        check_target(target, &wanted).await?;
        if target.store().needs_probe() {
            target.probe().await.map_err(at(PROBE))?;
        }
        damage.look(&wanted)?;
        let mut done = CopyProgress { total: wanted.values().sum(), ..CopyProgress::default() };
        let file = scratch.join("copy");
        for (key, size) in damage.in_order(wanted) {
            match fetch(&source, &key, damage.archives.get(&key), &file).await {
                Ok(()) => target
                    .store()
                    .upload(&target.key(&key), &file, Condition::Any)
                    .await
                    .map(|_| ())
                    .map_err(at(&key))?,
                Err(error) if is_damage(&error) && damage.archives.contains_key(&key) => {
                    damage.note(&key, error.to_string())?;
                    done.total = done.total.saturating_sub(size);
                    continue;
                }
                Err(error) => return Err(at(&key)(error)),
            }
            done.bytes += size;
            done.objects += 1;
            progress(done);
        }
        // Nobody reads a scratch file; the next copy overwrites it should this fail.
        let _ = tokio::fs::remove_file(&file).await;
        let (head, left_out) = damage.without();
        let owner = owner.map_or_else(|| head.owner.clone(), |owner| HeadOwner::new(owner, None));
        publish_copy(target, Head { owner, ..head }, now).await?;
        Ok(Copied { progress: done, left_out })
    }
}

fn at(key: &str) -> impl FnOnce(StoreError) -> CopyError {
    let key = key.to_owned();
    move |source| CopyError::Store { key, source }
}

fn is_damage(error: &StoreError) -> bool {
    matches!(error, StoreError::Corrupt { .. } | StoreError::NotFound { .. } | StoreError::TooLarge { .. })
}

/// One object in `file`. An archive has HEAD's bytes, if need be after a second download, as in a restore.
async fn fetch(
    source: &AgentStore,
    key: &str,
    archive: Option<&ArchiveRef>,
    file: &Path,
) -> Result<(), StoreError> {
    let (whole, most) = (source.key(key), archive.map_or(u64::MAX, |archive| archive.archive_size));
    let mut second = false;
    loop {
        let error = match source.store().download(&whole, file, most).await {
            Ok(got) if archive.is_none_or(|archive| archive.archive_sha256 == got.sha256) => return Ok(()),
            Ok(got) => StoreError::Corrupt {
                key: key.to_owned(),
                what: format!("its SHA-256 is {}, not HEAD's", cut(&got.sha256, 16)),
            },
            Err(error) => error,
        };
        if second || !is_damage(&error) {
            return Err(error);
        }
        second = true;
    }
}

/// What of a HEAD can't be copied.
struct Damage {
    head: Head,
    archives: BTreeMap<String, ArchiveRef>,
    /// By key.
    found: BTreeMap<String, String>,
}

impl Damage {
    fn new(head: Head) -> Self {
        let archives = head.archives().map(|archive| (archive.key.clone(), archive.clone())).collect();
        Self { head, archives, found: BTreeMap::new() }
    }

    /// Notes archives that are not there, and deltas whose base HEAD does not name.
    fn look(&mut self, there: &BTreeMap<String, u64>) -> Result<(), CopyError> {
        let wrong = |archive: &ArchiveRef| match archive.links() {
            _ if !there.contains_key(&archive.key) => Some(format!("{} is not in the store", archive.key)),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        let found: Vec<_> = self.archives.values().filter_map(|a| Some((a.key.clone(), wrong(a)?))).collect();
        found.into_iter().try_for_each(|(key, why)| self.note(&key, why))
    }

    /// Remembers a damaged archive; an error if the current snapshot is made of it.
    fn note(&mut self, key: &str, why: String) -> Result<(), CopyError> {
        if let Some(current) = self.head.current().filter(|s| s.archive_keys().any(|needed| needed == key)) {
            return Err(CopyError::Damaged { snapshot: current.id.clone(), why });
        }
        self.found.insert(key.to_owned(), why);
        Ok(())
    }

    /// The current snapshot's objects first: if they are damaged, nothing else need be copied.
    fn in_order(&self, wanted: BTreeMap<String, u64>) -> Vec<(String, u64)> {
        let first: BTreeSet<&str> =
            self.head.current().into_iter().flat_map(Snapshot::archive_keys).collect();
        let (mut all, rest): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|(key, _)| first.contains(key.as_str()));
        all.extend(rest);
        all
    }

    /// HEAD without the snapshots that can't be restored.
    fn without(self) -> (Head, Vec<LeftOut>) {
        let Self { mut head, archives, found } = self;
        let mut left_out = vec![];
        head.snapshots.retain(|snapshot| {
            let why = snapshot.archive_keys().find_map(|key| found.get(key));
            left_out.extend(why.map(|why| LeftOut { snapshot: snapshot.id.clone(), why: why.clone() }));
            why.is_none()
        });
        head.settle(archives);
        (head, left_out)
    }
}

/// Keys below the agent's prefix with their sizes: all but HEAD, probes, and archives that HEAD does not name.
fn wanted(
    source: &AgentStore,
    listing: Vec<ObjectMeta>,
    archives: &BTreeMap<String, ArchiveRef>,
) -> BTreeMap<String, u64> {
    let relative = listing.into_iter().map(|object| (source.relative(&object.key).to_owned(), object.size));
    relative
        .filter(|(key, _)| {
            let unnamed = key.starts_with(SNAPSHOTS) && !archives.contains_key(key);
            key != HEAD_KEY && !key.starts_with(PROBE) && !unnamed
        })
        .collect()
}

/// What a copy that broke off has left is fine; anything else is not ours to replace.
async fn check_target(target: &AgentStore, wanted: &BTreeMap<String, u64>) -> Result<(), CopyError> {
    let occupied = |what: String| CopyError::TargetNotEmpty { location: target.location(), what };
    if target.read_head().await?.is_some() {
        return Err(occupied("a HEAD".into()));
    }
    let there = target.store().list(&target.key(SNAPSHOTS)).await;
    let there = there.map_err(|source| CopyError::Store { key: SNAPSHOTS.into(), source })?;
    match there.iter().map(|object| target.relative(&object.key)).find(|key| !wanted.contains_key(*key)) {
        Some(key) => Err(occupied(format!("`{key}`"))),
        None => Ok(()),
    }
}

async fn publish_copy(target: &AgentStore, head: Head, now: Timestamp) -> Result<(), CopyError> {
    let head = Head {
        holder: None,
        writer: writer_id().to_owned(),
        write: next_write(),
        written_at: now,
        whole_next: true,
        dropped: vec![],
        ..head
    };
    let failed = |source| CopyError::Store { key: HEAD_KEY.into(), source };
    match target.swap(&head, None).await {
        Ok(Swapped::Done { .. }) => Ok(()),
        Ok(Swapped::Lost) => {
            Err(CopyError::TargetNotEmpty { location: target.location(), what: "a HEAD by now".into() })
        }
        Err(SwapError::Refused(source) | SwapError::Unclear(source)) => Err(failed(source)),
    }
}
