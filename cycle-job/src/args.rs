//! Command line of the cycle job. The operator writes it; people meet it through `cicadactl local`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

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
}
