//! Agents that exchange messages: who wakes whom, how often, and when it ends.

use cicada_contract::plan::PeerProblem;
use cicada_crds::AgentCycleSpec;

use super::*;
use crate::{peers::PeerView, plan::plan_run};

fn agent(name: &str, peers: &[&str]) -> PersistentAgent {
    let peers: Vec<_> = peers.iter().map(|p| json!({"name": p})).collect();
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "n", "uid": format!("{name}-uid")},
        "spec": {"executor": {"sql": {"inline": "SELECT 1"}}, "store": {"directory": {"path": "/store"}}, "peers": peers},
    }))
    .unwrap()
}

fn view(peer: &PersistentAgent) -> PeerView {
    PeerView::new(&agent("a", &["b"]), peer, &OperatorDefaults::default())
}

/// Agent `a` with the peer `b`, asked for one cycle that is at work.
fn at_work() -> World {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.agent.spec.peers = agent("a", &["b"]).spec.peers;
    w.environment.peers = vec![view(&agent("b", &["a"]))];
    w.at("2026-12-01T06:00:00Z");
    w.request("go", &json!({}));
    w.at("2026-12-01T06:01:00Z");
    w
}

fn told(wakes: &[&str]) -> CycleReport {
    let mut report = CycleReport::new(CycleResult::Done);
    report.outcome = Outcome::Done;
    report.wakes = wakes.iter().map(|w| (*w).to_owned()).collect();
    report
}

#[test]
fn a_peer_is_woken_once_for_each_cycle_that_wrote_to_it() {
    let mut w = at_work();
    w.end(&told(&["b"]));
    let (name, spec) = w.woken[0].clone();
    assert!(name.starts_with("b-p") && spec.agent_ref.name == "b", "{name}");
    assert_eq!((spec.triggers.len(), spec.triggers[0].kind), (1, cicada_crds::cycle::TriggerKind::Peer));
    assert!(spec.instruction.is_none() && spec.message.is_none(), "its words are in the inbox");
    w.request("again", &json!({}));
    w.at("2026-12-01T06:02:00Z");
    w.end(&told(&["b"]));
    assert_eq!(w.woken.len(), 2);
    let tokens: Vec<_> = w.woken.iter().map(|(_, spec)| spec.triggers[0].token.clone().unwrap()).collect();
    assert_ne!(tokens[0], tokens[1], "the store remembers each as another request");
}

#[test]
fn an_operator_that_dies_while_it_takes_up_an_end_wakes_once() {
    // Before any of it, after the wake, and after the cycle's own status: each leaves the rest to be done again.
    for done in 0..3 {
        let mut w = at_work();
        w.job.as_mut().unwrap().end = Some(JobEnd {
            at: Some(w.now),
            complete: true,
            message: Some(told(&["b"]).render()),
            exit_code: Some(0),
            attempts: 1,
            ..JobEnd::default()
        });
        let plan = w.decide();
        assert!(matches!(plan.actions[0], Action::WakePeer { .. }), "{:?}", plan.actions);
        plan.actions.into_iter().take(done).for_each(|action| w.act(action));
        w.settle();
        assert_eq!(w.woken.len(), 1, "died after {done}");
        assert_eq!(w.status().active_cycle, None);
    }
}

#[test]
fn only_who_is_named_on_both_sides_and_shares_the_store_is_woken() {
    let mut elsewhere = agent("b", &["a"]);
    elsewhere.spec.store = serde_json::from_value(json!({"directory": {"path": "/other"}})).unwrap();
    let mut leaving = agent("b", &["a"]);
    leaving.metadata.deletion_timestamp = Some(Time(ts("2026-12-01T06:00:00Z")));
    for (there, problem) in [
        (vec![], PeerProblem::Missing),
        (vec![view(&leaving)], PeerProblem::Missing),
        (vec![view(&agent("b", &["c"]))], PeerProblem::NotMutual),
        (vec![view(&elsewhere)], PeerProblem::OtherStore),
    ] {
        let mut w = at_work();
        let run = plan_run(&w.agent, &[], &there, "");
        assert_eq!(run.peer_problem("b"), Some(problem), "the cycle knows before it sends");
        w.environment.peers = there;
        w.end(&told(&["b", "stranger"]));
        assert_eq!(w.woken, [], "{problem:?}");
    }
    let w = at_work();
    assert_eq!(plan_run(&w.agent, &[], &w.environment.peers, "").unreachable_peers, []);
}

#[test]
fn a_cycle_that_failed_after_it_sent_wakes_all_the_same() {
    let mut w = at_work();
    let mut report = CycleReport::failed(FailureClass::Timeout, "limits.timeout passed");
    report.wakes = vec!["b".into()];
    w.end(&report);
    assert_eq!(w.woken.len(), 1);
}

#[test]
fn two_agents_that_always_answer_end_at_the_cycles_of_the_day() {
    // Each sees itself as `a` and the other as `b`.
    let (mut a, mut b) = (at_work(), World::sql("0 7 * * *", "2026-12-01T06:00:00Z"));
    (b.agent.spec.peers, b.environment.peers) = (a.agent.spec.peers.clone(), a.environment.peers.clone());
    b.at("2026-12-01T06:01:00Z");
    for world in [&mut a, &mut b] {
        world.agent.spec.limits = Some(serde_json::from_value(json!({"cyclesPerDay": 5})).unwrap());
    }
    let wake = |world: &mut World, (name, spec): (String, AgentCycleSpec)| {
        world.request(&name, &serde_json::to_value(spec).unwrap());
        let owner = json!([{"apiVersion": "v", "kind": "PersistentAgent", "name": "a", "uid": "agent-uid", "controller": true}]);
        let cycle = world.cycles.last_mut().unwrap();
        cycle.metadata.owner_references = Some(serde_json::from_value(owner).unwrap());
    };
    a.end(&told(&["b"]));
    let mut rounds = 0;
    loop {
        let (from, to) = if rounds % 2 == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
        let before = to.jobs_made.len();
        wake(to, from.woken.last().unwrap().clone());
        to.settle();
        if to.jobs_made.len() == before {
            let reason = to.cycles.last().unwrap().status.as_ref().unwrap().reason.clone();
            assert_eq!(reason.as_deref(), Some("CyclesPerDay"));
            break;
        }
        to.end(&told(&["b"]));
        rounds += 1;
        assert!(rounds < 50, "no end");
    }
    assert_eq!(rounds, 10, "five of each");
}
