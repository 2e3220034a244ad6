//! The platform's own tables about an agent, in a file and a worker of their own.

pub(crate) mod cards;
pub(crate) mod cycle;
pub(crate) mod ingest;
pub(crate) mod load;
pub(crate) mod outbox;
pub(crate) mod pins;
pub(crate) mod proposals;
pub(crate) mod retention;
pub(crate) mod schema;
pub(crate) mod summaries;
mod types;
pub(crate) mod write_back;

use std::path::{Path, PathBuf};
use std::time::Duration;

use cicada_contract::PlanConfig;
use cicada_contract::plan::{Approval, Retention};
use cicada_contract::resources::{MIB, resources};
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use crate::Sandbox;
use crate::child::{Child, Killer, Launcher, WorkerError};
use crate::memory::{Check, Sealed};
use crate::mounts::{IMAGE, IMAGE_NEW, MountEdit, Mounts};
use crate::protocol::{Fault, Hello, WorkerArgs};
use crate::value::Rows;
use crate::worker::LedgerRequest;

pub use outbox::{OutboxRow, OutboxState, OutboxUpdate, OutgoingMessage};
pub use types::*;

/// Bounds of a ledger worker.
#[derive(Debug, Clone)]
pub struct LedgerOptions {
    /// Largest ledger file in bytes.
    pub size_limit: u64,
    /// SQLite's hard heap limit in bytes.
    pub heap: u64,
    /// RLIMIT_AS of the worker in bytes.
    pub address_space: u64,
    /// Time for one request.
    pub timeout: Duration,
}

impl LedgerOptions {
    /// The numbers that pod and plan agree on.
    pub fn new(size_limit: u64, ledger_size_limit: u64) -> Self {
        let r = resources(size_limit, ledger_size_limit, 0);
        Self {
            size_limit: ledger_size_limit,
            heap: r.ledger_heap,
            address_space: r.ledger_address_space,
            timeout: Duration::from_secs(60),
        }
    }
}

impl Default for LedgerOptions {
    fn default() -> Self {
        Self::new(256 * MIB, 256 * MIB)
    }
}

/// A sandboxed process with the ledger open. Blocking. Every request is one transaction: a process that
/// dies leaves all of it or nothing, and the next request starts another.
#[derive(Debug)]
pub struct LedgerWorker {
    launcher: Launcher,
    directory: PathBuf,
    options: LedgerOptions,
    killer: Killer,
    child: Option<Child>,
    sandbox: Sandbox,
    changed: bool,
}

impl LedgerWorker {
    /// Starts a worker in `directory`, which holds `ledger.db` (made if absent, migrated if older).
    pub fn spawn(launcher: &Launcher, directory: &Path, options: LedgerOptions) -> Result<Self, WorkerError> {
        let directory = directory.canonicalize().map_err(|source| WorkerError::Spawn { source })?;
        let mut worker = Self {
            launcher: launcher.clone(),
            directory,
            options,
            killer: Killer::default(),
            child: None,
            sandbox: Sandbox::Rlimits,
            changed: false,
        };
        worker.start()?;
        Ok(worker)
    }

    /// What the kernel gave to hold the worker.
    pub fn sandbox(&self) -> Sandbox {
        self.sandbox
    }

    /// Kills the running worker from another thread.
    pub fn killer(&self) -> Killer {
        self.killer.clone()
    }

    /// Process id of the running worker.
    pub fn process_id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Runs SQLite's check of the whole file.
    pub fn check(&mut self, check: Check) -> Result<(), WorkerError> {
        self.ask(LedgerRequest::Check(check))
    }

    /// Takes messages in, each once by its id.
    pub fn ingest(
        &mut self,
        messages: &[IncomingMessage],
        now: Timestamp,
    ) -> Result<IngestReport, WorkerError> {
        self.ask(LedgerRequest::Ingest { messages: messages.to_vec(), now })
    }

    /// Takes answers of people in, each once.
    pub fn answer_requests(
        &mut self,
        answers: &[HumanAnswer],
        now: Timestamp,
    ) -> Result<IngestReport, WorkerError> {
        self.ask(LedgerRequest::Answers { answers: answers.to_vec(), now })
    }

    /// Rows of all eight mounts.
    pub fn load_mounts(
        &mut self,
        config: &PlanConfig,
        files: &[FileEntry],
        now: Timestamp,
    ) -> Result<Mounts, WorkerError> {
        self.load_tables(config, files, now, &[])
    }

