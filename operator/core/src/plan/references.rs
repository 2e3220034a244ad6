//! Secrets and ConfigMaps that a cycle's pod mounts.

use cicada_contract::plan::{Channel, Executor, ModelConfig, PlanConfig, S3Config, StoreConfig};
use cicada_crds::PersistentAgentSpec;

use crate::spec::OperatorDefaults;

/// All Secrets that a config names, each once.
pub fn secret_names(config: &PlanConfig) -> Vec<String> {
    let mut names = std::collections::BTreeSet::new();
    if let StoreConfig::S3(S3Config { secret_name: Some(name), .. }) = &config.store {
        names.insert(name.clone());
    }
    if let Executor::Model(ModelConfig { api_key: Some(key), .. }) = &config.executor {
        names.insert(key.name.clone());
    }
    for channel in config.channels.values() {
        match channel {
            Channel::Console {} => {}
            Channel::Webhook { signing_key, .. } => names.extend(signing_key.iter().map(|s| s.name.clone())),
            Channel::Email { username, password, .. } => {
                names.extend([username, password].into_iter().flatten().map(|s| s.name.clone()));
            }
        }
    }
    names.extend(config.mcp_servers.iter().filter_map(|m| m.headers_secret.clone()));
    names.extend(config.secrets.iter().map(|s| s.from.name.clone()));
    names.into_iter().collect()
}

/// All ConfigMaps that a manifest or the operator names, each once.
pub fn config_map_names(spec: &PersistentAgentSpec, defaults: &OperatorDefaults) -> Vec<String> {
    let mut names = std::collections::BTreeSet::new();
    let sql = spec.executor.sql.as_ref().and_then(|s| s.config_map_key_ref.as_ref());
    names.extend(sql.map(|k| k.name.clone()));
    names
        .extend(spec.files.iter().filter_map(|f| f.from.config_map_key_ref.as_ref()).map(|k| k.name.clone()));
    let store = spec.store.as_ref().or(defaults.store.as_ref());
    names.extend(store.and_then(|s| s.s3.as_ref()).and_then(|s3| s3.ca_config_map_name.clone()));
    names.extend(defaults.ca_config_map_name.clone());
    names.into_iter().collect()
}
