//! What parent and worker say to each other: one JSON object a line. The parent writes a request; the
//! worker answers with any number of [`Frame::Tick`] and [`Frame::Pending`] and then one
//! [`Frame::Done`] or [`Frame::Failed`].

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cicada_contract::report::TableChange;
use cicada_contract::text::cut;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::mounts::MountEdit;

/// Longest line either side takes, in bytes: a memory worker's whole address space is of this order.
pub(crate) const LINE_MAX: u64 = 512 << 20;

/// Longest message of a fault, in bytes.
const MESSAGE_MAX: usize = 2000;

/// What a worker gets on its command line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WorkerArgs {
    /// The only directory that it may touch.
    pub(crate) directory: PathBuf,
    /// A directory that it may only read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) read: Option<PathBuf>,
    /// The schema may have names and modules that a memory may not.
    #[serde(default)]
    pub(crate) foreign: bool,
    /// SQLite's hard heap limit in bytes.
    pub(crate) heap: u64,
    /// RLIMIT_AS in bytes.
    pub(crate) address_space: u64,
    /// Largest file in bytes.
    pub(crate) file_size: u64,
    /// Largest database in bytes.
    pub(crate) size_limit: u64,
    /// Seconds for one statement.
    pub(crate) sql_timeout: u64,
}

/// One line of a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Frame<R> {
    /// Still at work.
    Tick,
    /// What the next commit carries.
    Pending(Handover),
    /// The answer.
    Done(R),
    /// No answer.
    Failed(Fault),
}

/// What leaves the worker before a COMMIT, so that a worker killed after it loses none.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Handover {
    /// Differences of the editable mounts from what was mounted; None if the batch wrote none.
    pub(crate) edits: Option<Vec<MountEdit>>,
    /// Rows changed in durable tables.
    pub(crate) changes: Vec<TableChange>,
    /// Rows of dropped tables.
    pub(crate) dropped: Vec<(String, u64)>,
}

/// The first answer of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) sandbox: crate::Sandbox,
    /// `PRAGMA user_version` as found.
    pub(crate) user_version: i32,
    /// The file did not exist or was empty.
    pub(crate) created: bool,
    /// A write-ahead log with frames was found: something was committed and not yet checkpointed.
    pub(crate) dirty: bool,
}

/// Why a worker could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) message: String,
}

/// Kinds of faults, as far as a caller acts differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultKind {
    /// The statement is wrong.
    Sql,
    /// The statement is not allowed.
    Refused,
    /// The statement violates a constraint.
    Constraint,
    /// The database's size limit is reached.
    Full,
    /// The disk has no room left, whatever the size limit is.
    DiskFull,
    /// SQLite's heap limit is reached.
    OutOfMemory,
    /// The statement took longer than its limit.
    Timeout,
    /// The file is not a database, or damaged.
    Corrupt,
    /// The schema has an object that may not be in it.
    Schema,
    /// A mounted or scratch table is left where none may be.
    Residue,
    /// The disk failed.
    Io,
    /// This build lacks what it needs.
    Build,
    /// The worker was asked something that does not fit its state.
    Internal,
}

impl Fault {
    /// The message is cut: SQLite repeats a name of any length.
    pub(crate) fn new(kind: FaultKind, message: impl AsRef<str>) -> Self {
        Self { kind, message: cut(message.as_ref(), MESSAGE_MAX) }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as C;
        let kind = match error.sqlite_error_code() {
            Some(C::DatabaseCorrupt | C::NotADatabase) => FaultKind::Corrupt,
            Some(C::DiskFull) => FaultKind::Full,
            Some(C::OutOfMemory | C::TooBig) => FaultKind::OutOfMemory,
            Some(C::OperationInterrupted) => FaultKind::Timeout,
            Some(C::SystemIoFailure | C::CannotOpen | C::ReadOnly | C::FileLockingProtocolFailed) => {
                FaultKind::Io
            }
            Some(C::ConstraintViolation) => FaultKind::Constraint,
            Some(C::AuthorizationForStatementDenied) => FaultKind::Refused,
            _ => FaultKind::Sql,
        };
        let message = match &error {
            rusqlite::Error::SqliteFailure(_, Some(text)) => text.clone(),
            rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
            other => other.to_string(),
        };
        Self::new(kind, message)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::new(FaultKind::Io, error.to_string())
    }
}