    /// Rows of the mounts named; of all, if none is.
    pub fn load_tables(
        &mut self,
        config: &PlanConfig,
        files: &[FileEntry],
        now: Timestamp,
        tables: &[&str],
    ) -> Result<Mounts, WorkerError> {
        let request = LedgerRequest::LoadMounts {
            config: Box::new(config.clone()),
            files: files.to_vec(),
            now,
            tables: tables.iter().map(|t| (*t).to_owned()).collect(),
        };
        let mut mounts: Mounts = self.ask(request)?;
        if !mounts.image.tables.is_empty() {
            mounts.image.path = self.directory.join(IMAGE);
            std::fs::rename(self.directory.join(IMAGE_NEW), &mounts.image.path).map_err(Fault::from)?;
        }
        Ok(mounts)
    }

    /// Writes the agent's edits back: compare-and-set, so that what a person changed meanwhile stays.
    pub fn apply_edits(
        &mut self,
        edits: &[MountEdit],
        config: &PlanConfig,
        cycle: &str,
        now: Timestamp,
    ) -> Result<WriteBackReport, WorkerError> {
        let request = LedgerRequest::ApplyEdits {
            edits: edits.to_vec(),
            config: Box::new(config.clone()),
            cycle: cycle.to_owned(),
            now,
        };
        self.ask(request)
    }

    /// Records that an attempt begins. Again for the same attempt changes nothing.
    pub fn begin_cycle(&mut self, begin: &BeginCycle) -> Result<(), WorkerError> {
        self.ask(LedgerRequest::BeginCycle(begin.clone()))
    }

    /// Records a step, or its end.
    pub fn record_step(&mut self, step: &StepRecord) -> Result<(), WorkerError> {
        self.ask(LedgerRequest::RecordStep(step.clone()))
    }

    /// Records a tool's result and gives its digest.
    pub fn record_tool_result(&mut self, result: &ToolResultRecord) -> Result<ToolDigest, WorkerError> {
        self.ask(LedgerRequest::RecordToolResult(Box::new(result.clone())))
    }

    /// An older result by its id, and keeps it from the retention from now on. None if it is not known.
    pub fn recall_result(
        &mut self,
        result_id: &str,
        now: Timestamp,
    ) -> Result<Option<RecalledResult>, WorkerError> {
        self.ask(LedgerRequest::Recall { result_id: result_id.to_owned(), now })
    }

    /// Records how an attempt ended; `final` marks what it ingested as handled.
    pub fn finish_cycle(&mut self, finish: &FinishCycle) -> Result<(), WorkerError> {
        self.ask(LedgerRequest::FinishCycle(Box::new(finish.clone())))
    }

    /// Queues outgoing messages; one with a known id changes nothing.
    pub fn add_outgoing(&mut self, messages: &[OutgoingMessage], now: Timestamp) -> Result<(), WorkerError> {
        self.ask(LedgerRequest::AddOutgoing { messages: messages.to_vec(), now })
    }

    /// Messages that wait to leave, oldest first.
    pub fn pending_outgoing(&mut self) -> Result<Vec<OutboxRow>, WorkerError> {
        self.ask(LedgerRequest::PendingOutgoing)
    }

    /// Those of `ids` whose outcome this ledger has; an id that it does not know is not among them.
    pub fn settled_outgoing(&mut self, ids: &[String]) -> Result<Vec<String>, WorkerError> {
        self.ask(LedgerRequest::SettledOutgoing(ids.to_vec()))
    }

    /// Takes delivery receipts in.
    pub fn update_outgoing(&mut self, updates: &[OutboxUpdate], now: Timestamp) -> Result<(), WorkerError> {
        self.ask(LedgerRequest::UpdateOutgoing { updates: updates.to_vec(), now })
    }

    /// Asks a person; a request with a known id changes nothing.
    pub fn add_human_request(&mut self, request: &HumanRequest) -> Result<(), WorkerError> {
        self.ask(LedgerRequest::AddHumanRequest(request.clone()))
    }

    /// Lines for the next prompt: what happened that the agent did not see. They are kept until a `final` end.
    pub fn add_notices(&mut self, notices: &[String], now: Timestamp) -> Result<(), WorkerError> {
        self.ask(LedgerRequest::AddNotices { notices: notices.to_vec(), now })
    }

