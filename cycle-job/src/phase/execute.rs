//! execute: the executor works, and the manifest's success query judges.

use cicada_contract::FailureClass;
use cicada_contract::plan::Executor;
use cicada_contract::report::Outcome;
use cicada_memory::ledger::{StepRecord, ToolResultRecord};
use cicada_memory::{BatchResult, FaultKind, LedgerWorker, MemoryWorker, WorkerError};
use cicada_store::SnapshotKind;
use jiff::Timestamp;
use tokio::task::block_in_place;

use crate::context::Context;
use crate::executor::model::{self, Bench};
use crate::executor::{Work, container, sql};
use crate::failure::{Classified, Failure, worker_class};
use crate::phase::acquire::Claim;
use crate::phase::mount::Mounted;

/// The executor has ended; its edits of mounts are still in the worker.
pub struct Executed {
    pub(crate) memory: MemoryWorker,
    pub(crate) ledger: LedgerWorker,
    pub(crate) work: Work,
    pub(crate) warnings: Vec<String>,
}

/// What can fail around an executor.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// The step could not be recorded.
    #[error("could not record the step in the ledger")]
    Record(#[source] WorkerError),
    /// There is no worker that could run the success query.
    #[error("spec.success could not be run")]
    Success(#[source] WorkerError),
}

impl Classified for ExecuteError {
    fn class(&self) -> FailureClass {
        match self {
            Self::Record(e) | Self::Success(e) => worker_class(e, FailureClass::WorkerCrashed),
        }
    }
}

/// Lets the executor work.
pub async fn execute(cx: &Context, claim: &mut Claim, mounted: Mounted) -> Result<Executed, Failure> {
    let Mounted { memory, mut ledger, files, warnings } = mounted;
    let (mut memory, ledger, mut work) = match &cx.plan.config.executor {
        Executor::Sql(source) => {
            let started_at = cx.now();
            let (memory, result) = sql::run(cx, source, memory).await;
            let (work, result) = result?;
            block_in_place(|| record(cx, claim, &mut ledger, started_at, &result))
                .map_err(ExecuteError::Record)?;
            (memory, ledger, work)
        }
        Executor::Model(config) => {
            let (bench, work) = model::run(cx, claim, config, Bench { memory, ledger, files }).await?;
            (bench.memory, bench.ledger, work)
        }
        Executor::Container(_) => {
            let (bench, work) = container::run(cx, claim, Bench { memory, ledger, files }).await?;
            (bench.memory, bench.ledger, work)
        }
    };
    judge(cx, &mut memory, &mut work)?;
    Ok(Executed { memory, ledger, work, warnings })
}

/// `spec.success` must return a row, whatever the agent says of itself. One that can't be run (the agent has not
/// made its table yet, or has dropped it) returns none: that is for people to hear of, and no reason to lose what
/// the agent did.
fn judge(cx: &Context, memory: &mut MemoryWorker, work: &mut Work) -> Result<(), ExecuteError> {
    let Some(query) = cx.plan.config.success.as_ref().filter(|_| work.kind == SnapshotKind::Final) else {
        return Ok(());
    };
    let message = match block_in_place(|| memory.query(query, 1)) {
        Ok(rows) if !rows.rows.is_empty() => return Ok(()),
        Ok(_) => "spec.success returned no row".to_owned(),
        Err(error) if is_statement(&error) => {
            format!("spec.success can't be run: {error}; what the cycle did is kept")
        }
        Err(error) => return Err(ExecuteError::Success(error)),
    };
    work.outcome = Outcome::Blocked;
    work.ended_by = Some("success");
    work.message = message;
    Ok(())
}

/// True if the statement is at fault, and neither worker nor disk.
fn is_statement(error: &WorkerError) -> bool {
    use FaultKind as K;
    matches!(error.fault(), Some(K::Sql | K::Refused | K::Constraint | K::OutOfMemory | K::Timeout | K::Full))
}

/// Writes the batch as step and tool result, so that `log` shows it and the next cycle can read it.
fn record(
    cx: &Context,
    claim: &Claim,
    ledger: &mut LedgerWorker,
    started_at: Timestamp,
    result: &BatchResult,
) -> Result<(), WorkerError> {
    let cycle = cx.plan.run.cycle.name.clone();
    let calls: Vec<_> = result
        .statements
        .iter()
        .map(|s| serde_json::json!({"tool": "sql", "sql": s.sql, "rows": s.rows.len(), "changed": s.changed, "ms": s.ms}))
        .collect();
    ledger.record_step(&StepRecord {
        cycle: cycle.clone(),
        attempt: claim.attempt(),
        step: 1,
        kind: "sql".into(),
        started_at,
        ended_at: Some(cx.now()),
        text: None,
        calls_json: Some(serde_json::Value::Array(calls).to_string()),
        usage: cicada_contract::report::Usage::default(),
    })?;
    let content = &result.text;
    ledger.record_tool_result(&ToolResultRecord {
        result_id: format!("{cycle}-{}-1", claim.attempt()),
        cycle,
        attempt: claim.attempt(),
        step: 1,
        tool_name: "sql".into(),
        source_url: None,
        at: cx.now(),
        bytes: content.len() as u64,
        sha256: cicada_contract::text::sha256_hex(content),
        content: Some(content.clone()),
        is_truncated: false,
        blob_key: None,
    })?;
    Ok(())
}
