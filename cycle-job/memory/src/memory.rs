//! The parent's handle of a memory worker.

mod mounted;
mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cicada_contract::report::TableChange;
use cicada_contract::resources::{MIB, resources};
use serde::{Deserialize, Serialize};

use crate::Sandbox;
use crate::child::{Child, Killer, Launcher, WorkerError, no_room, told_apart};
use crate::mounts::{MountEdit, Mounts};
use crate::prompt::PromptOptions;
use crate::protocol::{Fault, FaultKind};
use crate::tool::{BatchOutcome, BatchResult, render};
use crate::value::Rows;
use crate::worker::{COMPACTED, MemoryRequest};
use mounted::Mounted;

/// Bounds of a memory worker.
#[derive(Debug, Clone)]
pub struct MemoryOptions {
    /// Largest memory file in bytes; a statement that would exceed it fails.
    pub size_limit: u64,
    /// SQLite's hard heap limit in bytes.
    pub heap: u64,
    /// RLIMIT_AS of the worker in bytes; above `heap`.
    pub address_space: u64,
    /// Time for one statement.
    pub sql_timeout: Duration,
}

impl MemoryOptions {
    /// The numbers that pod and plan agree on.
    pub fn new(size_limit: u64, ledger_size_limit: u64, sql_timeout: Duration) -> Self {
        let r = resources(size_limit, ledger_size_limit, 0);
        // 0 is "none" in a plan; a cycle itself ends within a day.
        let sql_timeout = if sql_timeout.is_zero() { Duration::from_secs(86_400) } else { sql_timeout };
        Self { size_limit, heap: r.memory_heap, address_space: r.memory_address_space, sql_timeout }
    }
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self::new(256 * MIB, 256 * MIB, Duration::from_secs(30))
    }
}

/// How thoroughly a file is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Check {
    /// Structure of all tables: a quarter of the time.
    Quick,
    /// And that every index agrees with its table.
    Integrity,
}

/// A sealed file: one file, no log, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// Its bytes.
    pub size: u64,
    /// Tables in it.
    pub tables: u32,
    /// Something was committed since the worker opened it, or the file is new.
    pub changed: bool,
}

/// A sandboxed process with the memory file open. Blocking; each request has its own time limit. A
/// process that crashes or hangs is replaced at the next request, mounts and the agent's edits included.
#[derive(Debug)]
pub struct MemoryWorker {
    launcher: Launcher,
    directory: PathBuf,
    options: MemoryOptions,
    /// A copy of somebody else's file: its schema may be of any shape.
    foreign: bool,
    killer: Killer,
    child: Option<Child>,
    sandbox: Sandbox,
    mounted: Mounted,
    /// `user_version` as the cycle found it; put back at seal.
    user_version: i32,
    batch: i32,
    created: bool,
    dirty: bool,
    before: BTreeSet<String>,
    changes: BTreeMap<String, TableChange>,
    dropped: BTreeMap<String, u64>,
    used: BTreeSet<String>,
    notices: Vec<String>,
    /// The mounts of the running process lack the edits of the last batch.
    stale_mounts: bool,
}

impl MemoryWorker {
    /// Starts a worker in `directory`, which holds `memory.db` (made if absent) and, for `load_table`, `files/`.
    pub fn spawn(launcher: &Launcher, directory: &Path, options: MemoryOptions) -> Result<Self, WorkerError> {
        Self::start_in(launcher, directory, options, false)
    }

    fn start_in(
        launcher: &Launcher,
        directory: &Path,
        options: MemoryOptions,
        foreign: bool,
    ) -> Result<Self, WorkerError> {
        let directory = directory.canonicalize().map_err(|source| WorkerError::Spawn { source })?;
        let mut worker = Self {
            launcher: launcher.clone(),
            directory,
            options,
            foreign,
            killer: Killer::default(),
            child: None,
            sandbox: Sandbox::Rlimits,
            mounted: Mounted::default(),
            user_version: 0,
            batch: 0,
            created: false,
            dirty: false,
            before: BTreeSet::new(),
            changes: BTreeMap::new(),
            dropped: BTreeMap::new(),
            used: BTreeSet::new(),
            notices: vec![],
            stale_mounts: false,
        };
        let hello = worker.start()?;
        worker.user_version = hello.user_version;
        worker.batch = hello.user_version;
        worker.created = hello.created;
        worker.dirty = hello.dirty;
        worker.before = worker.ask(&MemoryRequest::Tables)?;
        Ok(worker)
    }

