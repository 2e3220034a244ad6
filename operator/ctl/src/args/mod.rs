//! The command line.

mod agents;
mod local;
mod memory;
mod repair;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use agents::*;
pub(crate) use local::*;
pub(crate) use memory::*;
pub(crate) use repair::*;

/// Persistent AI agents on Kubernetes: run them here, talk to them, look into their memory.
#[derive(Debug, Parser)]
#[command(
    name = "cicadactl",
    version,
    about,
    after_help = "Examples:
  cicadactl local crds/examples/local --once        one cycle of each agent in a folder, without a cluster
  cicadactl send shop/price-watch \"Watch tea too\"    a message; the agent reads it in its next cycle
  cicadactl query shop/price-watch \"SELECT * FROM prices LIMIT 5\"
  cicadactl inspect tea-shop --store file:///tmp/store --namespace shop
  cicadactl inspect shop/tea-shop --local crds/examples/local

Where an agent's memory is: in the folder of `cicadactl local` (--local DIR), in a store (--store URL), or, with
neither, where its manifest in the cluster says.

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 no such agent, memory, snapshot, cycle, question, proposal, file
or folder; 4 somebody else holds the memory or works on the folder; 5 can't be reached or refused: store or cluster;
6 done, but damaged snapshots were left out (copy); 130 interrupted by Ctrl-C or SIGTERM.
`verify` has its own: 0 sound, 1 damaged, 2 unreadable."
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the agents of a folder on this machine.
    Local(LocalArgs),
    /// Put a message into an agent's inbox; with a cluster, also ask for a cycle.
    Send(SendArgs),
    /// Wake an agent now; --wait follows the cycle to its end.
    Run(RunArgs),
    /// Answer a question that an agent asked people.
    Answer(AnswerArgs),
    /// Keep an agent, or a whole namespace, from starting cycles.
    Hold(HoldArgs),
    /// End a hold.
    Release(ReleaseArgs),
    /// See, approve and reject what agents propose about themselves.
    Proposals(ProposalsArgs),
    /// List all agents of a store or of the cluster.
    List(ListArgs),
    /// Show what an agent did: triggers, steps, outcome of its cycles.
    Log(LogArgs),
    /// Run a read-only statement on an agent's memory or ledger.
    Query(QueryArgs),
    /// Show an agent's memory: snapshot, sizes, tables.
    Inspect(InspectArgs),
    /// List an agent's snapshots.
    Snapshots(SnapshotsArgs),
    /// Show what changed between two snapshots: tables, rows, schema, cycles.
    Diff(DiffArgs),
    /// Check a memory: HEAD, archives, both databases, inbox, outbox.
    Verify(VerifyArgs),
    /// Make an older snapshot the current one. What is left behind is kept.
    Restore(RestoreArgs),
    /// Write a snapshot to a plain SQLite file, or to a folder of archives with a manifest.
    Export(ExportArgs),
    /// Make any SQLite file, or an exported folder, an agent's memory.
    Import(ImportArgs),
    /// Copy a whole memory to another store or to another name.
    Copy(CopyArgs),
    /// Show the messages that wait to leave, and what became of each try.
    Outbox(OutboxArgs),
    /// Remove what no snapshot needs any more; without --yes only show it.
    Gc(GcArgs),
    /// Files that agents load by `files[].from.storeKey`.
    Files(FilesArgs),
    /// Print what a model is told of any SQLite file.
    Prompt(PromptArgs),
    /// Run statements on a copy of any SQLite file, through the agent's own `sql` tool.
    Sql(SqlArgs),
}

/// Where an agent and its memory are.
#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    /// Namespace, if the agent has none before its name.
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
    /// Store: file:///DIR or s3://BUCKET/PREFIX. Without it the cluster's manifest says where.
    #[arg(long, env = "CICADA_STORE", value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Folder of `cicadactl local`: its store (unless --store is given), and the process that runs there.
    #[arg(long, value_name = "DIR")]
    pub(crate) local: Option<PathBuf>,
    /// Base URL of an S3 server that is not AWS.
    #[arg(long, env = "AWS_ENDPOINT_URL", value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// Region of the bucket.
    #[arg(long, env = "AWS_REGION")]
    pub(crate) region: Option<String>,
    /// kubeconfig file, if not the usual one.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// Which agent, in which store.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    /// The agent: NAME or NAMESPACE/NAME.
    pub(crate) agent: String,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// Whether to ask, and whom to push aside.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Consent {
    /// Don't ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Go ahead although a cycle is at work: it can't publish any more, what it did is lost.
    #[arg(long)]
    pub(crate) fence: bool,
}

/// How to print.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Output {
    /// How to print.
    #[arg(id = "output", short = 'o', long = "output", value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) format: Format,
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// Comma-separated values with a header.
    Csv,
}

impl Format {
    /// True for the formats that hold one document.
    pub(crate) fn is_document(self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }
}
