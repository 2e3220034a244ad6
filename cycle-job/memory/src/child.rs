//! The parent's side of a worker: start, ask with a time limit, kill.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::protocol::{Fault, FaultKind, Frame, Handover, LINE_MAX};

/// How to start a worker: this program, then `prefix_args`, then `worker <kind> <options>`.
#[derive(Debug, Clone)]
pub struct Launcher {
    /// Program to execute; its main hands what follows `worker` to [`crate::worker_main`].
    pub program: PathBuf,
    /// Arguments before `worker`.
    pub prefix_args: Vec<OsString>,
}

impl Launcher {
    /// Re-executes the running program.
    pub fn current_exe() -> io::Result<Self> {
        Ok(Self { program: std::env::current_exe()?, prefix_args: vec![] })
    }
}

/// Why a worker gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The process could not be started.
    #[error("could not start the worker: check the program's path and the process limit")]
    Spawn {
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The process died. Its database is at the last commit.
    #[error("the worker died ({}): what was committed is kept", death(*signal, *code))]
    Crashed {
        /// Signal that ended it: 6 abort, 9 killed, 11 or 31 crash or forbidden system call.
        signal: Option<i32>,
        /// Exit code where no signal did.
        code: Option<i32>,
        /// Last bytes of its standard error.
        stderr: String,
    },
    /// It was silent for too long and was killed.
    #[error("the worker gave no sign for {} s and was killed: what was committed is kept", after.as_secs())]
    Timeout {
        /// How long.
        after: Duration,
    },
    /// It answered something else than asked: two releases are mixed.
    #[error("the worker's answer can't be read: roll all parts to the same release")]
    Protocol {
        /// What the parser said.
        #[source]
        source: serde_json::Error,
    },
    /// The worker lives and says why it could not.
    #[error("{message}")]
    Fault {
        /// What kind of fault.
        kind: FaultKind,
        /// For people and for the model.
        message: String,
    },
}

fn death(signal: Option<i32>, code: Option<i32>) -> String {
    signal.map_or_else(|| format!("exit code {}", code.unwrap_or(-1)), |s| format!("signal {s}"))
}

impl WorkerError {
    /// True if the same request may work with a new process.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Spawn { .. } | Self::Crashed { .. } | Self::Timeout { .. } => true,
            Self::Protocol { .. } => false,
            Self::Fault { kind, .. } => {
                matches!(kind, FaultKind::Timeout | FaultKind::Io | FaultKind::OutOfMemory)
            }
        }
    }

    /// Kind of the fault, if the worker lives.
    pub fn fault(&self) -> Option<FaultKind> {
        match self {
            Self::Fault { kind, .. } => Some(*kind),
            _ => None,
        }
    }

    /// True if the file itself is damaged or no database.
    pub fn is_corrupt(&self) -> bool {
        self.fault() == Some(FaultKind::Corrupt)
    }

    /// True if the disk has no room left.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Spawn { source } => is_no_room(source),
            _ => self.fault() == Some(FaultKind::DiskFull),
        }
    }

    /// True if the process is gone.
    pub(crate) fn is_death(&self) -> bool {
        matches!(self, Self::Crashed { .. } | Self::Timeout { .. } | Self::Protocol { .. })
    }
}

impl From<Fault> for WorkerError {
    fn from(fault: Fault) -> Self {
        Self::Fault { kind: fault.kind, message: fault.message }
    }
}

/// True if an error says that there is no room on a disk.
pub(crate) fn is_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// What a fault is about. SQLite has one word for a size limit that is reached and for a full disk, and an
/// error of the system in other places for the latter: whether a small file still fits tells them apart.
pub(crate) fn told_apart(kind: FaultKind, directory: &Path) -> FaultKind {
    /// More than a worker gives back when it fails: its log, and what it sorted.
    const ROOM: usize = 1 << 20;
    if !matches!(kind, FaultKind::Full | FaultKind::Io) {
        return kind;
    }
    let file = directory.join("room");
    let written = File::create(&file).and_then(|mut f| f.write_all(&vec![1; ROOM]));
    let _ = std::fs::remove_file(&file);
    if written.is_err_and(|error| is_no_room(&error)) { FaultKind::DiskFull } else { kind }
}

/// What people read in place of SQLite's words for it.
pub(crate) fn no_room(message: &str) -> String {
    format!("the disk is full, nothing of this was kept: make room, or give the pod more ({message})")
}

/// Kills a worker from another thread, e.g. when a cycle's time is over. The blocked request then
/// returns [`WorkerError::Crashed`] with signal 9.
#[derive(Debug, Clone, Default)]
pub struct Killer(Arc<Mutex<Option<Arc<Mutex<std::process::Child>>>>>);

impl Killer {
    /// Kills the worker that runs now, if any. The next request starts another.
    pub fn kill(&self) {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(process) = current {
            // An error means that it has ended already.
            let _ = process.lock().unwrap_or_else(PoisonError::into_inner).kill();
        }
    }

    fn watch(&self, process: Option<&Arc<Mutex<std::process::Child>>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = process.map(Arc::clone);
    }
}

/// A request as it goes over the pipe.
pub(crate) fn line(request: &impl Serialize) -> Result<Arc<[u8]>, WorkerError> {
    let mut line = serde_json::to_vec(request).map_err(|source| WorkerError::Protocol { source })?;
    line.push(b'\n');
    Ok(line.into())
}

