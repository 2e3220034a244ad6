//! What to publish, and what comes of it.

use std::time::Instant;

use cicada_contract::FailureClass;
use jiff::Timestamp;

use crate::{
    archive::PackedArchive,
    head::{AppliedRestore, ArchiveRef, HeadError, SeededFrom, Snapshot, SnapshotKind},
    store::StoreError,
};

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
    /// Memory of another agent that this publish starts the memory from.
    pub seeded_from: Option<SeededFrom>,
    /// Snapshot whose archives are taken over; what is newer than it gets pinned.
    pub restored_from: Option<String>,
    /// What HEAD goes on listing.
    pub retention: SnapshotRetention,
    /// When the work of the cycle had ended and its persist began; HEAD keeps how long a changed memory took.
    pub began: Option<Instant>,
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
            seeded_from: None,
            restored_from: None,
            retention: SnapshotRetention::default(),
            began: None,
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
    /// HEAD was removed while the cycle ran.
    #[error("HEAD was removed while the cycle ran; nothing was published")]
    HeadRemoved,
    /// An older HEAD was put in its place while the cycle ran: from a backup, or by hand.
    #[error(
        "HEAD was put back to epoch {epoch} while the cycle ran; nothing was published: put the newer HEAD.json back \
         (cicadactl verify tells more)"
    )]
    HeadPutBack {
        /// Its epoch.
        epoch: u64,
    },
    /// HEAD was made unreadable while the cycle ran.
    #[error("HEAD was replaced while the cycle ran; nothing was published")]
    HeadUnreadable(#[source] HeadError),
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
            Self::HeadRemoved => FailureClass::MemoryMissing,
            Self::HeadPutBack { .. } => FailureClass::StoreRolledBack,
            Self::HeadUnreadable(error) => error.class(),
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
