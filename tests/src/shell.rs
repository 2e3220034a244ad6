//! Programs, run to their end.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// A program that has ended.
#[derive(Debug, Clone)]
pub struct Ran {
    /// The command line, for messages.
    pub command: String,
    /// Exit code; None if a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to standard output.
    pub out: String,
    /// What it wrote to standard error.
    pub err: String,
}

impl Ran {
    /// True if it exited with 0.
    pub fn ok(&self) -> bool {
        self.code == Some(0)
    }

    /// Its standard output. Panics with everything it said if it did not exit with 0.
    #[track_caller]
    pub fn must(self) -> String {
        assert!(self.ok(), "{} ended with {:?}\n{}{}", self.command, self.code, self.out, self.err);
        self.out
    }

    /// Its standard error. Panics if it exited with 0.
    #[track_caller]
    pub fn must_fail(self) -> String {
        assert!(!self.ok(), "{} should have failed\n{}", self.command, self.out);
        self.err
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn run<A: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = A>) -> Ran {
    let mut command = Command::new(program);
    command.args(args);
    run_command(command, None)
}

/// Runs a prepared command, with `stdin` as its input.
#[track_caller]
pub fn run_command(mut command: Command, stdin: Option<&str>) -> Ran {
    let mut shown = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        let _ = write!(shown, " {}", arg.to_string_lossy());
    }
    command.stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("can't start {shown}: {e}"));
    if let Some(text) = stdin {
        // A program that ends before it has read all closes the pipe; its exit code tells why.
        let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
    }
    let output = child.wait_with_output().unwrap();
    Ran {
        command: shown,
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A variable that tests/run sets. Panics with what to do when it is not set.
#[track_caller]
pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: these tests are started by tests/run"))
}

/// The folder of the project.
pub fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Path of one of the project's own programs, as built by tests/run.
pub fn program(name: &str) -> String {
    format!("{}/{name}", variable("CICADA_BIN"))
}
