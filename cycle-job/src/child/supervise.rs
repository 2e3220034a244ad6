//! Runs the agent's command between the cycle's "ready" and its end.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use super::{ChildError, FOLDER, TOKEN, URL, http_client, say, session, signal as group};
use crate::executor::container::server::{ENDED_FILE, Exit, Session};

/// Longest wait for the cycle's server: the pod's other container starts within seconds of this one.
const SERVER_TIMEOUT: Duration = Duration::from_secs(300);
const SERVER_POLL: Duration = Duration::from_millis(100);
/// No line for so long means that the cycle is gone, though nothing has closed the connection.
const SILENCE: Duration = Duration::from_secs(60);
/// Time between SIGTERM and SIGKILL when the cycle wants the command to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Longest wait for the cycle to take the exit code.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Exit code of a command that is not there, as shells have it.
const NOT_FOUND: i32 = 127;
/// Exit code of a command that can't be run.
const NOT_EXECUTABLE: i32 = 126;

/// Waits for the cycle, runs `command`, tells how it ended.
pub(super) async fn run(folder: &Path, command: &[OsString]) -> Result<(), ChildError> {
    let mut signals = Signals::listen().map_err(ChildError::Signals)?;
    let client = http_client()?;
    let Some((session, stream)) = connect(folder, &client, &mut signals).await else { return Ok(()) };
    let mut lines = Lines { stream, buffer: vec![] };
    let exit = match wait_until_ready(&mut lines, &mut signals).await {
        Start::Go => match start(folder, &session, command) {
            Ok(child) => follow(child, &mut lines, &mut signals).await,
            Err((code, problem)) => {
                say(&problem);
                Some(Exit { code, is_signalled: false })
            }
        },
        Start::Signal(number) => Some(Exit { code: 128 + number, is_signalled: true }),
        Start::Ended => None,
    };
    if let Some(exit) = exit {
        report(&client, &session, exit).await;
    }
    Ok(())
}

/// The signals that are passed on.
struct Signals([(i32, Signal); 6]);

impl Signals {
    fn listen() -> std::io::Result<Self> {
        let one = |number| Ok::<_, std::io::Error>((number, signal(SignalKind::from_raw(number))?));
        Ok(Self([
            one(libc::SIGTERM)?,
            one(libc::SIGINT)?,
            one(libc::SIGHUP)?,
            one(libc::SIGQUIT)?,
            one(libc::SIGUSR1)?,
            one(libc::SIGUSR2)?,
        ]))
    }

    async fn next(&mut self) -> i32 {
        let waits = self.0.iter_mut().map(|(number, signal)| {
            Box::pin(async move {
                signal.recv().await;
                *number
            })
        });
        futures::future::select_all(waits).await.0
    }
}

/// True for a signal that asks to end.
fn ends(number: i32) -> bool {
    [libc::SIGTERM, libc::SIGINT].contains(&number)
}

type Stream = BoxStream<'static, reqwest::Result<axum::body::Bytes>>;

/// Attaches to the cycle. None if it has ended, or does not come.
async fn connect(
    folder: &Path,
    client: &reqwest::Client,
    signals: &mut Signals,
) -> Option<(Session, Stream)> {
    let deadline = Instant::now() + SERVER_TIMEOUT;
    while Instant::now() < deadline {
        if folder.join(ENDED_FILE).exists() {
            say("the cycle has ended; the command was not run");
            return None;
        }
        if let Ok(session) = session(folder) {
            let request = client.get(format!("{}/child", session.url)).bearer_auth(&session.token);
            match request.send().await {
                Ok(response) if response.status().is_success() => {
                    return Some((session, response.bytes_stream().boxed()));
                }
                Ok(response) => {
                    say(&format!("the cycle refused: {}", response.status()));
                    return None;
                }
                // An address of an earlier cycle, or one that is not there yet.
                Err(_) => {}
            }
        }
        tokio::select! {
            () = tokio::time::sleep(SERVER_POLL) => {}
            number = signals.next() => if ends(number) { return None },
        }
    }
    say(&format!("the cycle did not start within {} s; the command was not run", SERVER_TIMEOUT.as_secs()));
    None
}

/// Lines of the cycle's stream.
struct Lines {
    stream: Stream,
    buffer: Vec<u8>,
}

impl Lines {
    /// The next line; None when the cycle is gone.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(String::from_utf8_lossy(&line).trim().to_owned());
            }
            let chunk = tokio::time::timeout(SILENCE, self.stream.next()).await.ok()??.ok()?;
            self.buffer.extend_from_slice(&chunk);
        }
    }
}

enum Start {
    Go,
    Ended,
    Signal(i32),
}

async fn wait_until_ready(lines: &mut Lines, signals: &mut Signals) -> Start {
    loop {
        tokio::select! {
            line = lines.next() => match line.as_deref() {
                Some("ready") => return Start::Go,
                Some("stop") | None => return Start::Ended,
                Some(_) => {}
            },
            number = signals.next() => if ends(number) { return Start::Signal(number) },
        }
    }
}

/// Starts the command in a process group of its own. `Err` has the exit code that shells give.
fn start(folder: &Path, session: &Session, command: &[OsString]) -> Result<Child, (i32, String)> {
    let Some((program, args)) = command.split_first() else {
        return Err((NOT_FOUND, "no command was given".into()));
    };
    let mut run = Command::new(program);
    run.args(args)
        .env(URL, format!("{}/mcp", session.url))
        .env(TOKEN, &session.token)
        .env(FOLDER, folder)
        .env("PATH", path())
        .stdin(Stdio::null())
        .process_group(0);
    group::end_with_us(&mut run);
    run.spawn().map_err(|error| {
        let code = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
        (code, format!("can't run {}: {error}", program.to_string_lossy()))
    })
}

/// The search path with this program's folder at its end, so that scripts find `cycle-job`.
fn path() -> OsString {
    // The path by which it was called: `cicadactl local` calls it by a link.
    let own = std::env::args_os().next().map(std::path::PathBuf::from);
    let own = own.and_then(|p| p.parent().map(Path::to_owned)).filter(|p| p.is_absolute());
    let known = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::join_paths(std::env::split_paths(&known).chain(own)).unwrap_or(known)
}

/// Waits for the command. None if the cycle wanted no more of it.
async fn follow(mut child: Child, lines: &mut Lines, signals: &mut Signals) -> Option<Exit> {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or(0);
    let mut is_signalled = false;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            number = signals.next() => {
                is_signalled |= ends(number);
                group::send(pid, number);
            }
            line = lines.next() => if matches!(line.as_deref(), Some("stop") | None) {
                say("the cycle has ended; the command is stopped");
                group::send(pid, libc::SIGTERM);
                let _ = tokio::time::timeout(STOP_GRACE, child.wait()).await;
                group::send(pid, libc::SIGKILL);
                return None;
            },
        }
    };
    // What it left running has no memory to work in any more.
    group::send(pid, libc::SIGKILL);
    Some(Exit { code: status.map_or(NOT_EXECUTABLE, code), is_signalled })
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

async fn report(client: &reqwest::Client, session: &Session, exit: Exit) {
    let sent = client
        .post(format!("{}/child/exit", session.url))
        .bearer_auth(&session.token)
        .timeout(REPORT_TIMEOUT)
        .json(&exit)
        .send()
        .await;
    match sent {
        Ok(response) if response.status().is_success() => {}
        Ok(response) => say(&format!("the cycle did not take the exit code: {}", response.status())),
        Err(error) => say(&format!("the cycle did not take the exit code: {}", error.without_url())),
    }
}
