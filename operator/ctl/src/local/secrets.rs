//! Secrets of a local cycle. They are looked for in the folder's manifests, then in this process's
//! environment; they travel to the child in its environment, never in a file.

use std::collections::BTreeMap;

use cicada_contract::PlanConfig;
use cicada_cycle_job::secrets::variable_name;

/// Variables for the child: every key of every Secret manifest that the plan names. Variables of this
/// process reach the child anyway.
pub(super) fn environment(
    config: &PlanConfig,
    secrets: &BTreeMap<String, BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for name in cicada_operator_core::plan::secret_names(config) {
        for (key, value) in secrets.get(&name).into_iter().flatten() {
            variables.insert(variable_name(&name, key), value.clone());
        }
    }
    variables
}
