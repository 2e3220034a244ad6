//! Memories that go with their agents, and memories that are put back, by real Jobs.

use cicada_tests::{cluster::Cluster, memory::Unpacked, namespace::Namespace, wait};

use crate::agents::{COUNTER, cycle, sql_agent};

fn agent(test: &str, name: &str) -> Namespace {
    let ns = Namespace::new(test);
    ns.apply(&sql_agent(name, COUNTER, ""));
    ns.create(&cycle("first", name));
    assert_eq!(ns.wait_for_cycle("first", 120)["phase"], "Succeeded");
    ns
}

fn patch(ns: &Namespace, name: &str, spec: &str) {
    ns.kubectl(&[
        "patch",
        "persistentagent",
        name,
        "--type=merge",
        "--patch",
        &format!("{{\"spec\":{spec}}}"),
    ])
    .must();
}

/// Sets the policy, and waits for the finalizer.
pub(crate) fn wants_deletion(ns: &Namespace, name: &str) {
    patch(ns, name, r#"{"memory":{"deletionPolicy":"Delete"}}"#);
    wait::until_seen(
        "the agent has the finalizer",
        30,
        || ns.get("persistentagent", name)["metadata"]["finalizers"].clone(),
        |finalizers| finalizers[0] == "cicada.dev/delete",
    );
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_deleted_agent_takes_its_memory_along_only_where_its_manifest_says_so() {
    let ns = agent("delete", "worker");
    ns.apply(&sql_agent("keeper", COUNTER, ""));
    ns.create(&cycle("kept", "keeper"));
    assert_eq!(ns.wait_for_cycle("kept", 120)["phase"], "Succeeded");
    wants_deletion(&ns, "worker");
    let keeper = ns.folder("keeper").keys();
    ns.kubectl(&["delete", "persistentagent", "worker", "keeper", "--timeout=180s"]).must();
    assert_eq!(ns.folder("worker").keys(), ["HEAD.json"]);
    let head = ns.folder("worker").must_head();
    assert!(head["deletedAt"].is_string(), "{head:#}");
    assert_eq!(ns.folder("keeper").keys(), keeper);
    // Another agent of the name starts empty.
    ns.apply(&sql_agent("worker", COUNTER, ""));
    ns.create(&cycle("again", "worker"));
    assert_eq!(ns.wait_for_cycle("again", 120)["phase"], "Succeeded");
    assert_eq!(Unpacked::check(&ns.folder("worker")).sql("SELECT count(*) FROM runs"), "1");
}

/// opensearch-k8s-operator#976, vault-secrets-operator#100: with the Secret gone first, a finalizer held the namespace.
#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_namespace_goes_within_a_minute_although_a_memory_can_not() {
    let ns = agent("delete-namespace", "worker");
    wants_deletion(&ns, "worker");
    let before = ns.folder("worker").keys();
    Cluster::get().kubectl("default", &["delete", "namespace", &ns.name, "--timeout=60s"]).must();
    assert_eq!(ns.folder("worker").keys(), before, "nobody had the credentials any more");
    is_named(&ns, "worker");
}

/// An event on the operator's Deployment says where the memory lies and how to remove it; gives its text.
pub(crate) fn is_named(ns: &Namespace, agent: &str) -> String {
    let place = format!("s3://{}/{}/{agent}/", Cluster::get().bucket_name(), ns.name);
    let told = wait::until("an event on the operator's Deployment names the memory", 30, || {
        let events = Cluster::get().json("", &["events", "--all-namespaces"]);
        let events = events["items"].as_array().cloned().unwrap_or_default();
        events.into_iter().find(|e| {
            e["reason"] == "MemoryLeftBehind" && e["message"].as_str().is_some_and(|m| m.contains(&place))
        })
    });
    assert_eq!(told["involvedObject"]["kind"], "Deployment", "{told:#}");
    let text = told["message"].as_str().unwrap().to_owned();
    assert!(text.contains("aws s3 rm --recursive"), "{told:#}");
    text
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_restore_by_the_manifest_happens_once() {
    let ns = agent("restore", "worker");
    let first = ns.folder("worker").current();
    ns.create(&cycle("second", "worker"));
    assert_eq!(ns.wait_for_cycle("second", 120)["phase"], "Succeeded");
    let id = first["id"].as_str().unwrap();
    patch(&ns, "worker", &format!(r#"{{"memory":{{"restoreFrom":{{"snapshot":"{id}","token":"a"}}}}}}"#));
    wait::until_seen(
        "the restore was applied",
        120,
        || ns.status("worker")["memory"]["appliedRestore"].clone(),
        |applied| applied.as_str() == Some(format!("{id}/a").as_str()),
    );
    let runs = || Unpacked::check(&ns.folder("worker")).sql("SELECT count(*) FROM runs");
    assert_eq!(runs(), "1");
    let restored = ns.folder("worker").current();
    assert_eq!((restored["restoredFrom"].as_str(), &restored["memory"]), (Some(id), &first["memory"]));
    // The manifest goes on saying so; the next cycle goes on from there.
    ns.create(&cycle("third", "worker"));
    assert_eq!(ns.wait_for_cycle("third", 120)["phase"], "Succeeded");
    assert_eq!(runs(), "2");
    // One that nobody can carry out says why.
    ns.create(
        "{apiVersion: cicada.dev/v1alpha1, kind: AgentCycle, metadata: {name: nowhere}, \
         spec: {agentRef: {name: worker}, restore: {snapshot: 9-9-ffff}}}",
    );
    let status = ns.wait_for_cycle("nowhere", 120);
    assert_eq!(
        (status["phase"].as_str(), status["class"].as_str()),
        (Some("Failed"), Some("snapshot_missing"))
    );
    assert!(status["message"].as_str().unwrap().contains("9-9-ffff"), "{status:#}");
}