    /// Adds a summary of older steps or messages.
    pub fn add_summary(&mut self, summary: &SummaryRecord) -> Result<(), WorkerError> {
        self.ask(LedgerRequest::AddSummary(summary.clone()))
    }

    /// Pins tools of MCP servers at first use; gives the names of those that have changed since and that
    /// no person approved as they now are.
    pub fn pin_tools(
        &mut self,
        tools: &[ToolPin],
        approvals: &[Approval],
        now: Timestamp,
    ) -> Result<Vec<String>, WorkerError> {
        self.ask(LedgerRequest::PinTools { tools: tools.to_vec(), approvals: approvals.to_vec(), now })
    }

    /// Applies people's decisions about proposals. Each counts once; a line for each that is new, which
    /// the agent's next prompt has too.
    pub fn decide_proposals(
        &mut self,
        approvals: &[Approval],
        config: &PlanConfig,
        cycle: &str,
        now: Timestamp,
    ) -> Result<Vec<String>, WorkerError> {
        let (approvals, cycle) = (approvals.to_vec(), cycle.to_owned());
        self.ask(LedgerRequest::Decide { approvals, config: Box::new(config.clone()), cycle, now })
    }

    /// Numbers and lists for prompt and report.
    pub fn overview(&mut self, now: Timestamp, time_zone: &str) -> Result<Overview, WorkerError> {
        self.ask(LedgerRequest::Overview { now, time_zone: time_zone.to_owned() })
    }

    /// Notes which tables of the memory a cycle used and changed.
    pub fn record_table_use(
        &mut self,
        uses: &[TableUse],
        cycle: &str,
        now: Timestamp,
    ) -> Result<(), WorkerError> {
        self.ask(LedgerRequest::RecordTableUse { uses: uses.to_vec(), cycle: cycle.to_owned(), now })
    }

    /// Runs one SELECT; writes nothing.
    pub fn query(&mut self, sql: &str, max_rows: usize) -> Result<Rows, WorkerError> {
        self.ask(LedgerRequest::Query { sql: sql.to_owned(), max_rows })
    }

    /// Applies the retention, checkpoints, checks and closes the file in the form that other tools read.
    pub fn seal(&mut self, retention: &Retention, now: Timestamp) -> Result<LedgerSealed, WorkerError> {
        let sealed: Sealed = self.ask(LedgerRequest::Seal { retention: retention.clone(), now })?;
        Ok(Sealed { changed: sealed.changed || self.changed, ..sealed })
    }

    /// Ends the worker.
    pub fn close(self) {}

    fn start(&mut self) -> Result<(), WorkerError> {
        let args = WorkerArgs {
            directory: self.directory.clone(),
            read: None,
            foreign: false,
            heap: self.options.heap,
            address_space: self.options.address_space,
            file_size: self.options.size_limit.saturating_mul(4) + 64 * MIB,
            size_limit: self.options.size_limit,
            sql_timeout: self.options.timeout.as_secs(),
        };
        let mut child = Child::spawn(&self.launcher, "ledger", &args, &self.directory, &self.killer)?;
        let hello: Hello = child.answer(self.options.timeout, |_| {})?;
        self.sandbox = hello.sandbox;
        self.changed |= hello.created || hello.dirty;
        self.child = Some(child);
        Ok(())
    }

    /// Each request is one transaction and may be repeated, so a worker that died is replaced once.
    #[expect(clippy::needless_pass_by_value, reason = "callers build it for this call")]
    fn ask<R: DeserializeOwned>(&mut self, request: LedgerRequest) -> Result<R, WorkerError> {
        match self.ask_once(&request) {
            Err(WorkerError::Crashed { .. }) => self.ask_once(&request),
            answer => answer,
        }
    }

    fn ask_once<R: DeserializeOwned>(&mut self, request: &LedgerRequest) -> Result<R, WorkerError> {
        if self.child.is_none() {
            self.start()?;
        }
        let patience = match request {
            LedgerRequest::Check(_) | LedgerRequest::Seal { .. } => Duration::from_secs(900),
            _ => self.options.timeout,
        };
        let answer = match &mut self.child {
            Some(child) => child.ask(request, patience, |_| {}),
            None => Err(WorkerError::Crashed { signal: None, code: None, stderr: "not running".into() }),
        };
        if answer.as_ref().is_err_and(WorkerError::is_death) {
            self.child = None;
            self.changed = true;
        }
        answer
    }
}

/// A sealed ledger.
pub type LedgerSealed = Sealed;
