//! The driver: eleven phases in one paragraph.

use cicada_contract::plan::Mode;
use cicada_contract::report::{CycleResult, MemoryReport};
use cicada_contract::{CycleReport, FailureClass};
use cicada_store::Snapshot;

use crate::context::Context;
use crate::failure::Failure;
use crate::phase::acquire::{Acquired, Claim, acquire};
use crate::phase::collect::collect;
use crate::phase::delete::delete;
use crate::phase::deliver::deliver;
use crate::phase::delivery::delivery;
use crate::phase::execute::execute;
use crate::phase::ingest::ingest;
use crate::phase::mount::mount;
use crate::phase::persist::persist;
use crate::phase::persist_failure::persist_failure;
use crate::phase::put_back::put_back;
use crate::phase::report::{Finished, recovered_report, report, told_by};
use crate::phase::restore::restore;
use crate::phase::seal::seal;
use crate::phase::unmount::unmount;
use crate::phase::write_back::write_back;

/// One cycle from plan to report. Never panics, never returns early without a report.
pub async fn run(cx: &Context) -> CycleReport {
    if cx.plan.run.mode == Mode::Delete {
        return delete(cx).await.unwrap_or_else(|failure| failed(cx, failure, None));
    }
    let mut claim = match cx.phase("acquire", acquire(cx)).await {
        Err(failure) => return failed(cx, failure, None),
        Ok(Acquired::AlreadyHandled(memory)) => return already_handled(cx, memory),
        Ok(Acquired::Recovered(mut claim, snapshot)) => return recovered(cx, &mut claim, &snapshot).await,
        Ok(Acquired::Held(claim)) => claim,
    };
    let ended = match &cx.plan.run.mode {
        Mode::Delivery => delivery(cx, &mut claim).await,
        Mode::Restore { snapshot } => put_back(cx, &mut claim, snapshot).await,
        Mode::Cycle | Mode::Delete => whole(cx, &mut claim).await,
    };
    match ended {
        Ok(report) => report,
        Err(failure) => {
            // Fenced: whoever raised the epoch owns the store now, so nothing is written. Out of grace: there
            // is no time for it.
            let silent = [FailureClass::PersistFenced, FailureClass::Superseded, FailureClass::GraceTooShort];
            if !silent.contains(&failure.class) {
                cx.phase("persist failure", persist_failure(cx, &mut claim, &failure)).await;
            }
            failed(cx, failure, Some(&claim))
        }
    }
}

/// The cycle that an executor works in.
async fn whole(cx: &Context, claim: &mut Claim) -> Result<CycleReport, Failure> {
    let finished = work(cx, claim).await?;
    let delivered = cx.phase("deliver", deliver(cx, claim, &finished.left.outbox)).await;
    cx.phase("collect", collect(cx, claim, &finished.left.dropped_blobs)).await;
    Ok(report(cx, claim, finished, delivered))
}

/// The phases between the epoch that was raised and the snapshot that is current.
async fn work(cx: &Context, claim: &mut Claim) -> Result<Finished, Failure> {
    let restored = cx.phase("restore", restore(cx, claim)).await?;
    let ingested = cx.phase("ingest", ingest(cx, claim, restored)).await?;
    let mounted = cx.phase("mount", mount(cx, claim, ingested)).await?;
    let executed = cx.phase("execute", execute(cx, claim, mounted)).await?;
    let written = cx.phase("write back", write_back(cx, executed)).await?;
    let unmounted = cx.phase("unmount", unmount(written)).await?;
    let sealed = cx.phase("seal", seal(cx, claim, unmounted)).await?;
    cx.phase("persist", persist(cx, claim, sealed)).await
}

/// An earlier attempt had published: what is left is to deliver and to report.
async fn recovered(cx: &Context, claim: &mut Claim, snapshot: &Snapshot) -> CycleReport {
    let told = cx.phase("restore", told_by(cx, claim, snapshot)).await;
    let (stored, outbox) = match told {
        Ok(both) => both,
        Err(failure) => return failed(cx, failure, Some(claim)),
    };
    let delivered = cx.phase("deliver", deliver(cx, claim, &outbox)).await;
    if let Err(error) = claim.writer.release(cx.now()).await {
        return failed(cx, Failure::new(error.class(), crate::failure::chain(&error)), Some(claim));
    }
    recovered_report(cx, claim, snapshot, stored, delivered)
}

/// Reads what the last cycle left, without acquiring anything.
pub async fn report_only(cx: &Context) -> CycleReport {
    match crate::phase::report::read_back(cx).await {
        Ok(report) => report,
        Err(failure) => failed(cx, failure, None),
    }
}

fn failed(cx: &Context, failure: Failure, claim: Option<&Claim>) -> CycleReport {
    let mut report = CycleReport::failed(failure.class, &failure.message);
    report.phases = cx.times();
    report.usage = cx.spent();
    if let Some(claim) = claim {
        report.attempt = claim.attempt();
        report.memory = Some(claim.memory_report());
    }
    report
}

fn already_handled(cx: &Context, memory: MemoryReport) -> CycleReport {
    let mut report = CycleReport::new(CycleResult::AlreadyHandled);
    report.message = "this request was handled before; nothing was executed".into();
    report.memory = Some(memory);
    report.phases = cx.times();
    report
}
