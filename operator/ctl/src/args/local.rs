//! Arguments of `local`.

use std::path::PathBuf;

use clap::Args;

use super::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl local crds/examples/local --once
  cicadactl local agents --store s3://bucket/prefix --endpoint http://127.0.0.1:7070
  cicadactl local agents --once -o csv       a line for each cycle

Ctrl-C lets the running cycles persist what they have.
Exit codes: 0 with --once: all succeeded, else: ended by Ctrl-C; 1 a cycle failed; 3 no such folder, or no agent in it;
4 another process works on the folder; 130 --once was interrupted.")]
pub(crate) struct LocalArgs {
    /// Folder with manifests (*.yaml, *.yml, *.json): PersistentAgent, AgentCycle, Secret, ConfigMap.
    pub(crate) dir: PathBuf,
    /// One cycle of each agent that is not suspended, then the folder's AgentCycles, then agents that
    /// another one's message has woken; exit 0 if all succeeded.
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
    #[arg(long, env = "CICADA_MODEL_URL", value_name = "URL")]
    pub(crate) model_url: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}
