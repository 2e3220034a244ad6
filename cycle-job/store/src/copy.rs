//! Moving a memory to another store: every object first, HEAD last.
//!
//! The source is held (its epoch was raised) while it is copied, so no cycle writes meanwhile. The copy
//! exists from the moment at which its HEAD does; one that broke off is begun again and overwrites itself.

use std::{collections::BTreeMap, path::Path};

use cicada_contract::{plan::Owner, text::cut};
use jiff::Timestamp;

use crate::{
    agent_store::{AgentStore, HEAD_KEY, ReadHeadError, SNAPSHOTS, next_write, writer_id},
    head::{ArchiveRef, Head, HeadOwner},
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
            Self::TargetNotEmpty { .. } => false,
            Self::Read(error) => error.is_retryable(),
            Self::Store { source, .. } => source.is_retryable(),
        }
    }
}

impl Writer {
    /// Copies the memory that this writer holds to `target`, which must have none. `owner` is whose memory
    /// the copy is; None = the source's owner. `scratch` is a directory for one object at a time. The source
    /// stays as it is.
    pub async fn copy_to(
        &mut self,
        target: &AgentStore,
        owner: Option<&Owner>,
        scratch: &Path,
        now: Timestamp,
        mut progress: impl FnMut(CopyProgress) + Send,
    ) -> Result<CopyProgress, CopyError> {
        let source = self.agent().clone();
        let at = |key: &str| {
            let key = key.to_owned();
            move |source| CopyError::Store { key, source }
        };
        let listing = source.store().list(&source.key("")).await.map_err(at(""))?;
        let head = self.head().clone();
        let archives = archives_of(&head);
        let wanted = wanted(&source, listing, &archives);
        check_target(target, &wanted).await?;
        if target.store().needs_probe() {
            target.probe().await.map_err(at(PROBE))?;
        }
        let mut done = CopyProgress { total: wanted.values().sum(), ..CopyProgress::default() };
        let file = scratch.join("copy");
        for (key, size) in wanted {
            let got = source.store().download(&source.key(&key), &file, u64::MAX).await.map_err(at(&key))?;
            if archives.get(key.as_str()).is_some_and(|archive| archive.archive_sha256 != got.sha256) {
                return Err(at(&key)(StoreError::Corrupt {
                    key: key.clone(),
                    what: format!("its SHA-256 is {}, not HEAD's", cut(&got.sha256, 16)),
                }));
            }
            target.store().upload(&target.key(&key), &file, Condition::Any).await.map_err(at(&key))?;
            done.bytes += size;
            done.objects += 1;
            progress(done);
        }
        // Nobody reads a scratch file; the next copy overwrites it should this fail.
        let _ = tokio::fs::remove_file(&file).await;
        let owner = owner.map_or_else(|| head.owner.clone(), |owner| HeadOwner::new(owner, None));
        publish_copy(target, Head { owner, ..head }, now).await?;
        Ok(done)
    }
}

fn archives_of(head: &Head) -> BTreeMap<String, ArchiveRef> {
    head.archives().map(|archive| (archive.key.clone(), archive.clone())).collect()
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