/// One running worker.
#[derive(Debug)]
pub(crate) struct Child {
    directory: PathBuf,
    process: Arc<Mutex<std::process::Child>>,
    requests: Sender<Arc<[u8]>>,
    lines: Receiver<Vec<u8>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    killer: Killer,
}

impl Child {
    /// Starts `<program> <prefix> worker <kind> <args>` in `directory` with an empty environment.
    pub(crate) fn spawn(
        launcher: &Launcher,
        kind: &str,
        args: &impl Serialize,
        directory: &Path,
        killer: &Killer,
    ) -> Result<Self, WorkerError> {
        let args = serde_json::to_string(args).map_err(|source| WorkerError::Protocol { source })?;
        let mut process = Command::new(&launcher.program)
            .args(&launcher.prefix_args)
            .args(["worker", kind, &args])
            .current_dir(directory)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| WorkerError::Spawn { source })?;
        let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let (requests, to_write) = mpsc::channel::<Arc<[u8]>>();
        let (read, lines) = mpsc::sync_channel::<Vec<u8>>(16);
        let tail = Arc::new(Mutex::new(Vec::new()));
        // Own threads for each pipe: a hung worker blocks none of the parent's.
        if let Some(mut stdin) = stdin {
            std::thread::spawn(move || to_write.iter().all(|line| stdin.write_all(&line).is_ok()));
        }
        if let Some(stdout) = stdout {
            std::thread::spawn(move || {
                let mut input = BufReader::with_capacity(1 << 16, stdout);
                let mut line = Vec::new();
                while matches!(input.by_ref().take(LINE_MAX).read_until(b'\n', &mut line), Ok(n) if n > 0) {
                    if read.send(std::mem::take(&mut line)).is_err() {
                        break;
                    }
                }
            });
        }
        if let Some(mut stderr) = stderr {
            let tail = Arc::clone(&tail);
            std::thread::spawn(move || {
                let mut part = [0; 1024];
                while let Ok(n @ 1..) = stderr.read(&mut part) {
                    let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
                    tail.extend_from_slice(&part[..n]);
                    let excess = tail.len().saturating_sub(4096);
                    tail.drain(..excess);
                }
            });
        }
        let process = Arc::new(Mutex::new(process));
        killer.watch(Some(&process));
        let directory = directory.to_owned();
        Ok(Self { directory, process, requests, lines, stderr: tail, killer: killer.clone() })
    }

    /// Sends `request` and waits for its answer; the worker is killed after `silence` without a sign of life.
    pub(crate) fn ask<R: DeserializeOwned>(
        &mut self,
        request: &impl Serialize,
        silence: Duration,
        on_pending: impl FnMut(Handover),
    ) -> Result<R, WorkerError> {
        self.send(line(request)?);
        self.answer(silence, on_pending)
    }

    /// Sends a request without waiting. A closed pipe shows as the end of the answers.
    pub(crate) fn send(&self, line: Arc<[u8]>) {
        let _ = self.requests.send(line);
    }

    /// Waits for an answer.
    pub(crate) fn answer<R: DeserializeOwned>(
        &mut self,
        silence: Duration,
        mut on_pending: impl FnMut(Handover),
    ) -> Result<R, WorkerError> {
        loop {
            match self.lines.recv_timeout(silence) {
                Ok(line) => match serde_json::from_slice::<Frame<R>>(&line) {
                    Ok(Frame::Tick) => {}
                    Ok(Frame::Pending(handover)) => on_pending(handover),
                    Ok(Frame::Done(done)) => return Ok(done),
                    Ok(Frame::Failed(fault)) => return Err(self.explain(fault)),
                    // A line without its end: the worker died while it wrote.
                    Err(_) if line.last() != Some(&b'\n') => return Err(self.end()),
                    Err(source) => {
                        self.end();
                        return Err(WorkerError::Protocol { source });
                    }
                },
                Err(RecvTimeoutError::Timeout) => {
                    self.end();
                    return Err(WorkerError::Timeout { after: silence });
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.end()),
            }
        }
    }

    fn explain(&self, fault: Fault) -> WorkerError {
        let kind = told_apart(fault.kind, &self.directory);
        let message = match (kind, fault.kind) {
            // What it says of its size limit would lead astray.
            (FaultKind::DiskFull, FaultKind::Full) => no_room("while the worker wrote"),
            (FaultKind::DiskFull, _) => no_room(&fault.message),
            _ => fault.message,
        };
        WorkerError::Fault { kind, message }
    }

    /// Process id, for tests that kill it.
    pub(crate) fn id(&self) -> u32 {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).id()
    }

    /// Kills and reaps it; says how it had ended.
    fn end(&mut self) -> WorkerError {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        // Its standard output is closed, so it is dead or dying of itself; give it a moment to say how.
        for _ in 0..50 {
            if !matches!(process.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = process.kill();
        let status = process.wait().ok();
        drop(process);
        self.killer.watch(None);
        let stderr =
            String::from_utf8_lossy(&self.stderr.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
        WorkerError::Crashed {
            signal: status.and_then(|s| s.signal()),
            code: status.and_then(|s| s.code()),
            stderr: cicada_contract::text::cut(stderr.trim(), 1000),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = process.kill();
        let _ = process.wait();
        self.killer.watch(None);
    }
}
