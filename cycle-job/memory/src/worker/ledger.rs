//! The ledger worker: the platform's requests, each one transaction. No SQL of the agent's comes here.

use std::sync::Arc;
use std::time::Duration;

use cicada_contract::PlanConfig;
use cicada_contract::plan::{Approval, Retention};
use jiff::Timestamp;
use rusqlite::Connection;
use rusqlite::limits::Limit;
use serde::{Deserialize, Serialize};

use super::{batch, open, seal};
use crate::Sandbox;
use crate::guard::Guard;
use crate::guard::schema as guard_schema;
use crate::ledger::load::IMAGE_SCHEMA;
use crate::ledger::{
    BeginCycle, FileEntry, FinishCycle, HumanAnswer, HumanRequest, IncomingMessage, OutboxUpdate,
    OutgoingMessage, StepRecord, SummaryRecord, TableUse, ToolPin, ToolResultRecord, cycle, ingest, load,
    outbox, pins, proposals, retention, schema, summaries, write_back,
};
use crate::memory::{Check, Sealed};
use crate::mounts::{IMAGE_NEW, MountEdit};
use crate::protocol::{
    Deadline, Fault, FaultKind, Frame, Port, Reply, WorkerArgs, reply, serve as serve_requests,
};
use crate::sql::split;
use crate::value::Rows;

/// What the parent asks of a ledger worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LedgerRequest {
    Check(Check),
    Ingest { messages: Vec<IncomingMessage>, now: Timestamp },
    Answers { answers: Vec<HumanAnswer>, now: Timestamp },
    Decide { approvals: Vec<Approval>, config: Box<PlanConfig>, cycle: String, now: Timestamp },
    LoadMounts { config: Box<PlanConfig>, files: Vec<FileEntry>, now: Timestamp, tables: Vec<String> },
    ApplyEdits { edits: Vec<MountEdit>, config: Box<PlanConfig>, cycle: String, now: Timestamp },
    BeginCycle(BeginCycle),
    RecordStep(StepRecord),
    RecordToolResult(Box<ToolResultRecord>),
    Recall { result_id: String, now: Timestamp },
    FinishCycle(Box<FinishCycle>),
    AddOutgoing { messages: Vec<OutgoingMessage>, now: Timestamp },
    PendingOutgoing,
    SettledOutgoing(Vec<String>),
    UpdateOutgoing { updates: Vec<OutboxUpdate>, now: Timestamp },
    AddHumanRequest(HumanRequest),
    AddNotices { notices: Vec<String>, now: Timestamp },
    Overview { now: Timestamp, time_zone: String },
    AddSummary(SummaryRecord),
    PinTools { tools: Vec<ToolPin>, approvals: Vec<Approval>, now: Timestamp },
    RecordTableUse { uses: Vec<TableUse>, cycle: String, now: Timestamp },
    Query { sql: String, max_rows: usize },
    Seal { retention: Retention, now: Timestamp },
}

struct Ledger {
    connection: Connection,
    guard: Arc<Guard>,
    deadline: Deadline,
    limit: Duration,
    size_limit: u64,
    directory: std::path::PathBuf,
}

pub(super) fn serve(port: &Port, options: &WorkerArgs, level: Sandbox) -> Result<(), Fault> {
    let (mut connection, hello) = open(&options.directory.join("ledger.db"), options, level)?;
    let found = guard_schema::read(&connection, "main")?;
    guard_schema::allowed(&found).map_err(|m| Fault::new(FaultKind::Schema, m))?;
    if let Some(own) = found.values().find(|o| !matches!(o.kind.as_str(), "table" | "index")) {
        // Nothing in our schema runs code of its own; in a file that does, something was put.
        return Err(Fault::new(
            FaultKind::Schema,
            format!("the ledger has a {} named {}, it may have none", own.kind, own.name),
        ));
    }
    schema::migrate(&connection)?;
    let guard = Guard::install(&mut connection)?;
    let deadline = Deadline::new(port);
    deadline.watch(&mut connection)?;
    let mut ledger = Ledger {
        connection,
        guard,
        deadline,
        limit: Duration::from_secs(options.sql_timeout.max(1)),
        size_limit: options.size_limit,
        directory: options.directory.clone(),
    };
    port.send(&Frame::Done(hello))?;
    serve_requests(port, |request| ledger.answer(&request)).map_err(Fault::from)
}

impl Ledger {
    fn answer(&mut self, request: &LedgerRequest) -> Result<Reply, Fault> {
        use LedgerRequest as Q;
        self.deadline.set(None);
        match request {
            Q::Check(check) => reply(&seal::check(&self.connection, *check, false)?),
            Q::Query { sql, max_rows } => reply(&self.query(sql, *max_rows)?),
            Q::Seal { retention, now } => reply(&self.seal(retention, *now)?),
            Q::PendingOutgoing => reply(&outbox::pending(&self.connection)?),
            Q::SettledOutgoing(ids) => reply(&outbox::settled(&self.connection, ids)?),
            Q::Overview { now, time_zone } => reply(&cycle::overview(&self.connection, *now, time_zone)?),
            Q::LoadMounts { tables, .. } if load::needs_image(tables) => self.with_image(request),
            _ => self.with_room(|c| write(c, request)),
        }
    }

