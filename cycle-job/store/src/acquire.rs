//! Taking a memory for one cycle: epoch + 1, as [`decide`] says.
//!
//! No lease and no clock guard a memory: who raised the epoch last may publish, all earlier ones can't, so
//! nothing is ever to be unlocked.

use cicada_contract::{
    FailureClass,
    plan::{CycleIdentity, Expect, Owner},
};
use jiff::Timestamp;

use crate::{
    agent_store::{AgentStore, HeadAt, ReadHeadError, next_write, writer_id},
    decide::{Decision, decide},
    head::{Holder, Snapshot},
    publish::Writer,
    store::StoreError,
    swap::{SwapError, Swapped},
};

/// Most attempts of one cycle.
pub const ATTEMPTS_MAX: u32 = 10;
/// Most times that an acquire begins again because another writer was faster.
const LOST_MAX: u32 = 5;

/// Who wants a memory, and what is known of it.
#[derive(Debug, Clone)]
pub struct AcquireRequest {
    /// Whose memory it is.
    pub owner: Owner,
    /// UID of the namespace; None where it is not known.
    pub namespace_uid: Option<String>,
    /// The cycle. Its UID is never empty.
    pub cycle: CycleIdentity,
    /// When the cycle must have ended, for those who look at HEAD.
    pub deadline: Timestamp,
    /// What the operator has seen of the memory.
    pub expect: Expect,
    /// Path of an owner from whom the memory may be taken over.
    pub take_over_from: Option<String>,
    /// Loss that a person accepted: the token that [`AcquireError::MemoryMissing`] named.
    pub accept_memory_loss: Option<String>,
    /// Keys of the requests that this cycle answers.
    pub handled_keys: Vec<String>,
    /// The cycle has triggers without a key as well (a cron slot, a message): it is never "handled".
    pub has_other_triggers: bool,
    /// A new namespace UID is a conflict.
    pub refuse_namespace_reuse: bool,
    /// Refuse while another holder is before its deadline: for people's commands, never for cycles.
    pub refuse_if_held: bool,
    /// The time.
    pub now: Timestamp,
}

impl AcquireRequest {
    /// A request with nothing expected and nothing accepted.
    pub fn new(owner: Owner, cycle: CycleIdentity, deadline: Timestamp, now: Timestamp) -> Self {
        Self {
            owner,
            namespace_uid: None,
            cycle,
            deadline,
            expect: Expect::default(),
            take_over_from: None,
            accept_memory_loss: None,
            handled_keys: vec![],
            has_other_triggers: false,
            refuse_namespace_reuse: false,
            refuse_if_held: false,
            now,
        }
    }
}

/// What acquire found.
#[derive(Debug)]
pub enum Acquisition {
    /// The memory is this cycle's.
    Held(Box<Acquired>),
    /// Every request of the cycle was handled before. Nothing was written.
    AlreadyHandled(Box<HeadAt>),
}

/// A memory that was acquired.
#[derive(Debug)]
pub struct Acquired {
    /// The right to publish.
    pub writer: Writer,
    /// What the cycle starts from.
    pub start: Start,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// The memory was written by an earlier object of the same name.
    pub adopted: bool,
}

/// What a cycle starts from.
#[derive(Debug, Clone, PartialEq)]
pub enum Start {
    /// There is no memory yet.
    Empty,
    /// The current snapshot.
    Current(Snapshot),
    /// This cycle has its `final` snapshot: the executor must not run again. This is the current snapshot:
    /// that one, or one that came after it.
    Recovered(Snapshot),
    /// This cycle's own `interrupted` snapshot or checkpoint.
    Resume(Snapshot),
}

