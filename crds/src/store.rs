//! Where a memory lives, and its bounds.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Span;

/// Where the memory lives. Exactly one of its fields.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.s3), has(self.directory)].filter(x, x).size() == 1",
    "message": "exactly one store is needed: s3 or directory",
}]))]
pub struct Store {
    /// An S3 bucket, or a server that speaks its protocol and has conditional writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3>,
    /// A directory on a volume of one node. For tests and single-node clusters, not for network file systems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<Directory>,
}

/// An S3 bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3 {
    /// Name of the bucket.
    #[schemars(length(min = 1, max = 255))]
    pub bucket: String,
    /// Path before `<namespace>/<agent>/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub prefix: Option<String>,
    /// Base URL of a server that is not AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), regex(pattern = r"^https?://"))]
    pub endpoint: Option<String>,
    /// Region; us-east-1 where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub region: Option<String>,
    /// endpoint/bucket/key in place of bucket.endpoint/key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_path_style: Option<bool>,
    /// How cycles sign in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    /// ConfigMap in the agent's namespace whose key ca.crt holds the CA of the endpoint, as PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub ca_config_map_name: Option<String>,
}

/// How cycles sign in to the bucket. Exactly one of its fields.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.secretName), has(self.workloadIdentity)].filter(x, x).size() == 1",
    "message": "exactly one kind of credentials is needed: secretName or workloadIdentity",
}]))]
pub struct Credentials {
    /// Secret in the agent's namespace with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: Option<String>,
    /// The service account of the pod signs in (`pod.serviceAccountName`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_identity: Option<WorkloadIdentity>,
}

/// Nothing to set yet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadIdentity {}

/// A directory on a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Directory {
    /// Claim in the agent's namespace that is mounted at `path`. In `cicadactl local` not needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub claim_name: Option<String>,
    /// Path of the directory in the pod.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
}

/// Bounds and retention of memory and ledger.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Largest memory file. Enforced while writing; nothing is ever deleted for it. Default 256Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_limit: Option<Quantity>,
    /// Largest ledger file. Default 256Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_size_limit: Option<Quantity>,
    /// What is kept for how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// What a cycle does with a damaged archive. Default Stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_corrupt: Option<OnCorrupt>,
    /// What happens to the memory when the agent is deleted. Default Retain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// Makes an older snapshot current, once per token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_from: Option<RestoreFrom>,
    /// Memory of another agent in the same store that this one starts from, while it has none of its own. It is read
    /// with this agent's credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed_from: Option<SeedFrom>,
    /// Owner (cluster/namespace/name) from whom this agent takes the memory over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 400))]
    pub take_over_from: Option<String>,
    /// Whether a namespace that was made again (another UID) may use the memory. Default Allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_reuse: Option<NamespaceReuse>,
}

/// Whether a namespace of the same name but another UID may use the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum NamespaceReuse {
    /// The same name is the same owner.
    #[default]
    Allow,
    /// Another UID is a conflict.
    Refuse,
}

/// What a cycle does with a damaged archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum OnCorrupt {
    /// Stop and wait for a person.
    #[default]
    Stop,
    /// Go on from the newest sound snapshot.
    FallBack,
}

/// What happens to the memory when the agent is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// It stays; an agent of the same name finds it again.
    #[default]
    Retain,
    /// It is purged, and a tombstone stays.
    Delete,
}

/// Makes an older snapshot current.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreFrom {
    /// Id of the snapshot.
    #[schemars(length(min = 1, max = 128))]
    pub snapshot: String,
    /// A new value restores again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub token: Option<String>,
}

/// A memory of another agent in the same store.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeedFrom {
    /// Namespace of that agent. Default: the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: Option<String>,
    /// Its name. It need not exist any more: its memory must.
    #[schemars(length(min = 1, max = 52), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
    /// One of its snapshots. Default: the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub snapshot: Option<String>,
}

/// What is kept for how long.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// Most snapshots. Default 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub snapshots: Option<u32>,
    /// Oldest snapshot. Default 90d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Span>,
    /// Messages. Default 30d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Span>,
    /// Tool results. Default 30d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_results: Option<Span>,
    /// Steps. Default 30d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Span>,
    /// Cycles. Default 400d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<Span>,
}
