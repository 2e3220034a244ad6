//! What goes wrong in one attempt, and at which point of it.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A moment of an attempt.
#[derive(Debug, Clone, Copy)]
pub(super) enum Point {
    /// So long after its start.
    After(Duration),
    /// When its log has a line with both texts, and so long after that.
    Line(&'static str, &'static str, Duration),
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// Nothing.
    None,
    /// SIGKILL.
    Kill,
    /// SIGTERM, as a drained node sends it.
    Terminate,
    /// SIGSTOP; another attempt or another cycle passes by; SIGCONT.
    Pause,
    /// SIGKILL for one of its sandboxed children.
    KillWorker,
    /// The working directory has room for a few hundred KiB.
    FullDisk,
    /// A message arrives in the store at that moment.
    Message,
}

/// Lines that stand for the effects of a cycle: each phase's beginning and end, and what was written.
const LINES: &[(&str, &str)] = &[
    ("phase started", "acquire"),
    ("epoch raised", ""),
    ("phase started", "restore"),
    ("phase started", "ingest"),
    ("phase started", "mount"),
    ("phase started", "execute"),
    ("checkpoint published", ""),
    ("phase ended", "execute"),
    ("phase started", "write back"),
    ("phase started", "unmount"),
    ("phase started", "seal"),
    ("phase started", "persist"),
    ("snapshot published", ""),
    ("phase started", "deliver"),
    ("message delivered", ""),
    ("phase started", "collect"),
    ("cycle ended", ""),
];

impl Fault {
    pub(super) fn random(rng: &mut StdRng) -> Self {
        match rng.random_range(0..20) {
            0..3 => Self::None,
            3..10 => Self::Kill,
            10..13 => Self::Terminate,
            13..16 => Self::Pause,
            16 => Self::KillWorker,
            17 => Self::FullDisk,
            _ => Self::Message,
        }
    }
}

impl Point {
    pub(super) fn random(rng: &mut StdRng) -> Self {
        // A cycle takes a tenth of a second; two effects are some hundred microseconds apart.
        if rng.random_bool(0.3) {
            return Self::After(Duration::from_micros(rng.random_range(0..150_000)));
        }
        let (line, phase) = *LINES.choose(rng).unwrap_or(&LINES[0]);
        Self::Line(line, phase, Duration::from_micros(rng.random_range(0..4_000)))
    }
}

/// A started attempt, whose log is read while it runs.
pub(super) struct Attempt {
    child: Child,
    pid: i32,
    log: tokio::task::JoinHandle<String>,
    reached: tokio::sync::watch::Receiver<bool>,
    pub(super) report: PathBuf,
}

/// How an attempt ended.
pub(super) struct End {
    pub(super) status: ExitStatus,
    pub(super) log: String,
    pub(super) report: PathBuf,
}

impl End {
    /// The exit code; None if a signal ended it.
    pub(super) fn code(&self) -> Option<i32> {
        // SIGTERM ends a process that does not yet listen to it.
        let expected = matches!(self.status.signal(), None | Some(libc::SIGKILL | libc::SIGTERM));
        assert!(expected, "{}\n{}", self.status, self.log);
        self.status.code()
    }
}

impl Attempt {
    pub(super) fn start(mut command: Command, report: PathBuf, point: Point) -> Self {
        let mut child =
            command.stderr(Stdio::piped()).stdout(Stdio::null()).stdin(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(child.id().unwrap()).unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (reach, reached) = tokio::sync::watch::channel(false);
        let log = tokio::spawn(async move {
            let mut log = String::new();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Point::Line(message, phase, wait) = point
                    && line.contains(&format!("\"message\":\"{message}\""))
                    && (phase.is_empty() || line.contains(&format!("\"phase\":\"{phase}\"")))
                {
                    let reach = reach.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(wait).await;
                        reach.send_replace(true);
                    });
                }
                log.push_str(&line);
                log.push('\n');
            }
            log
        });
        Self { child, pid, log, reached, report }
    }

    /// Waits for the point; false if the attempt ended before it.
    pub(super) async fn reach(&mut self, point: Point) -> bool {
        let mut reached = self.reached.clone();
        tokio::select! {
            biased;
            _ = self.child.wait() => false,
            () = async move {
                match point {
                    Point::After(wait) => tokio::time::sleep(wait).await,
                    // The sender goes with the log's end; then the child's end decides.
                    Point::Line(..) => if reached.wait_for(|r| *r).await.is_err() { std::future::pending().await },
                }
            } => true,
        }
    }

    pub(super) fn signal(&self, signal: libc::c_int) {
        send(self.pid, signal);
    }

    /// Kills one of the sandboxed children, if there is one now.
    pub(super) fn kill_worker(&self, rng: &mut StdRng) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let children: Vec<i32> = threads
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
            .flat_map(|text| text.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<_>>())
            .collect();
        children.choose(rng).is_some_and(|pid| {
            send(*pid, libc::SIGKILL);
            true
        })
    }

    pub(super) async fn end(mut self) -> End {
        let ended = tokio::time::timeout(Duration::from_secs(120), self.child.wait()).await;
        let Ok(status) = ended else {
            self.child.kill().await.unwrap();
            panic!("an attempt hung for two minutes:\n{}", self.log.await.unwrap());
        };
        // A killed attempt's children hold the pipe a moment longer than it does.
        let log = self.log.await.unwrap();
        End { status: status.unwrap(), log, report: self.report }
    }
}

#[allow(unsafe_code, reason = "kill has no safe form for a process that is not our child")]
fn send(pid: i32, signal: libc::c_int) {
    // SAFETY: kill takes two numbers; the process is one that this test started, or its child.
    unsafe { libc::kill(pid, signal) };
}
