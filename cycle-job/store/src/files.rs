//! Objects beside the snapshots: files that people put there, blobs of the ledger, spend of attempts.

use std::path::Path;

use bytes::Bytes;
use cicada_contract::report::Usage;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    agent_store::AgentStore,
    store::{Condition, Downloaded, ObjectMeta, Result, StoreError, check_key},
};

const FILES: &str = "files/";
pub(crate) const BLOBS: &str = "blobs/";
const USAGE: &str = "usage/";

/// The epoch in a blob's key below the agent's prefix: of the cycle that made it.
pub fn blob_epoch(key: &str) -> Option<u64> {
    key.strip_prefix(BLOBS)?.split_once('-')?.0.parse().ok()
}

/// A file that a person put into the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// Key as `files[].from.storeKey` names it.
    pub key: String,
    /// Bytes.
    pub size: u64,
    /// When it was put, by the store's clock.
    pub modified: Timestamp,
}

/// What an attempt spent, written while it runs, so that a killed one is counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptUsage {
    /// UID of the cycle.
    pub cycle: String,
    /// Epoch of the attempt.
    pub epoch: u64,
    /// When the attempt began: the day that it counts for.
    pub started_at: Timestamp,
    /// So far.
    pub usage: Usage,
}

/// An attempt whose spend the store has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageEntry {
    /// UID of the cycle.
    pub cycle: String,
    /// Epoch of the attempt.
    pub epoch: u64,
    /// When it was last told, by the store's clock.
    pub modified: Timestamp,
}

impl AgentStore {
    /// Puts a file of any size under `files/<key>`, replacing one that was there.
    pub async fn put_file(&self, key: &str, file: &Path) -> Result<()> {
        self.store().upload(&self.file_key(key)?, file, Condition::Any).await.map(|_| ())
    }

    /// Copies `files/<key>` to a file; above `max_bytes` it stops with [`StoreError::TooLarge`].
    pub async fn fetch_file(&self, key: &str, file: &Path, max_bytes: u64) -> Result<Downloaded> {
        self.store().download(&self.file_key(key)?, file, max_bytes).await
    }

    /// Removes `files/<key>`.
    pub async fn delete_file(&self, key: &str) -> Result<()> {
        self.store().delete(&self.file_key(key)?).await
    }

    /// Every file, by key.
    pub async fn list_files(&self) -> Result<Vec<StoredFile>> {
        let objects = self.store().list(&self.key(FILES)).await?;
        Ok(objects
            .into_iter()
            .filter_map(|object| {
                let key = self.relative(&object.key).strip_prefix(FILES)?.to_owned();
                Some(StoredFile { key, size: object.size, modified: object.modified })
            })
            .collect())
    }

    /// Stores content that is too large for the ledger; gives its key. The same content in the same epoch
    /// is one object.
    pub async fn put_blob(&self, epoch: u64, bytes: Bytes) -> Result<String> {
        let key = format!("{BLOBS}{epoch}-{}", cicada_contract::text::sha256_hex(&bytes));
        self.store().put(&self.key(&key), bytes, Condition::Any).await?;
        Ok(key)
    }

    /// Writes a blob of another memory under the key that it has there, which has its hash in it.
    pub async fn copy_blob(&self, key: &str, bytes: Bytes) -> Result<()> {
        self.store().put(&self.key(key), bytes, Condition::Any).await.map(|_| ())
    }

    /// Reads a blob by the key that [`Self::put_blob`] gave, and checks its hash.
    pub async fn get_blob(&self, key: &str) -> Result<Bytes> {
        let Some((_, expected)) = key.strip_prefix(BLOBS).and_then(|name| name.split_once('-')) else {
            return Err(StoreError::InvalidKey { key: key.into(), why: "it is no key of a blob" });
        };
        let object = self.store().get(&self.key(key)).await?;
        if cicada_contract::text::sha256_hex(&object.bytes) != expected {
            return Err(StoreError::Corrupt {
                key: key.into(),
                what: "its SHA-256 is not the one in its name".into(),
            });
        }
        Ok(object.bytes)
    }

    /// Writes what an attempt has spent so far. Its key has one writer: the attempt.
    pub async fn put_usage(&self, usage: &AttemptUsage) -> Result<()> {
        let key = self.usage_key(&usage.cycle, usage.epoch);
        let bytes = Bytes::from(serde_json::to_vec(usage).unwrap_or_default());
        self.store().put(&key, bytes, Condition::Any).await.map(|_| ())
    }

    /// Attempts that have told their spend, ended or killed.
    pub async fn list_usage(&self) -> Result<Vec<UsageEntry>> {
        let objects = self.store().list(&self.key(USAGE)).await?;
        let entry = |object: ObjectMeta| {
            let (cycle, name) = self.relative(&object.key).strip_prefix(USAGE)?.rsplit_once('/')?;
            let epoch = name.strip_suffix(".json")?.parse().ok()?;
            Some(UsageEntry { cycle: cycle.to_owned(), epoch, modified: object.modified })
        };
        Ok(objects.into_iter().filter_map(entry).collect())
    }

    /// What an attempt has spent; None if it can't be decoded or is gone.
    pub async fn get_usage(&self, entry: &UsageEntry) -> Result<Option<AttemptUsage>> {
        let key = self.usage_key(&entry.cycle, entry.epoch);
        match self.store().get(&key).await {
            Ok(read) => Ok(serde_json::from_slice(&read.bytes)
                .inspect_err(|_| tracing::warn!(key, "an attempt's usage can't be decoded"))
                .ok()),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes an attempt's usage of which nobody asks any more.
    pub async fn delete_usage(&self, entry: &UsageEntry) -> Result<()> {
        self.store().delete(&self.usage_key(&entry.cycle, entry.epoch)).await
    }

    fn usage_key(&self, cycle: &str, epoch: u64) -> String {
        self.key(&format!("{USAGE}{cycle}/{epoch}.json"))
    }

    fn file_key(&self, key: &str) -> Result<String> {
        check_key(key)?;
        Ok(self.key(&format!("{FILES}{key}")))
    }
}
