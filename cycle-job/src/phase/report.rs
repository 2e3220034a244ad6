//! report: what the cycle tells the operator.

use std::collections::{BTreeMap, BTreeSet};

use cicada_contract::plan::{CycleIdentity, PEER_CHANNEL};
use cicada_contract::report::{CycleResult, MemoryReport, TableChange};
use cicada_contract::{CycleReport, FailureClass};
use cicada_memory::ledger::OutboxRow;
use cicada_memory::{LedgerWorker, Value, WorkerError};
use cicada_store::{AgentStore, Head, HeadAt, Snapshot, SnapshotKind};
use tokio::task::block_in_place;

use crate::channel::peer;
use crate::context::Context;
use crate::executor::Work;
use crate::failure::Failure;
use crate::phase::acquire::{Claim, memory_report, open_store};
use crate::phase::deliver::{Delivered, update};
use crate::phase::restore::{Origin, RestoreError, ledger_of};
use crate::phase::seal::Left;
use crate::phase::write_back::Notes;

/// A published cycle, as the report tells it.
pub struct Finished {
    pub(crate) work: Work,
    pub(crate) tables: Vec<TableChange>,
    pub(crate) memory: cicada_memory::Sealed,
    pub(crate) sandbox: String,
    pub(crate) notes: Notes,
    pub(crate) left: Left,
}

/// The report of a cycle that went through.
pub fn report(cx: &Context, claim: &Claim, finished: Finished, delivered: Delivered) -> CycleReport {
    let mut report =
        told(cx, claim.attempt(), &finished.work, finished.tables, finished.notes, finished.sandbox);
    (report.pending, report.wakes) = (delivered.pending, delivered.wakes.into_iter().collect());
    report.memory = Some(MemoryReport { tables: Some(finished.memory.tables), ..claim.memory_report() });
    report.phases = cx.times();
    report
}

/// The part that is known before the snapshot is published; the ledger keeps it.
pub(crate) fn told(
    cx: &Context,
    attempt: u32,
    work: &Work,
    tables: Vec<TableChange>,
    notes: Notes,
    sandbox: String,
) -> CycleReport {
    let mut report = CycleReport::new(CycleResult::Done);
    if work.kind != SnapshotKind::Final {
        report.result = CycleResult::Failed;
        report.class = Some(if work.ended_by == Some("timeout") {
            FailureClass::Timeout
        } else {
            FailureClass::Disrupted
        });
    }
    report.outcome = work.outcome;
    report.message.clone_from(&work.message);
    report.ended_by = work.ended_by.map(str::to_owned);
    report.attempt = attempt;
    report.tables = tables;
    report.usage = work.usage.clone();
    report.phases = cx.times();
    report.sandbox = sandbox;
    notes.put_into(&mut report);
    report
}

/// The report of an attempt that found its cycle done: the executor ran in an earlier pod. What that pod
/// could not tell is read from the current ledger.
pub fn recovered_report(
    cx: &Context,
    claim: &Claim,
    snapshot: &Snapshot,
    stored: Option<CycleReport>,
    delivered: Delivered,
) -> CycleReport {
    let mut report = stored.unwrap_or_else(|| CycleReport::new(CycleResult::Done));
    report.recovered = true;
    report.attempt = claim.attempt();
    (report.pending, report.wakes) = (delivered.pending, delivered.wakes.into_iter().collect());
    let tables = report.memory.as_ref().and_then(|m| m.tables);
    report.memory = Some(MemoryReport { tables, ..claim.memory_report() });
    report.phases = cx.times();
    tracing::info!(snapshot = snapshot.id, "an earlier attempt had published; nothing was executed again");
    report
}

/// What the ledger of a published snapshot tells of this cycle: its report, and messages that still wait. The
/// snapshot may be a later cycle's.
pub async fn told_by(
    cx: &Context,
    claim: &Claim,
    snapshot: &Snapshot,
) -> Result<(Option<CycleReport>, Vec<OutboxRow>), Failure> {
    let mut ledger = ledger_of(cx, claim.origin(), Some(snapshot), &cx.work.ledger()).await?;
    let read = block_in_place(|| Ok((stored(cx, &mut ledger)?, ledger.pending_outgoing()?)));
    let (stored, outbox) = read.map_err(|source| RestoreError::Open { what: "ledger", source })?;
    // The executor has ended well: what an earlier attempt says of its own end is not this cycle's.
    Ok((stored.filter(|report| report.result == CycleResult::Done), outbox))
}

