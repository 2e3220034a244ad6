//! acquire: raise the epoch in HEAD. From here on every older pod of this agent is fenced.

use cicada_contract::FailureClass;
use cicada_contract::plan::{SecretRef, StoreConfig};
use cicada_contract::report::MemoryReport;
use cicada_store::{
    AcquireError, AcquireRequest, Acquisition, AgentStore, Credentials, Head, Snapshot, Start, StoreError,
    Writer,
};

use crate::context::Context;
use crate::failure::{Classified, Failure};
use crate::phase::restore::Origin;
use crate::secrets::SecretError;

/// What acquiring found.
pub enum Acquired {
    /// The cycle may work.
    Held(Claim),
    /// A `final` snapshot of this very cycle is current: nothing is executed again.
    Recovered(Claim, Snapshot),
    /// HEAD knows every request of this cycle already.
    AlreadyHandled(MemoryReport),
}

/// The right to publish for this agent, until somebody raises the epoch.
pub struct Claim {
    /// The agent's part of the store.
    pub store: AgentStore,
    /// HEAD as last written by this process.
    pub writer: Writer,
    /// What was current when the epoch was raised.
    pub start: Start,
    /// The memory was written by an earlier object of the same name.
    pub adopted: bool,
}

impl Claim {
    /// Attempt of this cycle, from 1.
    pub fn attempt(&self) -> u32 {
        self.writer.attempt()
    }

    /// The snapshot that this cycle starts from.
    pub fn base(&self) -> Option<&Snapshot> {
        match &self.start {
            Start::Empty => None,
            Start::Current(base) | Start::Resume(base) | Start::Recovered(base) => Some(base),
        }
    }

    /// Where its snapshots are read from.
    pub(crate) fn origin(&self) -> Origin<'_> {
        Origin { store: &self.store, epoch: self.writer.epoch() }
    }

    /// The memory as HEAD now shows it.
    pub fn memory_report(&self) -> MemoryReport {
        let before = self.base().map(|base| base.id.clone());
        MemoryReport { before, adopted: self.adopted, ..memory_report(self.writer.head()) }
    }
}

/// What HEAD says of the memory.
pub fn memory_report(head: &Head) -> MemoryReport {
    let current = head.current();
    let memory = current.and_then(|s| s.memory.as_ref());
    MemoryReport {
        snapshot: current.map(|s| s.id.clone()),
        epoch: head.epoch,
        size: memory.map_or(0, |m| m.file_size),
        archive_size: memory.map_or(0, |m| m.archive_size),
        persisted_at: current.map(|s| s.created_at.as_second()),
        counted: current.is_some_and(|s| s.kind.is_counted()),
        seeded_from: head.seeded_from.as_ref().map(|s| format!("{}/{} {}", s.namespace, s.name, s.snapshot)),
        ..MemoryReport::default()
    }
}

/// Why the memory could not be acquired.
#[derive(Debug, thiserror::Error)]
pub enum AcquirePhaseError {
    /// The credentials are not there.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The store can't be used.
    #[error("the store can't be used")]
    Store(#[from] StoreError),
    /// HEAD says no.
    #[error("the memory can't be acquired")]
    Acquire(#[from] AcquireError),
}

impl Classified for AcquirePhaseError {
    fn class(&self) -> FailureClass {
        match self {
            Self::Secret(e) => e.class(),
            Self::Store(e) => store_class(e),
            Self::Acquire(e) => e.class(),
        }
    }
}

/// Class of a store error outside the compare-and-swap.
pub fn store_class(error: &StoreError) -> FailureClass {
    error.class(FailureClass::StoreRefused)
}

/// Opens the agent's store with the credentials of the plan.
pub async fn open_store(cx: &Context) -> Result<AgentStore, AcquirePhaseError> {
    let config = &cx.plan.config.store;
    let credentials = match config {
        StoreConfig::S3(s3) => s3.secret_name.as_ref().map(|name| read_credentials(cx, name)).transpose()?,
        StoreConfig::Directory { .. } => None,
    };
    let store = cicada_store::open(config, credentials).await?;
    let owner = &cx.plan.config.owner;
    Ok(AgentStore::new(store, &owner.namespace, &owner.name)?)
}

fn read_credentials(cx: &Context, secret: &str) -> Result<Credentials, SecretError> {
    let key = |key: &str| SecretRef { name: secret.to_owned(), key: key.to_owned() };
    Ok(Credentials {
        access_key_id: cx.secrets.get(&key("AWS_ACCESS_KEY_ID"))?.expose().to_owned(),
        secret_access_key: cx.secrets.get(&key("AWS_SECRET_ACCESS_KEY"))?.expose().to_owned(),
        session_token: cx.secrets.find(&key("AWS_SESSION_TOKEN"))?.map(|t| t.expose().to_owned()),
    })
}

/// Raises the epoch, or finds that there is nothing to do.
pub async fn acquire(cx: &Context) -> Result<Acquired, Failure> {
    Ok(try_acquire(cx).await?)
}

async fn try_acquire(cx: &Context) -> Result<Acquired, AcquirePhaseError> {
    let store = open_store(cx).await?;
    let acquired = match store.acquire(request(cx)).await? {
        Acquisition::AlreadyHandled(at) => return Ok(Acquired::AlreadyHandled(memory_report(&at.head))),
        Acquisition::Held(acquired) => *acquired,
    };
    tracing::info!(epoch = acquired.writer.epoch(), attempt = acquired.attempt, "epoch raised");
    let claim = Claim { store, writer: acquired.writer, start: acquired.start, adopted: acquired.adopted };
    Ok(match &claim.start {
        Start::Recovered(snapshot) => {
            let snapshot = snapshot.clone();
            Acquired::Recovered(claim, snapshot)
        }
        _ => Acquired::Held(claim),
    })
}

pub(crate) fn request(cx: &Context) -> AcquireRequest {
    let (config, run) = (&cx.plan.config, &cx.plan.run);
    let now = cx.now();
    AcquireRequest {
        namespace_uid: Some(config.owner.namespace_uid.clone()).filter(|uid| !uid.is_empty()),
        expect: run.expect.clone(),
        take_over_from: config.memory.take_over_from.clone(),
        accept_memory_loss: config.memory.accept_memory_loss.clone(),
        handled_keys: run.handled_keys(),
        has_other_triggers: run.triggers.iter().any(|t| t.handled_key.is_none()),
        refuse_namespace_reuse: config.memory.refuse_namespace_reuse,
        ..AcquireRequest::new(config.owner.clone(), run.cycle.clone(), cx.holder_deadline(), now)
    }
}
