//! The sql executor: the manifest's statements as one batch, one transaction.

use cicada_contract::FailureClass;
use cicada_contract::plan::{ProvidedFile, SqlSource};
use cicada_contract::report::{Outcome, Usage};
use cicada_memory::{BatchResult, FaultKind, MemoryWorker, WorkerError};
use cicada_store::SnapshotKind;
use tokio::task::spawn_blocking;

use crate::context::Context;
use crate::executor::Work;
use crate::failure::{Classified, worker_class};
use crate::shutdown::Stop;

/// Why the statements did not run to their end.
#[derive(Debug, thiserror::Error)]
pub enum SqlExecutorError {
    /// The ConfigMap or its key is not there.
    #[error("{origin} is missing: create it, or correct spec.executor.sql.configMapKeyRef")]
    Missing {
        /// What the manifest names.
        origin: String,
    },
    /// There, but can't be read.
    #[error("{origin} can't be read as text")]
    Unreadable {
        /// What the manifest names.
        origin: String,
        /// What the read said.
        #[source]
        source: std::io::Error,
    },
    /// A statement failed; the whole batch was rolled back.
    #[error("{0}")]
    Statement(String),
    /// The disk was full; the whole batch was rolled back.
    #[error("{0}")]
    DiskFull(String),
    /// The worker failed outside a statement.
    #[error("the memory worker failed")]
    Engine(#[from] WorkerError),
    /// `limits.timeout` passed or SIGTERM came: nothing of the batch stays.
    #[error("{}", match .0 { Stop::Timeout => "limits.timeout passed; the batch was rolled back", Stop::Signal => "the pod was told to stop; the batch was rolled back" })]
    Stopped(Stop),
}

impl Classified for SqlExecutorError {
    fn class(&self) -> FailureClass {
        match self {
            Self::Missing { .. } => FailureClass::ConfigMissing,
            Self::Unreadable { .. } | Self::Statement(_) => FailureClass::ExecutorFailed,
            Self::DiskFull(_) => FailureClass::DiskBudget,
            Self::Engine(e) => worker_class(e, FailureClass::WorkerCrashed),
            Self::Stopped(Stop::Timeout) => FailureClass::Timeout,
            Self::Stopped(Stop::Signal) => FailureClass::Disrupted,
        }
    }
}

/// Runs the statements. The worker comes back in both cases, since what follows needs it.
pub async fn run(
    cx: &Context,
    source: &SqlSource,
    worker: MemoryWorker,
) -> (MemoryWorker, Result<(Work, BatchResult), SqlExecutorError>) {
    let sql = match text(source) {
        Ok(sql) => sql,
        Err(error) => return (worker, Err(error)),
    };
    let (worker, result) = match batch(cx, worker, sql).await {
        (worker, Ok(result)) => (worker, result),
        (worker, Err(error)) => return (worker, Err(error)),
    };
    if let Some(error) = &result.error {
        let text = match error.statement {
            Some(number) => {
                format!("statement {number} failed, the batch was rolled back: {}", error.message)
            }
            None => format!("the batch was rolled back: {}", error.message),
        };
        let failed = match error.kind {
            Some(FaultKind::DiskFull) => SqlExecutorError::DiskFull(text),
            _ => SqlExecutorError::Statement(text),
        };
        return (worker, Err(failed));
    }
    let work = Work {
        outcome: Outcome::Done,
        message: match result.statements.len() {
            1 => "1 statement".to_owned(),
            many => format!("{many} statements"),
        },
        ended_by: None,
        usage: Usage { tool_calls: 1, ..Usage::default() },
        kind: SnapshotKind::Final,
    };
    (worker, Ok((work, result)))
}

/// One batch that ends early when the cycle must stop: the worker is killed, and SQLite's journal takes
/// back what was not committed.
pub async fn batch(
    cx: &Context,
    mut worker: MemoryWorker,
    sql: String,
) -> (MemoryWorker, Result<BatchResult, SqlExecutorError>) {
    let killer = worker.killer();
    let task = spawn_blocking(move || {
        let result = worker.batch(&sql);
        (worker, result)
    });
    tokio::pin!(task);
    let (joined, stop) = tokio::select! {
        joined = &mut task => (joined, None),
        stop = cx.shutdown.wait() => {
            killer.kill();
            (task.await, Some(stop))
        }
    };
    match (joined, stop) {
        (Ok((worker, _)), Some(stop)) => (worker, Err(SqlExecutorError::Stopped(stop))),
        (Ok((worker, Ok(result))), None) => (worker, Ok(result)),
        (Ok((worker, Err(error))), None) => (worker, Err(error.into())),
        // The closure has no panic of its own; if one comes from below, it goes on from here.
        (Err(join), _) => std::panic::resume_unwind(join.into_panic()),
    }
}

fn text(source: &SqlSource) -> Result<String, SqlExecutorError> {
    match source {
        SqlSource::Inline(sql) => Ok(sql.clone()),
        SqlSource::File(ProvidedFile { path, origin }) => std::fs::read_to_string(path).map_err(|source| {
            if source.kind() == std::io::ErrorKind::NotFound {
                SqlExecutorError::Missing { origin: origin.clone() }
            } else {
                SqlExecutorError::Unreadable { origin: origin.clone(), source }
            }
        }),
    }
}