    /// Opens a copy in `directory` of any SQLite file, also one that Cicada did not make: in WAL mode (its
    /// log is copied too), with names or modules that a memory may not have. A file that is damaged or no
    /// database is told by [`WorkerError::is_corrupt`]. `file` itself is only read.
    pub fn open_copy(
        launcher: &Launcher,
        file: &Path,
        directory: &Path,
        options: MemoryOptions,
    ) -> Result<Self, WorkerError> {
        let size = copy(file, &directory.join("memory.db"))?;
        if size == 0 {
            return Err(Fault::new(FaultKind::Corrupt, "not a SQLite database: the file is empty").into());
        }
        for suffix in ["-wal", "-journal"] {
            let mut log = file.as_os_str().to_owned();
            log.push(suffix);
            if Path::new(&log).exists() {
                copy(Path::new(&log), &directory.join(format!("memory.db{suffix}")))?;
            }
        }
        let room = MemoryOptions { size_limit: options.size_limit.max(size.saturating_mul(2)), ..options };
        let mut worker = Self::start_in(launcher, directory, room, true)?;
        worker.check(Check::Quick)?;
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
        self.ask(&MemoryRequest::Check(check))
    }

    /// Mounts the eight tables, or refreshes those that `mounts` names; the agent's edits stay.
    pub fn mount(&mut self, mounts: &Mounts) -> Result<(), WorkerError> {
        self.ensure()?;
        let lines = self.mounted.take_over(mounts)?;
        let sent = self.send_mounts(lines);
        if sent.as_ref().is_err_and(WorkerError::is_death) {
            // A new process gets all of them.
            self.lost();
            return self.ensure();
        }
        sent
    }

    /// Runs a batch in one transaction. What the SQL did wrong, and a worker that died of it, is in the
    /// result; nothing of such a batch is kept. `Err` means that no worker could be had.
    pub fn batch(&mut self, sql: &str) -> Result<BatchResult, WorkerError> {
        self.ensure()?;
        self.batch = self.batch.checked_add(1).unwrap_or(1);
        let request = MemoryRequest::Batch { sql: sql.to_owned(), number: self.batch };
        let mut handover = None;
        let mut outcome: BatchOutcome = match self.request(&request, |h| handover = Some(h)) {
            Ok(outcome) => outcome,
            Err(error) if error.is_death() => self.died_in_batch(&error)?,
            Err(error) => return Err(error),
        };
        if let Some(handover) = handover.filter(|_| outcome.result.is_ok()) {
            self.confirm(handover)?;
        }
        if let Some(error) = &mut outcome.result.error
            && let Some(kind) = error.kind
        {
            let told = told_apart(kind, &self.directory);
            if told != kind {
                error.kind = Some(told);
                // SQLite's own words, or ours about the size limit, would lead astray.
                error.message = no_room("while the statement ran");
            }
        }
        self.used.extend(std::mem::take(&mut outcome.used));
        outcome.result.warnings.splice(0..0, std::mem::take(&mut self.notices));
        outcome.result.text = render::text(&outcome.result);
        Ok(outcome.result)
    }

    /// Runs one SELECT with the agent's rights; writes nothing.
    pub fn query(&mut self, sql: &str, max_rows: usize) -> Result<Rows, WorkerError> {
        self.ask(&MemoryRequest::Query { sql: sql.to_owned(), max_rows })
    }

    /// The agent's edits of mounts since they were mounted, from committed batches only.
    pub fn edits(&self) -> Vec<MountEdit> {
        self.mounted.edits.clone()
    }

