//! Where the memory lives.

use cicada_contract::plan::{S3Config, StoreConfig};
use cicada_crds::{PersistentAgentSpec, store};

use crate::spec::{OperatorDefaults, SpecError};

/// Where the memory lives: the manifest's store, else the operator's.
pub fn store_config(
    spec: &PersistentAgentSpec,
    defaults: &OperatorDefaults,
) -> Result<StoreConfig, SpecError> {
    let store = spec.store.as_ref().or(defaults.store.as_ref()).ok_or(SpecError::NoStore)?;
    match (&store.s3, &store.directory) {
        (Some(s3), None) => Ok(StoreConfig::S3(S3Config {
            bucket: s3.bucket.clone(),
            prefix: s3.prefix.as_deref().unwrap_or_default().trim_matches('/').to_owned(),
            endpoint: s3.endpoint.clone(),
            region: s3.region.clone(),
            force_path_style: s3.force_path_style.unwrap_or(false),
            secret_name: s3.credentials.as_ref().and_then(|c| c.secret_name.clone()),
            ca_file: s3
                .ca_config_map_name
                .as_ref()
                .map(|name| format!("{}/{name}/ca.crt", defaults.config_maps_dir)),
        })),
        (None, Some(store::Directory { claim_name, path })) => {
            Ok(StoreConfig::Directory { path: path.clone(), claim_name: claim_name.clone() })
        }
        _ => Err(SpecError::Stores),
    }
}

/// Name of the Secret with which cycles sign in to the store; None with workload identity or a directory.
pub fn store_secret(spec: &PersistentAgentSpec, defaults: &OperatorDefaults) -> Option<String> {
    let store = spec.store.as_ref().or(defaults.store.as_ref())?;
    store.s3.as_ref()?.credentials.as_ref()?.secret_name.clone()
}

/// The resolved location in one line, for status: a change of it must not go unseen.
pub fn store_location(store: &StoreConfig) -> String {
    match store {
        StoreConfig::S3(s3) => {
            let mut location = format!("s3://{}/{}", s3.bucket, s3.prefix);
            if let Some(endpoint) = &s3.endpoint {
                location = format!("{location} at {endpoint}");
            }
            location
        }
        StoreConfig::Directory { path, claim_name } => match claim_name {
            Some(claim) => format!("file://{path} in claim {claim}"),
            None => format!("file://{path}"),
        },
    }
}
