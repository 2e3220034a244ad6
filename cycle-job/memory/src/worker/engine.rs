//! The memory worker: one connection, the agent's SQL, the mounts.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{batch, mount, open, seal};
use crate::Sandbox;
use crate::capi::{self, ChangeLog};
use crate::guard::Guard;
use crate::guard::schema::{self, Schema};
use crate::memory::Check;
use crate::mounts::diff::Keyed;
use crate::mounts::rules::{self, SharedPolicy};
use crate::mounts::{MountEdit, MountPolicy};
use crate::prompt::{self, PromptOptions, Room};
use crate::protocol::{
    Deadline, Fault, FaultKind, Frame, Port, Reply, WorkerArgs, reply, serve as serve_requests,
};
use crate::value::Row;

/// What the parent asks of a memory worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum MemoryRequest {
    Check(Check),
    /// Fills these tables from the image beside the database.
    MountImage {
        tables: Vec<String>,
    },
    /// Begins a mount: makes the tables if they are not there.
    MountBegin {
        policy: Box<MountPolicy>,
    },
    /// Rows of one table, and what goes before them.
    MountRows {
        table: String,
        clear: Clear,
        rows: Vec<Row>,
    },
    /// Ends it; the agent's earlier edits are put on top.
    MountEnd {
        edits: Vec<MountEdit>,
    },
    Batch {
        sql: String,
        number: i32,
    },
    Query {
        sql: String,
        max_rows: usize,
    },
    /// Row counts of these tables; what is gone is left out.
    Count {
        tables: Vec<String>,
    },
    /// Names of the durable tables.
    Tables,
    Prompt(PromptOptions),
    UserVersion,
    Unmount,
    Seal {
        user_version: i32,
        check: Check,
        /// Also where nothing was changed.
        always: bool,
    },
}

/// [`MemoryRequest::MountRows`] with rows that are written already.
#[derive(Debug, Serialize)]
pub(crate) enum MountRows<'a> {
    MountRows { table: &'a str, clear: Clear, rows: &'a [&'a RawValue] },
}

/// What goes before new rows come.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Clear {
    #[default]
    Nothing,
    All,
    /// Rows with these keys.
    Keys(Vec<String>),
}

/// The worker's state.
pub(super) struct Engine {
    pub(super) connection: Connection,
    pub(super) guard: Arc<Guard>,
    pub(super) changes: ChangeLog,
    pub(super) policy: SharedPolicy,
    pub(super) deadline: Deadline,
    pub(super) port: Port,
    pub(super) directory: PathBuf,
    pub(super) limit: Duration,
    pub(super) size_limit: u64,
    /// A copy of somebody else's file.
    pub(super) foreign: bool,
    /// Editable mounts as mounted.
    pub(super) base: std::collections::BTreeMap<&'static str, Keyed>,
    pub(super) mounted: bool,
    /// Schemas as the last statement left them.
    pub(super) main: Schema,
    pub(super) temp: Schema,
    /// Facts for the prompt.
    pub(super) facts: prompt::Cache,
}

/// Opens `memory.db` and answers until the pipe closes.
pub(super) fn serve(port: &Port, options: &WorkerArgs, level: Sandbox) -> Result<(), Fault> {
    let (mut connection, hello) = open(&options.directory.join("memory.db"), options, level)?;
    let main = schema::read(&connection, "main")?;
    if !options.foreign {
        schema::allowed(&main).map_err(|m| Fault::new(FaultKind::Schema, m))?;
    }
    let guard = Guard::install(&mut connection)?;
    let changes = ChangeLog::default();
    capi::watch_changes(&connection, &changes);
    let policy = SharedPolicy::default();
    rules::register(&connection, &policy)?;
    crate::functions::register(&connection)?;
    let deadline = Deadline::new(port);
    deadline.watch(&mut connection)?;
    let mut engine = Engine {
        connection,
        guard,
        changes: Rc::clone(&changes),
        policy,
        deadline,
        port: port.clone(),
        directory: options.directory.clone(),
        limit: Duration::from_secs(options.sql_timeout.max(1)),
        size_limit: options.size_limit,
        foreign: options.foreign,
        base: std::collections::BTreeMap::new(),
        mounted: false,
        main,
        temp: Schema::new(),
        facts: prompt::Cache::new(),
    };
    port.send(&Frame::Done(hello))?;
    serve_requests(port, |request| engine.answer(request)).map_err(Fault::from)?;
    // The hook's context lives in `changes`: the connection goes first.
    drop(engine);
    drop(changes);
    Ok(())
}

impl Engine {
    fn answer(&mut self, request: MemoryRequest) -> Result<Reply, Fault> {
        use MemoryRequest as Q;
        self.deadline.set(None);
        match request {
            Q::Check(check) => reply(&seal::check(&self.connection, check, self.foreign)?),
            Q::MountImage { tables } => reply(&mount::image(self, &tables)?),
            Q::MountBegin { policy } => reply(&mount::begin(self, *policy)?),
            Q::MountRows { table, clear, rows } => reply(&mount::rows(self, &table, &clear, &rows)?),
            Q::MountEnd { edits } => reply(&mount::end(self, &edits)?),
            Q::Batch { sql, number } => reply(&batch::run(self, &sql, number)?),
            Q::Query { sql, max_rows } => reply(&batch::query(self, &sql, max_rows)?),
            Q::Count { tables } => reply(&seal::count(&self.connection, &tables)?),
            Q::Tables => reply(&seal::durable_tables(&self.main)),
            Q::Prompt(options) => reply(&self.prompt(&options)?),
            Q::UserVersion => {
                reply(&self.connection.query_row("PRAGMA user_version", [], |r| r.get::<_, i32>(0))?)
            }
            Q::Unmount => reply(&mount::unmount(self)?),
            Q::Seal { user_version, check, always } => reply(&seal::seal(self, user_version, check, always)?),
        }
    }

    fn prompt(&mut self, options: &PromptOptions) -> Result<String, Fault> {
        let number = |pragma: &str| {
            self.connection.query_row(pragma, [], |r| r.get::<_, i64>(0)).map(i64::unsigned_abs)
        };
        let pages = number("PRAGMA page_count")?.saturating_sub(number("PRAGMA freelist_count")?);
        let room = Room { used: pages * number("PRAGMA page_size")?, limit: self.size_limit };
        // A clock for all of it: a damaged or hostile file must not hold the cycle up. One transaction: each
        // of some hundred reads would else lock the file for itself.
        self.deadline.set(Some(self.limit));
        self.connection.execute_batch("BEGIN")?;
        let text = prompt::text(&self.connection, (&self.main, &self.temp), options, room, &mut self.facts);
        self.deadline.set(None);
        // Out of memory ends a transaction by itself.
        if !self.connection.is_autocommit() {
            self.connection.execute_batch("COMMIT")?;
        }
        Ok(text)
    }
}
