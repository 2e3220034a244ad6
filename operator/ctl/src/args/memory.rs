//! Arguments of the commands that look into a memory, its files, or any SQLite file.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Output, Target};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl log shop/price-watch                 the newest five cycles
  cicadactl log shop/price-watch price-watch-29935140 -o json
  cicadactl log shop/price-watch -f
  cicadactl log shop/price-watch --last 100 -o csv      the cycles, without their steps")]
pub(crate) struct LogArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Name of one cycle; without it the newest ones.
    pub(crate) cycle: Option<String>,
    /// How many cycles.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) last: u32,
    /// Go on showing cycles as they end, until Ctrl-C (exit code 0).
    #[arg(short, long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl query shop/price-watch \"SELECT count(*) FROM prices\"
  cicadactl query shop/price-watch --ledger \"SELECT cycle, outcome FROM cycles\" -o json
  cicadactl query shop/price-watch --timeout 600 \"SELECT avg(cents) FROM prices\"

Values are printed as they are where a file or pipe takes the CSV; a terminal gets control characters escaped.
A column name that occurs twice has a number in JSON and YAML (n, n:1); an infinite number is the text Inf or -Inf.")]
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
    /// Longest time of the statement, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl inspect shop/price-watch
  cicadactl inspect shop/tea-shop --local crds/examples/local -o yaml
  cicadactl inspect shop/price-watch -o csv      the tables only, with their rows")]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl snapshots shop/price-watch
  cicadactl snapshots shop/price-watch -o csv > snapshots.csv")]
pub(crate) struct SnapshotsArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) output: Output,
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
    /// Download a file.
    #[command(after_help = "Examples:
  cicadactl files get shop/analyst zipcodes.csv
  cicadactl files get shop/analyst zipcodes.csv --to /tmp/zip.csv")]
    Get {
        #[command(flatten)]
        target: Target,
        /// Its key.
        key: String,
        /// Where to write it (default: the key's last part, here). A file that is there is not replaced.
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Remove a file. An agent whose manifest names it fails its next cycle.
    #[command(after_help = "Example:
  cicadactl files delete shop/analyst zipcodes.csv --yes")]
    Delete {
        #[command(flatten)]
        target: Target,
        /// Its key.
        key: String,
        /// Don't ask.
        #[arg(short, long)]
        yes: bool,
    },
    /// List the files.
    #[command(after_help = "Example:
  cicadactl files list shop/analyst")]
    List {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        output: Output,
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