    /// Answers a request with a new image attached; SQLite attaches none within a transaction.
    fn with_image(&mut self, request: &LedgerRequest) -> Result<Reply, Fault> {
        let path = self.directory.join(IMAGE_NEW);
        // Of a worker that died while it wrote one.
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error.into());
        }
        self.connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 1)?;
        let attach = format!("ATTACH ?1 AS {IMAGE_SCHEMA}");
        self.connection.execute(&attach, [path.to_string_lossy()])?;
        self.connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        // Large pages: the file is written and read once, from its first byte to its last.
        self.connection.execute_batch(&format!(
            "PRAGMA {IMAGE_SCHEMA}.page_size = 32768; PRAGMA {IMAGE_SCHEMA}.journal_mode = MEMORY; PRAGMA {IMAGE_SCHEMA}.synchronous = OFF"
        ))?;
        let done = self.with_room(|c| write(c, request));
        self.connection.execute_batch(&format!("DETACH {IMAGE_SCHEMA}"))?;
        done
    }

    /// A transaction; where the ledger is full, once more after the oldest results went.
    fn with_room<T>(&mut self, work: impl Fn(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
        match self.transaction(&work) {
            Err(fault) if fault.kind == FaultKind::Full => {
                let size_limit = self.size_limit;
                self.transaction(|c| retention::shrink(c, size_limit))?;
                self.transaction(work).map_err(|fault| explain(fault, size_limit))
            }
            done => done,
        }
    }

    /// All of a request or nothing.
    fn transaction<T>(&mut self, work: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        match work(&self.connection) {
            Ok(reply) => {
                self.connection.execute_batch("COMMIT")?;
                Ok(reply)
            }
            Err(fault) => {
                if !self.connection.is_autocommit() {
                    self.connection.execute_batch("ROLLBACK")?;
                }
                Err(fault)
            }
        }
    }

    fn query(&self, sql: &str, max_rows: usize) -> Result<Rows, Fault> {
        let parts = split::statements(sql);
        let [text] = parts.as_slice() else {
            return Err(Fault::new(
                FaultKind::Sql,
                format!("one statement is needed, {} were given", parts.len()),
            ));
        };
        self.deadline.set(Some(self.limit));
        let (rows, seen) = self.guard.as_agent(true, true, || batch::read(&self.connection, text, max_rows));
        self.deadline.set(None);
        rows.map_err(|fault| seen.reason.map_or(fault, |reason| Fault::new(FaultKind::Refused, reason)))
    }

    fn seal(&mut self, retention: &Retention, now: Timestamp) -> Result<Sealed, Fault> {
        let size_limit = self.size_limit;
        self.with_room(|c| retention::apply(c, retention, size_limit, now))?;
        let changed = std::fs::metadata(self.directory.join("ledger.db-wal")).is_ok_and(|m| m.len() > 0);
        seal::checkpoint(&self.connection)?;
        seal::check(&self.connection, Check::Quick, false)?;
        seal::rollback_journal(&self.connection)?;
        let size = std::fs::metadata(self.directory.join("ledger.db"))?.len();
        let tables = seal::durable_tables(&guard_schema::read(&self.connection, "main")?).len();
        Ok(Sealed { size, tables: u32::try_from(tables).unwrap_or(u32::MAX), changed })
    }
}

/// What is left when even old results gave way.
fn explain(mut fault: Fault, size_limit: u64) -> Fault {
    if fault.kind == FaultKind::Full {
        fault.message = format!(
            "the ledger is full: ledgerSizeLimit is {size_limit} bytes, and no tool result or summarised step is left to give way; shorten the retention or ask for a higher spec.memory.ledgerSizeLimit"
        );
    }
    fault
}

/// Requests that write.
fn write(c: &Connection, request: &LedgerRequest) -> Result<Reply, Fault> {
    use LedgerRequest as Q;
    match request {
        Q::Ingest { messages, now } => reply(&ingest::messages(c, messages, *now)?),
        Q::Answers { answers, now } => reply(&ingest::answers(c, answers, *now)?),
        Q::Decide { approvals, config, cycle, now } => {
            reply(&proposals::decide(c, approvals, config, cycle, *now)?)
        }
        Q::LoadMounts { config, files, now, tables } => reply(&load::mounts(c, config, files, *now, tables)?),
        Q::ApplyEdits { edits, config, cycle, now } => {
            reply(&write_back::apply(c, edits, config, cycle, *now)?)
        }
        Q::BeginCycle(begin) => reply(&cycle::begin(c, begin)?),
        Q::RecordStep(step) => reply(&cycle::step(c, step)?),
        Q::RecordToolResult(result) => reply(&cycle::tool_result(c, result)?),
        Q::Recall { result_id, now } => reply(&cycle::recall(c, result_id, *now)?),
        Q::FinishCycle(finish) => reply(&cycle::finish(c, finish)?),
        Q::AddOutgoing { messages, now } => reply(&outbox::add(c, messages, *now)?),
        Q::UpdateOutgoing { updates, now } => reply(&outbox::update(c, updates, *now)?),
        Q::AddHumanRequest(request) => reply(&cycle::human_request(c, request)?),
        Q::AddNotices { notices, now } => reply(&cycle::notices(c, notices, *now)?),
        Q::AddSummary(summary) => reply(&summaries::add(c, summary)?),
        Q::PinTools { tools, approvals, now } => reply(&pins::pin(c, tools, approvals, *now)?),
        Q::RecordTableUse { uses, cycle, now } => reply(&cycle::table_use(c, uses, cycle, *now)?),
        _ => Err(Fault::new(FaultKind::Internal, "this request does not write")),
    }
}
