//! An operator whose picture of the cluster is old, or that has few hands.

use std::{
    collections::BTreeMap,
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    agent, cycle,
    namespace::Namespace,
    operator::Operator,
    phase,
    plane::{Plane, until},
};

/// When each Job of an agent was at work, by agent: from its creation to its end.
fn times_at_work(ns: &Namespace) -> BTreeMap<String, Vec<(String, String)>> {
    let mut all = BTreeMap::<String, Vec<_>>::new();
    for job in ns.jobs() {
        let text = |value: &Value| value.as_str().unwrap_or("still at work").to_owned();
        let agent = text(&job["metadata"]["labels"]["cicada.dev/agent"]);
        let time = (text(&job["metadata"]["creationTimestamp"]), text(&job["status"]["completionTime"]));
        all.entry(agent).or_default().push(time);
    }
    all.values_mut().for_each(|times| times.sort());
    all
}

/// KEDA#2488, KEDA#529, agent-sandbox#1266: what was at work was counted from a cache, and ten times too much was
/// started. argo-workflows#12625: a controller that did not see its own last write killed what it had just started.
/// Here all watches tell everything five seconds late, and the operator starts anew in the middle of it.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn an_operator_that_hears_everything_late_never_has_two_jobs_of_one_agent() {
    const AGENTS: usize = 5;
    const REQUESTS: usize = 6;
    let plane = Plane::get();
    let ns = plane.namespace("late");
    let (_relay, kubeconfig) = plane.late_watches("late", Duration::from_secs(5));
    let mut operator = Operator::start_by(plane, &ns.name, "late", "lease-late", kubeconfig, &[]);
    until("it leads", 60, || operator.leads().then_some(()));
    let spec = "  successfulCyclesHistoryLimit: 100\n  pod: {labels: {fake-seconds: \"3\"}}\n  schedules: [{name: m, cron: \"* * * * *\"}]\n";
    let names: Vec<String> = (0..AGENTS).map(|n| format!("a{n}")).collect();
    let applied = Instant::now();
    ns.apply(&names.iter().map(|name| agent(name, spec)).collect::<Vec<_>>().join("---\n"));
    until("it has heard of them", 60, || ns.get("pa", "a0")["status"]["state"].is_string().then_some(()));
    assert!(applied.elapsed() > Duration::from_secs(5), "nothing came late");
    for round in 0..REQUESTS {
        let requests: Vec<_> = names.iter().map(|name| cycle(&format!("{name}-by-{round}"), name)).collect();
        ns.apply(&requests.join("---\n"));
        ns.kubectl(&["annotate", "pa", "--all", &format!("cicada.dev/run-now={round}"), "--overwrite"]);
        if round == REQUESTS / 2 {
            operator.signal("KILL");
            until("it is dead", 10, || operator.ended().then_some(()));
            operator.revive();
        }
        sleep(Duration::from_secs(4));
    }
    until("all requests have ended", 300, || {
        let cycles = ns.list("pac");
        let ended = |c: &&Value| {
            c["metadata"]["name"].as_str().is_some_and(|n| n.contains("-by-")) && phase(c) == "Succeeded"
        };
        (cycles.iter().filter(ended).count() == AGENTS * REQUESTS).then_some(())
    });
    let at_work = times_at_work(&ns);
    assert_eq!(at_work.len(), AGENTS);
    for (agent, times) in &at_work {
        assert!(times.len() >= 3, "{agent} has worked {times:?}");
        for pair in times.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "two Jobs of {agent} at once: {times:?}");
        }
    }
    let of_jobs = |verb: &str| {
        let ours = |e: &&Value| {
            e["verb"] == verb
                && e["objectRef"]["resource"] == "jobs"
                && e["objectRef"]["namespace"] == ns.name.as_str()
                && e["responseStatus"]["code"].as_u64() < Some(300)
        };
        plane.audit().iter().filter(ours).count()
    };
    assert_eq!(of_jobs("delete"), 0, "none that it had started was taken for another's");
    let kept: usize = ns.list("jobs").len();
    assert!(of_jobs("create") <= kept, "{kept} Jobs are there");
}

/// kube#1324: with a bound for what is worked on at once, requests vanished.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn one_worker_forgets_none_of_thirty_agents() {
    const AGENTS: usize = 30;
    let plane = Plane::get();
    let ns = plane.namespace("one-worker");
    let operator =
        Operator::start_with(plane, &ns.name, "one-worker", "lease-one-worker", None, &["--concurrency=1"]);
    until("it leads", 30, || operator.leads().then_some(()));
    let all: Vec<_> = (0..AGENTS).map(|n| agent(&format!("a{n}"), "  runToken: x\n")).collect();
    ns.apply(&all.join("---\n"));
    // While each is worked on, it is asked for again.
    for round in 0..3 {
        ns.kubectl(&["annotate", "pa", "--all", &format!("cicada.dev/run-now={round}"), "--overwrite"]);
    }
    until("every agent has handled all that it was asked for", 120, || {
        let handled = |a: &Value| {
            let status = &a["status"];
            status["lastHandledRunToken"] == "x"
                && status["lastHandledRunNow"] == "2"
                && status["state"] == "Idle"
        };
        let agents = ns.list("pa");
        (agents.len() == AGENTS && agents.iter().all(handled)).then_some(())
    });
    assert!(ns.list("pac").iter().all(|c| phase(c) == "Succeeded"));
}

/// kube#1836: an object that was deleted and made again within a second, with the same name and generation, was
/// filtered out.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn an_agent_that_is_made_again_within_a_second_is_looked_at() {
    let plane = Plane::get();
    let ns = plane.namespace("at-once");
    let _operator = Operator::start(plane, &ns.name, "at-once", "lease-at-once");
    let idle = || {
        let agent = ns.get("pa", "a");
        (agent["status"]["state"] == "Idle").then(|| agent["metadata"].clone())
    };
    ns.apply(&agent("a", ""));
    let mut before = until("it is looked at", 30, idle);
    for _ in 0..3 {
        // One program does both, so that less than a second lies between.
        let said = ns.replace(&agent("a", ""));
        let after = until("it is looked at again", 30, idle);
        assert_ne!(before["uid"], after["uid"], "{said}");
        assert_eq!(before["generation"], after["generation"]);
        before = after;
    }
}
