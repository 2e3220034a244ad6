//! Command line of the cycle job. The operator writes it; people meet it through `cicadactl local`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Where a pod's containers share address and token of MCP.
pub const MCP_DIR: &str = "/var/run/cicada/mcp";

const CHILD_EXAMPLES: &str = "Examples:
  cycle-job child -- python3 /app/agent.py
  cycle-job child sql 'SELECT name FROM sqlite_schema'
  cycle-job child call send_message '{\"to\": \"sales\", \"body\": \"tea is cheaper\"}'
  my-agent --prompt \"$(cycle-job child prompt)\"

A tool that fails gives exit code 1, a cycle that can't be reached 2.";

/// Works through one cycle of a persistent agent.
#[derive(Debug, Parser)]
#[command(name = "cycle-job", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Do one cycle and exit.
    Run(RunArgs),
    /// Read HEAD and ledger and report the last cycle; executes and acquires nothing.
    Report(RunArgs),
    /// Beside a cycle with a container executor: run the agent's own command, or call a tool for it.
    #[command(after_help = CHILD_EXAMPLES)]
    Child(ChildArgs),
}

/// Where plan, secrets and results are.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// File with the plan's config part.
    #[arg(long)]
    pub config: PathBuf,
    /// File with the plan's run part.
    #[arg(long)]
    pub run: PathBuf,
    /// Folder with one folder per Secret and one file per key.
    #[arg(long)]
    pub secrets: Option<PathBuf>,
    /// Working directory; its folders `memory`, `ledger`, `archives` and `scratch` are emptied.
    #[arg(long)]
    pub work: PathBuf,
    /// Where to write the report (the pod's termination log).
    #[arg(long)]
    pub report: PathBuf,
    /// Folder shared with the agent's own container, for address and token of MCP. Only the container
    /// executor needs it.
    #[arg(long)]
    pub mcp: Option<PathBuf>,
    /// People wait for the cycle: a model's server at which nothing listens is told within seconds. Whoever started it
    /// holds its standard input open: at the end of that the cycle ends in order, as at a signal.
    #[arg(long)]
    pub attended: bool,
}

/// What to do in the agent's own container.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_precedence_over_arg = true)]
pub struct ChildArgs {
    /// Folder with address and token of MCP.
    #[arg(long, global = true, env = "CICADA_MCP_DIR", default_value = MCP_DIR)]
    pub mcp: PathBuf,
    /// What to do.
    #[command(subcommand)]
    pub what: Option<ChildCommand>,
    /// Command to run for as long as the cycle wants it.
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// What to do beside running a command.
#[derive(Debug, Clone, Subcommand)]
pub enum ChildCommand {
    /// Run statements on the memory, as the sql tool does, and print the result.
    Sql {
        /// Statements.
        sql: String,
    },
    /// Call a tool and print its result.
    Call {
        /// Name of the tool.
        tool: String,
        /// Arguments, as a JSON object.
        #[arg(default_value = "{}")]
        arguments: String,
    },
    /// Print what a model would be told: charter, task, cards, messages, tables.
    Prompt,
    /// Copy this program into a folder; the pod's init container does it.
    Install {
        /// The folder.
        folder: PathBuf,
    },
}
