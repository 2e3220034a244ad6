//! seal: one clean, checked file each. The workers end here: a sealed file has no open connection.

use std::time::{Duration, Instant};

use cicada_contract::report::{MemoryReport, TableChange, Usage};
use cicada_contract::{CycleReport, FailureClass};
use cicada_memory::ledger::{EndKind, FinishCycle, OutboxRow, TableUse};
use cicada_memory::{Check, LedgerWorker, MemoryWorker, Row, WorkerError};
use cicada_store::{DroppedBlob, Head, SnapshotKind};
use tokio::task::block_in_place;

use crate::context::Context;
use crate::executor::Work;
use crate::failure::{Classified, Failure, worker_class};
use crate::phase::acquire::Claim;
use crate::phase::checks;
use crate::phase::report::told;
use crate::phase::unmount::Unmounted;
use crate::phase::write_back::Notes;

/// Both files are finished. The one state that can be published.
pub struct Sealed {
    pub(crate) kind: SnapshotKind,
    /// When the work had ended.
    pub(crate) began: Instant,
    pub(crate) work: Work,
    pub(crate) memory: cicada_memory::Sealed,
    pub(crate) tables: Vec<TableChange>,
    pub(crate) sandbox: String,
    pub(crate) notes: Notes,
    pub(crate) left: Left,
}

/// What the finished ledger leaves to do.
pub(crate) struct Left {
    /// Messages that wait to leave.
    pub(crate) outbox: Vec<OutboxRow>,
    /// Objects of the store that no row names any more.
    pub(crate) dropped_blobs: Vec<DroppedBlob>,
}

/// Why there are no finished files.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// A file did not pass its checks, or could not be finished.
    #[error("the finished {what} did not pass its checks")]
    Checks {
        /// `memory` or `ledger`.
        what: &'static str,
        /// What the engine said.
        #[source]
        source: WorkerError,
    },
    /// The pod would be killed before the snapshot were published.
    #[error(
        "the last persist took {} ms and {} ms of the grace period are left; HEAD is unchanged: raise \
         pod.terminationGracePeriodSeconds",
        took.as_millis(), left.as_millis()
    )]
    NoTime {
        /// Until SIGKILL, without what the write of HEAD needs.
        left: Duration,
        /// As HEAD says.
        took: Duration,
    },
}

impl Classified for SealError {
    fn class(&self) -> FailureClass {
        match self {
            Self::Checks { source, .. } if source.fault().is_none() => FailureClass::WorkerCrashed,
            Self::Checks { source, .. } => worker_class(source, FailureClass::SqlitePersistenceFailed),
            Self::NoTime { .. } => FailureClass::GraceTooShort,
        }
    }
}

/// After SIGTERM nothing is begun that the last persist says can't be finished: a pod that is killed in the middle
/// of an upload tells nobody why.
fn check_time(cx: &Context, head: &Head) -> Result<(), SealError> {
    let (Some(by), Some(took)) = (cx.upload_by(), head.persist_ms.map(Duration::from_millis)) else {
        return Ok(());
    };
    let left = by.saturating_duration_since(Instant::now());
    if left < took { Err(SealError::NoTime { left, took }) } else { Ok(()) }
}

/// Finishes both files.
pub async fn seal(cx: &Context, claim: &Claim, unmounted: Unmounted) -> Result<Sealed, Failure> {
    let Unmounted { mut memory, mut ledger, work, notes } = unmounted;
    check_time(cx, claim.writer.head())?;
    let began = Instant::now();
    let sandbox = memory.sandbox().label().to_owned();
    let sealed = block_in_place(|| {
        let failed = |source| SealError::Checks { what: "memory", source };
        let tables = memory.changes().map_err(failed)?;
        let uses = table_uses(&memory, &tables);
        let sealed = seal_memory(cx, claim, &mut memory).map_err(failed)?;
        memory.close();
        let mut report = told(cx, claim.attempt(), &work, tables.clone(), notes.clone(), sandbox.clone());
        report.memory =
            Some(MemoryReport { tables: Some(sealed.tables), size: sealed.size, ..claim.memory_report() });
        let left = seal_ledger(cx, ledger_end(cx, claim, &work, &report), &mut ledger, &uses)
            .map_err(|source| SealError::Checks { what: "ledger", source })?;
        ledger.close();
        Ok::<_, SealError>((sealed, tables, left))
    });
    let (memory, tables, left) = sealed?;
    Ok(Sealed { kind: work.kind, began, work, memory, tables, sandbox, notes, left })
}