    /// Names of the durable tables: neither SQLite's own nor the shadows of full-text tables.
    pub fn tables(&mut self) -> Result<Vec<String>, WorkerError> {
        self.ask(&MemoryRequest::Tables)
    }

    /// Row changes of each durable table since the worker was started.
    pub fn changes(&mut self) -> Result<Vec<TableChange>, WorkerError> {
        let now = self.tables()?;
        let touched = |name: &String| self.changes.contains_key(name) || !self.before.contains(name);
        let tables = now.iter().filter(|n| touched(n)).cloned().collect();
        let counts: Vec<TableChange> = self.ask(&MemoryRequest::Count { tables })?;
        let mut all: Vec<TableChange> = counts.into_iter().map(|count| self.change_of(count)).collect();
        for name in self.before.iter().filter(|n| !now.contains(n)) {
            let rows = self.dropped.get(name).copied();
            all.push(TableChange {
                name: name.clone(),
                rows: None,
                before: rows,
                inserted: 0,
                updated: 0,
                deleted: rows.unwrap_or(0),
            });
        }
        all.retain(|c| c.weight() > 0 || c.rows.is_none() || c.before.is_none());
        all.sort_by(|a, b| b.weight().cmp(&a.weight()).then_with(|| a.name.cmp(&b.name)));
        Ok(all)
    }

    /// What a model must know of the database to write SQL. The same database gives the same bytes.
    pub fn schema_prompt(&mut self, options: &PromptOptions) -> Result<String, WorkerError> {
        self.ask(&MemoryRequest::Prompt(options.clone()))
    }

    /// Names of the tables that statements read or wrote.
    pub fn used_tables(&self) -> impl Iterator<Item = &str> {
        self.used.iter().map(String::as_str)
    }

    /// Drops all that is temporary and proves it.
    pub fn unmount(&mut self) -> Result<(), WorkerError> {
        self.mounted.live = false;
        self.ask(&MemoryRequest::Unmount)
    }

    /// Checkpoints, checks and closes the file in the form that other tools read. Call after [`Self::unmount`].
    pub fn seal(&mut self) -> Result<Sealed, WorkerError> {
        self.seal_checked(Check::Quick)
    }

    /// As [`Self::seal`], with the check of one's choice. A file in which nothing was changed is not checked.
    pub fn seal_checked(&mut self, check: Check) -> Result<Sealed, WorkerError> {
        let always = self.created || self.dirty;
        let request = MemoryRequest::Seal { user_version: self.user_version, check, always };
        let (sealed, compacted): (Sealed, bool) = self.ask(&request)?;
        if compacted {
            // The worker may not rename; its connection is closed first.
            self.child = None;
            std::fs::rename(self.directory.join(COMPACTED), self.directory.join("memory.db")).map_err(
                |e| Fault::new(FaultKind::Io, format!("the compacted file could not take its place: {e}")),
            )?;
        }
        Ok(Sealed { changed: sealed.changed || self.created || self.dirty, ..sealed })
    }

    /// Ends the worker.
    pub fn close(self) {}

    fn change_of(&self, count: TableChange) -> TableChange {
        let mut change = self.changes.get(&count.name).cloned().unwrap_or_else(|| count.clone());
        change.rows = count.rows;
        let rows = count.rows.unwrap_or(0);
        if self.before.contains(&count.name) {
            change.before = Some((rows + change.deleted).saturating_sub(change.inserted));
        } else {
            // CREATE TABLE AS and RENAME fill a table without a row change that a hook sees.
            change.before = None;
            change.inserted = change.inserted.max(rows + change.deleted);
        }
        change
    }
}

/// Copies a regular file, for us to write; gives its bytes. Reading a pipe or a device might never end.
fn copy(from: &Path, to: &Path) -> Result<u64, Fault> {
    let run = || {
        if !std::fs::metadata(from)?.is_file() {
            return Err(std::io::Error::other("it is not a regular file"));
        }
        let size = std::fs::copy(from, to)?;
        std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o600))?;
        Ok(size)
    };
    run().map_err(|e| Fault::new(FaultKind::Io, format!("{} could not be copied: {e}", from.display())))
}
