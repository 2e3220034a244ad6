//! The plan of one cycle, in two parts.
//!
//! [`PlanConfig`] is rendered from the manifest and stored once per change in an immutable ConfigMap
//! that the agent's cycles share. [`PlanRun`] belongs to one cycle and travels as an annotation of the
//! pod template. Neither ever holds a secret: only references to one.

mod approval;
mod executor;
mod limits;
mod memory;
mod provisions;
mod run;
mod store;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::{
    approval::{APPROVAL_HASH_MIN, Approval, Decision},
    executor::{ContainerConfig, Executor, ModelConfig, Prices, ProvidedFile, Provider, SqlSource},
    limits::{CharterPolicy, Limits, PAUSE_MAX, SelfManagement},
    memory::{MemoryConfig, OnCorrupt, Retention, SeedFrom},
    provisions::{
        AllowedHost, Channel, FileSource, Http, Inbound, McpServer, PlanContact, PlanFile, PlanPeer,
        PlanSchedule, PlanSecret, PlanSkill,
    },
    run::{
        CycleIdentity, Expect, Mode, OWN_SCHEDULE, PeerProblem, PlanMessage, PlanRun, Trigger, TriggerKind,
        UnreachablePeer,
    },
    store::{S3Config, StoreConfig},
};
use crate::text::sha256_hex;

/// Version of both parts. A reader refuses a version that it does not know.
pub const PLAN_VERSION: u32 = 1;
/// Largest rendered [`PlanConfig`], in bytes: a ConfigMap holds 1 MiB with its metadata.
pub const CONFIG_MAX_BYTES: usize = 900 * 1024;
/// Most message bytes that one lead cycle takes over from those that joined it.
pub const MESSAGES_MAX_BYTES: usize = 128 * 1024;
/// Most cycles that one lead takes along.
pub const JOINED_MAX: usize = 32;

/// Channel of messages between agents. No channel of a manifest can have this name.
pub const PEER_CHANNEL: &str = "Peer";
/// Messages between agents carry how many of them came one upon the other; above this they are delivered and
/// wake nobody, so that two agents can't keep each other awake.
pub const HOPS_MAX: u32 = 6;

/// Both parts together, as the cycle job works with them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CyclePlan {
    /// From the manifest.
    pub config: PlanConfig,
    /// Of this cycle.
    pub run: PlanRun,
}

/// Why a plan can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Not JSON, or not of this shape.
    #[error("the plan's {part} part can't be read")]
    Unreadable {
        /// `config` or `run`.
        part: &'static str,
        /// What serde said.
        #[source]
        source: serde_json::Error,
    },
    /// Written by a release that is too new (or too old) for this one.
    #[error(
        "the plan has version {found}, this release knows {PLAN_VERSION}: roll operator and cycle job to the same release"
    )]
    Version {
        /// The version found.
        found: u32,
    },
    /// The config part is not the one that the run part was made for.
    #[error("the plan's config has SHA-256 {found}, the run expects {expected}")]
    ConfigMismatch {
        /// What was found.
        found: String,
        /// What the run part names.
        expected: String,
    },
}

impl CyclePlan {
    /// Reads both parts and checks that they belong together.
    pub fn parse(config: &[u8], run: &[u8]) -> Result<Self, PlanError> {
        let unreadable = |part| move |source| PlanError::Unreadable { part, source };
        let run: PlanRun = serde_json::from_slice(run).map_err(unreadable("run"))?;
        let found = sha256_hex(config);
        if found != run.config_sha256 {
            return Err(PlanError::ConfigMismatch { found, expected: run.config_sha256 });
        }
        let config: PlanConfig = serde_json::from_slice(config).map_err(unreadable("config"))?;
        match (config.version, run.version) {
            (PLAN_VERSION, PLAN_VERSION) => Ok(Self { config, run }),
            (PLAN_VERSION, found) | (found, _) => Err(PlanError::Version { found }),
        }
    }
}

/// What the manifest says, resolved: defaults applied, references named but not read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanConfig {
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// Whose memory it is.
    pub owner: Owner,
    /// Standing instructions as in `spec.charter`.
    pub charter: String,
    /// Where the memory lives.
    pub store: StoreConfig,
    /// How the cycle works.
    pub executor: Executor,
    /// Must return a row at the end, else the outcome is `blocked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success: Option<String>,
    /// Bounds and retention of memory and ledger.
    pub memory: MemoryConfig,
    /// Bounds of one cycle and one day.
    pub limits: Limits,
    /// Seconds between SIGTERM and SIGKILL, where the manifest sets them; else they follow from the sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<u64>,
    /// What the agent may change about itself.
    #[serde(default)]
    pub self_management: SelfManagement,
    /// The manifest's schedules, shown read-only in `__agent_schedules`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<PlanSchedule>,
    /// The manifest's skills.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<PlanSkill>,
    /// The manifest's contacts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contacts: Vec<PlanContact>,
    /// Files to put into the working directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PlanFile>,
    /// Channels for outgoing messages, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: BTreeMap<String, Channel>,
    /// Who may write to the agent.
    #[serde(default)]
    pub inbound: Inbound,
    /// Agents with which this one exchanges messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PlanPeer>,
    /// MCP servers whose tools the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<McpServer>,
    /// Secrets that `http_request` may send.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<PlanSecret>,
    /// Where `http_request` may go.
    #[serde(default)]
    pub http: Http,
}

impl PlanConfig {
    /// What must be said, and the default of everything else.
    pub fn new(owner: Owner, store: StoreConfig, executor: Executor) -> Self {
        Self {
            version: PLAN_VERSION,
            owner,
            charter: String::new(),
            store,
            executor,
            success: None,
            memory: MemoryConfig::default(),
            limits: Limits::default(),
            grace_seconds: None,
            self_management: SelfManagement::default(),
            schedules: vec![],
            skills: vec![],
            contacts: vec![],
            files: vec![],
            channels: BTreeMap::new(),
            inbound: Inbound::default(),
            peers: vec![],
            mcp_servers: vec![],
            secrets: vec![],
            http: Http::default(),
        }
    }

    /// The peer of this name, if the manifest names it.
    pub fn peer(&self, name: &str) -> Option<&PlanPeer> {
        self.peers.iter().find(|p| p.name == name)
    }

    /// The bytes of the ConfigMap and their SHA-256. The same config always gives the same bytes.
    pub fn render(&self) -> (String, String) {
        let json = serde_json::to_string(self).unwrap_or_default();
        let hash = sha256_hex(&json);
        (json, hash)
    }
}

/// Whose memory it is. The names count; the UIDs only tell that an object was made again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// Name of the cluster (chart value; default the UID of kube-system; `local` for `cicadactl local`).
    pub cluster: String,
    /// Namespace of the agent.
    pub namespace: String,
    /// Name of the agent.
    pub name: String,
    /// UID of the PersistentAgent object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// UID of the namespace; empty where it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace_uid: String,
}

impl Owner {
    /// `cluster/namespace/name`, as `takeOverFrom` writes it.
    pub fn path(&self) -> String {
        format!("{}/{}/{}", self.cluster, self.namespace, self.name)
    }
}

/// A key of a Secret in the agent's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Name of the Secret.
    pub name: String,
    /// Key in it.
    pub key: String,
}