/// What the ledger tells of the newest attempt of this cycle that has ended.
fn stored(cx: &Context, ledger: &mut LedgerWorker) -> Result<Option<CycleReport>, WorkerError> {
    // UIDs are hexadecimal with dashes; doubling quotes keeps this right for any other.
    let sql = format!(
        "SELECT report_json, class, summary FROM cycles WHERE uid = '{}' AND ended_at IS NOT NULL \
         ORDER BY kind = 'final' DESC, attempt DESC",
        cx.plan.run.cycle.uid.replace('\'', "''")
    );
    let rows = ledger.query(&sql, 1)?;
    let text = |column: &str| rows.get(0, column).and_then(Value::as_str);
    if let Some(report) = text("report_json").and_then(|json| CycleReport::parse(json).ok()) {
        return Ok(Some(report));
    }
    let class = text("class").and_then(|label| FailureClass::all().find(|c| c.label() == label));
    Ok(class.map(|class| CycleReport::failed(class, text("summary").unwrap_or_default())))
}

/// Reads HEAD and the newest ledger for a pod that left no report. Acquires and executes nothing.
pub async fn read_back(cx: &Context) -> Result<CycleReport, Failure> {
    let store = open_store(cx).await?;
    let at = store.read_head().await.map_err(|error| {
        Failure::new(error.class(FailureClass::StoreRefused), crate::failure::chain(&error))
    })?;
    let Some(HeadAt { head, .. }) = at else {
        return Err(Failure::new(FailureClass::MemoryMissing, "the store has no HEAD for this agent"));
    };
    let origin = Origin { store: &store, epoch: head.epoch };
    let (told, outbox) = match ledger_of(cx, origin, head.current(), &cx.work.ledger()).await {
        Ok(mut ledger) => (
            block_in_place(|| stored(cx, &mut ledger)).unwrap_or_default(),
            block_in_place(|| ledger.pending_outgoing()).unwrap_or_default(),
        ),
        // HEAD alone still tells whether the cycle ended well.
        Err(error) => {
            tracing::warn!(error = crate::failure::chain(&error), "could not read the ledger");
            (None, vec![])
        }
    };
    let mut report = judge(&head, &cx.plan.run.cycle, told);
    let tables = report.memory.as_ref().and_then(|m| m.tables);
    let mut memory = MemoryReport { tables, ..memory_report(&head) };
    // What another cycle published is what this one found, not what it left.
    if head.current().is_none_or(|current| current.cycle.uid != cx.plan.run.cycle.uid) {
        memory.before.clone_from(&memory.snapshot);
    }
    report.memory = Some(memory);
    report.recovered = true;
    report.wakes = wakes(cx, &store, &outbox).await;
    Ok(report)
}

/// Peers whom messages wake that a pod delivered before it ended without a word. Messages that a later cycle has
/// taken up are that one's to tell.
async fn wakes(cx: &Context, store: &AgentStore, outbox: &[OutboxRow]) -> Vec<String> {
    let of_peers: Vec<&OutboxRow> = outbox.iter().filter(|r| r.message.channel == PEER_CHANNEL).collect();
    if of_peers.is_empty() {
        return vec![];
    }
    let known = store.list_outbox().await.unwrap_or_else(|error| {
        tracing::warn!(error = crate::failure::chain(&error), "could not read claims and receipts");
        BTreeMap::new()
    });
    let woken = of_peers.into_iter().filter_map(|row| {
        let outcome = update(row, known.get(&row.message.id)?, true, cx.now())?;
        peer::wakes(row, &outcome)
    });
    woken.collect::<BTreeSet<_>>().into_iter().collect()
}

/// How a cycle ended whose pod left no word: HEAD says whether, the ledger says how.
fn judge(head: &Head, cycle: &CycleIdentity, told: Option<CycleReport>) -> CycleReport {
    let is_done = |report: &CycleReport| report.result == CycleResult::Done;
    if head.has_ended(cycle) {
        // A restore may have taken the ledger back to before this cycle.
        return told.filter(is_done).unwrap_or_else(|| CycleReport::new(CycleResult::Done));
    }
    match (told, head.newest_of(cycle).map(|s| s.kind)) {
        (Some(report), _) => report,
        (None, Some(_)) => CycleReport::failed(FailureClass::Disrupted, "the pod ended before the cycle did"),
        (None, None) => {
            CycleReport::failed(FailureClass::Disrupted, "the pod ended before it published anything")
        }
    }
}
