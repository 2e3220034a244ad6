//! persist: the finished files become immutable archives, and one write of HEAD makes them current.

use std::time::Instant;

use cicada_contract::FailureClass;
use cicada_store::{Archive, PackError, PublishError, PublishRequest, SnapshotKind, SnapshotRetention};

use crate::context::Context;
use crate::failure::{Classified, Failure};
use crate::phase::acquire::Claim;
use crate::phase::report::Finished;
use crate::phase::seal::Sealed;

/// Why the snapshot could not be published.
#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    /// A finished file could not be packed.
    #[error("could not pack {what}")]
    Pack {
        /// `memory` or `ledger`.
        what: &'static str,
        /// What failed.
        #[source]
        source: PackError,
    },
    /// The snapshot could not be made current.
    #[error("could not publish the snapshot")]
    Publish(#[from] PublishError),
}

impl Classified for PersistError {
    fn class(&self) -> FailureClass {
        match self {
            Self::Pack { source, .. } if source.is_disk_full() => FailureClass::DiskBudget,
            Self::Pack { .. } => FailureClass::SqlitePersistenceFailed,
            Self::Publish(error) => error.class(),
        }
    }
}

/// Packs what changed and publishes it.
pub async fn persist(cx: &Context, claim: &mut Claim, sealed: Sealed) -> Result<Finished, Failure> {
    let (memory_archive, ledger_archive) =
        tokio::try_join!(pack_memory(cx, claim, &sealed), pack(cx, "ledger", true))?;
    publish(cx, claim, sealed.kind, Some(sealed.began), memory_archive, ledger_archive).await?;
    let Sealed { work, tables, memory, sandbox, notes, left, .. } = sealed;
    Ok(Finished { work, tables, memory, sandbox, notes, left })
}

/// As a delta where that is allowed and pays.
async fn pack_memory(cx: &Context, claim: &Claim, sealed: &Sealed) -> Result<Archive, PersistError> {
    let changed = sealed.memory.changed || claim.base().is_none_or(|b| b.memory.is_none());
    if changed && let Some((base, pages)) = cx.base.delta(claim.writer.head(), cx.now()) {
        let out = cx.archive("memory.delta.zst");
        let packed = cicada_store::pack_delta(&cx.work.memory_db(), &out, &base, pages).await;
        if let Some(delta) = packed.map_err(|source| PersistError::Pack { what: "memory", source })? {
            return Ok(Archive::New(delta));
        }
    }
    pack(cx, "memory", changed).await
}

/// Packs one database for upload; an unchanged one keeps its archive.
pub(crate) async fn pack(cx: &Context, what: &'static str, changed: bool) -> Result<Archive, PersistError> {
    if !changed {
        return Ok(Archive::Keep);
    }
    let file = if what == "memory" { cx.work.memory_db() } else { cx.work.ledger_db() };
    let out = cx.archive(&format!("{what}.new.zst"));
    let packed = cicada_store::pack(&file, &out).await;
    Ok(Archive::New(packed.map_err(|source| PersistError::Pack { what, source })?))
}

/// Uploads and makes current. Transient errors were retried below; what arrives here is final.
pub(crate) async fn publish(
    cx: &Context,
    claim: &mut Claim,
    kind: SnapshotKind,
    began: Option<Instant>,
    memory: Archive,
    ledger: Archive,
) -> Result<(), PersistError> {
    let handled_keys = if kind == SnapshotKind::Final { cx.plan.run.handled_keys() } else { vec![] };
    let request = PublishRequest {
        memory,
        ledger,
        handled_keys,
        done: true,
        // What a failed cycle keeps is the start, whatever was found out about the end.
        checked: kind != SnapshotKind::Failed && cx.base.is_checked(),
        retention: retention(cx),
        began,
        upload_by: cx.upload_by(),
        ..PublishRequest::new(kind, cx.now())
    };
    let published = claim.writer.publish(request).await?;
    tracing::info!(snapshot = published.snapshot.id, epoch = published.epoch, "snapshot published");
    Ok(())
}

/// How many snapshots HEAD goes on listing.
pub(crate) fn retention(cx: &Context) -> SnapshotRetention {
    let keep = &cx.plan.config.memory.retention;
    SnapshotRetention { count: keep.snapshots, max_age: keep.max_age }
}
