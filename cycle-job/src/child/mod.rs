//! `cycle-job child`: what runs in the agent's own container, beside the cycle and without its rights.
//!
//! `child -- COMMAND` waits for the cycle's server, runs the command, passes signals on, says how it ended
//! and itself ends with 0: whether the cycle went well is the other container's word. The other forms are
//! for shell scripts.

mod signal;
mod supervise;
mod tools;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::args::{ChildArgs, ChildCommand};
use crate::executor::container::server::{SESSION_FILE, Session};

/// Variables of the command: where MCP is, its token, and the folder of both for `cycle-job child sql`.
const URL: &str = "CICADA_MCP_URL";
const TOKEN: &str = "CICADA_MCP_TOKEN";
pub(crate) const FOLDER: &str = "CICADA_MCP_DIR";

/// Why the other container's side can't go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChildError {
    /// No address and token.
    #[error("can't read {path}; this command runs in the agent's container of a cycle")]
    Session {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The cycle's server does not answer.
    #[error("the cycle can't be reached: it may have ended")]
    Unreachable(#[source] reqwest::Error),
    /// MCP says no, or makes no sense.
    #[error("{0}")]
    Mcp(String),
    /// The arguments of a call.
    #[error("the arguments are no JSON object")]
    Arguments,
    /// This program could not be copied.
    #[error("can't copy this program to {path}")]
    Install {
        /// Where it should be.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Signals can't be listened to.
    #[error("can't listen to signals")]
    Signals(#[source] std::io::Error),
}

/// Runs what `args` names.
pub(crate) async fn run(args: ChildArgs) -> ExitCode {
    let folder = args.mcp.as_path();
    let result = match &args.what {
        Some(ChildCommand::Install { folder }) => install(folder).map(|()| true),
        Some(ChildCommand::Sql { sql }) => tools::call(folder, "sql", serde_json::json!({"sql": sql})).await,
        Some(ChildCommand::Call { tool, arguments }) => match serde_json::from_str(arguments) {
            Ok(arguments) => tools::call(folder, tool, arguments).await,
            Err(_) => Err(ChildError::Arguments),
        },
        Some(ChildCommand::Prompt) => tools::prompt(folder).await.map(|()| true),
        None => {
            if let Err(error) = supervise::run(folder, &args.command).await {
                say(&crate::failure::chain(&error));
            }
            return ExitCode::SUCCESS;
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            say(&crate::failure::chain(&error));
            ExitCode::from(2)
        }
    }
}

/// One line for whoever reads the container's output. That nobody does any more must not keep the command from being
/// ended, as the panic of `eprintln` would.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "cycle-job child: {text}");
}

/// A client for the cycle's server and nothing else: http on loopback. An agent's image need not have any
/// CA certificates, without which a client of the usual kind can't even be made.
fn http_client() -> Result<reqwest::Client, ChildError> {
    reqwest::Client::builder().no_proxy().tls_certs_only([]).build().map_err(ChildError::Unreachable)
}

fn session(folder: &Path) -> Result<Session, ChildError> {
    let path = folder.join(SESSION_FILE);
    let failed = |source| ChildError::Session { path: path.clone(), source };
    let bytes = std::fs::read(&path).map_err(failed)?;
    serde_json::from_slice(&bytes).map_err(|e| failed(e.into()))
}

/// Copies this program, for an image that does not have it. It is static: it runs in any image.
fn install(folder: &Path) -> Result<(), ChildError> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join("cycle-job");
    let copied = std::fs::copy("/proc/self/exe", &path)
        .and_then(|_| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o555)));
    copied.map_err(|source| ChildError::Install { path, source })
}
