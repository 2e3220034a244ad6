//! What the manifest provides the agent with: schedules, skills, contacts, files, channels, servers, secrets.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{ProvidedFile, SecretRef};

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

/// Another agent of the same namespace and store with which this one exchanges messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanPeer {
    /// Its name.
    pub name: String,
    /// Most messages to it in a day of `limits.timeZone`; 0 = none.
    pub messages_per_day: u32,
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
