//! The generated files, the schemas and the examples.

#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, reason = "a test program")]

use std::{fs, path::PathBuf};

use cicada_crds::{AgentCycle, PersistentAgent, generate};
use serde_json::Value;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Set UPDATE=1 to write the files anew.
fn update() -> bool {
    std::env::var_os("UPDATE").is_some()
}

#[test]
fn generated_files_are_what_the_types_say() {
    for file in generate::files() {
        let path = root().join("generated").join(&file.file);
        if update() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &file.yaml).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == file.yaml,
            "{} is stale: run UPDATE=1 cargo test -p cicada-crds",
            path.display()
        );
    }
}

#[test]
fn the_chart_carries_the_same_definitions() {
    for file in generate::files() {
        let path = root().join("../charts/cicada/files/crds").join(&file.file);
        if update() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &file.yaml).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == file.yaml,
            "{} is stale: run UPDATE=1 cargo test -p cicada-crds",
            path.display()
        );
    }
}

#[test]
fn definitions_stay_below_200_kib() {
    for file in generate::files() {
        assert!(file.yaml.len() < 200 * 1024, "{} has {} bytes", file.file, file.yaml.len());
    }
}

/// argo-cd#6401, actions-runner-controller#4137: such keys make a GitOps tool see a difference for ever.
#[test]
fn definitions_hold_nothing_that_drifts() {
    for crd in generate::definitions() {
        assert!(crd.get("status").is_none());
        assert!(crd["metadata"].get("creationTimestamp").is_none());
        let text = crd.to_string();
        for key in ["preserveUnknownFields", "x-kubernetes-preserve-unknown-fields", "nullable", "\"$ref\""] {
            assert!(!text.contains(key), "{key}");
        }
    }
}

fn walk(path: &str, schema: &Value, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), inner, visit);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            walk(&format!("{path}[]"), &schema[key], visit);
        }
    }
}

/// A rule's cost is estimated from these bounds; without them the API server refuses the definition.
#[test]
fn every_own_list_and_text_is_bounded() {
    for crd in generate::definitions() {
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        for part in ["spec", "status"] {
            walk(part, &schema["properties"][part], &mut |path, s| {
                let foreign = [
                    "affinity",
                    "tolerations",
                    "topologySpread",
                    "imagePullSecrets",
                    "conditions",
                    "requests",
                    "limits[",
                ];
                if foreign.iter().any(|f| path.contains(f)) {
                    return;
                }
                if s["type"] == "array" {
                    assert!(s["maxItems"].is_number(), "{path} has no maxItems");
                }
                let string_map = path.ends_with("[]")
                    && ["nodeSelector", "abels", "nnotations"].iter().any(|m| path.contains(m));
                if s["type"] == "string"
                    && s.get("enum").is_none()
                    && s["format"] != "date-time"
                    && !string_map
                {
                    assert!(s["maxLength"].is_number(), "{path} has no maxLength");
                }
            });
        }
    }
}

#[test]
fn every_field_is_documented() {
    for crd in generate::definitions() {
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        walk("", schema, &mut |path, s| {
            for (name, inner) in s["properties"].as_object().into_iter().flatten() {
                let foreign = ["affinity", "tolerations", "topologySpread", "imagePullSecrets", "conditions"];
                if path.is_empty() && name != "spec" || foreign.iter().any(|f| path.contains(f)) {
                    continue;
                }
                assert!(
                    inner["description"].is_string() || name == "spec",
                    "{path}.{name} has no description"
                );
            }
        });
    }
}

/// kubernetes-sigs/cli-utils reads an empty status as Current: Flux would not wait for the first look.
#[test]
fn an_object_that_nobody_has_looked_at_says_so() {
    for crd in generate::definitions() {
        let status = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
        assert_eq!(status["default"]["observedGeneration"], -1);
    }
}

#[test]
fn examples_decode() {
    let mut seen = 0;
    for entry in fs::read_dir(root().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for document in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            match document["kind"].as_str() {
                Some("PersistentAgent") => {
                    let agent: PersistentAgent = serde_json::from_value(document.clone()).unwrap();
                    assert_eq!(
                        serde_json::to_value(&agent.spec).unwrap(),
                        document["spec"],
                        "{}",
                        path.display()
                    );
                    seen += 1;
                }
                Some("AgentCycle") => {
                    let cycle: AgentCycle = serde_json::from_value(document.clone()).unwrap();
                    assert_eq!(
                        serde_json::to_value(&cycle.spec).unwrap(),
                        document["spec"],
                        "{}",
                        path.display()
                    );
                    seen += 1;
                }
                _ => {}
            }
        }
    }
    assert!(seen >= 4, "{seen} examples");
}

/// splunk-operator#463, stackable docs#402: an object of any release decodes.
#[test]
fn objects_of_other_releases_decode() {
    let older =
        serde_json::json!({"metadata": {"name": "a"}, "spec": {"executor": {"sql": {"inline": "SELECT 1"}}}});
    let agent: PersistentAgent = serde_json::from_value(older).unwrap();
    assert_eq!(agent.status, None);
    let newer = serde_json::json!({
        "metadata": {"name": "a"},
        "spec": {"executor": {"sql": {"inline": "SELECT 1", "later": 1}}, "later": {"x": []}},
        "status": {"state": "Dreaming", "observedGeneration": -1, "later": true},
    });
    let agent: PersistentAgent = serde_json::from_value(newer).unwrap();
    assert_eq!(agent.status.unwrap().observed_generation, Some(-1));
}
