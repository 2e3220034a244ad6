//! Command line of the operator.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Runs persistent agents on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "cicada-operator", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch agents and cycles, and run them.
    Run(RunArgs),
    /// Take our finalizer off all agents and say where their memories lie: what `helm uninstall` does first.
    Uninstall(InstallationArgs),
    /// Check that an installation can do its work: what `helm test` does.
    Check(InstallationArgs),
    /// Print the CustomResourceDefinitions as YAML.
    Crds,
}

/// Which instance of the operator.
#[derive(Debug, Clone, Args)]
pub struct Instance {
    /// Configuration file (YAML).
    #[arg(long, env = "CICADA_CONFIG")]
    pub config: Option<PathBuf>,
    /// Namespaces to watch, separated by commas; none = the whole cluster.
    #[arg(long, env = "CICADA_WATCH_NAMESPACES", value_delimiter = ',')]
    pub watch_namespaces: Vec<String>,
    /// Namespace of the Lease.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    pub namespace: String,
    /// Name of the Lease; one per instance of the operator.
    #[arg(long, env = "CICADA_LEASE", default_value = "cicada-operator")]
    pub lease: String,
}

impl Instance {
    /// The watched namespaces; none = the whole cluster. An empty variable gives an empty name, which is none.
    pub fn namespaces(&self) -> Vec<String> {
        self.watch_namespaces.iter().filter(|n| !n.is_empty()).cloned().collect()
    }

    /// `namespace/name` of the Lease: its name in the status of its agents.
    pub fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.lease)
    }
}

/// What is done to an installation from outside of it.
#[derive(Debug, Clone, Args)]
pub struct InstallationArgs {
    /// Which one.
    #[command(flatten)]
    pub instance: Instance,
    /// Form of the log.
    #[arg(long, env = "CICADA_LOG_FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
    /// Filter of the log.
    #[arg(long, env = "CICADA_LOG", default_value = "info")]
    pub log: String,
}

/// How to run.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Which one this is.
    #[command(flatten)]
    pub instance: Instance,
    /// Who this replica is in the Lease.
    #[arg(long, env = "POD_NAME", default_value = "")]
    pub identity: String,
    /// Address of /healthz, /readyz and /metrics.
    #[arg(long, env = "CICADA_LISTEN", default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,
    /// Form of the log.
    #[arg(long, env = "CICADA_LOG_FORMAT", value_enum, default_value = "json")]
    pub log_format: LogFormat,
    /// Filter of the log, e.g. `info` or `cicada_operator=debug`.
    #[arg(long, env = "CICADA_LOG", default_value = "info")]
    pub log: String,
    /// Seconds after which each watch is begun anew. Less than a load balancer in between lets a silent
    /// connection stand, which many drop after 240 s without a word to either side.
    #[arg(long, env = "CICADA_WATCH_TIMEOUT", default_value_t = 180, value_parser = clap::value_parser!(u32).range(5..=200))]
    pub watch_timeout: u32,
    /// Work on agents on which another instance of the operator works, too.
    #[arg(long, hide = true)]
    pub share: bool,
    /// Agents that are worked on at the same time.
    #[arg(long, env = "CICADA_CONCURRENCY", default_value_t = 32)]
    pub concurrency: usize,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}
