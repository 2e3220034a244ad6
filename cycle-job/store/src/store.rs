//! The seam between snapshots and where their bytes lie: few operations, each with named outcomes.
//!
//! Keys are relative paths (`shop/clerk/HEAD.json`) below the root or prefix of the store. Everything that
//! a caller branches on is a variant of [`StoreError`]; a lost compare-and-swap is never a string.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use cicada_contract::FailureClass;
use jiff::Timestamp;

/// Largest object that [`ObjectStore::get`] reads into memory, in bytes. HEAD with all its lists stays
/// below 1 MiB; everything larger goes through [`ObjectStore::download`].
pub const GET_MAX_BYTES: u64 = 32 << 20;
/// Longest key in bytes: S3 allows 1,024 for the whole key, and the store's own prefix needs room.
pub(crate) const KEY_MAX_BYTES: usize = 800;
/// Longest part of a key between slashes, in bytes: file systems allow 255.
pub(crate) const SEGMENT_MAX_BYTES: usize = 200;
/// Names that begin so belong to [`crate::DirectoryStore`] itself and are refused in keys.
pub(crate) const RESERVED: &str = ".cicada-";

/// What a store told about one version of an object. Opaque; equal only for equal bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ETag(pub String);

/// When a write may take effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Always. Only for keys that have one writer.
    Any,
    /// Only if there is no such object: else [`StoreError::AlreadyExists`].
    Create,
    /// Only if the object is this version: else (also when it is missing) [`StoreError::Precondition`].
    Match(ETag),
}

/// A small object as it was read.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its content.
    pub bytes: Bytes,
    /// Its version.
    pub etag: ETag,
}

/// What was learned while an object was copied to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Downloaded {
    /// Bytes.
    pub size: u64,
    /// Lower-case hexadecimal SHA-256 of them.
    pub sha256: String,
}

/// One line of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectMeta {
    /// The whole key below the root of the store.
    pub key: String,
    /// Bytes.
    pub size: u64,
    /// When it was written, by the store's clock. For people and for grace times; never decides who owns it.
    pub modified: Timestamp,
}

/// Result of a store operation.
pub(crate) type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Where bytes lie. Every implementation passes [`crate::conformance`].
#[async_trait]
pub trait ObjectStore: Send + Sync + std::fmt::Debug {
    /// Reads a whole object of at most [`GET_MAX_BYTES`].
    async fn get(&self, key: &str) -> Result<Object>;

    /// Copies an object to a new or emptied file. Above `max_bytes` it stops with
    /// [`StoreError::TooLarge`]; on any error the file is removed.
    async fn download(&self, key: &str, file: &Path, max_bytes: u64) -> Result<Downloaded>;

    /// Writes a small object in one step. After an unclear error ([`StoreError::is_unclear`]) it may
    /// have taken effect, or may yet do so.
    async fn put(&self, key: &str, bytes: Bytes, condition: Condition) -> Result<ETag>;

    /// Writes an object from a file of any size; readers see all of it or nothing.
    async fn upload(&self, key: &str, file: &Path, condition: Condition) -> Result<ETag>;

    /// Removes an object. Not an error if there is none.
    async fn delete(&self, key: &str) -> Result<()>;

    /// Every object whose key begins with `prefix` (a string, not a folder), sorted by key.
    async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>>;

    /// Removes what uploads have left unfinished below `prefix` that began before `before`; gives their
    /// number. Nothing that can be read is touched.
    async fn sweep(&self, prefix: &str, before: Timestamp) -> Result<usize>;

    /// What the bucket keeps beyond its objects. A directory keeps nothing.
    async fn facts(&self) -> BucketFacts;

    /// True if conditional writes are another program's promise, which has to be tried.
    fn needs_probe(&self) -> bool;

    /// The store as people write it, without secrets: `s3://bucket/prefix`, `file:///dir`.
    fn location(&self) -> String;
}

