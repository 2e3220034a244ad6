//! No field of a manifest is accepted and ignored: a change of any of them changes the plan or the Job, or
//! a named test of the decisions shows what it does.

use std::collections::{BTreeMap, BTreeSet};

use cicada_contract::plan::Mode;
use cicada_crds::{AgentCycle, PersistentAgent, generate};
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use crate::{
    job::{JobInput, Purpose, build_job},
    plan::{plan_config, plan_run},
    spec::{OperatorDefaults, sizes},
};

/// Fields that only decisions read, each with the test that fails without it.
const DECIDED: &[(&str, &str)] = &[
    ("suspend", "suspended_and_held_agents_start_nothing_but_are_ready"),
    ("runToken", "requests_by_annotation_token_and_object_run_once_each"),
    ("schedules[].startingDeadlineSeconds", "a_slot_beyond_its_deadline_is_reported_once"),
    ("successfulCyclesHistoryLimit", "history_limits_keep_the_newest_and_never_touch_what_others_made"),
    ("failedCyclesHistoryLimit", "history_limits_keep_the_newest_and_never_touch_what_others_made"),
    ("pauseAfterFailures", "a_failure_backs_off_then_pauses_and_a_request_resumes"),
    ("limits.cyclesPerDay", "what_an_agent_causes_itself_is_rationed_by_day"),
    ("memory.deletionPolicy", "a_deleted_agent_waits_for_its_memory"),
    ("memory.restoreFrom.snapshot", "a_restore_makes_a_snapshot_current_once_for_each_token"),
    ("memory.restoreFrom.token", "a_restore_makes_a_snapshot_current_once_for_each_token"),
];
/// Fields of an AgentCycle that only decisions read.
const DECIDED_OF_CYCLES: &[(&str, &str)] = &[
    ("agentRef.name", "a_cycle_that_was_made_again_for_another_agent_is_that_ones"),
    ("restore.snapshot", "a_restore_makes_a_snapshot_current_once_for_each_token"),
    ("ttlSecondsAfterFinished", "history_limits_keep_the_newest_and_never_touch_what_others_made"),
];
/// Says that there is no Secret; credentials with neither are refused by the schema.
const SPELLED: &str = "store.s3.credentials.workloadIdentity";
/// Kubernetes' own types, passed on as they are.
const FOREIGN: [&str; 4] =
    ["pod.affinity", "pod.tolerations", "pod.topologySpreadConstraints", "pod.imagePullSecrets"];

