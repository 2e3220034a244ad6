//! Installations with the rights that the chart gives: two that overlap, and what is told on the operator itself.

use std::{thread::sleep, time::Duration};

use serde_json::Value;

use crate::{
    agent,
    operator::Operator,
    plane::{Plane, until},
};

/// Installs a release and starts its operator, with no rights but those of the chart.
fn start(plane: &Plane, release: &str, home: &str, watched: &str) -> Operator {
    plane.install_release(release, home, &[watched.to_owned()]);
    let token = plane.kubectl(&["create", "token", release, "-n", home]);
    let operator = Operator::start_as(plane, watched, release, release, home, token.trim());
    until("it leads", 30, || operator.leads().then_some(()));
    operator
}

fn get(plane: &Plane, namespace: &str) -> Value {
    let said = plane.say(&["get", "pa", "a", "-n", namespace, "-o", "json"]);
    serde_json::from_str(&said).unwrap_or(Value::Null)
}

/// Each took the other, whose Lease its Role does not let it read, for dead: they wrote over each other's status
/// twenty times a second.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn two_releases_that_overlap_leave_each_others_agents_alone() {
    let plane = Plane::get();
    let ns = plane.namespace("releases");
    for name in ["releases-elsewhere", "releases-a", "releases-b"] {
        plane.kubectl(&["create", "namespace", name]);
    }
    for (watched, second_home) in [("releases-a", ns.name.as_str()), ("releases-b", "releases-elsewhere")] {
        let (first, second) = (format!("cicada-1-{watched}"), format!("cicada-2-{watched}"));
        let one = start(plane, &first, &ns.name, watched);
        plane.apply(watched, &agent("a", ""));
        let operator = || get(plane, watched)["status"]["operator"].as_str().map(str::to_owned);
        until("the first works", 30, operator);
        let _two = start(plane, &second, second_home, watched);
        plane.kubectl(&["annotate", "pa", "a", "-n", watched, "cicada.dev/run-now=x"]);
        until("it ran", 60, || {
            let status = get(plane, watched)["status"].clone();
            (status["lastCycle"].is_object() && status["state"] == "Idle").then_some(())
        });
        until("people are told", 60, || {
            let events = plane.say(&["get", "events", "-n", watched]);
            events.contains("ForeignOperator").then_some(())
        });
        let version = || get(plane, watched)["metadata"]["resourceVersion"].clone();
        let before = version();
        sleep(Duration::from_secs(5));
        assert_eq!((operator(), version()), (Some(format!("{}/{first}", ns.name)), before), "all is quiet");
        let user = format!("system:serviceaccount:{second_home}:{second}");
        let agents = |e: &&Value| e["objectRef"]["resource"] == "persistentagents";
        let by_second = |e: &&Value| e["user"]["username"] == user.as_str();
        assert_eq!(plane.audit().iter().filter(agents).filter(by_second).count(), 0);
        drop(one);
        if second_home != ns.name {
            // It can't see that the first has gone: what the runbook says.
            let patch = r#"{"status":{"operator":null}}"#;
            let args =
                ["patch", "pa", "a", "-n", watched, "--subresource=status", "--type=merge", "-p", patch];
            plane.kubectl(&args);
        }
        let taken = Some(format!("{second_home}/{second}"));
        until("the second takes over", 150, || (operator() == taken).then_some(()));
    }
}

/// A crash after the finalizer was off lost the only word on a memory that stays.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_memory_that_is_left_is_named_before_its_agent_is_let_go() {
    let plane = Plane::get();
    let ns = plane.namespace("told");
    let watched = "told-first";
    plane.kubectl(&["create", "namespace", watched]);
    let _operator = start(plane, "cicada", &ns.name, watched);
    plane.apply(watched, &agent("a", "  memory: {deletionPolicy: Delete}\n"));
    let finalizers = || get(plane, watched)["metadata"]["finalizers"].clone();
    until("the finalizer is on", 60, || finalizers().is_array().then_some(()));
    // From here on the finalizer can't be taken off.
    let role: Value =
        serde_json::from_str(&plane.say(&["get", "role", "cicada", "-n", watched, "-o", "json"])).unwrap();
    let is_patch = |rule: &Value| rule["resources"] == serde_json::json!(["persistentagents"]);
    let index = role["rules"].as_array().unwrap().iter().position(is_patch).unwrap();
    let patch = format!(r#"[{{"op": "remove", "path": "/rules/{index}"}}]"#);
    plane.kubectl(&["patch", "role", "cicada", "-n", watched, "--type=json", "-p", &patch]);
    sleep(Duration::from_secs(2));
    plane.kubectl(&["delete", "namespace", watched, "--wait=false"]);
    until("the memory is named where people look", 30, || {
        let said = plane.say(&["describe", "deployment", "cicada", "-n", &ns.name]);
        said.contains("MemoryLeftBehind").then_some(())
    });
    assert_eq!(finalizers()[0], "cicada.dev/delete");
    let patch = r#"{"metadata":{"finalizers":null}}"#;
    plane.kubectl(&["patch", "pa", "a", "-n", watched, "--type=merge", "-p", patch]);
    plane.kubectl(&["delete", "namespace", watched, "--timeout=60s"]);
}

/// openvox-operator#555 the other way round: a roll-back put the old definitions under a running operator, whose status
/// writes were refused until it was restarted.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn definitions_that_are_rolled_back_under_a_running_operator_do_not_stop_it() {
    let plane = Plane::get();
    let ns = plane.namespace_alone("rolled-back");
    let operator = Operator::start(plane, &ns.name, "rolled-back", "lease-rolled-back");
    ns.apply(&agent("a", ""));
    let is_idle = || (ns.get("pa", "a")["status"]["state"] == "Idle").then_some(());
    until("it is looked at", 30, is_idle);
    let name = "persistentagents.cicada.dev";
    let current: Value = serde_json::from_str(&plane.kubectl(&["get", "crd", name, "-o", "json"])).unwrap();
    let mut old = current.clone();
    let schema = &mut old["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["status"]["properties"].as_object_mut().unwrap().remove("operator").unwrap();
    plane.replace_definition(&old);
    let outdated = || operator.metric("cicada_schema_outdated");
    // The API server takes a definition up within a second or two.
    sleep(Duration::from_secs(3));
    ns.kubectl(&["annotate", "pa", "a", "cicada.dev/run-now=x"]);
    until("it ran", 150, || {
        let status = ns.get("pa", "a")["status"].clone();
        (status["lastHandledRunNow"] == "x" && status["state"] == "Idle").then_some(())
    });
    assert_eq!(outdated(), 1);
    plane.replace_definition(&current);
    until("it sees that they are current", 100, || (outdated() == 0).then_some(()));
    ns.kubectl(&["delete", "pa", "a"]);
}