/// What a bucket keeps beyond its objects: old versions outlive a purge. None = the credentials may not
/// ask, or the server does not know the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BucketFacts {
    /// Replaced and deleted objects are kept as versions.
    pub versioning: Option<bool>,
    /// Objects may be locked against deletion.
    pub object_lock: Option<bool>,
    /// Objects are copied to other buckets.
    pub replication: Option<bool>,
}

impl BucketFacts {
    /// Of a store that is not a bucket.
    pub const NONE: Self =
        Self { versioning: Some(false), object_lock: Some(false), replication: Some(false) };
}

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why an operation failed: one variant for each thing that a caller does differently.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No such object.
    #[error("no object `{key}` in the store")]
    NotFound {
        /// Its key.
        key: String,
    },
    /// A create found an object.
    #[error("object `{key}` exists already")]
    AlreadyExists {
        /// Its key.
        key: String,
    },
    /// The object is not, or no longer, the version that was named.
    #[error("object `{key}` was changed by another writer")]
    Precondition {
        /// Its key.
        key: String,
    },
    /// The server could not decide between writers at once (409). Read again, then try again.
    #[error("the store could not order concurrent writes of `{key}`")]
    Conflict {
        /// Its key.
        key: String,
    },
    /// Wrong, expired or missing credentials, or ones that may not do this.
    #[error(
        "the store refused the credentials: {reason} ({location}); check the Secret or the bucket policy"
    )]
    Unauthorized {
        /// The store.
        location: String,
        /// The server's error code, or what is missing.
        reason: String,
        /// What the client said.
        #[source]
        source: Option<Source>,
    },
    /// The system does not let this process read or write a directory's files.
    #[error(
        "no permission to {operation} `{key}` in the store's directory: {what}; give the user that runs this the right to it, or choose another store"
    )]
    NotPermitted {
        /// `get`, `put`, ...
        operation: &'static str,
        /// Key or prefix.
        key: String,
        /// What the system said.
        what: String,
    },
    /// The bucket is not there.
    #[error("the bucket does not exist: create `{bucket}` or correct the store's bucket name")]
    BucketMissing {
        /// Its name.
        bucket: String,
    },
    /// The store can't compare and swap, so two writers could overwrite each other.
    #[error(
        "the store has no conditional writes: {what} ({location}); use a store that honours If-Match and If-None-Match"
    )]
    NoConditionalWrites {
        /// The store.
        location: String,
        /// What it did.
        what: String,
    },
    /// Not reached, no answer in time, or an answer that says "later". A write may have taken effect.
    #[error("the store is unavailable: {operation} of `{key}` got {what}")]
    Unavailable {
        /// `get`, `put`, ...
        operation: &'static str,
        /// Key or prefix.
        key: String,
        /// `no answer in time`, `status 503`, ...
        what: String,
        /// What the client said.
        #[source]
        source: Option<Source>,
    },
    /// More bytes than the caller allows.
    #[error("object `{key}` is larger than {limit} bytes")]
    TooLarge {
        /// Its key.
        key: String,
        /// The caller's limit.
        limit: u64,
    },
    /// The bytes are not what they should be.
    #[error("object `{key}` is damaged: {what}")]
    Corrupt {
        /// Its key.
        key: String,
        /// What differs.
        what: String,
    },
    /// No key can look like this.
    #[error("`{key}` can't be a key: {why}")]
    InvalidKey {
        /// The text.
        key: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// The store's configuration can't work.
    #[error("the store's configuration is wrong: {what}")]
    Config {
        /// What to correct.
        what: String,
    },
    /// A file of this machine (not of the store) could not be read or written, e.g. for a full disk.
    #[error("could not use the local file {}", path.display())]
    LocalFile {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The disk that the store itself lies on is full. Nothing was written.
    #[error("the store's disk has no room for `{key}`: make room there")]
    NoRoom {
        /// Key or prefix.
        key: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The server refused for a reason that no retry changes.
    #[error("the store refused {operation} of `{key}`: {code}")]
    Refused {
        /// `get`, `put`, ...
        operation: &'static str,
        /// Key or prefix.
        key: String,
        /// The server's error code.
        code: String,
        /// What the client said.
        #[source]
        source: Option<Source>,
    },
}

impl StoreError {
    /// True if the same call may work later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Conflict { .. } | Self::Unavailable { .. })
    }

    /// True if a write that ended so may have taken effect, or may yet do so.
    pub fn is_unclear(&self) -> bool {
        self.is_retryable()
    }

    /// True if there is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// True if a disk is full: this machine's, or that of a store in a directory.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::LocalFile { source, .. } => is_no_room(source),
            Self::NoRoom { .. } => true,
            _ => false,
        }
    }

    /// What a cycle that can't go on because of this error reports. `otherwise` is the class of the
    /// phase, for what is neither an outage nor a refusal.
    pub fn class(&self, otherwise: FailureClass) -> FailureClass {
        match self {
            _ if self.is_retryable() => FailureClass::StoreUnavailable,
            _ if self.is_disk_full() => FailureClass::DiskBudget,
            Self::Unauthorized { .. }
            | Self::NotPermitted { .. }
            | Self::BucketMissing { .. }
            | Self::NoConditionalWrites { .. }
            | Self::Config { .. } => FailureClass::StoreRefused,
            _ => otherwise,
        }
    }
}

