//! Compares the schema that the API server serves with the fields that this release writes.
//!
//! Helm never upgrades definitions in a `crds/` folder, and the API server prunes what a schema lacks
//! without a word: a status field or a limit would silently be gone.

use cicada_crds::{GROUP, VERSION, generate};
use serde_json::Value;

use crate::context::Context;

/// Most missing fields that are named.
const NAMED: usize = 10;

/// Compares, and reports what is missing by log and metric. Never stops the operator.
pub async fn check(context: &Context) {
    let missing = match served(context).await {
        Ok(served) => missing(&served),
        Err(error) => {
            tracing::warn!(error = %error, "the served schema could not be read");
            return;
        }
    };
    context.metrics.schema_outdated.set(i64::from(!missing.is_empty()));
    if !missing.is_empty() {
        let fields = missing.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        tracing::error!(
            count = missing.len(),
            fields,
            "the installed CustomResourceDefinitions are older than this operator: apply those of this release"
        );
    }
}

async fn served(context: &Context) -> Result<Value, kube::Error> {
    let request = http::Request::get(format!("/openapi/v3/apis/{GROUP}/{VERSION}"))
        .body(vec![])
        .map_err(kube::Error::HttpError)?;
    context.client.request::<Value>(request).await
}

/// Paths of fields that the generated definitions have and the served ones lack.
fn missing(served: &Value) -> Vec<String> {
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
