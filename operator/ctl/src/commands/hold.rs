//! `hold` and `release`: the annotation that keeps cycles from starting.

use anyhow::{Context, bail};
use cicada_crds::PersistentAgent;
use cicada_operator_core::HOLD;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::args::{HoldArgs, HoldScope, ReleaseArgs};
use crate::exit::{Missing, UsageError};
use crate::local::{self, desk};
use crate::output::note;
use crate::target::read_agent;

/// Longest reason in bytes: it is shown in one line of status.
const REASON_MAX: usize = 200;

/// `hold`.
pub(super) async fn hold(args: HoldArgs) -> anyhow::Result<()> {
    let reason = cicada_contract::text::printable(args.reason.trim());
    if reason.is_empty() || reason.len() > REASON_MAX {
        bail!(UsageError(format!("the reason must have 1 to {REASON_MAX} bytes")));
    }
    let (what, _) = set(&args.scope, HOLD, Some(&reason)).await?;
    note(&format!("{what} is on hold: {reason}; what runs ends as it would"));
    Ok(())
}

/// `release`.
pub(super) async fn release(args: ReleaseArgs) -> anyhow::Result<()> {
    let (what, before) = set(&args.scope, HOLD, None).await?;
    note(&match before {
        Some(reason) => format!("{what} is released; it was held: {reason}"),
        None => format!("{what} was not on hold; its namespace or the operator may be (see its state)"),
    });
    Ok(())
}

/// Sets or removes an annotation; gives what it is about, and the value before.
async fn set(scope: &HoldScope, key: &str, value: Option<&str>) -> anyhow::Result<(String, Option<String>)> {
    let place = &scope.place;
    let agent = match &scope.agent {
        Some(agent) => Some(place.names(agent)?),
        None => None,
    };
    let namespace = match &agent {
        Some((namespace, _)) => namespace.clone(),
        None => place.namespace.clone().unwrap_or_default(),
    };
    let what = match &agent {
        Some((namespace, name)) => format!("{namespace}/{name}"),
        None => format!("namespace {namespace}"),
    };
    if !place.is_cluster() {
        let desk = desk::required(place.local.as_deref(), "a hold")?;
        let dir = place.local.clone().unwrap_or_default();
        match &agent {
            Some((namespace, name)) => _ = local::known(&dir, namespace, name)?,
            None => local::known_namespace(&dir, &namespace)?,
        }
        let name = agent.as_ref().map(|(_, name)| name.as_str());
        return Ok((what, desk.annotate(&namespace, name, key, value)?));
    }
    let client = place.client().await?;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
    let params = PatchParams::default();
    let before = if let Some((namespace, name)) = &agent {
        let found = read_agent(&client, namespace, name).await?;
        let agents: Api<PersistentAgent> = Api::namespaced(client, namespace);
        agents.patch(name, &params, &patch).await.with_context(|| format!("can't annotate {what}"))?;
        found.metadata.annotations
    } else {
        let namespaces: Api<Namespace> = Api::all(client);
        let found = namespaces.get_opt(&namespace).await.with_context(|| format!("can't read {what}"))?;
        let Some(found) = found else { bail!(Missing(format!("there is no {what}"))) };
        namespaces
            .patch(&namespace, &params, &patch)
            .await
            .with_context(|| format!("can't annotate {what}"))?;
        found.metadata.annotations
    };
    Ok((what, before.and_then(|mut a| a.remove(key))))
}
