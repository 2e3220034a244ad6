//! How a cycle works: a model, plain SQL, or the user's own container.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a cycle works. Exactly one of its fields.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.model), has(self.sql), has(self.container)].filter(x, x).size() == 1",
    "message": "exactly one executor is needed: model, sql or container",
}]))]
pub struct Executor {
    /// A tool loop with a language model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
    /// Plain SQL in each cycle; no model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sql: Option<Sql>,
    /// Your own agent, which reaches its memory over MCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
}

/// A key of a Secret in the agent's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in it.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A key of a ConfigMap in the agent's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ConfigMapKeyRef {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in it.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// Wire format of a model's endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Provider {
    /// OpenAI chat completions.
    OpenAI,
    /// Anthropic messages.
    Anthropic,
    /// Any server with OpenAI's format.
    OpenAICompatible,
}

/// A model and its endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.provider != 'OpenAICompatible' || has(self.baseUrl)",
    "message": "baseUrl is needed for provider OpenAICompatible",
}]))]
pub struct Model {
    /// Wire format.
    pub provider: Provider,
    /// Name of the model as the provider knows it.
    #[schemars(length(min = 1, max = 200))]
    pub name: String,
    /// Base URL in place of the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), regex(pattern = r"^https?://"))]
    pub base_url: Option<String>,
    /// The API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_secret_ref: Option<SecretKeyRef>,
    /// Sampling temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
    /// Most tokens in one reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_output_tokens: Option<u32>,
    /// Prices per million tokens, for limits.costPerDay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
}

/// Prices per million tokens, in the currency of limits.costPerDay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prices {
    /// Input tokens.
    #[schemars(range(min = 0.0))]
    pub input: f64,
    /// Input tokens from the provider's cache. Default: as input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0))]
    pub cached_input: Option<f64>,
    /// Output tokens.
    #[schemars(range(min = 0.0))]
    pub output: f64,
}

/// Plain SQL. Exactly one of its fields.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.inline), has(self.configMapKeyRef)].filter(x, x).size() == 1",
    "message": "exactly one source of SQL is needed: inline or configMapKeyRef",
}]))]
pub struct Sql {
    /// The statements: one batch, one transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100_000))]
    pub inline: Option<String>,
    /// A ConfigMap key that holds the statements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapKeyRef>,
}

/// The user's own image.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// Image reference.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// Command to run; the image's own entry point is not used.
    #[schemars(length(min = 1, max = 64), inner(length(max = 4096)))]
    pub command: Vec<String>,
    /// Arguments of the command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub args: Vec<String>,
    /// Plain environment variables. No Secret ever reaches this container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub env: Vec<crate::pod::EnvVar>,
    /// Its resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<crate::pod::Resources>,
    /// User id that it runs as; not 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_294_967_294u32))]
    pub run_as_user: Option<i64>,
    /// Group id that it runs as; not 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_294_967_294u32))]
    pub run_as_group: Option<i64>,
}