/// Manifests that together have every field.
pub(crate) fn manifests() -> Vec<Value> {
    let secret = |name: &str| json!({"name": name, "key": "k"});
    let model = json!({
        "charter": "c",
        "schedules": [
            {"name": "morning", "cron": "0 7 * * *", "timeZone": "Europe/Berlin", "instruction": "i"},
            {"name": "year", "at": "2027-01-01T00:00:00Z"},
        ],
        "executor": {"model": {
            "provider": "OpenAI", "name": "m", "baseUrl": "https://m", "apiKeySecretRef": secret("model"),
            "temperature": 0.5, "maxOutputTokens": 100, "prices": {"input": 1.0, "cachedInput": 0.5, "output": 2.0},
        }},
        "success": "SELECT 1",
        "memory": {
            "sizeLimit": "256Mi", "ledgerSizeLimit": "256Mi", "onCorrupt": "Stop",
            "retention": {"snapshots": 3, "maxAge": "9d", "messages": "9d", "toolResults": "9d", "steps": "9d", "cycles": "9d"},
            "takeOverFrom": "a/b/c", "seedFrom": {"namespace": "o", "name": "b", "snapshot": "1-1-a"}, "namespaceReuse": "Allow",
        },
        "store": {"s3": {
            "bucket": "b", "prefix": "p", "endpoint": "https://s", "region": "r", "forcePathStyle": false,
            "credentials": {"secretName": "store"}, "caConfigMapName": "ca",
        }},
        "limits": {
            "timeout": "30m", "maxModelCalls": 1, "maxToolCalls": 1, "tokensPerCycle": 1, "tokensPerDay": 1,
            "costPerDay": 1.0, "messagesPerCycle": 1, "messagesPerDay": 1, "sqlTimeout": "9s", "timeZone": "UTC",
        },
        "selfManagement": {"charter": "Propose", "skills": true, "schedules": {"allow": true, "maxActive": 3, "minInterval": "1h"}},
        "approvals": ["charter-1a2b3c4d-1a2b3c4d5e"],
        "skills": [{"name": "s", "description": "d", "instructions": "i", "tools": ["t"]}],
        "channels": [
            {"name": "con", "console": {}},
            {"name": "hook", "webhook": {"url": "https://h", "signingKeySecretRef": secret("hook")}},
            {"name": "mail", "email": {"server": "smtp://h", "from": "f", "usernameSecretRef": secret("u"), "passwordSecretRef": secret("p")}},
        ],
        "contacts": [{"channel": "mail", "address": "a", "displayName": "d", "allowOutbound": true, "mayInstruct": true}],
        "inbound": "KnownContacts",
        "peers": [{"name": "b", "messagesPerDay": 5}],
        "mcpServers": [{"name": "crm", "url": "https://c", "private": true, "headersSecretRef": {"name": "h"}, "tools": ["a"], "readOnlyTools": ["a"]}],
        "secrets": [{"name": "x", "secretKeyRef": secret("x"), "allowedHosts": ["h"]}],
        "http": {"allowedHosts": [{"host": "h", "port": 8443, "private": true}]},
        "files": [
            {"path": "a", "from": {"configMapKeyRef": secret("files")}},
            {"path": "b", "from": {"storeKey": "k"}},
            {"path": "c", "from": {"url": "https://f", "sha256": "0".repeat(64)}},
            {"path": "d", "from": {"path": "local"}},
        ],
        "backoffLimit": 2,
        "pod": {
            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
            "nodeSelector": {"a": "b"}, "tolerations": [{"key": "k"}], "affinity": {"nodeAffinity": {}},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"}],
            "serviceAccountName": "sa", "priorityClassName": "pc", "runtimeClassName": "rc",
            "imagePullSecrets": [{"name": "pull"}], "imagePullPolicy": "Always", "terminationGracePeriodSeconds": 60,
            "securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000},
            "labels": {"l": "v"}, "annotations": {"n": "v"}, "env": [{"name": "E", "value": "v"}],
            "jobLabels": {"kueue.x-k8s.io/queue-name": "q"},
        },
    });
    let sql = |executor: Value, store: Value| json!({"executor": {"sql": executor}, "store": store});
    let container = json!({
        "image": "i", "command": ["/c"], "args": ["a"], "env": [{"name": "E", "value": "v"}],
        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}, "runAsUser": 2000, "runAsGroup": 2000,
    });
    let directory = json!({"directory": {"path": "/s", "claimName": "c"}});
    vec![
        model,
        sql(json!({"inline": "SELECT 1"}), directory.clone()),
        sql(
            json!({"configMapKeyRef": secret("sql")}),
            json!({"s3": {"bucket": "b", "credentials": {"workloadIdentity": {}}}}),
        ),
        json!({"executor": {"container": container}, "store": directory}),
    ]
}

fn defaults() -> OperatorDefaults {
    OperatorDefaults { local_dir: Some("/local".into()), ..OperatorDefaults::default() }
}

fn job_of(agent: &PersistentAgent) -> Job {
    job_with(agent, &defaults())
}

fn job_with(agent: &PersistentAgent, defaults: &OperatorDefaults) -> Job {
    let config = plan_config(agent, defaults).unwrap();
    let (_, sha256) = config.render();
    build_job(&JobInput {
        namespace: "n",
        agent: "a",
        spec: &agent.spec,
        sizes: &sizes(&agent.spec).unwrap(),
        config: &config,
        config_sha256: &sha256,
        run_plan: "{}",
        joined: &[],
        inline_config: None,
        name: "job".into(),
        owner: None,
        mode: &Mode::Cycle,
        cycle_uid: None,
        purpose: Purpose::Cycle,
        defaults,
    })
}

