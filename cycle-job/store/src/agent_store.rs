//! One agent's part of a store: `<namespace>/<agent>/` with HEAD, snapshots, inbox and the rest.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cicada_contract::FailureClass;
use rand::Rng;

use crate::{
    head::{Head, HeadError},
    store::{ETag, ObjectStore, Result, StoreError, check_key},
};

/// Name of the one object that is replaced.
pub const HEAD_KEY: &str = "HEAD.json";
/// Folder of the archives.
pub(crate) const SNAPSHOTS: &str = "snapshots/";

/// One agent's part of a store.
#[derive(Debug, Clone)]
pub struct AgentStore {
    store: Arc<dyn ObjectStore>,
    /// `<namespace>/<agent>/`.
    prefix: String,
    /// First pause of a retry; tests make it short.
    pub(crate) pause: Duration,
}

/// HEAD as it was read.
#[derive(Debug, Clone)]
pub struct HeadAt {
    /// Its content.
    pub head: Head,
    /// Its version, for the compare-and-swap.
    pub etag: ETag,
}

/// Why HEAD could not be had. Its absence is not an error.
#[derive(Debug, thiserror::Error)]
pub enum ReadHeadError {
    /// The store failed.
    #[error("could not read HEAD")]
    Store(#[from] StoreError),
    /// Its bytes can't be used.
    #[error("could not understand HEAD")]
    Head(#[from] HeadError),
}

impl ReadHeadError {
    /// True if the same call may work later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_retryable())
    }

    /// What a cycle that can't go on because of it reports; `otherwise` as for [`StoreError::class`].
    pub fn class(&self, otherwise: FailureClass) -> FailureClass {
        match self {
            Self::Store(error) => error.class(otherwise),
            Self::Head(error) => error.class(),
        }
    }
}

impl AgentStore {
    /// The part of `namespace`'s agent `name`. The prefix of the bucket is already in `store`.
    pub fn new(store: Arc<dyn ObjectStore>, namespace: &str, name: &str) -> Result<Self> {
        for part in [namespace, name] {
            if part.contains('/') {
                return Err(StoreError::InvalidKey { key: part.into(), why: "it has a slash" });
            }
            check_key(part)?;
        }
        Ok(Self { store, prefix: format!("{namespace}/{name}/"), pause: Duration::from_millis(200) })
    }

    /// The store below.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Where the memory lies, for people: `s3://bucket/prefix/namespace/agent/`.
    pub fn location(&self) -> String {
        format!("{}/{}", self.store.location(), self.prefix)
    }

    /// The whole key of something below the agent's prefix.
    pub fn key(&self, relative: &str) -> String {
        format!("{}{relative}", self.prefix)
    }

    /// The part of a listed key below the agent's prefix.
    pub(crate) fn relative<'k>(&self, key: &'k str) -> &'k str {
        key.strip_prefix(&self.prefix).unwrap_or(key)
    }

    /// Reads HEAD; None if there is none.
    pub async fn read_head(&self) -> Result<Option<HeadAt>, ReadHeadError> {
        match self.store.get(&self.key(HEAD_KEY)).await {
            Ok(object) => Ok(Some(HeadAt { head: Head::parse(&object.bytes)?, etag: object.etag })),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Ids of the snapshots whose objects exist, whether HEAD lists them or not.
    pub async fn snapshot_ids(&self) -> Result<Vec<String>> {
        let objects = self.store.list(&self.key(SNAPSHOTS)).await?;
        let ids = objects.iter().filter_map(|object| {
            self.relative(&object.key).strip_prefix(SNAPSHOTS)?.split('/').next().map(str::to_owned)
        });
        let mut ids: Vec<_> = ids.collect();
        ids.dedup();
        Ok(ids)
    }
}

/// 128 random bits of this process, hexadecimal: what makes its HEADs unlike all others.
pub(crate) fn writer_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| hex::encode(rand::rng().random::<[u8; 16]>()))
}

/// Number of this process's next write of a HEAD.
pub(crate) fn next_write() -> u64 {
    static WRITES: AtomicU64 = AtomicU64::new(1);
    WRITES.fetch_add(1, Ordering::Relaxed)
}
