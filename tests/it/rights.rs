//! The operator has the rights that it uses, and no others: what the chart gives, against the calls in the code.

use std::{collections::BTreeSet, fs, path::Path};

use cicada_tests::shell::root;

use crate::chart::objects;

/// Calls to the API server: the file below `operator/src`, a part of the line, and the rights that it needs.
const CALLS: &[(&str, &str, &[&str])] = &[
    ("act.rs", "api.delete(&cycle.name", &["delete agentcycles"]),
    ("act.rs", "api.delete(name", &["delete jobs"]),
    ("act.rs", "api.create(&post(), &cycle)", &["create agentcycles"]),
    ("act.rs", "api.get(name)", &["get agentcycles"]),
    ("act.rs", "api.get_opt(&cycle.name)", &["get agentcycles"]),
    ("act.rs", ".patch_status(&cycle.name", &["patch agentcycles/status"]),
    ("act.rs", "api.patch_status(&agent.name_any()", &["patch persistentagents/status"]),
    ("act.rs", "api.patch(&agent.name_any()", &["patch persistentagents"]),
    ("act/jobs.rs", "get_opt(&reference.name)", &["get agentcycles"]),
    ("act/jobs.rs", "api.get_opt(&map.name_any())", &["get configmaps"]),
    ("act/jobs.rs", "api.create(&post(), &map)", &["create configmaps"]),
    ("act/jobs.rs", "api.get(&map.name_any())", &["get configmaps"]),
    ("act/jobs.rs", "api.create(&post(), job)", &["create jobs"]),
    ("act/jobs.rs", "api.get(&job.name_any())", &["get jobs"]),
    ("act/tell.rs", "recorder.publish(", &["create events.k8s.io/events", "patch events.k8s.io/events"]),
    ("check.rs", "scope.list(", &["list persistentagents"]),
    ("check.rs", "leases.get_opt(", &["get leases"]),
    ("foreign.rs", "api::<Lease>(namespace).get_opt(", &["get leases"]),
    ("lease.rs", "Api::<Deployment>::namespaced(client, &self.namespace).get_opt(", &["get deployments"]),
    ("lease.rs", "self.api().get_opt(", &["get leases"]),
    ("lease.rs", "self.api().replace(", &["update leases"]),
    ("lease.rs", "self.api().create(", &["create leases"]),
    ("namespaces.rs", "Api::<Namespace>::all(context.client.clone()).get_metadata_opt(", &["get namespaces"]),
    ("observe.rs", "api::<Pod>(&job.namespace).list(", &["list pods"]),
    ("observe.rs", "api::<Event>(&key.namespace).list(", &["list events"]),
    ("reconcile.rs", "api::<PersistentAgent>(&key.namespace).get_opt(", &["get persistentagents"]),
    ("reconcile.rs", "api::<AgentCycle>(&key.namespace).get_opt(", &["get agentcycles"]),
    ("run.rs", ".get(\"kube-system\")", &["get namespaces"]),
    ("said.rs", "recorder.publish(", &["create events.k8s.io/events", "patch events.k8s.io/events"]),
    // Of what is served, which everybody may read.
    ("schema.rs", "client.request::<Value>(", &[]),
    ("tidy.rs", "api.list(", &["list configmaps"]),
    ("tidy.rs", "api::<ConfigMap>(&old.key.namespace).delete(", &["delete configmaps"]),
    ("uninstall.rs", "api.patch_metadata(", &["patch persistentagents"]),
    ("uninstall.rs", "recorder.publish(", &["create events.k8s.io/events", "patch events.k8s.io/events"]),
    ("uninstall.rs", "api.list(", &["list persistentagents"]),
    (
        "watch.rs",
        "watcher(api, config(",
        &[
            "list persistentagents",
            "watch persistentagents",
            "list agentcycles",
            "watch agentcycles",
            "list jobs",
            "watch jobs",
            "list namespaces",
            "watch namespaces",
        ],
    ),
];

/// What a call looks like.
const PATTERNS: [&str; 15] = [
    "api.get(",
    ".get_opt(",
    ".get_metadata",
    ".get_status(",
    ".list(",
    ".list_metadata(",
    ".create(",
    ".replace",
    ".patch",
    ".delete",
    ".evict(",
    ".logs(",
    ".request",
    ".publish(",
    "watcher(api",
];

/// Lines of code before the tests of each file.
fn lines_of(folder: &Path, below: &str, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = format!("{below}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            lines_of(&entry.path(), &format!("{name}/"), found);
        } else if name.ends_with(".rs") && !name.contains("tests") {
            let text = fs::read_to_string(entry.path()).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            found.extend(code.lines().map(|line| (name.clone(), line.trim().to_owned())));
        }
    }
}

/// `verb resource`, with the group of events.k8s.io, since there are two kinds of events.
fn given(values: &[&str]) -> BTreeSet<String> {
    let mut rights = BTreeSet::new();
    let all = objects(&[values, &["rbac.aggregate=false", "clusterName=c"]].concat());
    let texts = |value: &serde_json::Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect()
    };
    for role in all.iter().filter(|o| o["kind"] == "Role" || o["kind"] == "ClusterRole") {
        for rule in role["rules"].as_array().unwrap() {
            let group = match rule["apiGroups"][0].as_str().unwrap() {
                "events.k8s.io" => "events.k8s.io/",
                _ => "",
            };
            for resource in texts(&rule["resources"]) {
                rights.extend(texts(&rule["verbs"]).iter().map(|verb| format!("{verb} {group}{resource}")));
            }
        }
    }
    rights
}

#[test]
fn each_call_of_the_operator_is_known_with_the_right_that_it_needs() {
    let mut lines = vec![];
    lines_of(&root().join("operator/src"), "", &mut lines);
    let is_call = |(file, line): &(String, String)| {
        CALLS.iter().any(|(known, call, _)| known == file && line.contains(call))
    };
    let may_call = |line: &str| line.starts_with(".get(\"") || PATTERNS.iter().any(|p| line.contains(p));
    let unknown: Vec<_> = lines
        .iter()
        .filter(|(_, line)| !line.starts_with("//") && may_call(line))
        .filter(|line| !is_call(line))
        .collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    for (file, call, _) in CALLS {
        assert!(lines.iter().any(|(f, line)| f == file && line.contains(call)), "{file}: {call} is no more");
    }
}

/// cloudnative-pg#2956 turned around, and the other way: what is missing is refused at some bad moment.
#[test]
#[ignore = "needs helm: tests/run"]
fn the_chart_gives_the_rights_that_are_used_and_no_others() {
    let used: BTreeSet<String> =
        CALLS.iter().flat_map(|(.., rights)| *rights).map(|&right| right.to_owned()).collect();
    assert_eq!(given(&[]), used);
    // A namespaced operator reads its namespaces and watches none.
    let watches_namespaces =
        |right: &String| ["list namespaces", "watch namespaces"].contains(&right.as_str());
    let namespaced: BTreeSet<String> = used.into_iter().filter(|r| !watches_namespaces(r)).collect();
    assert_eq!(given(&["watchNamespaces={shop}"]), namespaced);
}