/// A company's own authority: the folder of its ConfigMap is where every client looks for roots, beside the image's.
#[test]
fn cycles_trust_the_operators_bundle_beside_the_public_roots() {
    let spec = json!({"executor": {"sql": {"inline": "SELECT 1"}}, "store": {"s3": {"bucket": "b"}},
        "pod": {"env": [{"name": "SSL_CERT_DIR", "value": "/elsewhere"}, {"name": "E", "value": "v"}]}});
    let agent: PersistentAgent = serde_json::from_value(
        json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": spec}),
    )
    .unwrap();
    let container = |defaults: &OperatorDefaults| {
        let pod = job_with(&agent, defaults).spec.unwrap().template.spec.unwrap();
        (pod.containers[0].clone(), pod.volumes.unwrap())
    };
    let with =
        OperatorDefaults { ca_config_map_name: Some("company-ca".into()), ..OperatorDefaults::default() };
    let (cycle, volumes) = container(&with);
    let env: Vec<_> = cycle.env.unwrap().into_iter().map(|e| (e.name, e.value.unwrap())).collect();
    let folder = "/var/run/cicada/configmaps/company-ca";
    for (name, value) in
        [("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"), ("SSL_CERT_DIR", folder), ("E", "v")]
    {
        let found: Vec<_> = env.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str()).collect();
        assert_eq!(found, [value], "{name}");
    }
    let mount = cycle.volume_mounts.unwrap().into_iter().find(|m| m.mount_path == folder).unwrap();
    let volume = volumes.into_iter().find(|v| v.name == mount.name).unwrap().config_map.unwrap();
    assert_eq!((volume.name.as_str(), volume.optional), ("company-ca", Some(true)));
    let (plain, _) = container(&OperatorDefaults::default());
    assert!(plain.env.unwrap().iter().any(|e| e.value.as_deref() == Some("/elsewhere")));
}

/// Everything that a cycle is made from; a refusal is an effect as well.
fn outcome(spec: &Value) -> String {
    let object = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": spec});
    let agent: PersistentAgent = match serde_json::from_value(object) {
        Ok(agent) => agent,
        Err(error) => return error.to_string(),
    };
    let config = match plan_config(&agent, &defaults()) {
        Ok(config) => config,
        Err(error) => return error.to_string(),
    };
    if let Err(error) = sizes(&agent.spec) {
        return error.to_string();
    }
    let (rendered, sha256) = config.render();
    let run = serde_json::to_string(&plan_run(&agent, &[], &[], &sha256)).unwrap();
    let job = job_of(&agent);
    let mut in_cluster = agent.clone();
    in_cluster.spec.files.retain(|f| f.from.path.is_none());
    let problem = crate::plan::problems(&in_cluster, &OperatorDefaults::default());
    format!("{rendered}\n{run}\n{}\n{problem:?}", serde_json::to_string(&job).unwrap())
}

