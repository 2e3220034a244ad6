//! Taking a memory for one cycle: epoch + 1, decided from HEAD alone.
//!
//! [`decide`] is pure; [`AgentStore::acquire`] is the thin edge around it. No lease and no clock guard a
//! memory: who raised the epoch last may publish, all earlier ones can't, so nothing is ever to be unlocked.

use cicada_contract::{
    FailureClass,
    plan::{CycleIdentity, Expect, Owner},
};
use jiff::Timestamp;

use crate::{
    agent_store::{AgentStore, HeadAt, ReadHeadError, next_write, writer_id},
    head::{Attempt, HEAD_VERSION, Head, HeadOwner, Holder, Snapshot, SnapshotKind, order},
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
    /// HEAD is older than the operator has seen it.
    #[error(
        "the store was rolled back: HEAD is at {found}, expected was {expected}; restore the bucket, or accept \
         the loss with cicada.dev/accept-memory-loss: {token}"
    )]
    RolledBack {
        /// Epoch and snapshot in HEAD.
        found: String,
        /// Epoch and snapshot that were seen before.
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
            Self::Read(ReadHeadError::Head(_)) => FailureClass::UnknownVersion,
            Self::Read(ReadHeadError::Store(error)) | Self::Store(error) => {
                error.class(FailureClass::StoreRefused)
            }
            Self::Outrun | Self::Unclear(_) => FailureClass::StoreUnavailable,
        }
    }
}

/// What to do about a memory.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Write this HEAD (writer and counter are filled in by whoever writes it).
    Take {
        /// The next HEAD.
        head: Box<Head>,
        /// What the cycle starts from.
        start: Start,
        /// Number of this attempt.
        attempt: u32,
        /// The memory was written by an earlier object of the same name.
        adopted: bool,
    },
    /// Write nothing: every request was handled.
    AlreadyHandled,
}

/// Decides about a memory from its HEAD and, where there is none, from the ids of snapshots whose objects
/// exist all the same.
pub fn decide(
    head: Option<&Head>,
    snapshot_ids: &[String],
    request: &AcquireRequest,
) -> Result<Decision, AcquireError> {
    match head {
        None => without_head(snapshot_ids, request),
        Some(head) => match head.deleted_at {
            Some(at) => after_deletion(head, at, request),
            None => with_head(head, request),
        },
    }
}

fn without_head(snapshot_ids: &[String], request: &AcquireRequest) -> Result<Decision, AcquireError> {
    let newest = snapshot_ids.iter().max_by_key(|id| order(id));
    let expect = &request.expect;
    let evidence = if let Some(snapshot) = &expect.snapshot {
        Some((format!("snapshot {snapshot} was expected"), snapshot.clone()))
    } else if let Some(newest) = newest {
        Some((format!("there are snapshots, the newest is {newest}"), newest.clone()))
    } else {
        expect.epoch.map(|epoch| (format!("epoch {epoch} was expected"), format!("epoch-{epoch}")))
    };
    if let Some((found, token)) = evidence
        && request.accept_memory_loss.as_ref() != Some(&token)
    {
        return Err(AcquireError::MemoryMissing { found, token });
    }
    // Never an epoch that an archive's key already carries.
    let used = newest.and_then(|id| order(id)).map_or(0, |(epoch, _)| epoch).max(expect.epoch.unwrap_or(0));
    Ok(empty(used + 1, request))
}

fn after_deletion(head: &Head, at: Timestamp, request: &AcquireRequest) -> Result<Decision, AcquireError> {
    // A late attempt of the agent that was deleted must not bring its memory back to life.
    let same_object = !head.owner.uid.is_empty() && head.owner.uid == request.owner.uid;
    if same_object {
        return Err(AcquireError::Deleted { at });
    }
    if let Some(snapshot) = &request.expect.snapshot
        && request.accept_memory_loss.as_ref() != Some(snapshot)
    {
        let found = format!("snapshot {snapshot} was expected and the store has a tombstone of {at}");
        return Err(AcquireError::MemoryMissing { found, token: snapshot.clone() });
    }
    Ok(empty(head.epoch.max(request.expect.epoch.unwrap_or(0)) + 1, request))
}

fn with_head(head: &Head, request: &AcquireRequest) -> Result<Decision, AcquireError> {
    check_owner(&head.owner, request)?;
    check_rollback(head, request)?;
    let own = head.newest_of(&request.cycle);
    let has_ended = head.has_ended(&request.cycle);
    if !has_ended && is_handled(head, request) {
        return Ok(Decision::AlreadyHandled);
    }
    if let Some(holder) = &head.holder
        && request.refuse_if_held
        && holder.cycle.uid != request.cycle.uid
        && request.now < holder.deadline
    {
        return Err(AcquireError::Held { holder: Box::new(holder.clone()) });
    }
    let attempt = attempts_before(head, &request.cycle) + 1;
    if !has_ended && attempt > ATTEMPTS_MAX {
        return Err(AcquireError::AttemptsExhausted);
    }
    let current = head.current();
    let start = match (current, own) {
        (None, _) => Start::Empty,
        (Some(current), _) if has_ended => Start::Recovered(current.clone()),
        // Only if no other cycle has published on top of it; its ledger then knows what was left open.
        (Some(current), Some(own))
            if own.id == current.id
                && matches!(own.kind, SnapshotKind::Interrupted | SnapshotKind::Checkpoint) =>
        {
            Start::Resume(own.clone())
        }
        (Some(current), _) => Start::Current(current.clone()),
    };
    let mut next = head.clone();
    next.epoch = head.epoch.max(request.expect.epoch.unwrap_or(0)) + 1;
    next.owner = known_owner(&head.owner, request);
    let adopted = !head.owner.uid.is_empty() && head.owner.uid != next.owner.uid;
    next.version = HEAD_VERSION;
    hold(&mut next, request, attempt);
    Ok(Decision::Take { head: Box::new(next), start, attempt, adopted })
}

