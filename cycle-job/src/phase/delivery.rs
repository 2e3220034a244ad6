//! delivery: a cycle that only sends what waits. No memory, no mount, no executor.
//!
//! Its snapshot is a checkpoint: the memory as at the start and a ledger that knows what became of messages.
//! So retention does not count it, what was not yet handled stays new, and one that settled nothing
//! publishes nothing.

use cicada_contract::CycleReport;
use cicada_contract::report::{CycleResult, Outcome};
use cicada_memory::ledger::{EndKind, OutboxState};
use cicada_store::{Archive, PublishRequest, SnapshotKind};
use tokio::task::block_in_place;

use crate::context::Context;
use crate::failure::Failure;
use crate::phase::acquire::Claim;
use crate::phase::deliver::{Delivered, deliver};
use crate::phase::ingest::{IngestError, begin, receipts};
use crate::phase::persist::{PersistError, pack, retention};
use crate::phase::restore::restore_ledger;
use crate::phase::seal::end_ledger;
use crate::phase::write_back::standing;

/// Takes receipts in, sends what waits, and publishes what is settled.
pub async fn delivery(cx: &Context, claim: &mut Claim) -> Result<CycleReport, Failure> {
    let mut ledger = cx.phase("restore", restore_ledger(cx, claim)).await?;
    let now = cx.now();
    block_in_place(|| ledger.begin_cycle(&begin(cx, claim, now))).map_err(IngestError::from)?;
    let taken = cx.phase("ingest", receipts(cx, claim, &mut ledger, now)).await?;
    let waiting = block_in_place(|| ledger.pending_outgoing()).map_err(IngestError::from)?;
    let done = cx.phase("deliver", deliver(cx, claim, &waiting)).await;
    let settled = taken + done.outcomes.iter().filter(|o| o.state != OutboxState::Pending).count();
    let mut report = told(cx, claim, &done, settled);
    standing(cx, &mut ledger).map_err(IngestError::from)?.put_into(&mut report);
    if settled > 0 {
        block_in_place(|| {
            ledger.update_outgoing(&done.outcomes, cx.now())?;
            end_ledger(cx, claim, &mut ledger, EndKind::Delivered, &report)
        })
        .map_err(IngestError::from)?;
        ledger.close();
        cx.phase("persist", publish(cx, claim)).await?;
    } else {
        claim.writer.release(cx.now()).await.map_err(PersistError::from)?;
    }
    report.memory = Some(claim.memory_report());
    report.phases = cx.times();
    Ok(report)
}

fn told(cx: &Context, claim: &Claim, done: &Delivered, settled: usize) -> CycleReport {
    let mut report = CycleReport::new(CycleResult::Done);
    report.outcome = Outcome::Done;
    report.message = format!("{settled} messages settled, {} wait", done.pending.outbox);
    report.attempt = claim.attempt();
    report.pending = done.pending.clone();
    report.wakes = done.wakes.iter().cloned().collect();
    report.phases = cx.times();
    report
}

async fn publish(cx: &Context, claim: &mut Claim) -> Result<(), PersistError> {
    let request = PublishRequest {
        memory: Archive::Keep,
        ledger: pack(cx, "ledger", true).await?,
        done: true,
        retention: retention(cx),
        upload_by: cx.upload_by(),
        ..PublishRequest::new(SnapshotKind::Checkpoint, cx.now())
    };
    let published = claim.writer.publish(request).await?;
    tracing::info!(snapshot = published.snapshot.id, "deliveries published");
    Ok(())
}
