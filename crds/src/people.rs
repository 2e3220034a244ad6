//! Whom and what an agent may reach: contacts, channels, tools, secrets, hosts, files, skills.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::executor::{ConfigMapKeyRef, SecretKeyRef};

/// Somebody with whom the agent exchanges messages.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Contact {
    /// Name of the channel.
    #[schemars(length(min = 1, max = 63))]
    pub channel: String,
    /// Address on it.
    #[schemars(length(min = 1, max = 320))]
    pub address: String,
    /// Name to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub display_name: Option<String>,
    /// The agent may write to it. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_outbound: Option<bool>,
    /// Its messages are instructions, not untrusted text. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_instruct: Option<bool>,
}

/// Most peers of an agent.
pub const PEERS_MAX: u32 = 16;
/// Default of `peers[].messagesPerDay`.
pub const PEER_MESSAGES_PER_DAY: u32 = 20;

/// Another agent of the same namespace and the same store. Messages go where both manifests name each other.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// Its name.
    #[schemars(length(min = 1, max = 52), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
    /// Messages to it in a day; 0 = no bound of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000), extend("default" = PEER_MESSAGES_PER_DAY))]
    pub messages_per_day: Option<u32>,
}

/// Who may write to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Inbound {
    /// Contacts only; others are kept as requested and don't wake the agent.
    #[default]
    KnownContacts,
    /// Everybody.
    Anyone,
}

/// A channel for outgoing messages. Exactly one of console, webhook, email.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.console), has(self.webhook), has(self.email)].filter(x, x).size() == 1",
    "message": "exactly one kind of channel is needed: console, webhook or email",
}]))]
pub struct Channel {
    /// Its name.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Standard output of the cycle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console: Option<Console>,
    /// A signed POST with an Idempotency-Key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
    /// A mail by SMTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<Email>,
}

/// Nothing to set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Console {}

/// A signed POST.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Where to post.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^https?://"))]
    pub url: String,
    /// Key of the HMAC-SHA-256 signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing_key_secret_ref: Option<SecretKeyRef>,
}

/// A mail by SMTP.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Email {
    /// smtp://host:port or smtps://host:port.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^smtps?://"))]
    pub server: String,
    /// Sender's address.
    #[schemars(length(min = 1, max = 320))]
    pub from: String,
    /// User name for the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username_secret_ref: Option<SecretKeyRef>,
    /// Password for the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_secret_ref: Option<SecretKeyRef>,
}

/// A skill: a text that the agent reads when it needs it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Skill {
    /// Its name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// One line about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    pub description: Option<String>,
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub instructions: Option<String>,
    /// Tools that it uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 128)))]
    pub tools: Vec<String>,
}

/// A Secret in the agent's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// An MCP server whose tools the model may call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpServer {
    /// Prefix of its tools.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Streamable HTTP endpoint.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^https?://"))]
    pub url: String,
    /// Its host may resolve to a private address, as a Service of the cluster does. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<bool>,
    /// Secret whose keys are sent as headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers_secret_ref: Option<SecretRef>,
    /// Tools to offer; empty = all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 128)))]
    pub tools: Vec<String>,
    /// Tools that change nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 128)))]
    pub read_only_tools: Vec<String>,
}

/// A secret that http_request may send to its hosts. The agent knows its name only.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentSecret {
    /// Name by which the agent refers to it.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Where it is.
    pub secret_key_ref: SecretKeyRef,
    /// Hosts that may get it.
    #[schemars(length(min = 1, max = 32), inner(length(max = 253)))]
    pub allowed_hosts: Vec<String>,
}

/// Where http_request may go.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Http {
    /// Hosts; empty = none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub allowed_hosts: Vec<AllowedHost>,
}

/// A host that http_request may reach.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowedHost {
    /// Name, or *.name.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// Port. Default 443.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// It may resolve to a private address. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<bool>,
}

/// A file in the agent's working directory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentFile {
    /// Relative path as the agent sees it.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^[^/\\][^\\]*$"))]
    pub path: String,
    /// Where it comes from.
    pub from: FileFrom,
}

/// Where a file comes from. Exactly one of configMapKeyRef, storeKey, url, path. Never a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "[has(self.configMapKeyRef), has(self.storeKey), has(self.url), has(self.path)].filter(x, x).size() == 1",
        "message": "exactly one source of a file is needed: configMapKeyRef, storeKey, url (or path in cicadactl local)",
    },
    {"rule": "has(self.url) == has(self.sha256)", "message": "url and sha256 go together"},
]))]
pub struct FileFrom {
    /// A ConfigMap key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapKeyRef>,
    /// A key under files/ of the agent's store prefix (cicadactl files put).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub store_key: Option<String>,
    /// A download by https.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = r"^https://"))]
    pub url: Option<String>,
    /// SHA-256 of the download, lower-case hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = r"^[0-9a-f]{64}$"))]
    pub sha256: Option<String>,
    /// A file beside the manifest; works in cicadactl local only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub path: Option<String>,
}
