//! Secrets of a local cycle. They are looked for in the folder's manifests, then in this process's
//! environment; they travel to the child in its environment, never in a file.

use std::collections::BTreeMap;

use cicada_contract::PlanConfig;
use cicada_contract::plan::{Executor, ModelConfig, Provider};
use cicada_cycle_job::secrets::variable_name;

/// What a server of one's own gets in place of a key that nobody has set.
const NO_KEY: &str = "none";

/// Variables for the child: every key of every Secret manifest that the plan names. Variables of this
/// process reach the child anyway. `own_server` is true if `--model-url` names the model's server, which
/// then may do without a key.
pub(super) fn environment(
    config: &PlanConfig,
    secrets: &BTreeMap<String, BTreeMap<String, String>>,
    own_server: bool,
) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for name in cicada_operator_core::plan::secret_names(config) {
        for (key, value) in secrets.get(&name).into_iter().flatten() {
            variables.insert(variable_name(&name, key), value.clone());
        }
    }
    if own_server
        && let Executor::Model(model) = &config.executor
        && let Some(variable) = key_variable(model)
        && std::env::var(&variable).unwrap_or_default().is_empty()
    {
        variables.entry(variable).or_insert_with(|| NO_KEY.to_owned());
    }
    variables
}

/// Variable in which a cycle looks for the model's key.
fn key_variable(model: &ModelConfig) -> Option<String> {
    match (&model.api_key, model.provider) {
        (Some(key), _) => Some(variable_name(&key.name, &key.key)),
        (None, Provider::OpenAI) => Some("OPENAI_API_KEY".to_owned()),
        (None, Provider::Anthropic) => Some("ANTHROPIC_API_KEY".to_owned()),
        (None, Provider::OpenAICompatible) => None,
    }
}