/// Why a memory was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// HEAD names another owner.
    #[error("the memory belongs to {found}; set memory.takeOverFrom to that, or use another prefix")]
    Conflict {
        /// Path of that owner.
        found: String,
    },
    /// The namespace was made again, and the store may not be reused.
    #[error(
        "the memory belongs to an earlier namespace of the same name, and store.namespaceReuse is Refuse"
    )]
    NamespaceReused,
    /// HEAD is missing where one was expected.
    #[error(
        "HEAD is missing but {found}; restore the bucket, or accept the loss with \
         cicada.dev/accept-memory-loss: {token}"
    )]
    MemoryMissing {
        /// What speaks for a memory.
        found: String,
        /// What accepts its loss.
        token: String,
    },
    /// HEAD is older than it was seen, or than what lies beside it.
    #[error(
        "the store was rolled back: put the newer HEAD.json back (cicadactl verify tells more), or accept the loss \
         with cicada.dev/accept-memory-loss: {token}; HEAD is at {found}, {expected}"
    )]
    RolledBack {
        /// Epoch and snapshot in HEAD.
        found: String,
        /// What speaks for a later one.
        expected: String,
        /// What accepts the loss.
        token: String,
    },
    /// The memory of this very object was deleted.
    #[error("the memory was deleted at {at} together with its agent")]
    Deleted {
        /// When.
        at: Timestamp,
    },
    /// The cycle had all its attempts.
    #[error("the cycle had {ATTEMPTS_MAX} attempts; run it again with a new request")]
    AttemptsExhausted,
    /// Another cycle works on the memory, and the request does not fence.
    #[error("cycle {} works on the memory until {}; wait for it or fence it", holder.cycle.name, holder.deadline)]
    Held {
        /// That cycle.
        holder: Box<Holder>,
    },
    /// Other writers were faster, again and again.
    #[error("other writers were faster {LOST_MAX} times")]
    Outrun,
    /// HEAD could not be read.
    #[error(transparent)]
    Read(#[from] ReadHeadError),
    /// The store failed.
    #[error("could not acquire the memory")]
    Store(#[from] StoreError),
    /// It is not known whether HEAD was written. Nothing may be deleted.
    #[error("it is not known whether the memory was acquired")]
    Unclear(#[source] StoreError),
}

impl AcquireError {
    /// True if another attempt of the same Job may help.
    pub fn is_retryable(&self) -> bool {
        self.class().is_retryable()
    }

    /// What the cycle reports.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Conflict { .. } | Self::NamespaceReused => FailureClass::StoreConflict,
            Self::MemoryMissing { .. } => FailureClass::MemoryMissing,
            Self::RolledBack { .. } => FailureClass::StoreRolledBack,
            Self::AttemptsExhausted => FailureClass::AttemptsExhausted,
            Self::Deleted { .. } | Self::Held { .. } => FailureClass::PersistFenced,
            Self::Read(error) => error.class(FailureClass::StoreRefused),
            Self::Store(error) => error.class(FailureClass::StoreRefused),
            Self::Outrun | Self::Unclear(_) => FailureClass::StoreUnavailable,
        }
    }
}

impl AgentStore {
    /// Takes the memory for one cycle. Before the first HEAD is made in a bucket, the bucket is probed.
    pub async fn acquire(&self, request: AcquireRequest) -> Result<Acquisition, AcquireError> {
        for _ in 0..LOST_MAX {
            let (seen, ids) = tokio::join!(self.read_head(), self.snapshot_ids());
            let (seen, ids) = (seen?, ids?);
            let decision = decide(seen.as_ref().map(|seen| &seen.head), &ids, &request);
            let (mut head, start, attempt, adopted) = match decision {
                Ok(Decision::Take { head, start, attempt, adopted }) => (*head, start, attempt, adopted),
                Ok(Decision::AlreadyHandled) => match seen {
                    Some(seen) => return Ok(Acquisition::AlreadyHandled(Box::new(seen))),
                    None => return Err(AcquireError::Outrun),
                },
                // Another writer may have raised HEAD and uploaded between the look at HEAD and the listing.
                Err(AcquireError::MemoryMissing { .. } | AcquireError::RolledBack { .. })
                    if self.read_head().await?.map(|now| now.etag)
                        != seen.as_ref().map(|at| at.etag.clone()) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            if seen.is_none() && self.store().needs_probe() {
                self.probe().await?;
            }
            head.writer = writer_id().to_owned();
            head.write = next_write();
            let swapped = self.swap(&head, seen.as_ref().map(|seen| &seen.etag)).await;
            match swapped {
                Ok(Swapped::Done { etag, retries }) => {
                    let writer = Writer::new(self.clone(), head, etag, attempt, retries > 0);
                    return Ok(Acquisition::Held(Box::new(Acquired { writer, start, attempt, adopted })));
                }
                Ok(Swapped::Lost) => {}
                Err(SwapError::Refused(error)) => return Err(error.into()),
                Err(SwapError::Unclear(error)) => return Err(AcquireError::Unclear(error)),
            }
        }
        Err(AcquireError::Outrun)
    }
}