/// True if an error says that there is no room on a disk.
pub(crate) fn is_no_room(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// Refuses keys that some store can't hold: absolute, empty or dotted parts, control characters, too long.
pub fn check_key(key: &str) -> Result<()> {
    let why = if key.is_empty() {
        "it is empty"
    } else if key.len() > KEY_MAX_BYTES {
        "it is longer than 800 bytes"
    } else if key.chars().any(|c| c.is_control() || c == '\\') {
        "it has a control character or a backslash"
    } else {
        let wrong = key.split('/').find_map(|part| match part {
            "" => Some("it has an empty part (a slash at an end, or two in a row)"),
            "." | ".." => Some("it has a part `.` or `..`"),
            _ if part.starts_with(RESERVED) => Some("names that begin with `.cicada-` are reserved"),
            _ if part.len() > SEGMENT_MAX_BYTES => Some("a part of it is longer than 200 bytes"),
            _ => None,
        });
        match wrong {
            Some(why) => why,
            None => return Ok(()),
        }
    };
    Err(StoreError::InvalidKey { key: cicada_contract::text::cut(key, 120), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_below_the_root_of_the_store() {
        for good in ["a", "a/b.json", "Grüße/ü 1.csv", ".env", "a/..b", &"x".repeat(200)] {
            assert!(check_key(good).is_ok(), "{good}");
        }
        let long = format!("{}b", "x/".repeat(400));
        for bad in [
            "",
            "/a",
            "a/",
            "a//b",
            "..",
            "a/../b",
            ".",
            "a\nb",
            "a\\b",
            "a/.cicada-tmp",
            &long,
            &"x".repeat(201),
        ] {
            assert!(matches!(check_key(bad), Err(StoreError::InvalidKey { .. })), "{bad}");
        }
    }

    #[test]
    fn outages_are_retried_and_refusals_are_not() {
        let outage = StoreError::Unavailable {
            operation: "put",
            key: "k".into(),
            what: "status 503".into(),
            source: None,
        };
        assert_eq!(outage.class(FailureClass::RestoreFailed), FailureClass::StoreUnavailable);
        let refusal = StoreError::BucketMissing { bucket: "b".into() };
        assert!(!refusal.is_retryable());
        assert_eq!(refusal.class(FailureClass::RestoreFailed), FailureClass::StoreRefused);
        let gone = StoreError::NotFound { key: "k".into() };
        assert_eq!(gone.class(FailureClass::RestoreFailed), FailureClass::RestoreFailed);
        let source = || std::io::ErrorKind::StorageFull.into();
        let local = StoreError::LocalFile { path: "x".into(), source: source() };
        for full in [local, StoreError::NoRoom { key: "k".into(), source: source() }] {
            assert_eq!(full.class(FailureClass::RestoreFailed), FailureClass::DiskBudget);
            assert!(!full.is_unclear(), "{full}");
        }
    }
}
