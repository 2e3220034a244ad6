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
fn is_obeyed(ns: &Namespace, seconds: u64, hold: impl Fn(&str)) {
    // Each cycle leaves a message that waits for its delivery, which is due a minute later.
    ns.apply(&agent(
        "a",
        "  successfulCyclesHistoryLimit: 100\n  pod: {labels: {fake-pending: \"1\"}}\n  schedules: [{name: m, cron: \"* * * * *\"}]\n",
    ));
    until("a message waits", 120, || {
        ns.get("pa", "a")["status"]["delivery"]["next"].is_string().then_some(())
    });
    hold("cicada.dev/hold=the bank is closed");
    until("it is on hold", seconds, || (ns.get("pa", "a")["status"]["state"] == "Held").then_some(()));
    let before = ns.jobs().len();
    ns.kubectl(&["annotate", "pa", "a", "cicada.dev/run-now=x"]);
    // Two slots pass, and the delivery is due.
    sleep(Duration::from_secs(125));
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
        let cycles = ns.list("pac");
        let done = |c: &&Value| {
            waiting.iter().any(|w| w["metadata"]["name"] == c["metadata"]["name"]) && phase(c) == "Succeeded"
        };
        (cycles.iter().filter(done).count() == waiting.len() && ns.jobs().len() > before).then_some(())
    });
}

#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_hold_of_an_agent_is_obeyed() {
    let plane = Plane::get();
    let ns = plane.namespace("held-agent");
    let _operator = Operator::start(plane, &ns.name, "held-agent", "lease-held-agent");
    is_obeyed(&ns, 20, |change| drop(ns.kubectl(&["annotate", "pa", "a", change])));
}

/// In namespaced mode a namespace can't be watched: it is read once a minute.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_hold_of_a_namespace_is_obeyed_within_a_minute_in_namespaced_mode() {
    let plane = Plane::get();
    let ns = plane.namespace("held-swept");
    let _operator = Operator::start(plane, &ns.name, "held-swept", "lease-held-swept");
    is_obeyed(&ns, 90, |change| drop(plane.kubectl(&["annotate", "namespace", &ns.name, change])));
}

#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_hold_of_a_namespace_is_seen_at_once_by_an_operator_of_the_whole_cluster() {
    let plane = Plane::get();
    let ns = plane.namespace_alone("held-watched");
    let _operator = Operator::start(plane, "", "held-watched", "lease-held-watched");
    is_obeyed(&ns, 20, |change| drop(plane.kubectl(&["annotate", "namespace", &ns.name, change])));
}
