//! What Git and pipelines count on.

use std::{path::Path, thread::sleep, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    agent, cycle,
    operator::Operator,
    phase,
    plane::{Plane, until},
};

/// Three cycles, committed one after the other, and ten syncs of the folder that holds them all.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn three_committed_cycles_are_three_executions_however_often_they_are_applied() {
    let plane = Plane::get();
    let ns = plane.namespace("committed");
    let mut operator = Operator::start(plane, &ns.name, "committed", "lease-committed");
    let folder = |cycles: usize| {
        let mut all = vec![agent("z", "")];
        all.extend((1..=cycles).map(|n| cycle(&format!("c{n}"), "z")));
        all.join("---\n")
    };
    for n in 1..=3 {
        ns.apply(&folder(n));
        ns.kubectl(&["wait", "--for=condition=Complete", &format!("pac/c{n}"), "--timeout=60s"]);
    }
    for round in 0..10 {
        if round == 5 {
            operator.signal("KILL");
            until("the operator is dead", 10, || operator.ended().then_some(()));
            operator.revive();
            until("the operator leads again", 60, || operator.leads().then_some(()));
        }
        ns.apply_as("argocd-controller", &folder(3));
        sleep(Duration::from_secs(1));
    }
    until("the agent is idle", 30, || (ns.get("pa", "z")["status"]["state"] == "Idle").then_some(()));
    let created = |e: &&Value| {
        e["verb"] == "create"
            && e["objectRef"]["resource"] == "jobs"
            && e["objectRef"]["namespace"] == ns.name.as_str()
            && e["objectRef"]["name"].as_str().is_some_and(|n| n.starts_with('c'))
            && e["responseStatus"]["code"] == 201
    };
    assert_eq!(plane.audit().iter().filter(created).count(), 3);
    assert_eq!((ns.jobs().len(), ns.list("pac").len()), (3, 3));
}

/// agent-sandbox#1317: Ready carried the generation of an edit that nobody had looked at, and whoever waited went on.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn who_waits_for_an_edit_is_not_told_of_the_time_before_it() {
    let plane = Plane::get();
    let ns = plane.namespace("waits");
    let operator = Operator::start(plane, &ns.name, "waits", "lease-waits");
    ns.apply(&agent("a", ""));
    let wait = |seconds: u32| {
        let timeout = format!("--timeout={seconds}s");
        plane.run(&["wait", "--for=condition=Ready", "pa/a", &timeout, "-n", &ns.name], None).status.success()
    };
    assert!(wait(60));
    drop(operator);
    ns.apply(&agent("a", "  charter: Edited.\n"));
    assert!(!wait(5), "nobody has looked at the edit");
    let _operator = Operator::start(plane, &ns.name, "waits", "lease-waits");
    assert!(wait(60));
    let found = ns.get("pa", "a");
    assert_eq!(found["metadata"]["generation"], 2);
    let of = |c: &Value| c["observedGeneration"] == 2;
    assert!(
        of(&found["status"]) && found["status"]["conditions"].as_array().unwrap().iter().all(of),
        "{found:#}"
    );
}

/// A time in a manifest is met once, whatever is restarted or applied again; another time is another cycle.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_one_off_of_a_manifest_runs_once() {
    let plane = Plane::get();
    let ns = plane.namespace("one-off");
    let mut operator = Operator::start(plane, &ns.name, "one-off", "lease-one-off");
    let once = |at: Timestamp| agent("a", &format!("  schedules: [{{name: once, at: \"{at}\"}}]\n"));
    let soon = |seconds: i64| {
        (Timestamp::now() + SignedDuration::from_secs(seconds)).round(jiff::Unit::Second).unwrap()
    };
    let ended = |count: usize| {
        let cycles = ns.list("pac");
        (cycles.len() == count && cycles.iter().all(|c| phase(c) == "Succeeded")).then_some(cycles)
    };
    let first = soon(15);
    ns.apply(&once(first));
    until("the agent knows when", 14, || {
        (ns.get("pa", "a")["status"]["nextScheduleTime"] == first.to_string().as_str()).then_some(())
    });
    assert!(ns.list("pac").is_empty(), "not before its time");
    let cycle = until("it ran", 60, || ended(1)).remove(0);
    assert_eq!(cycle["spec"]["triggers"][0]["slot"], first.to_string().as_str(), "{cycle:#}");
    operator.signal("KILL");
    until("the operator is dead", 10, || operator.ended().then_some(()));
    operator.revive();
    until("the operator leads again", 60, || operator.leads().then_some(()));
    ns.apply(&once(first));
    sleep(Duration::from_secs(5));
    assert_eq!((ns.list("pac").len(), ns.jobs().len()), (1, 1));
    let second = soon(61);
    ns.apply(&once(second));
    until("the second time is met", 120, || ended(2));
    assert_eq!(ns.jobs().len(), 2);
}

/// kube#1950, kube#1962, kube#1836: a login that blocked all work, a certificate authority that was read once, and
/// recreated objects that were filtered out are mended in 4.0.
#[test]
fn the_kubernetes_client_is_one_without_the_faults_of_older_releases() {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock");
    let lock = std::fs::read_to_string(lock).unwrap();
    let mut found = 0;
    for package in lock.split("[[package]]") {
        let field = |name: &str| {
            let line = package.lines().find_map(|l| l.strip_prefix(&format!("{name} = ")));
            line.unwrap_or_default().trim_matches('"').to_owned()
        };
        if ["kube", "kube-client", "kube-core", "kube-runtime"].contains(&field("name").as_str()) {
            let version = field("version");
            let major: u32 = version.split('.').next().unwrap().parse().unwrap();
            assert!(major >= 4, "{} {version}", field("name"));
            found += 1;
        }
    }
    assert_eq!(found, 4, "one release of each");
}
