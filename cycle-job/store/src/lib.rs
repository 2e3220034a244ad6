//! Snapshots of agents over object storage: HEAD with its compare-and-swap, immutable archives, inbox and
//! outbox, files. A bucket or a local directory behind one trait; no SQLite in here.
//!
//! ```text
//! <prefix>/<namespace>/<agent>/HEAD.json                         the only object that is ever replaced
//!                              snapshots/<epoch>-<seq>-<random>/memory.db.zst or memory.delta.zst  ledger.db.zst
//!                              inbox/<hash>.json  outbox/<id>/claim-N receipt-N
//!                              usage/<cycle>/<epoch>.json  files/<key>  blobs/<epoch>-<sha256>
//!                              quarantine/...
//! ```
//!
//! ## Why
//! - **The fence is a number in HEAD, not a lease.** Each cycle raises the epoch when it starts and publishes
//!   by compare-and-swap from its own last write. A process that was stopped for an hour can wake up and try
//!   everything: it can't overwrite what came after it, and there is no lock to clean up after one that died.
//! - **Nothing is deleted on doubt.** An answer that was lost may have been a success; what lies around is
//!   collected later, by epoch, when it can't be anybody's any more.
//! - **What a caller branches on is an error variant**, so that a lost race is never mistaken for an outage.

mod acquire;
mod agent_store;
mod archive;
mod chain;
mod collect;
pub mod conformance;
mod copy;
mod decide;
mod delta;
mod directory;
pub mod faulty;
mod files;
pub mod head;
mod inbox;
mod open;
mod outbox;
mod probe;
mod publish;
mod s3;
mod store;
mod swap;
#[cfg(test)]
mod tests;

pub use acquire::{ATTEMPTS_MAX, AcquireError, AcquireRequest, Acquired, Acquisition, Start};
pub use agent_store::{AgentStore, HEAD_KEY, HeadAt, ReadHeadError};
pub use archive::{PackError, PackedArchive, WINDOW_LOG_MAX, pack};
pub use chain::{CHAIN_MAX, ChainError, DELTA_FROM, DeltaBase};
pub use collect::{CollectError, Collectable, Collected, DroppedBlob, collectable};
pub use copy::{Copied, CopyError, CopyProgress, LeftOut};
pub use decide::{Decision, decide};
pub use delta::{PageHasher, PageHashes, pack_delta};
pub use directory::DirectoryStore;
pub use files::{AttemptUsage, StoredFile, UsageEntry, blob_epoch};
pub use head::{ArchiveRef, Head, HeadError, Holder, Snapshot, SnapshotKind};
pub use inbox::{INBOX_MAX_BYTES, INBOX_VERSION, InboxEntry, InboxError, InboxMessage};
pub use open::{open, parse_url};
pub use outbox::{CLAIM_UNKNOWN_AFTER, Claim, Delivery, DeliveryOutcome, Receipt};
pub use publish::{Archive, PublishError, PublishRequest, Published, SnapshotRetention, Writer, is_held};
pub use s3::{Credentials, S3Store};
pub use store::{
    BucketFacts, Condition, Downloaded, ETag, GET_MAX_BYTES, Object, ObjectMeta, ObjectStore, StoreError,
    check_key,
};
