//! put back: an older snapshot becomes current again, as a new snapshot, because a person asked for it.
//!
//! What is left behind stays listed and pinned. Nothing is sent again: a message that waited in either ledger
//! may have left since, so it becomes `unknown`, and the next prompt says what happened.

use cicada_contract::report::{CycleResult, Outcome};
use cicada_contract::text::cut;
use cicada_contract::{CycleReport, FailureClass};
use cicada_memory::ledger::{EndKind, OutboxRow, OutboxState, OutboxUpdate};
use cicada_memory::sql::nearest::nearest;
use cicada_memory::{LedgerWorker, WorkerError};
use cicada_store::head::AppliedRestore;
use cicada_store::{Archive, Head, PublishRequest, Snapshot, SnapshotKind, StoreError};
use tokio::task::block_in_place;

use crate::channel::Channels;
use crate::context::Context;
use crate::failure::{Classified, Failure, worker_class};
use crate::phase::acquire::{Claim, store_class};
use crate::phase::deliver::update;
use crate::phase::ingest::begin;
use crate::phase::persist::{PersistError, pack, retention};
use crate::phase::restore::{RestoreError, Restored, ledger_of, open_at};
use crate::phase::seal::end_ledger;
use crate::phase::write_back::standing;

/// Snapshots that are named beside one that is not there.
const NEWEST: usize = 3;