/// The worker's side of the pipes. Cloned into the progress handler, which says that work goes on.
#[derive(Debug, Clone)]
pub(crate) struct Port {
    started: Instant,
    last: Arc<AtomicU64>,
    out: Arc<Mutex<io::Stdout>>,
}

impl Port {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), last: Arc::default(), out: Arc::new(Mutex::new(io::stdout())) }
    }

    /// Milliseconds since the worker started.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn send<R: Serialize>(&self, frame: &Frame<R>) -> io::Result<()> {
        let mut line = serde_json::to_vec(frame)?;
        line.push(b'\n');
        self.last.store(self.now(), Ordering::Relaxed);
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(&line)?;
        out.flush()
    }

    /// A tick, at most two a second.
    pub(crate) fn tick(&self) {
        let is_due = self.now().saturating_sub(self.last.load(Ordering::Relaxed)) > 500;
        if is_due && self.send::<()>(&Frame::Tick).is_err() {
            // The parent is gone: a statement that runs for nobody would take a processor until its time is over.
            std::process::exit(1);
        }
    }
}

/// An answer, written already: the parent reads it as what it asked for.
pub(crate) type Reply = Box<RawValue>;

/// Writes an answer.
pub(crate) fn reply(answer: &impl Serialize) -> Result<Reply, Fault> {
    to_raw_value(answer).map_err(|e| Fault::new(FaultKind::Internal, e.to_string()))
}

/// Serves requests until the parent closes the pipe.
pub(crate) fn serve<Q: DeserializeOwned>(
    port: &Port,
    mut answer: impl FnMut(Q) -> Result<Reply, Fault>,
) -> io::Result<()> {
    let mut input = io::BufReader::with_capacity(1 << 16, io::stdin());
    let mut line = Vec::new();
    loop {
        line.clear();
        if io::BufRead::read_until(&mut io::Read::take(&mut input, LINE_MAX), b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let request: Q = serde_json::from_slice(&line).map_err(io::Error::other)?;
        // A mounted megabyte is not held twice.
        if line.capacity() > 1 << 20 {
            line = Vec::new();
        }
        match answer(request) {
            Ok(done) => port.send(&Frame::Done(done))?,
            Err(fault) => port.send::<()>(&Frame::Failed(fault))?,
        }
    }
}

/// Wall clock of one statement: the progress handler stops it at its deadline.
#[derive(Debug, Clone)]
pub(crate) struct Deadline {
    port: Port,
    at: Arc<AtomicU64>,
}

impl Deadline {
    pub(crate) fn new(port: &Port) -> Self {
        Self { port: port.clone(), at: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// Starts the clock; None = no limit.
    pub(crate) fn set(&self, limit: Option<Duration>) {
        let at = limit
            .map_or(u64::MAX, |l| self.port.now() + u64::try_from(l.as_millis()).unwrap_or(u64::MAX / 2));
        self.at.store(at, Ordering::Relaxed);
        self.port.tick();
    }

    /// True when the time is over.
    pub(crate) fn passed(&self) -> bool {
        self.port.tick();
        self.port.now() >= self.at.load(Ordering::Relaxed)
    }

    /// Checks it every 4,096 steps of the virtual machine: about ten times a millisecond.
    pub(crate) fn watch(&self, connection: &mut rusqlite::Connection) -> rusqlite::Result<()> {
        let own = self.clone();
        connection.progress_handler(4096, Some(move || own.passed()))
    }
}
