//! Arguments of the commands that compare, check, move and repair memories.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Consent, Output, Place, Target};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl list --store s3://memories/prod
  cicadactl list --local crds/examples/local
  cicadactl list                      every agent of the cluster
  cicadactl list -n shop -o json")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl diff shop/price-watch 12-1-0af3c1d2e4b5a697          that snapshot and the current one
  cicadactl diff shop/price-watch 12-1-0af3c1d2e4b5a697 15-1-77ab01d2e4b5a698
  cicadactl diff shop/price-watch 12-1-0af3c1d2e4b5a697 --table prices --rows 20

Works with a damaged snapshot, too: what can still be read is compared, the rest is told from the ledger.
Exit codes: 0 compared; with --exit-code 1 if they differ.")]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The older snapshot.
    pub(crate) from: String,
    /// The newer one (default: the current).
    pub(crate) to: Option<String>,
    /// Show the rows of this table that differ.
    #[arg(long)]
    pub(crate) table: Option<String>,
    /// Most rows to show.
    #[arg(long, default_value_t = 50)]
    pub(crate) rows: usize,
    /// End with 1 if they differ.
    #[arg(long)]
    pub(crate) exit_code: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl verify shop/price-watch
  cicadactl verify shop/price-watch --all -o json

Prints what it checked. The current snapshot is downloaded, unpacked and checked as a whole; of the others
existence and size are checked, unless --all or --snapshot says more. Nothing is written.
Exit codes: 0 sound; 1 damaged; 2 unreadable (no HEAD, no access, no answer) or a wrong command line.")]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Check this snapshot as a whole, in place of the current one.
    #[arg(long, conflicts_with = "all")]
    pub(crate) snapshot: Option<String>,
    /// Check every snapshot as a whole, and the hash of every large tool result.
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl snapshots shop/price-watch                    find its id
  cicadactl diff shop/price-watch 12-1-0af3c1d2e4b5a697   what would be lost
  cicadactl restore shop/price-watch 12-1-0af3c1d2e4b5a697

The snapshot is checked first. Later snapshots stay listed and are pinned, so that a restore can be taken back by
another one. Messages that wait to leave in it become `unknown` and are not sent again: they may have left since.
Exit codes: 0 restored; 3 no such snapshot; 4 a cycle is at work (wait for it, or --fence).")]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The snapshot.
    pub(crate) snapshot: String,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl export shop/price-watch prices.db             plain SQLite, for sqlite3 and everything else
  cicadactl export shop/price-watch ledger.db --ledger
  cicadactl export shop/price-watch backup --as folder    memory and ledger as archives, with manifest.json

A file or folder that is there is not replaced, and none is there until it is whole.")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// File or folder to make.
    pub(crate) to: PathBuf,
    /// Snapshot other than the current one.
    #[arg(long)]
    pub(crate) snapshot: Option<String>,
    /// The ledger, not the memory.
    #[arg(long, conflicts_with = "form")]
    pub(crate) ledger: bool,
    /// What to make.
    #[arg(long = "as", value_enum, default_value_t)]
    pub(crate) form: ExportForm,
}

/// What an export makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ExportForm {
    /// One plain SQLite file.
    #[default]
    Sqlite,
    /// A folder with both archives (zstd) and `manifest.json`; `import` takes it.
    Folder,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl import shop/places places.sqlite --store file:///tmp/store
  cicadactl import shop/price-watch backup         a folder that `export --as folder` made

The file is copied, never written. It must pass the checks of a restore: integrity, and only tables, indexes,
views, triggers and fts5 tables, none with a name of the platform's. An agent that has a memory already gets the
file as its newest snapshot, keeps its ledger and lists the earlier ones; it is asked for first.
Exit codes: 0 imported; 4 a cycle is at work (wait for it, or --fence).")]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// SQLite file, or exported folder.
    pub(crate) from: PathBuf,
    /// Name of the cluster that owns a new memory (default: the operator's; with --store or --local: local).
    #[arg(long)]
    pub(crate) cluster: Option<String>,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl copy shop/price-watch shop/price-watch --store s3://old/agents --to-store s3://new/agents
  cicadactl copy shop/price-watch lab/price-watch --store s3://memories          another name, same store
  cicadactl copy shop/tea-shop shop/tea-shop --local crds/examples/local --to-store s3://memories --to-cluster prod

Every object is copied, HEAD last: there is no half copy. The source is held meanwhile and stays as it is. A copy
that broke off goes on when it is run again. Other credentials for the target: TO_AWS_ACCESS_KEY_ID,
TO_AWS_SECRET_ACCESS_KEY, TO_AWS_SESSION_TOKEN.
Exit codes: 0 copied; 1 also if there is a memory at TO; 4 a cycle is at work (wait for it, or --fence).")]
pub(crate) struct CopyArgs {
    /// The agent: NAME or NAMESPACE/NAME.
    pub(crate) from: String,
    /// Whose memory the copy is: NAME or NAMESPACE/NAME.
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Store of the copy (default: the same).
    #[arg(long, value_name = "URL")]
    pub(crate) to_store: Option<String>,
    /// Base URL of the copy's S3 server (default: the same, if it is a bucket).
    #[arg(long, value_name = "URL")]
    pub(crate) to_endpoint: Option<String>,
    /// Region of the copy's bucket.
    #[arg(long)]
    pub(crate) to_region: Option<String>,
    /// Name of the cluster that owns the copy (default: the same).
    #[arg(long)]
    pub(crate) to_cluster: Option<String>,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl outbox shop/price-watch
  cicadactl outbox shop/price-watch --all -o json

STATE is what the ledger says, taken together with claims and receipts that no cycle has taken in yet:
pending, sending (claimed less than 10 minutes ago), sent, failed, unknown (it may have left).")]
pub(crate) struct OutboxArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Also what was sent.
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl gc shop/price-watch                 what would go, and why
  cicadactl gc shop/price-watch --yes

Each cycle does this at its end; by hand it is for agents that run no more. Files, quarantine and what a later
release puts there never go by it.
Exit codes: 0 done or nothing to do; 4 a cycle is at work (wait for it, or --fence).")]
pub(crate) struct GcArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Remove it.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Go ahead although a cycle is at work: it can't publish any more, what it did is lost.
    #[arg(long)]
    pub(crate) fence: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}
