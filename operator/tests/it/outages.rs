//! What goes away or stands still under the operator: its own process, its connections, the API server.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{
    agent, cycle,
    namespace::Namespace,
    operator::Operator,
    phase,
    plane::{Plane, until},
};

/// kubernetes#125761, #23731: a process that stood still went on as if it still led.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_leader_that_stood_still_writes_nothing_afterwards() {
    let plane = Plane::get();
    let ns = plane.namespace("stopped");
    let token = plane.user(&ns.name, "stopped-1");
    let mut one = Operator::start_as(plane, &ns.name, "stopped-1", "lease-stopped", "default", &token);
    until("the first leads", 30, || one.leads().then_some(()));
    let two = Operator::start(plane, &ns.name, "stopped-2", "lease-stopped");
    ns.apply(&agent("a", ""));
    until("the first works", 30, || is_idle(&ns));
    let writes = || {
        let user = format!("system:serviceaccount:{}:stopped-1", ns.name);
        plane.audit().iter().filter(|e| e["user"]["username"] == user.as_str()).count()
    };
    assert!(writes() > 0, "its writes are known by its user");
    one.signal("STOP");
    let stopped = Instant::now();
    let before = writes();
    ns.apply(&cycle("c1", "a"));
    until("the second leads", 40, || two.leads().then_some(()));
    until("the second works", 60, || all_succeeded(&ns, 1));
    sleep(Duration::from_secs(20).saturating_sub(stopped.elapsed()));
    // Both see this one at the same time.
    ns.apply(&cycle("c2", "a"));
    one.signal("CONT");
    until("the first ends", 30, || one.ended().then_some(()));
    until("the second goes on", 60, || all_succeeded(&ns, 2));
    assert_eq!((writes(), ns.jobs().len()), (before, 2));
}

/// A leader that is cut off ends, another takes over, and nothing is done twice.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_leader_that_is_cut_off_ends_and_the_next_goes_on() {
    let plane = Plane::get();
    let ns = plane.namespace("cut");
    let proxy = plane.proxy();
    let mut one = Operator::start_with(plane, &ns.name, "cut-1", "lease-cut", Some(&proxy), &[]);
    until("the first leads", 30, || one.leads().then_some(()));
    let two = Operator::start(plane, &ns.name, "cut-2", "lease-cut");
    ns.apply(&agent("a", ""));
    until("the first works", 30, || ns.get("pa", "a")["status"]["state"].is_string().then_some(()));
    proxy.close();
    ns.kubectl(&["annotate", "pa", "a", "cicada.dev/run-now=x"]);
    until("the first ends", 30, || one.ended().then_some(()));
    until("the second leads", 30, || two.leads().then_some(()));
    until("the cycle ends", 60, || {
        let cycles = ns.list("pac");
        (cycles.len() == 1 && phase(&cycles[0]) == "Succeeded").then_some(())
    });
    proxy.open();
    one.revive();
    until("the first waits for its turn", 30, || one.ready().then_some(()));
    assert!(two.leads() && !one.leads());
    assert_eq!(ns.jobs().len(), 1);
}

/// KEDA#2488, field note under kubernetes#45825: the API server went away under load. An operator that could
/// not renew its Lease meanwhile ends, and the kubelet starts it again.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_restart_of_the_api_server_loses_and_doubles_nothing() {
    let plane = Plane::get();
    let ns = plane.namespace_alone("outage");
    let mut operator = Operator::start(plane, &ns.name, "outage", "lease-outage");
    for n in 0..20 {
        ns.apply(&agent(&format!("a{n}"), &format!("  runToken: t{n}\n")));
    }
    plane.restart_api_server();
    let cycles = until("all cycles have ended", 180, || {
        operator.revive();
        Some(ns.list("pac")).filter(|l| l.len() == 20 && l.iter().all(|c| phase(c) == "Succeeded"))
    });
    assert_eq!((cycles.len(), ns.jobs().len()), (20, 20));
}

fn is_idle(ns: &Namespace) -> Option<()> {
    (ns.get("pa", "a")["status"]["state"] == "Idle").then_some(())
}

fn all_succeeded(ns: &Namespace, cycles: usize) -> Option<()> {
    let found = ns.list("pac");
    (found.len() == cycles && found.iter().all(|c| phase(c) == "Succeeded")).then_some(())
}
