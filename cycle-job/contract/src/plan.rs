//! The plan of one cycle, in two parts.
//!
//! [`PlanConfig`] is rendered from the manifest and stored once per change in an immutable ConfigMap
//! that the agent's cycles share. [`PlanRun`] belongs to one cycle and travels as an annotation of the
//! pod template. Neither ever holds a secret: only references to one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::text::sha256_hex;

/// Version of both parts. A reader refuses a version that it does not know.
pub const PLAN_VERSION: u32 = 1;
/// Largest rendered [`PlanConfig`], in bytes: a ConfigMap holds 1 MiB with its metadata.
pub const CONFIG_MAX_BYTES: usize = 900 * 1024;
/// Most message bytes that one lead cycle takes over from those that joined it.
pub const MESSAGES_MAX_BYTES: usize = 128 * 1024;
/// Most cycles that one lead takes along.
pub const JOINED_MAX: usize = 32;

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
            mcp_servers: vec![],
            secrets: vec![],
            http: Http::default(),
        }
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

/// Where the memory lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StoreConfig {
    /// An S3 bucket or a server that speaks its protocol.
    S3(S3Config),
    /// A directory of one machine. Not for network file systems.
    #[serde(rename_all = "camelCase")]
    Directory {
        /// Path in the pod, or on this machine for `local`.
        path: String,
        /// Claim that is mounted there in a pod.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claim_name: Option<String>,
    },
}

/// An S3 bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct S3Config {
    /// Name of the bucket.
    pub bucket: String,
    /// Prefix before `<namespace>/<agent>/`, without slashes at its ends; may be empty.
    #[serde(default)]
    pub prefix: String,
    /// Base URL of a server that is not AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Region; `us-east-1` where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// `endpoint/bucket/key` in place of `bucket.endpoint/key`.
    #[serde(default)]
    pub force_path_style: bool,
    /// Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; None = workload identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// PEM bundle of the server's CA, as a file in the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
}

/// How the cycle works.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Executor {
    /// A tool loop with a language model.
    Model(ModelConfig),
    /// Statements; no model.
    Sql(SqlSource),
    /// The user's own image.
    Container(ContainerConfig),
}

/// Where the statements of the sql executor come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SqlSource {
    /// The text itself.
    Inline(String),
    /// A file that the pod (or `local`) provides.
    File(ProvidedFile),
}

/// A file that came from a ConfigMap, mounted into the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvidedFile {
    /// Path of the mounted file.
    pub path: String,
    /// What to name when it is missing, e.g. `ConfigMap shop/prices, key stocks.csv`.
    pub origin: String,
}

/// A model and its endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelConfig {
    /// Wire format.
    pub provider: Provider,
    /// Model name as the provider knows it.
    pub name: String,
    /// Base URL in place of the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<SecretRef>,
    /// Sampling temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Most tokens in one reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// Prices per million tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
}

/// Wire format of a model's endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Provider {
    /// OpenAI chat completions.
    OpenAI,
    /// Anthropic messages.
    Anthropic,
    /// Any server with OpenAI's format.
    OpenAICompatible,
}

/// Prices per million tokens, in the currency of `costPerDay`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prices {
    /// Per million input tokens.
    pub input: f64,
    /// Per million input tokens read from the provider's cache.
    #[serde(default)]
    pub cached_input: f64,
    /// Per million output tokens.
    pub output: f64,
}

/// The user's own image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerConfig {
    /// Image reference.
    pub image: String,
    /// Command to run.
    pub command: Vec<String>,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its plain environment variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// Bounds and retention of memory and ledger. Bytes and seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryConfig {
    /// Largest memory file, in bytes.
    pub size_limit: u64,
    /// Largest ledger file, in bytes.
    pub ledger_size_limit: u64,
    /// What is kept for how long.
    pub retention: Retention,
    /// What a cycle does with a damaged archive.
    #[serde(default)]
    pub on_corrupt: OnCorrupt,
    /// Owner from whom this agent takes the memory over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take_over_from: Option<String>,
    /// Loss of this snapshot was accepted by a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept_memory_loss: Option<String>,
    /// A new namespace UID is a conflict.
    #[serde(default)]
    pub refuse_namespace_reuse: bool,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            size_limit: 256 << 20,
            ledger_size_limit: 256 << 20,
            retention: Retention::default(),
            on_corrupt: OnCorrupt::default(),
            take_over_from: None,
            accept_memory_loss: None,
            refuse_namespace_reuse: false,
        }
    }
}

