//! Compares the schema that the API server serves with the fields that this release writes.
//!
//! Helm never upgrades definitions in a `crds/` folder, and the API server prunes what a schema lacks
//! without a word: a limit would silently be gone. A server-side apply with such a field is refused as a whole,
//! so statuses are written without them.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use cicada_crds::{GROUP, VERSION, generate};
use kube::Client;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::context::Context;

/// Most missing fields that are named.
const NAMED: usize = 10;

/// Fields that the served definitions lack, as paths below the kind.
#[derive(Debug, Default)]
pub struct Schema {
    missing: Mutex<Vec<String>>,
    doubted: AtomicBool,
}

impl Schema {
    /// A status was refused: the definitions may have been replaced by older ones since they were looked at.
    pub fn doubt(&self) {
        self.doubted.store(true, Ordering::Relaxed);
    }

    /// The served definitions lack something, or may.
    pub fn is_outdated(&self) -> bool {
        let missing = !self.missing.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        missing || self.doubted.load(Ordering::Relaxed)
    }

    /// The status as the server takes it.
    pub fn known<S: Serialize + DeserializeOwned>(&self, kind: &str, status: S) -> S {
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        if missing.is_empty() {
            return status;
        }
        let Ok(mut value) = serde_json::to_value(&status) else { return status };
        for path in missing.iter() {
            if let Some(path) = path.strip_prefix(kind).and_then(|rest| rest.strip_prefix(".status.")) {
                remove(&mut value, path);
            }
        }
        // Required fields are as old as their objects.
        serde_json::from_value(value).unwrap_or(status)
    }
}

fn remove(value: &mut Value, path: &str) {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let (name, list) = name.strip_suffix("[]").map_or((name, false), |name| (name, true));
    match (value.get_mut(name), rest) {
        (Some(Value::Array(items)), Some(rest)) if list => items.iter_mut().for_each(|i| remove(i, rest)),
        (Some(inner), Some(rest)) => remove(inner, rest),
        (Some(_), None) => drop(value.as_object_mut().and_then(|fields| fields.remove(name))),
        (None, _) => {}
    }
}

/// Compares, and reports what is missing by log and metric. Never stops the operator.
pub async fn check(context: &Context) {
    context.schema.doubted.store(false, Ordering::Relaxed);
    let missing = match served(&context.client).await {
        Ok(served) => missing(&served),
        Err(error) => {
            tracing::warn!(error = %error, "the served schema could not be read");
            context.schema.doubt();
            return;
        }
    };
    context.metrics.schema_outdated.set(i64::from(!missing.is_empty()));
    let before = {
        let mut known = context.schema.missing.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *known, missing.clone())
    };
    if !missing.is_empty() && missing != before {
        let fields = missing.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        tracing::error!(
            count = missing.len(),
            fields,
            "the installed CustomResourceDefinitions are older than this operator: apply those of this release"
        );
    }
}

/// The schemas of our group, as the API server serves them.
pub(crate) async fn served(client: &Client) -> Result<Value, kube::Error> {
    let request = http::Request::get(format!("/openapi/v3/apis/{GROUP}/{VERSION}"))
        .body(vec![])
        .map_err(kube::Error::HttpError)?;
    client.request::<Value>(request).await
}

/// Paths of fields that the generated definitions have and the served ones lack.
pub(crate) fn missing(served: &Value) -> Vec<String> {
    let schemas = &served["components"]["schemas"];
    let mut missing = vec![];
    for crd in generate::definitions() {
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap_or_default();
        let ours = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let theirs = schemas.as_object().into_iter().flatten().map(|(_, s)| s).find(|s| {
            s["x-kubernetes-group-version-kind"]
                .as_array()
                .is_some_and(|l| l.iter().any(|g| g["kind"] == kind && g["group"] == GROUP))
        });
        for part in ["spec", "status"] {
            compare(
                &format!("{kind}.{part}"),
                &ours["properties"][part],
                theirs.map(|t| &t["properties"][part]),
                &mut missing,
            );
        }
    }
    missing
}

fn compare(path: &str, ours: &Value, theirs: Option<&Value>, missing: &mut Vec<String>) {
    let Some(theirs) = theirs.filter(|t| t.is_object()) else {
        missing.push(path.to_owned());
        return;
    };
    for (name, inner) in ours["properties"].as_object().into_iter().flatten() {
        compare(&format!("{path}.{name}"), inner, theirs["properties"].get(name), missing);
    }
    if ours["items"].is_object() {
        compare(&format!("{path}[]"), &ours["items"], theirs.get("items"), missing);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn as_served() -> Value {
        let mut schemas = serde_json::Map::new();
        for crd in generate::definitions() {
            let kind = crd["spec"]["names"]["kind"].as_str().unwrap().to_owned();
            let mut schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
            schema["x-kubernetes-group-version-kind"] =
                json!([{"group": GROUP, "version": VERSION, "kind": kind}]);
            schemas.insert(format!("dev.cicada.v1alpha1.{kind}"), schema);
        }
        json!({"components": {"schemas": schemas}})
    }

    /// A refused status would stop the agent: the field is left out until the definitions have it.
    #[test]
    fn a_status_is_written_without_what_the_server_does_not_know() {
        let status: cicada_crds::PersistentAgentStatus = serde_json::from_value(json!({
            "state": "Idle", "operator": "a/b",
            "activeCycle": {"name": "c", "uid": "u", "store": "s3://b"},
            "schedules": [{"name": "s", "observed": "x"}, {"name": "t", "observed": "y"}],
        }))
        .unwrap();
        let schema = Schema::default();
        assert_eq!(schema.known("PersistentAgent", status.clone()), status);
        *schema.missing.lock().unwrap() = [
            "PersistentAgent.status.operator",
            "PersistentAgent.status.activeCycle.store",
            "PersistentAgent.status.schedules[].observed",
            "PersistentAgent.spec.approvals",
            "AgentCycle.status.job",
        ]
        .map(str::to_owned)
        .into();
        assert_eq!(
            serde_json::to_value(schema.known("PersistentAgent", status)).unwrap(),
            json!({
                "state": "Idle",
                "activeCycle": {"name": "c", "uid": "u"},
                "schedules": [{"name": "s"}, {"name": "t"}],
            })
        );
    }

    /// openvox-operator#555: a chart upgrade left the old definitions, and new fields were pruned in silence.
    #[test]
    fn a_field_that_the_server_would_prune_is_named() {
        let mut served = as_served();
        assert!(missing(&served).is_empty());
        let schema = &mut served["components"]["schemas"]["dev.cicada.v1alpha1.PersistentAgent"];
        schema["properties"]["spec"]["properties"]["limits"]["properties"]
            .as_object_mut()
            .unwrap()
            .remove("costPerDay");
        assert_eq!(missing(&served), ["PersistentAgent.spec.limits.costPerDay"]);
        served["components"]["schemas"].as_object_mut().unwrap().remove("dev.cicada.v1alpha1.AgentCycle");
        assert_eq!(missing(&served).len(), 3);
    }
}
