//! The ledger worker: the platform's requests, each one transaction. No SQL of the agent's comes here.

use std::sync::Arc;
use std::time::Duration;

use cicada_contract::PlanConfig;
use cicada_contract::plan::Retention;
use jiff::Timestamp;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::{batch, open, seal};
use crate::Sandbox;
use crate::guard::Guard;
use crate::guard::schema as guard_schema;
use crate::ledger::{
    BeginCycle, FileEntry, FinishCycle, HumanAnswer, HumanRequest, IncomingMessage, IngestReport, OutboxRow,
    OutboxUpdate, OutgoingMessage, Overview, RecalledResult, StepRecord, SummaryRecord, TableUse, ToolDigest,
    ToolPin, ToolResultRecord, WriteBackReport, cycle, ingest, load, outbox, pins, retention, schema,
    summaries, write_back,
};
use crate::memory::{Check, Sealed};
use crate::mounts::{MountEdit, Mounts};
use crate::protocol::{Deadline, Fault, FaultKind, Frame, Port, WorkerArgs, serve as serve_requests};
use crate::sql::split;
use crate::value::Rows;

/// What the parent asks of a ledger worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LedgerRequest {
    Check(Check),
    Ingest { messages: Vec<IncomingMessage>, now: Timestamp },
    Answers { answers: Vec<HumanAnswer>, now: Timestamp },
    LoadMounts { config: Box<PlanConfig>, files: Vec<FileEntry>, now: Timestamp, tables: Vec<String> },
    ApplyEdits { edits: Vec<MountEdit>, config: Box<PlanConfig>, cycle: String, now: Timestamp },
    BeginCycle(BeginCycle),
    RecordStep(StepRecord),
    RecordToolResult(Box<ToolResultRecord>),
    Recall { result_id: String, now: Timestamp },
    FinishCycle(Box<FinishCycle>),
    AddOutgoing { messages: Vec<OutgoingMessage>, now: Timestamp },
    PendingOutgoing,
    UpdateOutgoing { updates: Vec<OutboxUpdate>, now: Timestamp },
    AddHumanRequest(HumanRequest),
    AddNotices { notices: Vec<String>, now: Timestamp },
    Overview { now: Timestamp, time_zone: String },
    AddSummary(SummaryRecord),
    PinTools { tools: Vec<ToolPin>, approved: Vec<String>, now: Timestamp },
    RecordTableUse { uses: Vec<TableUse>, cycle: String, now: Timestamp },
    Query { sql: String, max_rows: usize },
    Seal { retention: Retention, now: Timestamp },
}

/// Its answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LedgerReply {
    Done,
    Ingested(IngestReport),
    Mounts(Mounts),
    WrittenBack(WriteBackReport),
    Digest(Box<ToolDigest>),
    Recalled(Option<RecalledResult>),
    Outbox(Vec<OutboxRow>),
    Overview(Box<Overview>),
    Rows(Rows),
    Names(Vec<String>),
    Sealed(Sealed),
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
    serve_requests(port, |request| ledger.answer(request)).map_err(Fault::from)
}

impl Ledger {
    fn answer(&mut self, request: LedgerRequest) -> Result<LedgerReply, Fault> {
        self.deadline.set(None);
        let done = |()| LedgerReply::Done;
        match request {
            LedgerRequest::Check(check) => seal::check(&self.connection, check).map(done),
            LedgerRequest::Query { sql, max_rows } => self.query(&sql, max_rows).map(LedgerReply::Rows),
            LedgerRequest::Seal { retention, now } => self.seal(&retention, now).map(LedgerReply::Sealed),
            LedgerRequest::PendingOutgoing => outbox::pending(&self.connection).map(LedgerReply::Outbox),
            LedgerRequest::Overview { now, time_zone } => {
                cycle::overview(&self.connection, now, &time_zone).map(|o| LedgerReply::Overview(Box::new(o)))
            }
            other => self.transaction(|c| write(c, other)),
        }
    }

    /// All of a request or nothing.
    fn transaction(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<LedgerReply, Fault>,
    ) -> Result<LedgerReply, Fault> {
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
        self.transaction(|c| retention::apply(c, retention, size_limit, now).map(|()| LedgerReply::Done))?;
        let changed = std::fs::metadata(self.directory.join("ledger.db-wal")).is_ok_and(|m| m.len() > 0);
        seal::checkpoint(&self.connection)?;
        seal::check(&self.connection, Check::Quick)?;
        seal::rollback_journal(&self.connection)?;
        let size = std::fs::metadata(self.directory.join("ledger.db"))?.len();
        let tables = seal::durable_tables(&guard_schema::read(&self.connection, "main")?).len();
        Ok(Sealed { size, tables: u32::try_from(tables).unwrap_or(u32::MAX), changed })
    }
}

/// Requests that write.
fn write(c: &Connection, request: LedgerRequest) -> Result<LedgerReply, Fault> {
    let done = |()| LedgerReply::Done;
    match request {
        LedgerRequest::Ingest { messages, now } => {
            ingest::messages(c, &messages, now).map(LedgerReply::Ingested)
        }
        LedgerRequest::Answers { answers, now } => {
            ingest::answers(c, &answers, now).map(LedgerReply::Ingested)
        }
        LedgerRequest::LoadMounts { config, files, now, tables } => {
            load::mounts(c, &config, &files, now, &tables).map(LedgerReply::Mounts)
        }
        LedgerRequest::ApplyEdits { edits, config, cycle, now } => {
            write_back::apply(c, &edits, &config, &cycle, now).map(LedgerReply::WrittenBack)
        }
        LedgerRequest::BeginCycle(begin) => cycle::begin(c, &begin).map(done),
        LedgerRequest::RecordStep(step) => cycle::step(c, &step).map(done),
        LedgerRequest::RecordToolResult(result) => {
            cycle::tool_result(c, &result).map(|d| LedgerReply::Digest(Box::new(d)))
        }
        LedgerRequest::Recall { result_id, now } => {
            cycle::recall(c, &result_id, now).map(LedgerReply::Recalled)
        }
        LedgerRequest::FinishCycle(finish) => cycle::finish(c, &finish).map(done),
        LedgerRequest::AddOutgoing { messages, now } => outbox::add(c, &messages, now).map(done),
        LedgerRequest::UpdateOutgoing { updates, now } => outbox::update(c, &updates, now).map(done),
        LedgerRequest::AddHumanRequest(request) => cycle::human_request(c, &request).map(done),
        LedgerRequest::AddNotices { notices, now } => cycle::notices(c, &notices, now).map(done),
        LedgerRequest::AddSummary(summary) => summaries::add(c, &summary).map(done),
        LedgerRequest::PinTools { tools, approved, now } => {
            pins::pin(c, &tools, &approved, now).map(LedgerReply::Names)
        }
        LedgerRequest::RecordTableUse { uses, cycle, now } => {
            cycle::table_use(c, &uses, &cycle, now).map(done)
        }
        _ => Err(Fault::new(FaultKind::Internal, "this request does not write")),
    }
}
