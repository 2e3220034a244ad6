//! Agents that wake each other, on a real API server.

use serde_json::Value;

use crate::operator::Operator;
use crate::plane::{Plane, until};
use crate::{agent, phase};

/// An agent each of whose cycles writes to `peer`.
fn answering(name: &str, peer: &str) -> String {
    let more = format!(
        "  peers: [{{name: {peer}}}]\n  limits: {{cyclesPerDay: 3}}\n  successfulCyclesHistoryLimit: 100\n  \
         pod: {{labels: {{fake-wakes: {peer}}}}}\n"
    );
    agent(name, &more)
}

fn by_peer(cycles: &[Value], agent: &str) -> Vec<Value> {
    let of =
        |c: &&Value| c["spec"]["agentRef"]["name"] == agent && c["spec"]["triggers"][0]["type"] == "Peer";
    cycles.iter().filter(of).cloned().collect()
}

#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn two_agents_that_always_answer_end_at_the_cycles_of_the_day() {
    let plane = Plane::get();
    let ns = plane.namespace("peers");
    let operator = Operator::start(plane, &ns.name, "peers-1", "lease-peers");
    ns.apply(&format!("{}---\n{}", answering("a", "b"), answering("b", "a")));
    // Named by nobody, and one whose store is another: neither is ever woken.
    ns.apply(&agent("stranger", "  pod: {labels: {fake-wakes: a}}\n  runToken: x\n"));
    until("both are known", 30, || {
        ["a", "b"].iter().all(|n| ns.get("pa", n)["status"]["state"].is_string()).then_some(())
    });
    ns.kubectl(&["annotate", "pa", "a", "cicada.dev/run-now=x"]);
    let waits = |c: &Value| c["status"]["reason"] == "CyclesPerDay";
    let cycles = until("one of them waits for midnight", 120, || {
        Some(ns.list("pac")).filter(|cycles| cycles.iter().any(waits))
    });
    let (of_a, of_b) = (by_peer(&cycles, "a"), by_peer(&cycles, "b"));
    let done = |cycles: &[Value]| cycles.iter().filter(|c| phase(c) == "Succeeded").count();
    assert_eq!((done(&of_a), done(&of_b)), (3, 3), "{cycles:#?}");
    assert_eq!((of_a.len(), of_b.len()), (3, 4), "each cycle woke the other once, and nobody else did");
    let uid = ns.get("pa", "b")["metadata"]["uid"].clone();
    for cycle in &of_b {
        assert_eq!(cycle["metadata"]["ownerReferences"][0]["uid"], uid, "its history is the reader's");
    }
    drop(operator);

    // Another operator takes up nothing of it anew.
    let _operator = Operator::start(plane, &ns.name, "peers-2", "lease-peers");
    ns.kubectl(&["annotate", "pa", "stranger", "cicada.dev/run-now=y"]);
    until("the next operator works", 60, || {
        (ns.get("pa", "stranger")["status"]["lastHandledRunNow"] == "y").then_some(())
    });
    assert_eq!(by_peer(&ns.list("pac"), "a").len() + by_peer(&ns.list("pac"), "b").len(), 7);
}
