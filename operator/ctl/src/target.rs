//! From what people type to the agent's part of a store.

use anyhow::{Context, bail};
use cicada_contract::plan::StoreConfig;
use cicada_crds::PersistentAgent;
use cicada_operator_core::plan::store_config;
use cicada_operator_core::spec::OperatorDefaults;
use cicada_store::{AgentStore, Credentials};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};

use crate::UsageError;
use crate::args::Target;

/// Label of the ConfigMap in which the chart keeps the operator's configuration.
const OPERATOR_CONFIG_LABEL: &str = "cicada.dev/operator-config=true";
/// Its key.
const OPERATOR_CONFIG_KEY: &str = "operator.yaml";

impl Target {
    /// Namespace and name.
    pub(crate) fn names(&self) -> anyhow::Result<(String, String)> {
        match (self.agent.split_once('/'), &self.namespace) {
            (Some((namespace, name)), None) => Ok((namespace.to_owned(), name.to_owned())),
            (Some((namespace, name)), Some(other)) if namespace == other => {
                Ok((namespace.to_owned(), name.to_owned()))
            }
            (Some((namespace, _)), Some(other)) => {
                bail!(UsageError(format!(
                    "the agent is in namespace {namespace} by its name and in {other} by --namespace: give one"
                )))
            }
            (None, namespace) => {
                Ok((namespace.clone().unwrap_or_else(|| "default".into()), self.agent.clone()))
            }
        }
    }

    /// The agent's part of its store.
    pub(crate) async fn open(&self) -> anyhow::Result<AgentStore> {
        let (namespace, name) = self.names()?;
        let (config, credentials) = match &self.store {
            Some(url) => {
                (cicada_store::parse_url(url, self.endpoint.as_deref(), self.region.as_deref())?, None)
            }
            None => self
                .ask_cluster(&namespace, &name)
                .await
                .context("no --store given, and the cluster can't tell the store")?,
        };
        let store = cicada_store::open(&config, credentials).await?;
        Ok(AgentStore::new(store, &namespace, &name)?)
    }

    /// A client for the cluster of the kubeconfig.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let config = match &self.kubeconfig {
            None => {
                kube::Config::infer().await.context("no kubeconfig found; give --store, or --kubeconfig")?
            }
            Some(path) => {
                let file =
                    Kubeconfig::read_from(path).with_context(|| format!("can't read {}", path.display()))?;
                kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
            }
        };
        Ok(Client::try_from(config)?)
    }

    async fn ask_cluster(
        &self,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<(StoreConfig, Option<Credentials>)> {
        let client = self.client().await?;
        let agent: PersistentAgent = Api::namespaced(client.clone(), namespace)
            .get(name)
            .await
            .with_context(|| format!("can't read the PersistentAgent {namespace}/{name}"))?;
        let defaults = if agent.spec.store.is_some() {
            OperatorDefaults::default()
        } else {
            operator_defaults(&client).await?
        };
        let mut config = store_config(&agent.spec, &defaults)?;
        if let (StoreConfig::S3(s3), Some(endpoint)) = (&mut config, &self.endpoint) {
            s3.endpoint = Some(endpoint.clone());
        }
        let credentials = match &config {
            StoreConfig::S3(s3) => match &s3.secret_name {
                Some(secret) => Some(read_credentials(&client, namespace, secret).await?),
                None => None,
            },
            StoreConfig::Directory { .. } => bail!(
                "the agent's store is a directory of a volume; it can be read where that is mounted, by --store file:///..."
            ),
        };
        Ok((config, credentials))
    }
}

/// The part of the operator's configuration that is of interest here.
#[derive(serde::Deserialize)]
struct OperatorConfig {
    defaults: OperatorDefaults,
}

/// The default store of the operator that runs in this cluster.
async fn operator_defaults(client: &Client) -> anyhow::Result<OperatorDefaults> {
    let maps: Api<ConfigMap> = Api::all(client.clone());
    let found = maps
        .list(&ListParams::default().labels(OPERATOR_CONFIG_LABEL))
        .await
        .context("can't look for the operator's configuration")?;
    let text = found.items.iter().find_map(|m| m.data.as_ref().and_then(|d| d.get(OPERATOR_CONFIG_KEY)));
    let text =
        text.context("the agent names no store, and no operator configuration was found: give --store")?;
    let config: OperatorConfig =
        serde_saphyr::from_str(text).context("can't read the operator's configuration")?;
    Ok(config.defaults)
}

async fn read_credentials(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Credentials> {
    let secret: Secret = Api::namespaced(client.clone(), namespace)
        .get(name)
        .await
        .with_context(|| format!("can't read the Secret {namespace}/{name}"))?;
    let data = secret.data.unwrap_or_default();
    let find = |key: &str| data.get(key).map(|b| String::from_utf8_lossy(&b.0).trim().to_owned());
    let need = |key: &str| find(key).with_context(|| format!("secret {namespace}/{name} has no key {key}"));
    Ok(Credentials {
        access_key_id: need("AWS_ACCESS_KEY_ID")?,
        secret_access_key: need("AWS_SECRET_ACCESS_KEY")?,
        session_token: find("AWS_SESSION_TOKEN"),
    })
}
