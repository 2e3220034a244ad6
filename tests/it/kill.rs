//! Cycles that are killed at the worst moments, in real pods.

use cicada_tests::{
    cluster::Cluster,
    gate::{Gate, Hold},
    memory::Unpacked,
    namespace::Namespace,
    wait,
};
use serde_json::{Value, json};

use crate::agents::{COUNTER, cycle, sql_agent, store_behind};

/// An agent behind a gate that has done one cycle.
fn agent_with_memory(test: &str) -> (Namespace, Gate) {
    let ns = Namespace::new(test);
    let gate = Gate::new(&Cluster::get().s3_address());
    ns.apply(&sql_agent("worker", COUNTER, &store_behind(&gate)));
    ns.create(&cycle("first", "worker"));
    assert_eq!(ns.wait_for_cycle("first", 120)["phase"], "Succeeded");
    assert_eq!(runs(&ns), "1");
    (ns, gate)
}

fn runs(ns: &Namespace) -> String {
    Unpacked::check(&ns.folder("worker")).sql("SELECT count(*) FROM runs")
}

/// HEAD without what every acquire changes.
fn content(head: &Value) -> Value {
    let mut head = head.clone();
    for field in ["epoch", "acquiredBy", "holder", "writer", "write", "writtenAt"] {
        head.as_object_mut().unwrap().remove(field);
    }
    head
}

fn kill_the_pod(ns: &Namespace) {
    let pod = ns.wait_for_running_pod(30);
    ns.cluster().kill_container(&ns.name, &pod, "cycle");
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn killed_before_publish_loses_nothing_and_the_next_attempt_needs_no_hand() {
    let (ns, gate) = agent_with_memory("kill-before");
    let before = ns.folder("worker").must_head();
    gate.hold(Hold::Request, &["PUT ", "/snapshots/"], 0);
    ns.create(&cycle("second", "worker"));
    gate.wait_held(90);
    kill_the_pod(&ns);
    let killed = ns.folder("worker").must_head();
    gate.release();
    assert_eq!(content(&killed), content(&before), "only the epoch and its writer may have changed");
    assert_eq!(killed["epoch"].as_u64(), before["epoch"].as_u64().map(|e| e + 1));

    let status = ns.wait_for_cycle("second", 180);
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    assert!(status["attempts"].as_u64() >= Some(2), "{status:#}");
    assert_ne!(status["recovered"], true, "nothing had been published: {status:#}");
    assert_eq!(runs(&ns), "2", "the killed attempt left no row");
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn killed_between_publish_and_report_is_recovered_and_executed_once() {
    let (ns, gate) = agent_with_memory("kill-after");
    let before = ns.folder("worker").must_head();
    // The first write of HEAD in a cycle is its acquire, the second its publish.
    gate.hold(Hold::Answer, &["PUT ", "/HEAD.json"], 1);
    ns.create(&cycle("second", "worker"));
    gate.wait_held(90);
    let published = wait::until("the snapshot is published", 20, || {
        ns.folder("worker").head().filter(|head| head["current"] != before["current"])
    });
    kill_the_pod(&ns);
    gate.release();

    let status = ns.wait_for_cycle("second", 180);
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    assert_eq!(status["recovered"], true, "{status:#}");
    assert_eq!(status["snapshotAfter"], published["current"]);
    assert_eq!(runs(&ns), "2", "the executor ran once");
    assert_eq!(
        ns.folder("worker").must_head()["current"],
        published["current"],
        "recovery publishes nothing new"
    );
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn of_two_jobs_forced_at_once_exactly_one_publishes() {
    let (ns, gate) = agent_with_memory("two-jobs");
    gate.hold(Hold::Request, &["PUT ", "/snapshots/"], 0);
    ns.create(&cycle("second", "worker"));
    gate.wait_held(90);
    let first = ns.list("jobs").into_iter().find(|job| job["status"]["active"] == 1).expect("the held Job");

    // A second Job from the same template, as another cycle: what no operator would do, a person can.
    let mut twin = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "forced"}, "spec": {"template": first["spec"]["template"],
        "backoffLimit": 0, "podFailurePolicy": first["spec"]["podFailurePolicy"]},
    });
    let metadata = twin["spec"]["template"]["metadata"].as_object_mut().unwrap();
    metadata.remove("labels");
    metadata.remove("creationTimestamp");
    let plan = metadata["annotations"]["cicada.dev/run-plan"].as_str().expect("the run's plan");
    let mut plan: Value = serde_json::from_str(plan).unwrap();
    plan["cycle"] = json!({"name": "forced", "uid": "00000000-0000-4000-8000-000000000001"});
    plan["triggers"] = json!([{"type": "Request"}]);
    metadata["annotations"]["cicada.dev/run-plan"] = plan.to_string().into();
    ns.create(&twin.to_string());
    let forced = wait::until_seen(
        "the forced Job has ended",
        120,
        || ns.get("job", "forced")["status"].clone(),
        |s| s["succeeded"] == 1 || s["failed"].as_u64() >= Some(1),
    );
    gate.release();
    let status = ns.wait_for_cycle("second", 120);

    assert_eq!(forced["succeeded"], 1, "the later epoch publishes: {forced:#}");
    assert_eq!(status["phase"], "Failed", "{status:#}");
    assert_eq!(status["class"], "persist_fenced", "{status:#}");
    assert_eq!(ns.folder("worker").current()["cycle"]["name"], "forced");
    assert_eq!(runs(&ns), "2", "one of the two was kept");
    let agent = ns.status("worker");
    assert!(
        agent["consecutiveFailures"].is_null() || agent["consecutiveFailures"] == 0,
        "fenced is nobody's failure: {agent:#}"
    );

    ns.create(&cycle("third", "worker"));
    assert_eq!(ns.wait_for_cycle("third", 120)["phase"], "Succeeded", "and the agent goes on");
    assert_eq!(runs(&ns), "3");
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_deleted_head_stops_the_agent_and_nothing_is_created() {
    let (ns, _gate) = agent_with_memory("no-head");
    let folder = ns.folder("worker");
    std::fs::remove_file(folder.object("HEAD.json")).unwrap();
    let before = folder.keys();
    ns.create(&cycle("second", "worker"));
    let status = ns.wait_for_cycle("second", 120);
    assert_eq!(status["phase"], "Failed");
    assert_eq!(status["class"], "memory_missing", "{status:#}");
    let stalled = ns.wait_for_condition("worker", "Stalled", "True", 30);
    assert_eq!(stalled["reason"], "MemoryMissing", "{stalled:#}");
    assert_eq!(ns.status("worker")["state"], "Stalled");
    assert_eq!(folder.keys(), before, "nothing was created");
}
