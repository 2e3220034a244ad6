//! Where the memory lives.

use serde::{Deserialize, Serialize};

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
