//! The process behind a handle: started, filled, asked, lost and replaced.

use std::sync::Arc;
use std::time::Duration;

use cicada_contract::report::TableChange;
use cicada_contract::resources::MIB;
use serde::de::DeserializeOwned;

use super::MemoryWorker;
use super::mounted::ToSend;
use crate::child::{Child, WorkerError};
use crate::mounts::IMAGE;
use crate::protocol::{Fault, Handover, Hello, WorkerArgs};
use crate::tool::{BatchError, BatchOutcome};
use crate::worker::MemoryRequest;

impl MemoryWorker {
    /// The commit happened: what was handed over counts.
    pub(super) fn confirm(&mut self, handover: Handover) -> Result<(), WorkerError> {
        for change in handover.changes {
            let zero = TableChange { inserted: 0, updated: 0, deleted: 0, ..change.clone() };
            let all = self.changes.entry(change.name.clone()).or_insert(zero);
            all.inserted += change.inserted;
            all.updated += change.updated;
            all.deleted += change.deleted;
        }
        self.dropped.extend(handover.dropped);
        let Some(edits) = handover.edits else { return Ok(()) };
        self.mounted.edits = edits;
        if self.stale_mounts {
            // A process that was started after the death has not seen the batch's edits.
            self.stale_mounts = false;
            let sent = self.send_all_mounts();
            return self.survive(sent);
        }
        Ok(())
    }

    /// The worker died in a batch. A new one says by the batch's number whether the commit had happened.
    pub(super) fn died_in_batch(&mut self, error: &WorkerError) -> Result<BatchOutcome, WorkerError> {
        self.lost();
        let found: i32 = self.ask(&MemoryRequest::UserVersion)?;
        let mut outcome = BatchOutcome::default();
        if found == self.batch {
            self.stale_mounts = true;
            let warning =
                "the worker died after the batch was committed: all of it is kept, its results are lost";
            outcome.result.warnings.push(warning.into());
            return Ok(outcome);
        }
        let message = match error {
            WorkerError::Timeout { .. } => {
                let seconds = self.options.sql_timeout.as_secs();
                format!("stopped after {seconds} s without yielding: do less in one function call")
            }
            _ => format!("{error}; the statement was too much for it or is not supported"),
        };
        outcome.result.error = Some(BatchError { statement: None, sql: String::new(), kind: None, message });
        Ok(outcome)
    }

    pub(super) fn lost(&mut self) {
        self.child = None;
        // What was committed may not have been acknowledged.
        self.dirty = true;
        if self.mounted.live {
            self.notices.push("scratch tables are gone: the worker was killed and started again".into());
        }
    }

    pub(super) fn start(&mut self) -> Result<Hello, WorkerError> {
        let args = WorkerArgs {
            directory: self.directory.clone(),
            read: None,
            foreign: self.foreign,
            heap: self.options.heap,
            address_space: self.options.address_space,
            // The log of one transaction may hold the whole new content.
            file_size: self.options.size_limit.saturating_mul(4) + 64 * MIB,
            size_limit: self.options.size_limit,
            sql_timeout: self.options.sql_timeout.as_secs(),
        };
        let mut child = Child::spawn(&self.launcher, "memory", &args, &self.directory, &self.killer)?;
        let hello: Hello = child.answer(self.patience(), |_| {})?;
        self.sandbox = hello.sandbox;
        self.child = Some(child);
        Ok(hello)
    }

    /// A worker that runs and has its mounts.
    pub(super) fn ensure(&mut self) -> Result<(), WorkerError> {
        if self.child.is_some() {
            return Ok(());
        }
        self.start()?;
        if self.mounted.live {
            self.send_all_mounts()?;
        }
        Ok(())
    }

    pub(super) fn send_all_mounts(&mut self) -> Result<(), WorkerError> {
        let all = self.mounted.all()?;
        self.send_mounts(all)
    }

    /// Makes the tables and fills them. All requests are sent ahead of their answers, so that one side
    /// writes while the other reads.
    pub(super) fn send_mounts(&mut self, send: ToSend) -> Result<(), WorkerError> {
        if send.image.tables.is_empty() {
            return self.exchange(send.lines);
        }
        let file = self.directory.join(IMAGE);
        if std::fs::hard_link(&send.image.path, &file).is_err() {
            // Left by a parent that died, or on another file system.
            std::fs::copy(&send.image.path, &file).map_err(Fault::from)?;
        }
        let done = self.exchange(send.lines);
        std::fs::remove_file(&file).map_err(Fault::from)?;
        done
    }

    fn exchange(&mut self, lines: Vec<Arc<[u8]>>) -> Result<(), WorkerError> {
        let patience = self.patience();
        let Some(child) = &mut self.child else { return Err(not_running()) };
        let count = lines.len();
        lines.into_iter().for_each(|line| child.send(line));
        let mut first = Ok(());
        for _ in 0..count {
            match child.answer::<()>(patience, |_| {}) {
                Ok(()) => {}
                Err(error) if error.is_death() => return Err(error),
                // The answers to what was sent ahead are read all the same.
                Err(error) => first = first.and(Err(error)),
            }
        }
        first
    }

    /// A request that may be repeated: one process that died idle, or was killed, is replaced.
    pub(super) fn ask<R: DeserializeOwned>(&mut self, request: &MemoryRequest) -> Result<R, WorkerError> {
        self.ensure()?;
        let answer = self.request(request, |_| {});
        if !matches!(answer, Err(WorkerError::Crashed { .. })) {
            return self.survive(answer);
        }
        self.lost();
        self.ensure()?;
        let answer = self.request(request, |_| {});
        self.survive(answer)
    }

    pub(super) fn request<R: DeserializeOwned>(
        &mut self,
        request: &MemoryRequest,
        on_pending: impl FnMut(Handover),
    ) -> Result<R, WorkerError> {
        let patience = match request {
            // One step over a large file ticks only between rows of the check's answer.
            MemoryRequest::Check(_) | MemoryRequest::Seal { .. } => Duration::from_secs(900),
            _ => self.patience(),
        };
        match &mut self.child {
            Some(child) => child.ask(request, patience, on_pending),
            None => Err(not_running()),
        }
    }

    /// After a death the next request starts a new process.
    pub(super) fn survive<T>(&mut self, answer: Result<T, WorkerError>) -> Result<T, WorkerError> {
        if answer.as_ref().is_err_and(WorkerError::is_death) {
            self.lost();
        }
        answer
    }

    /// Silence after which a worker is taken for hung: the statement's own clock has failed to stop it.
    pub(super) fn patience(&self) -> Duration {
        self.options.sql_timeout + Duration::from_secs(3)
    }
}

fn not_running() -> WorkerError {
    WorkerError::Crashed { signal: None, code: None, stderr: "not running".into() }
}