/// What is kept for how long, in seconds; `snapshots` is a count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// Most snapshots of kind `final` or `interrupted`.
    pub snapshots: u32,
    /// Oldest snapshot.
    pub max_age: u64,
    /// Messages.
    pub messages: u64,
    /// Tool results.
    pub tool_results: u64,
    /// Steps.
    pub steps: u64,
    /// Cycles.
    pub cycles: u64,
}

impl Default for Retention {
    fn default() -> Self {
        let day = 86_400;
        Self {
            snapshots: 30,
            max_age: 90 * day,
            messages: 30 * day,
            tool_results: 30 * day,
            steps: 30 * day,
            cycles: 400 * day,
        }
    }
}

/// What a cycle does with a damaged archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OnCorrupt {
    /// Stop and wait for a person.
    #[default]
    Stop,
    /// Go on from the newest sound snapshot.
    FallBack,
}

/// Bounds of one cycle and one day. 0 = none, but `timeout` is never 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Seconds from process start to the orderly end; 60 to 86,400.
    pub timeout: u64,
    /// Model calls in a cycle.
    pub max_model_calls: u32,
    /// Tool calls in a cycle.
    pub max_tool_calls: u32,
    /// Tokens in a cycle.
    pub tokens_per_cycle: u64,
    /// Tokens in a day.
    pub tokens_per_day: u64,
    /// Cost in a day, in the currency of `prices`.
    #[serde(default)]
    pub cost_per_day: f64,
    /// Outgoing messages in a cycle.
    pub messages_per_cycle: u32,
    /// Outgoing messages in a day.
    pub messages_per_day: u32,
    /// Seconds for one statement.
    pub sql_timeout: u64,
    /// Zone whose midnight starts a day.
    pub time_zone: String,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: 1800,
            max_model_calls: 50,
            max_tool_calls: 100,
            tokens_per_cycle: 200_000,
            tokens_per_day: 1_000_000,
            cost_per_day: 0.0,
            messages_per_cycle: 20,
            messages_per_day: 100,
            sql_timeout: 30,
            time_zone: "UTC".into(),
        }
    }
}

/// What the agent may change about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SelfManagement {
    /// Its charter.
    pub charter: CharterPolicy,
    /// Schedules of its own.
    pub schedules: bool,
    /// Most active schedules of its own.
    pub max_active_schedules: u32,
    /// Shortest interval of its own schedules, in seconds.
    pub min_interval: u64,
    /// Skills of its own.
    pub skills: bool,
}

impl Default for SelfManagement {
    fn default() -> Self {
        Self {
            charter: CharterPolicy::Propose,
            schedules: true,
            max_active_schedules: 12,
            min_interval: 1800,
            skills: true,
        }
    }
}

/// What happens to an edit of the charter by the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum CharterPolicy {
    /// It becomes a proposal that a person approves.
    #[default]
    Propose,
    /// It is in force from the next cycle.
    Apply,
    /// It is refused.
    Deny,
}

/// A schedule of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanSchedule {
    /// Its name.
    pub name: String,
    /// Cron expression, or RFC 3339 time of a one-off.
    pub schedule: String,
    /// True for a one-off (`at`).
    #[serde(default)]
    pub once: bool,
    /// IANA time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// What to do at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// Next slot, as the operator computed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// Last slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
}

/// A skill of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanSkill {
    /// Its name.
    pub name: String,
    /// One line about it.
    #[serde(default)]
    pub description: String,
    /// The text that the agent reads.
    #[serde(default)]
    pub instructions: String,
    /// Tools that it uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
}