/// The request's owner, with the UIDs of HEAD where the request knows none (people's commands).
fn known_owner(before: &HeadOwner, request: &AcquireRequest) -> HeadOwner {
    let mut owner = HeadOwner::new(&request.owner, request.namespace_uid.as_deref());
    if owner.path() == before.path() {
        if owner.uid.is_empty() {
            owner.uid.clone_from(&before.uid);
        }
        if owner.namespace_uid.is_empty() {
            owner.namespace_uid.clone_from(&before.namespace_uid);
        }
    }
    owner
}

fn check_owner(owner: &HeadOwner, request: &AcquireRequest) -> Result<(), AcquireError> {
    let found = owner.path();
    if found != request.owner.path() && request.take_over_from.as_ref() != Some(&found) {
        return Err(AcquireError::Conflict { found });
    }
    let reused = !owner.namespace_uid.is_empty()
        && request.namespace_uid.as_ref().is_some_and(|uid| *uid != owner.namespace_uid);
    if request.refuse_namespace_reuse && reused && request.take_over_from.as_ref() != Some(&found) {
        return Err(AcquireError::NamespaceReused);
    }
    Ok(())
}

/// A HEAD below what was seen: a bucket restored from a backup, or another bucket under the same name.
fn check_rollback(head: &Head, request: &AcquireRequest) -> Result<(), AcquireError> {
    let expect = &request.expect;
    let older_epoch = expect.epoch.is_some_and(|epoch| head.epoch < epoch);
    let older_snapshot = expect.snapshot.as_deref().is_some_and(|expected| {
        order(expected).is_some() && head.current.as_deref().and_then(order) < order(expected)
    });
    if !older_epoch && !older_snapshot {
        return Ok(());
    }
    let show = |epoch: Option<u64>, snapshot: Option<&str>| {
        format!(
            "epoch {}, snapshot {}",
            epoch.map_or_else(|| "unknown".into(), |epoch| epoch.to_string()),
            snapshot.unwrap_or("none")
        )
    };
    let token = expect.snapshot.clone().unwrap_or_else(|| format!("epoch-{}", expect.epoch.unwrap_or(0)));
    if request.accept_memory_loss.as_ref() == Some(&token) {
        return Ok(());
    }
    Err(AcquireError::RolledBack {
        found: show(Some(head.epoch), head.current.as_deref()),
        expected: show(expect.epoch, expect.snapshot.as_deref()),
        token,
    })
}

fn is_handled(head: &Head, request: &AcquireRequest) -> bool {
    let keys = &request.handled_keys;
    !request.has_other_triggers && !keys.is_empty() && keys.iter().all(|key| head.handled.contains(key))
}

fn attempts_before(head: &Head, cycle: &CycleIdentity) -> u32 {
    let of_holder = head.holder.iter().map(|holder| (&holder.cycle, holder.attempt));
    let of_epoch = (&head.acquired_by.cycle, head.acquired_by.attempt);
    let of_snapshots = head.snapshots.iter().map(|snapshot| (&snapshot.cycle, snapshot.attempt));
    of_holder
        .chain([of_epoch])
        .chain(of_snapshots)
        .filter(|(known, _)| known.uid == cycle.uid)
        .map(|(_, attempt)| attempt)
        .max()
        .unwrap_or(0)
}

fn empty(epoch: u64, request: &AcquireRequest) -> Decision {
    let mut head = Head {
        version: HEAD_VERSION,
        owner: HeadOwner::new(&request.owner, request.namespace_uid.as_deref()),
        epoch,
        acquired_by: Attempt::default(),
        holder: None,
        writer: String::new(),
        write: 0,
        written_at: request.now,
        current: None,
        snapshots: vec![],
        dropped: vec![],
        handled: vec![],
        ended: vec![],
        applied_restore: None,
        published: 0,
        checked_at: None,
        deleted_at: None,
        erasures: vec![],
        audit_head: None,
        unknown: std::collections::BTreeMap::new(),
    };
    hold(&mut head, request, 1);
    Decision::Take { head: Box::new(head), start: Start::Empty, attempt: 1, adopted: false }
}

fn hold(head: &mut Head, request: &AcquireRequest, attempt: u32) {
    head.acquired_by = Attempt { cycle: request.cycle.clone(), attempt };
    head.holder = Some(Holder { cycle: request.cycle.clone(), attempt, deadline: request.deadline });
    head.written_at = request.now;
}

impl AgentStore {
    /// Takes the memory for one cycle. Before the first HEAD is made in a bucket, the bucket is probed.
    pub async fn acquire(&self, request: AcquireRequest) -> Result<Acquisition, AcquireError> {
        for _ in 0..LOST_MAX {
            let seen = self.read_head().await?;
            let decision = match &seen {
                Some(seen) => decide(Some(&seen.head), &[], &request),
                None => decide(None, &self.snapshot_ids().await?, &request),
            };
            let (mut head, start, attempt, adopted) = match decision {
                Ok(Decision::Take { head, start, attempt, adopted }) => (*head, start, attempt, adopted),
                Ok(Decision::AlreadyHandled) => match seen {
                    Some(seen) => return Ok(Acquisition::AlreadyHandled(Box::new(seen))),
                    None => return Err(AcquireError::Outrun),
                },
                // Another writer may have made HEAD and a snapshot between the look at HEAD and the listing.
                Err(AcquireError::MemoryMissing { .. })
                    if seen.is_none() && self.read_head().await?.is_some() =>
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
