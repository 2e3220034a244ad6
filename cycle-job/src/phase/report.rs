//! report: what the cycle tells the operator.

use cicada_contract::report::{CycleResult, MemoryReport, Pending, TableChange};
use cicada_contract::{CycleReport, FailureClass};
use cicada_memory::ledger::OutboxRow;
use cicada_store::{Snapshot, SnapshotKind};
use tokio::task::block_in_place;

use crate::context::Context;
use crate::executor::Work;
use crate::failure::Failure;
use crate::phase::acquire::{Claim, memory_report, open_store};
use crate::phase::fetch::fetch;
use crate::phase::restore::{RestoreError, open_ledger};
use crate::phase::write_back::Notes;

/// A published cycle, as the report tells it.
pub struct Finished {
    pub(crate) work: Work,
    pub(crate) tables: Vec<TableChange>,
    pub(crate) memory: cicada_memory::Sealed,
    pub(crate) sandbox: String,
    pub(crate) notes: Notes,
    /// Messages that wait to leave.
    pub(crate) outbox: Vec<OutboxRow>,
}

/// The report of a cycle that went through.
pub fn report(cx: &Context, claim: &Claim, finished: Finished, pending: Pending) -> CycleReport {
    let mut report =
        told(cx, claim.attempt(), &finished.work, finished.tables, finished.notes, finished.sandbox);
    report.pending = pending;
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
    report.agent_schedules = notes.agent_schedules;
    report.asks = notes.asks;
    report.warnings = notes.warnings;
    report
}

/// The report of an attempt that found its cycle done: the executor ran in an earlier pod. What that pod
/// could not tell is read from the snapshot's ledger.
pub fn recovered_report(
    cx: &Context,
    claim: &Claim,
    snapshot: &Snapshot,
    stored: Option<CycleReport>,
    pending: Pending,
) -> CycleReport {
    let mut report = stored.unwrap_or_else(|| CycleReport::new(CycleResult::Done));
    report.recovered = true;
    report.attempt = claim.attempt();
    report.pending = pending;
    let tables = report.memory.as_ref().and_then(|m| m.tables);
    report.memory = Some(MemoryReport { tables, ..claim.memory_report() });
    report.phases = cx.times();
    tracing::info!(snapshot = snapshot.id, "an earlier attempt had published; nothing was executed again");
    report
}

/// What the ledger of a published snapshot tells of its cycle: the report, and messages that still wait.
pub async fn told_by(
    cx: &Context,
    claim: &Claim,
    snapshot: &Snapshot,
) -> Result<(Option<CycleReport>, Vec<OutboxRow>), Failure> {
    let Some(archive) = &snapshot.ledger else { return Ok((None, vec![])) };
    fetch(cx, claim, archive, &cx.work.ledger_db()).await?;
    let read = block_in_place(|| {
        let mut ledger = open_ledger(cx)?;
        // Names of cycles are DNS names; doubling quotes keeps this right for any other.
        let cycle = cx.plan.run.cycle.name.replace('\'', "''");
        let sql = format!(
            "SELECT report_json FROM cycles WHERE cycle = '{cycle}' AND report_json IS NOT NULL ORDER BY attempt DESC"
        );
        let failed = |source| RestoreError::Open { what: "ledger", source };
        let rows = ledger.query(&sql, 1).map_err(failed)?;
        let stored = rows.rows.first().and_then(|r| r.first()).and_then(|v| v.as_str().map(str::to_owned));
        let outbox = ledger.pending_outgoing().map_err(failed)?;
        Ok::<_, RestoreError>((stored.and_then(|json| CycleReport::parse(&json).ok()), outbox))
    });
    Ok(read?)
}

/// Reads HEAD and the newest ledger for a pod that left no report. Acquires and executes nothing.
pub async fn read_back(cx: &Context) -> Result<CycleReport, Failure> {
    let store = open_store(cx).await?;
    let at = store.read_head().await.map_err(|error| {
        let class =
            if error.is_retryable() { FailureClass::StoreUnavailable } else { FailureClass::UnknownVersion };
        Failure::new(class, crate::failure::chain(&error))
    })?;
    let Some(at) = at else {
        return Err(Failure::new(FailureClass::MemoryMissing, "the store has no HEAD for this agent"));
    };
    let cycle = &cx.plan.run.cycle;
    let mut report = match at.head.newest_of(cycle).map(|s| s.kind) {
        Some(SnapshotKind::Final) => CycleReport::new(CycleResult::Done),
        Some(SnapshotKind::Interrupted | SnapshotKind::Checkpoint) => {
            CycleReport::failed(FailureClass::Disrupted, "the pod ended before the cycle did")
        }
        Some(SnapshotKind::Failed) => {
            CycleReport::failed(FailureClass::ExecutorFailed, "the cycle failed; cicadactl log tells why")
        }
        None => CycleReport::failed(FailureClass::Disrupted, "the pod ended before it published anything"),
    };
    report.memory = Some(memory_report(&at.head));
    report.recovered = true;
    Ok(report)
}
