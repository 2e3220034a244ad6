//! `cicada.dev/hold`: while it is there no slot, no request and no delivery starts anything; afterwards all goes on.

use std::{thread::sleep, time::Duration};

use serde_json::Value;

use crate::{
    agent,
    namespace::Namespace,
    operator::Operator,
    phase,
    plane::{Plane, until},
};

fn of_type<'a>(cycles: &'a [Value], kind: &str) -> Vec<&'a Value> {
    cycles.iter().filter(|c| c["spec"]["triggers"][0]["type"] == kind).collect()
}

/// `hold` gets what follows `kubectl annotate`; each change is seen within `seconds`.
#[track_caller]
fn is_obeyed(ns: &Namespace, operator: &mut Operator, seconds: u64, hold: impl Fn(&str)) {
    // Each cycle leaves a message that waits for its delivery, which is due a minute later.
    ns.apply(&agent(
        "a",
        "  successfulCyclesHistoryLimit: 100\n  pod: {labels: {fake-pending: \"1\"}}\n  schedules: [{name: m, cron: \"* * * * *\"}]\n",
    ));
    ns.kubectl(&["annotate", "pa", "a", "cicada.dev/run-now=first"]);
    until("a message waits", 60, || {
        // Which ends where a busy machine costs it its Lease.
        operator.revive();
        ns.get("pa", "a")["status"]["delivery"]["next"].is_string().then_some(())
    });
    hold("cicada.dev/hold=the bank is closed");
    until("it is on hold", seconds, || {
        operator.revive();
        (ns.get("pa", "a")["status"]["state"] == "Held").then_some(())
    });
    let before = ns.jobs().len();
    ns.kubectl(&["annotate", "pa", "a", "cicada.dev/run-now=x", "--overwrite"]);
    // A slot passes, and the delivery is due.
    for _ in 0..14 {
        sleep(Duration::from_secs(5));
        operator.revive();
    }
    let status = ns.get("pa", "a")["status"].clone();
    let ready = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
    assert_eq!((&status["state"], &ready["message"]), (&"Held".into(), &"the bank is closed".into()));
    assert_eq!(ns.jobs().len(), before, "nothing starts");
    let waiting: Vec<_> = ns.list("pac").into_iter().filter(|c| phase(c) == "Pending").collect();
    assert!(waiting.iter().all(|c| c["status"]["reason"] == "Held"), "{waiting:#?}");
    for kind in ["Request", "Delivery"] {
        assert_eq!(of_type(&waiting, kind).len(), 1, "{kind}: {waiting:#?}");
    }
    assert!(of_type(&waiting, "Schedule").is_empty(), "slots are skipped: {waiting:#?}");
    hold("cicada.dev/hold-");
    until("all goes on", seconds + 90, || {
        operator.revive();
        let cycles = ns.list("pac");
        let done = |c: &&Value| {
            waiting.iter().any(|w| w["metadata"]["name"] == c["metadata"]["name"]) && phase(c) == "Succeeded"
        };
        (cycles.iter().filter(done).count() == waiting.len() && ns.jobs().len() > before).then_some(())
    });
}

fn agent_is_held(plane: &'static Plane) {
    let ns = plane.namespace("held-agent");
    let mut operator = Operator::start(plane, &ns.name, "held-agent", "lease-held-agent");
    is_obeyed(&ns, &mut operator, 20, |change| drop(ns.kubectl(&["annotate", "pa", "a", change])));
}

/// In namespaced mode a namespace can't be watched: it is read once a minute.
fn namespace_is_held(plane: &'static Plane) {
    let ns = plane.namespace("held-swept");
    let mut operator = Operator::start(plane, &ns.name, "held-swept", "lease-held-swept");
    is_obeyed(&ns, &mut operator, 90, |change| {
        drop(plane.kubectl(&["annotate", "namespace", &ns.name, change]))
    });
}

/// Side by side, since they mostly wait.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_hold_of_an_agent_is_obeyed_and_one_of_a_namespace_within_a_minute_in_namespaced_mode() {
    let plane = Plane::get();
    std::thread::scope(|scope| {
        for case in [agent_is_held, namespace_is_held] {
            scope.spawn(move || case(plane));
        }
    });
}

#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_hold_of_a_namespace_is_seen_at_once_by_an_operator_of_the_whole_cluster() {
    let plane = Plane::get();
    let ns = plane.namespace_alone("held-watched");
    let mut operator = Operator::start(plane, "", "held-watched", "lease-held-watched");
    is_obeyed(&ns, &mut operator, 20, |change| {
        drop(plane.kubectl(&["annotate", "namespace", &ns.name, change]))
    });
}
