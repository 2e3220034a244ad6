//! The CustomResourceDefinitions as they are installed.
//!
//! schemars makes the schemas; what Kubernetes wants beyond it is added here: rules on the name, the
//! default of the status, and nothing that makes GitOps tools see a difference (`nullable`, numeric
//! formats that the API server does not know, empty status).

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt as _;
use serde_json::{Map, Value, json};

use crate::{AGENT_NAME_MAX, AgentCycle, PersistentAgent};

/// A generated file: its name and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// Name of the file, `<plural>.yaml`.
    pub file: String,
    /// YAML of one CustomResourceDefinition.
    pub yaml: String,
}

/// All CustomResourceDefinitions as JSON.
pub fn definitions() -> Vec<Value> {
    let name_rule = json!([{
        "rule": format!("self.metadata.name.size() <= {AGENT_NAME_MAX}"),
        "message": format!("metadata.name must have at most {AGENT_NAME_MAX} characters: names of cycles and Jobs are made from it"),
    }, {
        "rule": "!has(self.spec.peers) || self.spec.peers.all(p, p.name != self.metadata.name)",
        "message": "an agent can't be its own peer",
    }]);
    vec![finish(&PersistentAgent::crd(), Some(&name_rule)), finish(&AgentCycle::crd(), None)]
}

/// All CustomResourceDefinitions as YAML files.
pub fn files() -> Vec<Generated> {
    definitions()
        .into_iter()
        .map(|crd| Generated {
            file: format!("{}.yaml", crd["spec"]["names"]["plural"].as_str().unwrap_or_default()),
            yaml: serde_saphyr::to_string(&crd).unwrap_or_default(),
        })
        .collect()
}

fn finish(crd: &CustomResourceDefinition, root_rules: Option<&Value>) -> Value {
    let mut value = serde_json::to_value(crd).unwrap_or_default();
    if let Some(versions) = value["spec"]["versions"].as_array_mut() {
        for version in versions {
            let schema = &mut version["schema"]["openAPIV3Schema"];
            tidy(schema, false);
            if let Some(rules) = root_rules {
                schema["x-kubernetes-validations"] = rules.clone();
            }
            schema["properties"]["status"]["default"] = json!({"observedGeneration": -1});
        }
    }
    sorted(value)
}

/// The same with sorted keys: whether serde_json keeps their order depends on what else is in the build,
/// and the files must not.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let ordered: BTreeMap<String, Value> = map.into_iter().map(|(k, v)| (k, sorted(v))).collect();
            Value::Object(ordered.into_iter().collect())
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}

/// Removes what the API server does not use or what would be read wrongly.
/// `embedded` is true inside types of Kubernetes itself, whose descriptions are in its own docs.
fn tidy(schema: &mut Value, embedded: bool) {
    let Value::Object(map) = schema else { return };
    // `foo: null` in a manifest is pruned by the API server when the field is not nullable: that is what
    // people mean by it, and a CEL `has(self.foo)` stays true to its name.
    map.remove("nullable");
    if map.get("format").and_then(Value::as_str).is_some_and(|f| f.starts_with("uint")) {
        map.insert("format".into(), json!("int64"));
    }
    if embedded {
        map.remove("description");
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(key) {
            tidy(inner, embedded);
        }
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        tidy_properties(properties, embedded);
    }
}

fn tidy_properties(properties: &mut Map<String, Value>, embedded: bool) {
    const KUBERNETES: [&str; 6] = [
        "affinity",
        "tolerations",
        "topologySpreadConstraints",
        "imagePullSecrets",
        "requests",
        "conditions",
    ];
    for (name, schema) in properties {
        let foreign = KUBERNETES.contains(&name.as_str());
        let own = schema.get("description").cloned();
        tidy(schema, embedded || foreign);
        if let (false, Some(description), Value::Object(map)) = (embedded, own, schema) {
            map.insert("description".into(), description);
        }
    }
}