/// A contact of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanContact {
    /// Name of the channel.
    pub channel: String,
    /// Address on it.
    pub address: String,
    /// Name to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The agent may write to it.
    #[serde(default)]
    pub allow_outbound: bool,
    /// Its messages are instructions, not untrusted text.
    #[serde(default)]
    pub may_instruct: bool,
}

/// A file to put into the working directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanFile {
    /// Relative path, without `..`, as the agent sees it.
    pub path: String,
    /// Where it comes from.
    pub from: FileSource,
}

/// Where a file comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FileSource {
    /// A file mounted into the pod, or on this machine for `local`.
    Provided(ProvidedFile),
    /// `files/<key>` of the agent's store prefix (`cicadactl files put`).
    #[serde(rename_all = "camelCase")]
    StoreKey(String),
    /// A download whose bytes are known beforehand.
    Url {
        /// https URL.
        url: String,
        /// Lower-case hexadecimal SHA-256 of the bytes.
        sha256: String,
    },
}

/// A channel for outgoing messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Channel {
    /// Standard output of the cycle job.
    Console {},
    /// A signed POST with Idempotency-Key.
    #[serde(rename_all = "camelCase")]
    Webhook {
        /// Where to post.
        url: String,
        /// Key of the HMAC-SHA-256 signature.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signing_key: Option<SecretRef>,
    },
    /// A mail by SMTP.
    #[serde(rename_all = "camelCase")]
    Email {
        /// `smtp://host:port` or `smtps://host:port`.
        server: String,
        /// Sender's address.
        from: String,
        /// User name for the server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        username: Option<SecretRef>,
        /// Password for the server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        password: Option<SecretRef>,
    },
}

/// Who may write to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Inbound {
    /// Contacts only; others are kept as `requested` and don't wake the agent.
    #[default]
    KnownContacts,
    /// Everybody.
    Anyone,
}

/// An MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpServer {
    /// Prefix of its tools.
    pub name: String,
    /// Streamable HTTP endpoint.
    pub url: String,
    /// It may resolve to a private address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
    /// Secret whose keys are sent as headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers_secret: Option<String>,
    /// Tools to offer; empty = all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Tools that change nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_only_tools: Vec<String>,
}

/// A secret that `http_request` may send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanSecret {
    /// Name by which the agent refers to it.
    pub name: String,
    /// Where it is.
    pub from: SecretRef,
    /// Hosts that may get it.
    pub allowed_hosts: Vec<String>,
}

/// Where `http_request` may go.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Http {
    /// Hosts; empty = none.
    #[serde(default)]
    pub allowed_hosts: Vec<AllowedHost>,
}

/// A host that `http_request` may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllowedHost {
    /// Name, or `*.name`.
    pub host: String,
    /// Port; None = 443.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// It may resolve to a private address.
    #[serde(default)]
    pub private: bool,
}

/// What belongs to one cycle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanRun {
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// SHA-256 of the config part's bytes.
    pub config_sha256: String,
    /// The cycle.
    pub cycle: CycleIdentity,
    /// Why it runs.
    pub triggers: Vec<Trigger>,
    /// Trusted text of people, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<String>,
    /// Untrusted messages of AgentCycles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<PlanMessage>,
    /// Decisions of people about what the agent proposed: all that the agent's object names now. One that
    /// the ledger knows already changes nothing, so the same may come with each cycle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Approval>,
    /// What the operator has seen of the store.
    #[serde(default)]
    pub expect: Expect,
    /// What this Job is for.
    #[serde(default)]
    pub mode: Mode,
}

impl PlanRun {
    /// Keys by which HEAD remembers that requests were handled: a token, a one-off slot, or the content
    /// of a people's AgentCycle. Never a UID, so that a re-applied Git folder starts nothing twice.
    pub fn handled_keys(&self) -> Vec<String> {
        self.triggers.iter().filter_map(|t| t.handled_key.clone()).collect()
    }
}

