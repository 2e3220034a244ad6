//! Metrics of agents, over their whole life on a real API server.

use crate::{
    agent, cycle,
    operator::Operator,
    phase,
    plane::{Plane, until},
};

/// velero c7c441364: series of what was deleted stayed for ever. Here a person's AgentCycle outlives the agent.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn series_go_with_their_agent_although_a_persons_cycle_stays() {
    let plane = Plane::get();
    let ns = plane.namespace("series");
    let operator = Operator::start(plane, &ns.name, "series", "lease-series");
    for name in ["gone", "stays"] {
        ns.apply(&agent(name, "  schedules: [{name: year, cron: \"0 0 1 1 *\"}]\n"));
        ns.apply(&cycle(&format!("of-{name}"), name));
    }
    let line = |name: &str, agent: &str, value: &str| {
        format!("cicada_{name}{{namespace=\"series\",agent=\"{agent}\"{value}")
    };
    for agent in ["gone", "stays"] {
        let expected = [
            line("missed_slots_total", agent, "} 0"),
            line("failed_deliveries_total", agent, "} 0"),
            line("cost_total", agent, "} 0.02"),
            line("cycles_total", agent, ",result=\"Completed\",outcome=\"done\"} 1"),
            line("success_due_timestamp_seconds", agent, "} "),
        ];
        until("all is told", 60, || {
            let text = operator.metrics();
            expected.iter().all(|line| text.contains(line)).then_some(())
        });
    }
    ns.kubectl(&["delete", "pa", "gone"]);
    until("nothing is told of it", 30, || (!operator.metrics().contains("\"gone\"")).then_some(()));
    assert_eq!(phase(&ns.get("pac", "of-gone")), "Succeeded");
    assert!(operator.metrics().contains(&line("cost_total", "stays", "} 0.02")));
}

/// What a person ends counts, too: else the cycles that are told never add up.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_canceled_cycle_is_counted() {
    let plane = Plane::get();
    let ns = plane.namespace("canceled");
    let operator = Operator::start(plane, &ns.name, "canceled", "lease-canceled");
    // fake_pods.py leaves pods with this label alone.
    ns.apply(&agent("a", "  pod: {labels: {fake: stay}}\n"));
    ns.apply(&cycle("c", "a"));
    until("the Job is there", 60, || (ns.jobs().len() == 1).then_some(()));
    ns.kubectl(&["delete", "pac", "c", "--wait=false"]);
    ns.kubectl(&["delete", "pods", "--all", "--force", "--grace-period=0"]);
    until("it is counted", 90, || {
        let line =
            "cicada_cycles_total{namespace=\"canceled\",agent=\"a\",result=\"Canceled\",outcome=\"\"} 1";
        operator.metrics().contains(line).then_some(())
    });
}