fn schema(kind: usize) -> Value {
    generate::definitions()[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        .clone()
}

/// Paths of all leaves of a schema, each with its schema.
fn leaves(path: &str, schema: &Value, found: &mut BTreeMap<String, Value>) {
    let inner = schema["properties"].as_object().filter(|p| !p.is_empty() && !FOREIGN.contains(&path));
    if let Some(properties) = inner {
        for (name, inner) in properties {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            leaves(&path, inner, found);
        }
    } else if schema["type"] == "array" && !FOREIGN.contains(&path) {
        leaves(&format!("{path}[]"), &schema["items"], found);
    } else {
        found.insert(path.to_owned(), schema.clone());
    }
}

/// Another value that the schema allows.
fn other(path: &str, value: &Value, schema: &Value) -> Option<Value> {
    if let Some(options) = schema["enum"].as_array() {
        return options.iter().find(|o| *o != value).cloned();
    }
    Some(match value {
        Value::Bool(b) => json!(!b),
        Value::Number(n) => n.as_i64().map_or_else(|| json!(n.as_f64().unwrap() + 1.0), |n| json!(n + 1)),
        Value::String(text) => json!(match path {
            p if p.ends_with("imeZone") => "Asia/Tokyo".into(),
            p if p.ends_with(".cron") => "5 8 * * *".into(),
            p if p.ends_with(".at") || p.ends_with(".slot") => "2028-01-01T00:00:00Z".into(),
            p if p.ends_with("sizeLimit") || p.ends_with("SizeLimit") => "300Mi".into(),
            p if p.ends_with("sha256") => "1".repeat(64),
            _ if text.ends_with(['m', 'h', 'd', 's']) && text[..1].parse::<u8>().is_ok() => "45m".into(),
            _ => format!("{text}1"),
        }),
        _ => return None,
    })
}

/// Every value of `manifest` at a leaf, changed: the path and the manifest with the change.
fn changes(path: &str, manifest: &Value, leaves: &BTreeMap<String, Value>) -> Vec<(String, Value)> {
    if let Some(schema) = leaves.get(path) {
        // What has no other value is taken away.
        return vec![(path.to_owned(), other(path, manifest, schema).unwrap_or(Value::Null))];
    }
    let mut all = vec![];
    match manifest {
        Value::Object(fields) => {
            for (name, inner) in fields {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                for (path, changed) in changes(&below, inner, leaves) {
                    let mut copy = fields.clone();
                    if changed.is_null() {
                        copy.remove(name)
                    } else {
                        copy.insert(name.clone(), changed)
                    };
                    all.push((path, Value::Object(copy)));
                }
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                for (path, changed) in changes(&format!("{path}[]"), inner, leaves) {
                    let mut copy = items.clone();
                    if changed.is_null() {
                        drop(copy.remove(index))
                    } else {
                        copy[index] = changed
                    }
                    all.push((path, Value::Array(copy)));
                }
            }
        }
        _ => panic!("{path} is no field of the schema"),
    }
    all
}

/// Names of all tests of this crate and of the index.
fn tests() -> BTreeSet<String> {
    let sources = [
        include_str!("decide/tests/deletions.rs"),
        include_str!("decide/tests/ends.rs"),
        include_str!("decide/tests/limits.rs"),
        include_str!("decide/tests/requests.rs"),
        include_str!("decide/tests/slots.rs"),
        include_str!("due_tests.rs"),
        include_str!("../../src/index_tests.rs"),
    ];
    let names = sources.iter().flat_map(|s| s.split("\nfn ").skip(1));
    names.filter_map(|rest| rest.split_once('(').map(|(name, _)| name.to_owned())).collect()
}

fn check(kind: usize, decided: &[(&str, &str)], manifests: &[Value], outcome: impl Fn(&Value) -> String) {
    let mut all = BTreeMap::new();
    leaves("", &schema(kind), &mut all);
    let tests = tests();
    let mut covered = BTreeSet::new();
    for (path, test) in decided {
        assert!(all.contains_key(*path), "{path} is no field any more");
        assert!(tests.contains(*test), "{test} is no test any more");
        covered.insert((*path).to_owned());
    }
    for manifest in manifests {
        let before = outcome(manifest);
        for (path, changed) in changes("", manifest, &all) {
            assert!(path == SPELLED || before != outcome(&changed), "{path} is accepted and has no effect");
            covered.insert(path);
        }
    }
    let forgotten: Vec<_> = all.keys().filter(|path| !covered.contains(*path)).collect();
    assert!(forgotten.is_empty(), "no manifest here has {forgotten:?}");
}

/// agent-sandbox#894: labels of a manifest hijacked the selection of the controller. velero 79e176086: a tracking
/// label on a child made Argo CD prune it.
#[test]
fn labels_of_a_manifest_replace_none_of_ours_and_no_tool_adopts_our_children() {
    let wanted = json!({
        "cicada.dev/agent": "another", "cicada.dev/purpose": "report", "app.kubernetes.io/instance": "app",
        "argocd.argoproj.io/instance": "app", "kustomize.toolkit.fluxcd.io/name": "app", "job-name": "x",
        "batch.kubernetes.io/job-name": "x", "team": "mine",
    });
    let mut spec = manifests().remove(1);
    spec["pod"] = json!({"labels": wanted, "annotations": wanted, "jobLabels": wanted});
    let object =
        json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "labels": wanted}, "spec": spec});
    let job = job_of(&serde_json::from_value(object).unwrap());
    let pod = job.spec.unwrap().template.metadata.unwrap();
    for labels in [job.metadata.labels.unwrap(), pod.labels.unwrap()] {
        let keys: Vec<_> = labels.keys().map(String::as_str).collect();
        assert_eq!(keys, ["app.kubernetes.io/managed-by", "cicada.dev/agent", "cicada.dev/purpose", "team"]);
        assert_eq!(
            (labels["cicada.dev/agent"].as_str(), labels["cicada.dev/purpose"].as_str()),
            ("a", "cycle")
        );
    }
    let annotations = pod.annotations.unwrap();
    assert!(annotations.keys().all(|k| !k.contains("argocd") && !k.contains("flux")), "{annotations:?}");
}