/// What a Job is for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// A whole cycle.
    #[default]
    Cycle,
    /// Deliver pending messages only.
    Delivery,
    /// Make an older snapshot current.
    Restore {
        /// Its id.
        snapshot: String,
    },
    /// Purge the whole prefix and leave a tombstone.
    Delete,
}

/// One AgentCycle.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CycleIdentity {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// Why a cycle runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    /// Kind of trigger.
    #[serde(rename = "type")]
    pub kind: TriggerKind,
    /// Name of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// The slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Timestamp>,
    /// Token of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// See [`PlanRun::handled_keys`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled_key: Option<String>,
}

/// Kind of trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TriggerKind {
    /// A cron slot or a one-off.
    Schedule,
    /// A person or a program asked.
    Request,
    /// A message arrived.
    Message,
    /// Another agent asked.
    Peer,
    /// A card's trigger fired.
    Commitment,
    /// A person answered.
    HumanReply,
    /// Messages are waiting to leave.
    Delivery,
}

/// An untrusted message inside the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanMessage {
    /// Unique and stable: the cycle's UID.
    pub id: String,
    /// Channel it came by.
    pub channel: String,
    /// Sender's address.
    pub from: String,
    /// Subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Text.
    pub body: String,
    /// When it was written.
    pub at: Timestamp,
}

/// A person's decision about a proposal of the agent, or about an MCP tool that has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Id as the report's [`crate::report::Ask::id`] shows it: `charter-1a2b3c4d`, or `server.tool`.
    pub id: String,
    /// Hash of the content that the person has seen: [`crate::report::Ask::hash`] or more of the same, at
    /// least [`APPROVAL_HASH_MIN`] lower-case hexadecimal digits.
    pub hash: String,
    /// What was decided.
    pub decision: Decision,
    /// Who decided, for the agent and the ledger: `spec.approvals`, `annotation`, a user's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

/// Shortest hash in an [`Approval`], in hexadecimal digits.
pub const APPROVAL_HASH_MIN: usize = 10;

/// What a person decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Decision {
    /// It shall be so.
    Approved,
    /// It shall not.
    Rejected,
}

impl Approval {
    /// Reads what a person writes, `<id>-<hash>`. None if it has not this form.
    pub fn parse(text: &str, decision: Decision, by: &str) -> Option<Self> {
        let (id, hash) = text.trim().rsplit_once('-')?;
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let valid = !id.is_empty() && hash.len() >= APPROVAL_HASH_MIN && hash.bytes().all(hex);
        valid.then(|| Self { id: id.to_owned(), hash: hash.to_owned(), decision, by: by.to_owned() })
    }

    /// True if it is about the content with this id and full hash.
    pub fn is_about(&self, id: &str, hash: &str) -> bool {
        self.id == id && self.hash.len() >= APPROVAL_HASH_MIN && hash.starts_with(&self.hash)
    }
}

/// What the operator has seen of the store. All None before the first cycle.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Expect {
    /// Snapshot that was current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Epoch at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approval_names_one_content_and_no_other() {
        let parse = |text: &str| Approval::parse(text, Decision::Approved, "annotation");
        let charter = parse("charter-1a2b3c4d-1a2b3c4d5e").unwrap();
        assert_eq!((charter.id.as_str(), charter.hash.as_str()), ("charter-1a2b3c4d", "1a2b3c4d5e"));
        assert!(charter.is_about("charter-1a2b3c4d", "1a2b3c4d5eff"));
        assert!(!charter.is_about("charter-1a2b3c4d", "1a2b3c4d5f00"));
        assert!(!charter.is_about("charter-1a2b3c4e", "1a2b3c4d5eff"));
        assert_eq!(parse("crm.find-bbbbbbbbbb").unwrap().id, "crm.find");
        for wrong in ["", "charter", "-1a2b3c4d5e", "charter-1a2b3c4d", "charter-1a2b3c4d-", "x-1A2B3C4D5E"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        // An empty hash, which any content begins with, approves nothing.
        let empty = Approval { hash: String::new(), ..charter };
        assert!(!empty.is_about("charter-1a2b3c4d", "1a2b3c4d5eff"));
    }
}
