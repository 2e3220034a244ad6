//! From what people type to the agent's part of a store.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use cicada_contract::plan::StoreConfig;
use cicada_crds::PersistentAgent;
use cicada_operator_core::plan::store_config;
use cicada_operator_core::spec::OperatorDefaults;
use cicada_store::{AgentStore, Credentials, ObjectStore};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};

use crate::args::{Place, Target};
use crate::exit::{Missing, UsageError};
use crate::{local, names};

/// Label of the ConfigMap in which the chart keeps the operator's configuration.
const OPERATOR_CONFIG_LABEL: &str = "cicada.dev/operator-config=true";
/// Its key.
const OPERATOR_CONFIG_KEY: &str = "operator.yaml";

/// Folder below DIR for everything that `local` writes.
pub(crate) const LOCAL_STATE: &str = ".cicada";
/// Cluster that owns the memories of `cicadactl local`.
pub(crate) const LOCAL_CLUSTER: &str = "local";

impl Target {
    /// Namespace and name.
    pub(crate) fn names(&self) -> anyhow::Result<(String, String)> {
        self.place.names(&self.agent)
    }

    /// The agent's part of its store.
    pub(crate) async fn open(&self) -> anyhow::Result<AgentStore> {
        self.place.open(&self.agent).await
    }

    /// The agent's manifest: of the cluster or of the folder, which must have it. None = only a store is named.
    pub(crate) async fn manifest(&self) -> anyhow::Result<Option<PersistentAgent>> {
        let (namespace, name) = self.names()?;
        if self.place.is_cluster() {
            return read_agent(&self.place.client().await?, &namespace, &name).await.map(Some);
        }
        match &self.place.local {
            Some(dir) => local::known(dir, &namespace, &name).map(Some),
            None => Ok(None),
        }
    }
}

impl Place {
    /// Namespace and name of `agent`.
    pub(crate) fn names(&self, agent: &str) -> anyhow::Result<(String, String)> {
        let (namespace, name) = match (agent.split_once('/'), self.namespace.as_deref()) {
            (Some((namespace, _)), Some(other)) if namespace != other => {
                bail!(UsageError(format!(
                    "the agent is in namespace {namespace} by its name and in {other} by --namespace: give one"
                )))
            }
            (Some(names), _) => names,
            (None, namespace) => (namespace.unwrap_or("default"), agent),
        };
        names::check(namespace, name)?;
        Ok((namespace.to_owned(), name.to_owned()))
    }

    /// True if neither a store nor a folder is named: the cluster is asked.
    pub(crate) fn is_cluster(&self) -> bool {
        self.store.is_none() && self.local.is_none()
    }

    /// The part of a store that belongs to `agent`.
    pub(crate) async fn open(&self, agent: &str) -> anyhow::Result<AgentStore> {
        let (namespace, name) = self.names(agent)?;
        let store = match self.whole_store().await? {
            Some(store) => store,
            None => {
                let (config, credentials) = self
                    .ask_cluster(&namespace, &name)
                    .await
                    .context("no --store and no --local given, and the cluster can't tell the store")?;
                cicada_store::open(&config, credentials).await?
            }
        };
        Ok(AgentStore::new(store, &namespace, &name)?)
    }

    /// The store that --store or --local names; None = the cluster has to be asked.
    pub(crate) async fn whole_store(&self) -> anyhow::Result<Option<Arc<dyn ObjectStore>>> {
        let config = match (&self.store, &self.local) {
            (Some(url), _) => store_of(url, self.endpoint.as_deref(), self.region.as_deref())?,
            (None, Some(dir)) => StoreConfig::Directory {
                path: local_state(dir)?.join("store").display().to_string(),
                claim_name: None,
            },
            (None, None) => return Ok(None),
        };
        Ok(Some(cicada_store::open(&config, None).await?))
    }

    /// A client for the cluster of the kubeconfig.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let config = match &self.kubeconfig {
            None => kube::Config::infer()
                .await
                .context("no kubeconfig found; give --store, --local, or --kubeconfig")?,
            Some(path) => {
                let file =
                    Kubeconfig::read_from(path).with_context(|| format!("can't read {}", path.display()))?;
                kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
            }
        };
        Ok(Client::try_from(config)?)
    }

    /// Name of the cluster that owns a memory which nobody owns yet.
    pub(crate) async fn cluster_name(&self) -> anyhow::Result<String> {
        if self.is_cluster() {
            return Ok(operator_defaults(&self.client().await?).await?.cluster);
        }
        Ok(LOCAL_CLUSTER.to_owned())
    }

    async fn ask_cluster(
        &self,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<(StoreConfig, Option<Credentials>)> {
        let client = self.client().await?;
        let agent = read_agent(&client, namespace, name).await?;
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

/// The store of a URL that somebody typed.
pub(crate) fn store_of(
    url: &str,
    endpoint: Option<&str>,
    region: Option<&str>,
) -> anyhow::Result<StoreConfig> {
    cicada_store::parse_url(url, endpoint, region).map_err(|error| UsageError(error.to_string()).into())
}

/// The folder that somebody named, by its full path.
pub(crate) fn folder(dir: &Path) -> anyhow::Result<PathBuf> {
    let full = dir.canonicalize().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Missing(format!("can't find the folder {}", dir.display())).into(),
        _ => anyhow::Error::new(error).context(format!("can't look into the folder {}", dir.display())),
    })?;
    if !full.is_dir() {
        bail!(UsageError(format!("{} is no folder", dir.display())));
    }
    Ok(full)
}

/// What `local` writes below `dir`. A folder that is not there is told from one that was never run.
pub(crate) fn local_state(dir: &Path) -> anyhow::Result<PathBuf> {
    Ok(folder(dir)?.join(LOCAL_STATE))
}

/// The agent's manifest in the cluster.
pub(crate) async fn read_agent(
    client: &Client,
    namespace: &str,
    name: &str,
) -> anyhow::Result<PersistentAgent> {
    let agents: Api<PersistentAgent> = Api::namespaced(client.clone(), namespace);
    let error = match agents.get(name).await {
        Ok(agent) => return Ok(agent),
        Err(error) => error,
    };
    if !matches!(&error, kube::Error::Api(status) if status.is_not_found()) {
        return Err(error).with_context(|| format!("can't read the PersistentAgent {namespace}/{name}"));
    }
    let others = agents.list_metadata(&ListParams::default()).await.map(|l| l.items).unwrap_or_default();
    let names: Vec<String> = others.into_iter().filter_map(|o| o.metadata.name).collect();
    bail!(Missing(format!(
        "no PersistentAgent {namespace}/{name} in the cluster{}",
        did_you_mean(name, &names)
    )))
}

/// ` (did you mean ...?)`, if one of `known` is clearly meant.
pub(crate) fn did_you_mean(name: &str, known: &[String]) -> String {
    cicada_memory::sql::nearest::nearest(name, known.iter().map(String::as_str))
        .map(|near| format!(" (did you mean {near}?)"))
        .unwrap_or_default()
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
