//! `helm test`: whether what was installed can do its work, seen with its own rights.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use cicada_crds::PersistentAgent;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::ListParams, core::DeserializeGuard};

use crate::{args::Instance, config::Config, foreign, schema, uninstall};

/// Time in which a fresh installation gets its leader.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs the command.
pub fn run(instance: &Instance) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(check(instance))
}

async fn check(instance: &Instance) -> anyhow::Result<ExitCode> {
    let config = Config::load(instance.config.as_deref())?;
    let client = Client::try_default().await.context("found no way to the API server")?;
    let missing =
        schema::missing(&schema::served(&client).await.context("could not read the served schema")?);
    if !missing.is_empty() {
        bail!(
            "the installed definitions lack {}: apply those of this release (cicada-operator crds)",
            missing.join(", ")
        );
    }
    let mut scopes: Vec<Api<DeserializeGuard<PersistentAgent>>> =
        instance.namespaces().iter().map(|n| Api::namespaced(client.clone(), n)).collect();
    if scopes.is_empty() {
        scopes.push(Api::all(client.clone()));
    }
    for scope in scopes {
        scope.list(&ListParams::default().limit(1)).await.context("could not list agents")?;
    }
    let leader = leader(&client, instance).await?;
    let store =
        if config.defaults.store.is_some() { "a default store is set" } else { "no default store is set" };
    tracing::info!("the definitions are current, agents can be listed, {leader} leads, {store}");
    Ok(ExitCode::SUCCESS)
}

/// Who holds the Lease and renews it.
async fn leader(client: &Client, instance: &Instance) -> anyhow::Result<String> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), &instance.namespace);
    let find = async {
        loop {
            let lease = leases.get_opt(&instance.lease).await.context("could not read the Lease")?;
            let spec = lease.and_then(|l| l.spec);
            let alive = foreign::is_alive(spec.as_ref(), Timestamp::now());
            let holder = spec.filter(|_| alive).and_then(|s| s.holder_identity);
            // One that was about to uninstall leads nobody.
            if let Some(holder) = holder.filter(|h| !h.starts_with(uninstall::IDENTITY)) {
                return anyhow::Ok(holder);
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(PATIENCE, find)
        .await
        .context("no replica holds the Lease: see the operator's log")?
}
