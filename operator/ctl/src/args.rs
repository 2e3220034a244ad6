//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

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

Exit codes: 0 done, 1 failed, 2 wrong command line."
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
    /// Show what an agent did: triggers, steps, outcome of its cycles.
    Log(LogArgs),
    /// Run a read-only statement on an agent's memory or ledger.
    Query(QueryArgs),
    /// Show an agent's memory: snapshot, sizes, tables.
    Inspect(InspectArgs),
    /// List an agent's snapshots.
    Snapshots(SnapshotsArgs),
    /// Files that agents load by `files[].from.storeKey`.
    Files(FilesArgs),
    /// Print what a model is told of any SQLite file.
    Prompt(PromptArgs),
    /// Run statements on a copy of any SQLite file, through the agent's own `sql` tool.
    Sql(SqlArgs),
}

/// Which agent, in which store.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    /// The agent: NAME or NAMESPACE/NAME.
    pub(crate) agent: String,
    /// Namespace, if the agent has none before its name.
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
    /// Store: file:///DIR or s3://BUCKET/PREFIX. Without it the cluster's manifest says where.
    #[arg(long, env = "CICADA_STORE")]
    pub(crate) store: Option<String>,
    /// Base URL of an S3 server that is not AWS.
    #[arg(long, env = "AWS_ENDPOINT_URL")]
    pub(crate) endpoint: Option<String>,
    /// Region of the bucket.
    #[arg(long, env = "AWS_REGION")]
    pub(crate) region: Option<String>,
    /// kubeconfig file, if not the usual one.
    #[arg(long)]
    pub(crate) kubeconfig: Option<PathBuf>,
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

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl local crds/examples/local --once
  cicadactl local agents --store s3://bucket/prefix --endpoint http://127.0.0.1:7070")]
pub(crate) struct LocalArgs {
    /// Folder with manifests (*.yaml): PersistentAgent, AgentCycle, Secret, ConfigMap.
    pub(crate) dir: PathBuf,
    /// One cycle of each agent that is not suspended, then the folder's AgentCycles; exit 0 if all succeeded.
    #[arg(long)]
    pub(crate) once: bool,
    /// Store: file:///DIR or s3://BUCKET/PREFIX (default: the folder `.cicada` in DIR).
    #[arg(long, env = "CICADA_STORE")]
    pub(crate) store: Option<String>,
    /// Base URL of an S3 server that is not AWS.
    #[arg(long, env = "AWS_ENDPOINT_URL")]
    pub(crate) endpoint: Option<String>,
    /// Region of the bucket.
    #[arg(long, env = "AWS_REGION")]
    pub(crate) region: Option<String>,
    /// Base URL in place of every model's own.
    #[arg(long)]
    pub(crate) model_url: Option<String>,
    /// How to print the summary.
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl send shop/price-watch \"Please watch tea, too\"
  cicadactl send tea-shop --store file:///tmp/store -n shop --from buyer --channel console \"Order Assam\"")]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The text.
    pub(crate) text: String,
    /// Channel it comes by.
    #[arg(long, default_value = "cli")]
    pub(crate) channel: String,
    /// Sender's address.
    #[arg(long, default_value = "operator")]
    pub(crate) from: String,
    /// Subject.
    #[arg(long)]
    pub(crate) subject: Option<String>,
    /// The sender's own id of the message: the same id twice is one message.
    #[arg(long)]
    pub(crate) id: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Name of one cycle; without it the newest ones.
    pub(crate) cycle: Option<String>,
    /// How many cycles.
    #[arg(long, default_value_t = 5)]
    pub(crate) last: u32,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl query shop/price-watch \"SELECT count(*) FROM prices\"
  cicadactl query shop/price-watch --ledger \"SELECT name, outcome FROM cycles\" -o json")]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The statement.
    pub(crate) sql: String,
    /// Ask the ledger, not the memory.
    #[arg(long)]
    pub(crate) ledger: bool,
    /// Snapshot other than the current one.
    #[arg(long)]
    pub(crate) snapshot: Option<String>,
    /// Most rows.
    #[arg(long, default_value_t = 1000)]
    pub(crate) rows: usize,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotsArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct FilesArgs {
    #[command(subcommand)]
    pub(crate) command: FilesCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FilesCommand {
    /// Upload a file.
    #[command(after_help = "Example:
  cicadactl files put shop/analyst zipcodes.csv --key zipcodes.csv")]
    Put {
        #[command(flatten)]
        target: Target,
        /// The file.
        file: PathBuf,
        /// Its key (default: the file's name).
        #[arg(long)]
        key: Option<String>,
    },
    /// List the files.
    List {
        #[command(flatten)]
        target: Target,
        /// How to print.
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Example:
  cicadactl prompt --db places.sqlite")]
pub(crate) struct PromptArgs {
    /// A SQLite file. It is copied, never written.
    #[arg(long)]
    pub(crate) db: PathBuf,
    /// Most bytes.
    #[arg(long, default_value_t = 30_000)]
    pub(crate) bytes: usize,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:
  cicadactl sql --db places.sqlite \"CREATE TABLE seen AS SELECT url FROM moz_places; SELECT count(*) FROM seen\"")]
pub(crate) struct SqlArgs {
    /// A SQLite file. It is copied, never written.
    #[arg(long)]
    pub(crate) db: PathBuf,
    /// The statements.
    pub(crate) sql: String,
}