/// Why an older snapshot could not be made current. HEAD stays.
#[derive(Debug, thiserror::Error)]
pub enum PutBackError {
    /// HEAD does not list it.
    #[error("{0}")]
    Unknown(String),
    /// It can't be used.
    #[error("snapshot {id} can't be restored; choose another of cicadactl snapshots")]
    Unsound {
        /// Its id.
        id: String,
        /// Why.
        #[source]
        source: Box<RestoreError>,
    },
    /// The ledger could not be opened again.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// Claims and receipts could not be read.
    #[error("could not read what became of outgoing messages")]
    Store(#[from] StoreError),
    /// The ledger could not be written.
    #[error("could not write the ledger")]
    Engine(#[from] WorkerError),
    /// It could not be made current.
    #[error(transparent)]
    Persist(#[from] PersistError),
}

impl Classified for PutBackError {
    fn class(&self) -> FailureClass {
        match self {
            Self::Unknown(_) => FailureClass::SnapshotMissing,
            Self::Unsound { source, .. } => source.class(),
            Self::Restore(source) => source.class(),
            Self::Store(e) => store_class(e),
            Self::Engine(e) => worker_class(e, FailureClass::WorkerCrashed),
            Self::Persist(e) => e.class(),
        }
    }
}

/// What to say of a snapshot that is not there: the one that was meant, if that is clear, and where to look.
pub(crate) fn not_listed(head: &Head, id: &str, agent: &str) -> String {
    let ids: Vec<&str> = head.snapshots.iter().map(|s| s.id.as_str()).collect();
    let meant = nearest(id, ids.iter().copied()).map(|near| format!(" (did you mean {near}?)"));
    let newest: Vec<&str> = ids.iter().rev().take(NEWEST).copied().collect();
    let newest = match newest.as_slice() {
        [] => "it has none".to_owned(),
        some => format!("the newest are {}", some.join(", ")),
    };
    let meant = meant.unwrap_or_default();
    format!("{agent} has no snapshot {}{meant}; {newest}; cicadactl snapshots {agent} shows all", cut(id, 64))
}

/// Makes the snapshot `id` current.
pub async fn put_back(cx: &Context, claim: &mut Claim, id: &str) -> Result<CycleReport, Failure> {
    Ok(try_put_back(cx, claim, id).await?)
}

async fn try_put_back(cx: &Context, claim: &mut Claim, id: &str) -> Result<CycleReport, PutBackError> {
    let target = claim.writer.head().snapshot(id).cloned();
    let owner = &cx.plan.config.owner;
    let path = format!("{}/{}", owner.namespace, owner.name);
    let unknown = || PutBackError::Unknown(not_listed(claim.writer.head(), id, &path));
    let target = target.ok_or_else(unknown)?;
    let opened = cx.phase("restore", open_at(cx, claim.origin(), &target)).await;
    let Restored { memory, mut ledger } =
        opened.map_err(|source| PutBackError::Unsound { id: id.to_owned(), source: Box::new(source) })?;
    memory.close();
    let left = claim.base().cloned().unwrap_or_else(|| target.clone());
    let cycle = &cx.plan.run.cycle;
    let line = format!(
        "the memory was put back to snapshot {id} of {} because a person asked for it ({}): what came after it, up to {} \
         of {}, is not in it",
        target.created_at, cycle.name, left.id, left.created_at
    );
    let unknown = adapt(cx, claim, &mut ledger, &left, &line).await?;
    let mut report = told(cx, claim, &target, unknown);
    standing(cx, &mut ledger)?.put_into(&mut report);
    block_in_place(|| end_ledger(cx, claim, &mut ledger, EndKind::Restored, &report))?;
    ledger.close();
    let packed = pack(cx, "ledger", true).await?;
    let handled_keys = cx.plan.run.handled_keys();
    let token = handled_keys.first().cloned().unwrap_or_else(|| cycle.name.clone());
    let request = PublishRequest {
        memory: Archive::Existing(target.memory.clone()),
        ledger: packed,
        handled_keys,
        done: true,
        checked: true,
        applied_restore: Some(AppliedRestore { token, snapshot: id.to_owned(), at: cx.now() }),
        restored_from: Some(id.to_owned()),
        retention: retention(cx),
        ..PublishRequest::new(SnapshotKind::Final, cx.now())
    };
    cx.phase("persist", claim.writer.publish(request)).await.map_err(PersistError::from)?;
    report.memory = Some(claim.memory_report());
    report.phases = cx.times();
    Ok(report)
}

fn told(cx: &Context, claim: &Claim, target: &Snapshot, unknown: usize) -> CycleReport {
    let mut report = CycleReport::new(CycleResult::Done);
    report.outcome = Outcome::Done;
    report.message = format!("snapshot {} is current again; nothing was executed", target.id);
    report.attempt = claim.attempt();
    report.phases = cx.times();
    if unknown > 0 {
        report.warnings.push(format!("{unknown} messages that waited to leave are now `unknown`"));
    }
    report
}

/// Brings an older ledger up to the present: the attempt, the line for the next prompt, and the messages that
/// waited in it or in the ledger of `left`. Gives the number of those whose outcome is now unknown.
pub(crate) async fn adapt(
    cx: &Context,
    claim: &Claim,
    ledger: &mut LedgerWorker,
    left: &Snapshot,
    line: &str,
) -> Result<usize, PutBackError> {
    let told = cx.now();
    let carried = waiting_in(cx, claim, left).await;
    let known = claim.store.list_outbox().await?;
    let now = cx.now();
    block_in_place(|| {
        let messages: Vec<_> = carried.into_iter().map(|row| row.message).collect();
        ledger.add_outgoing(&messages, now)?;
        let channels = Channels::open(cx, &claim.store);
        let settle = |row: &OutboxRow| {
            let resend = channels.removes_duplicates(&row.message.channel);
            let delivery = known.get(&row.message.id);
            let known = delivery.and_then(|d| update(row, d, resend, now));
            known.filter(|u| u.state != OutboxState::Pending).unwrap_or_else(|| OutboxUpdate {
                id: row.message.id.clone(),
                state: OutboxState::Unknown,
                attempts: Some(row.attempts),
                error: Some("the memory was put back while it waited; it may have left".into()),
                next_at: None,
            })
        };
        let updates: Vec<_> = ledger.pending_outgoing()?.iter().map(settle).collect();
        ledger.update_outgoing(&updates, now)?;
        ledger.add_notices(&[line.to_owned()], told)?;
        ledger.begin_cycle(&begin(cx, claim, now))?;
        Ok(updates.iter().filter(|u| u.state == OutboxState::Unknown).count())
    })
}

/// Messages that wait in the ledger of `left`; none if that can't be read, which may be why it is left.
async fn waiting_in(cx: &Context, claim: &Claim, left: &Snapshot) -> Vec<OutboxRow> {
    let folder = cx.work.scratch().join("left");
    match ledger_of(cx, claim.origin(), Some(left), &folder).await {
        Ok(mut ledger) => block_in_place(|| ledger.pending_outgoing()).unwrap_or_default(),
        Err(error) => {
            tracing::warn!(error = crate::failure::chain(&error), "could not read what is left behind");
            vec![]
        }
    }
}
