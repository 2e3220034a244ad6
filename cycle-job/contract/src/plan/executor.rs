//! How the cycle works: a model, statements, or the user's own image.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::SecretRef;

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