fn seal_memory(
    cx: &Context,
    claim: &Claim,
    memory: &mut MemoryWorker,
) -> Result<cicada_memory::Sealed, WorkerError> {
    let head = claim.writer.head();
    let size = std::fs::metadata(cx.work.memory_db()).map_or(0, |m| m.len());
    let check = checks::at_seal(head, size, cx.base.delta(head, cx.now()).is_some());
    let sealed = memory.seal_checked(check)?;
    if sealed.changed && check == Check::Integrity {
        cx.base.note_checked();
    }
    Ok(sealed)
}

fn seal_ledger(
    cx: &Context,
    end: FinishCycle,
    ledger: &mut LedgerWorker,
    uses: &[TableUse],
) -> Result<Left, WorkerError> {
    ledger.record_table_use(uses, &end.cycle, end.at)?;
    ledger.finish_cycle(&end)?;
    // What this very seal drops can't go before a later cycle's snapshot has taken this one's place.
    let left = Left { outbox: ledger.pending_outgoing()?, dropped_blobs: dropped_blobs(ledger)? };
    ledger.seal(&cx.plan.config.memory.retention, end.at)?;
    Ok(left)
}

/// Ends the ledger of a cycle that had no executor.
pub(crate) fn end_ledger(
    cx: &Context,
    claim: &Claim,
    ledger: &mut LedgerWorker,
    kind: EndKind,
    report: &CycleReport,
) -> Result<(), WorkerError> {
    let at = cx.now();
    ledger.finish_cycle(&FinishCycle {
        cycle: cx.plan.run.cycle.name.clone(),
        attempt: claim.attempt(),
        kind,
        class: None,
        outcome: Some("done".into()),
        summary: Some(report.message.clone()),
        usage: Usage::default(),
        report_json: serde_json::to_string(report).ok(),
        at,
    })?;
    ledger.seal(&cx.plan.config.memory.retention, at)?;
    Ok(())
}

fn dropped_blobs(ledger: &mut LedgerWorker) -> Result<Vec<DroppedBlob>, WorkerError> {
    let rows = ledger
        .query("SELECT blob_key, epoch FROM dropped_blobs WHERE epoch IS NOT NULL ORDER BY epoch", 10_000)?;
    let blob = |row: &Row| {
        let key = row.first()?.as_str()?.to_owned();
        Some(DroppedBlob { key, epoch: row.get(1)?.as_int()?.unsigned_abs() })
    };
    Ok(rows.rows.iter().filter_map(blob).collect())
}

fn table_uses(memory: &MemoryWorker, changes: &[TableChange]) -> Vec<TableUse> {
    let change = |name: &str| changes.iter().find(|c| c.name == name);
    let used = memory.used_tables().map(|name| TableUse {
        table: name.to_owned(),
        rows: change(name).and_then(|c| c.rows),
        changed: change(name).is_some(),
    });
    used.collect()
}

fn ledger_end(cx: &Context, claim: &Claim, work: &Work, report: &CycleReport) -> FinishCycle {
    let outcome = serde_json::to_value(work.outcome).ok();
    FinishCycle {
        cycle: cx.plan.run.cycle.name.clone(),
        attempt: claim.attempt(),
        kind: if work.kind == SnapshotKind::Final { EndKind::Final } else { EndKind::Interrupted },
        class: report.class.map(|c| c.label().to_owned()),
        outcome: outcome.and_then(|o| o.as_str().map(str::to_owned)),
        summary: Some(work.message.clone()),
        usage: work.usage.clone(),
        report_json: serde_json::to_string(report).ok(),
        at: cx.now(),
    }
}