/// Names of all Secrets that a part of a manifest refers to.
fn secrets_in(value: &Value, key: &str, named: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            let is_reference = key.ends_with("SecretRef") || key.ends_with("secretKeyRef");
            named.extend(
                fields.get("name").and_then(Value::as_str).filter(|_| is_reference).map(str::to_owned),
            );
            named.extend(fields.get("secretName").and_then(Value::as_str).map(str::to_owned));
            fields.iter().for_each(|(key, inner)| secrets_in(inner, key, named));
        }
        Value::Array(items) => items.iter().for_each(|inner| secrets_in(inner, key, named)),
        _ => {}
    }
}

/// cloudnative-pg#2956: rights to secrets were given by name, and one was forgotten. Here none is needed: what
/// a pod reads is what its volumes name, and that is all that the manifest refers to.
#[test]
fn a_pod_mounts_exactly_the_secrets_that_its_manifest_names() {
    let mut named = BTreeSet::new();
    let spec = manifests().remove(0);
    secrets_in(&spec, "", &mut named);
    let object = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": spec});
    let job = job_of(&serde_json::from_value(object).unwrap());
    let volumes = job.spec.unwrap().template.spec.unwrap().volumes.unwrap();
    let mounted: BTreeSet<_> = volumes.into_iter().filter_map(|v| v.secret?.secret_name).collect();
    assert_eq!(mounted, named);
    assert!(mounted.len() >= 6, "{mounted:?}");
}

#[test]
fn every_field_of_an_agent_has_an_effect() {
    check(0, DECIDED, &manifests(), outcome);
}

#[test]
fn every_field_of_a_cycle_has_an_effect() {
    let cycle = json!({
        "triggers": [{"type": "Schedule", "schedule": "s", "slot": "2027-01-01T00:00:00Z", "token": "t"}],
        "instruction": "i",
        "message": {
            "channel": "c", "from": "f", "subject": "s", "body": "b",
            "attachments": [{"name": "n", "contentType": "t", "size": 1, "url": "u"}],
        },
    });
    let agent = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": manifests()[1]});
    let agent: PersistentAgent = serde_json::from_value(agent).unwrap();
    check(1, DECIDED_OF_CYCLES, &[cycle], |spec| {
        let mut spec = spec.clone();
        spec["agentRef"] = json!({"name": "a"});
        // One of the operator's own: the key of another's is a hash of all its fields.
        let owner = json!([{"apiVersion": "v", "kind": "PersistentAgent", "name": "a", "uid": "u", "controller": true}]);
        let metadata = json!({"name": "c", "namespace": "n", "uid": "cu", "ownerReferences": owner});
        let cycle = json!({"metadata": metadata, "spec": spec});
        let cycle: AgentCycle = serde_json::from_value(cycle).unwrap();
        serde_json::to_string(&plan_run(&agent, &[&cycle], &[], "")).unwrap()
    });
}
