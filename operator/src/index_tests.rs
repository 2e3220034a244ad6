use cicada_operator_core::{job::Purpose, names};
use k8s_openapi::{api::batch::v1::Job, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::json;

use super::*;
use crate::config::Capacity;

fn agent(uid: &str, version: &str) -> PersistentAgent {
    let value = json!({
        "metadata": {"name": "a", "namespace": "n", "uid": uid, "resourceVersion": version},
        "spec": {"executor": {"sql": {"inline": "SELECT 1"}}, "charter": "long"},
    });
    serde_json::from_value(value).unwrap()
}

fn cycle(uid: &str, version: &str, owner: Option<&str>) -> AgentCycle {
    let mut value = json!({
        "metadata": {"name": "c", "namespace": "n", "uid": uid, "resourceVersion": version},
        "spec": {"agentRef": {"name": "a"}},
    });
    if let Some(owner) = owner {
        let reference = json!({"apiVersion": "v", "kind": "PersistentAgent", "name": "a", "uid": owner, "controller": true});
        value["metadata"]["ownerReferences"] = json!([reference]);
    }
    serde_json::from_value(value).unwrap()
}

/// argo-workflows#12625, kubernetes#121070: an event from before an own write was taken for the present.
#[test]
fn an_older_event_never_replaces_a_newer_object() {
    let mut index = Index::default();
    let key = index.put_agent(agent("u", "10"));
    index.put_agent(agent("u", "9"));
    assert_eq!(index.agent(&key).unwrap().resource_version().as_deref(), Some("10"));
    index.put_agent(agent("other", "1"));
    assert_eq!(
        index.agent(&key).unwrap().uid().as_deref(),
        Some("other"),
        "an object that was made again is another one"
    );
}

#[test]
fn a_late_event_brings_nothing_back() {
    let mut index = Index::default();
    let now = Timestamp::UNIX_EPOCH;
    let agent = index.put_cycle(&cycle("c1", "1", None), Timestamp::UNIX_EPOCH);
    index.remove_cycle(&Key::new("n", "c"), "c1", now);
    index.put_cycle(&cycle("c1", "2", None), Timestamp::UNIX_EPOCH);
    assert!(index.cycles(&agent, "u").is_empty());
    index.put_cycle(&cycle("c2", "3", None), Timestamp::UNIX_EPOCH);
    assert_eq!(index.cycles(&agent, "u").len(), 1);
    index.remove_cycle(&Key::new("n", "c"), "c1", now);
    assert_eq!(index.cycles(&agent, "u").len(), 1, "the deletion of the old one is not that of the new one");
}

#[test]
fn own_cycles_are_told_by_uid() {
    let mut index = Index::default();
    let agent = index.put_cycle(&cycle("c1", "1", Some("u")), Timestamp::UNIX_EPOCH);
    assert!(index.cycles(&agent, "u")[0].own);
    assert!(!index.cycles(&agent, "another")[0].own);
}

#[test]
fn long_texts_are_not_kept() {
    let mut index = Index::default();
    let key = index.put_agent(agent("u", "1"));
    assert_eq!(index.agent(&key).unwrap().spec.charter, None);
}

/// The Job of cycle c1 of agent a, or one of another name with all that can be copied.
fn job(name: &str, version: &str) -> Job {
    let value = json!({"metadata": {
        "name": name, "namespace": "n", "uid": format!("uid of {name}"), "resourceVersion": version,
        "labels": {"cicada.dev/agent": "a", "cicada.dev/cycle-uid": "c1", "cicada.dev/purpose": "cycle"},
        "ownerReferences": [{"apiVersion": "v", "kind": "AgentCycle", "name": "c", "uid": "c1", "controller": true}],
    }});
    serde_json::from_value(value).unwrap()
}

/// kubernetes#37957, #82753: a deleted Job stayed active for ever.
#[test]
fn a_deleted_job_is_noticed() {
    let mut index = Index::default();
    let ours = job(&names::job("c", "c1"), "1");
    assert!(!index.job_vanished("c1"));
    index.put_job(&ours);
    assert!(index.job("c1", Purpose::Cycle).is_some() && !index.job_vanished("c1"));
    index.remove_job(&Key::new("n", &ours.name_any()), &ours.uid().unwrap(), Timestamp::UNIX_EPOCH);
    assert!(index.job_vanished("c1"));
}

/// A Job that we delete because its pod never started is made again under the same name.
#[test]
fn a_job_that_we_delete_ourselves_has_not_vanished() {
    let mut index = Index::default();
    let (ours, mut leaving) = (job(&names::job("c", "c1"), "1"), job(&names::job("c", "c1"), "2"));
    index.put_job(&ours);
    index.expect_job_again("c1");
    leaving.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    index.put_job(&leaving);
    index.remove_job(&Key::new("n", &ours.name_any()), &ours.uid().unwrap(), Timestamp::UNIX_EPOCH);
    assert!(!index.job_vanished("c1"));
}

/// agent-sandbox#1337: of two pods that an object owned, one was picked as it came.
#[test]
fn a_copy_of_a_job_is_not_taken_for_it() {
    let mut index = Index::default();
    let ours = names::job("c", "c1");
    for name in ["aaa", &ours, "zzz"] {
        index.put_job(&job(name, "1"));
    }
    assert_eq!(index.job("c1", Purpose::Cycle).unwrap().0, Key::new("n", &ours));
    let copy = job("aaa", "1");
    assert!(stray(&copy).unwrap().contains(&ours) && stray(&job(&ours, "1")).is_none());
    assert!(index.note_stray(&copy) && !index.note_stray(&copy), "told once");
    index.remove_job(&Key::new("n", "aaa"), &copy.uid().unwrap(), Timestamp::UNIX_EPOCH);
    assert!(!index.job_vanished("c1"));
    let mut orphan = job(&ours, "1");
    orphan.metadata.owner_references = None;
    assert!(stray(&orphan).unwrap().contains("belongs to no cycle"));
}

#[test]
fn a_cycle_that_ended_long_ago_keeps_what_the_history_limits_need() {
    let mut index = Index::default();
    let mut ended = cycle("c1", "1", Some("u"));
    let status = json!({"phase": "Failed", "reason": "Timeout", "finished": "2026-12-01T07:00:00Z"});
    ended.status = serde_json::from_value(status).unwrap();
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let agent = index.put_cycle(&ended, at("2026-12-01T07:10:00Z"));
    assert_eq!(index.cycles(&agent, "u")[0].triggers.len(), 1);
    index.settle(at("2026-12-01T08:00:00Z"));
    let view = index.cycles(&agent, "u").remove(0);
    assert!(view.triggers.is_empty() && view.own && view.is_terminal());
    assert_eq!(
        (view.name.as_str(), view.uid.as_str(), view.finished),
        ("c", "c1", Some(at("2026-12-01T07:00:00Z")))
    );
    assert_eq!(view.phase, Some(cicada_crds::cycle::Phase::Failed));
    index.remove_cycle(&Key::new("n", "c"), "c1", Timestamp::UNIX_EPOCH);
    assert!(index.cycles(&agent, "u").is_empty());
}

/// The name of another agent in a cycle that was made again is not taken for the old one's.
#[test]
fn a_cycle_that_was_made_again_for_another_agent_is_that_ones() {
    let mut index = Index::default();
    let first = index.put_cycle(&cycle("c1", "1", None), Timestamp::UNIX_EPOCH);
    let mut other = cycle("c2", "2", None);
    other.spec.agent_ref.name = "b".into();
    let second = index.put_cycle(&other, Timestamp::UNIX_EPOCH);
    assert!(index.cycles(&first, "u").is_empty());
    assert_eq!(index.cycles(&second, "u").len(), 1);
}

/// A list that began before our own write does not contain what we made: it must not be taken for deleted.
#[test]
fn a_list_removes_what_is_gone_but_not_what_we_made_meanwhile() {
    let mut index = Index::default();
    let now = Timestamp::UNIX_EPOCH;
    let agent = index.put_cycle(&cycle("old", "1", None), now);
    index.begin_list(Kind::Cycle, None);
    let mut ours = cycle("new", "9", None);
    ours.metadata.name = Some("made-meanwhile".into());
    index.put_cycle(&ours, now);
    assert_eq!(index.end_list(Kind::Cycle, None), std::slice::from_ref(&agent));
    let left: Vec<_> = index.cycles(&agent, "u").into_iter().map(|c| c.uid).collect();
    assert_eq!(left, ["new"]);
    // What a list did not contain may come back: it was behind, not the event.
    index.put_cycle(&cycle("old", "1", None), now);
    assert_eq!(index.cycles(&agent, "u").len(), 2);
}

#[test]
fn agents_of_one_namespace_with_one_secret_share_it() {
    let defaults = |secret: &str| -> OperatorDefaults {
        let store = json!({"s3": {"bucket": "b", "credentials": {"secretName": secret}}});
        serde_json::from_value(json!({"store": store})).unwrap()
    };
    let (same, other) = (defaults("cicada-store"), defaults("another"));
    let named = |name: &str, namespace: &str, secret: Option<&str>| {
        let mut agent = agent(name, "1");
        agent.metadata.name = Some(name.into());
        agent.metadata.namespace = Some(namespace.into());
        let store = |s: &str| json!({"s3": {"bucket": "b", "credentials": {"secretName": s}}});
        agent.spec.store = secret.map(|s| serde_json::from_value(store(s)).unwrap());
        agent
    };
    let mut index = Index::default();
    let one = index.put_agent(named("one", "n", None));
    index.put_agent(named("far", "m", None));
    assert!(!index.shares_credentials(&one, &same), "another namespace has another Secret");
    let two = index.put_agent(named("two", "n", Some("cicada-store")));
    assert!(index.shares_credentials(&one, &same) && index.shares_credentials(&two, &same));
    assert!(!index.shares_credentials(&one, &other) && !index.shares_credentials(&two, &other));
    let mut edited = named("two", "n", Some("its-own"));
    edited.metadata.resource_version = Some("2".into());
    index.put_agent(edited);
    assert!(!index.shares_credentials(&one, &same));
    let three = index.put_agent(named("three", "n", None));
    assert!(index.shares_credentials(&one, &same));
    index.remove_agent(&three, Some("three"), Timestamp::UNIX_EPOCH);
    assert!(!index.shares_credentials(&one, &same));
}

/// Places go to those who have waited longest, each agent in its turn, and a full namespace holds nobody else up.
#[test]
fn who_has_waited_longest_is_next() {
    let mut index = Index::default();
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let mut put = |namespace: &str, agent_name: &str, made: Option<i64>, active: bool| {
        let mut agent = agent(&format!("{namespace}-{agent_name}"), "1");
        agent.metadata.name = Some(agent_name.into());
        agent.metadata.namespace = Some(namespace.into());
        let active = json!({"activeCycle": active.then(|| json!({"name": "c", "uid": "c"}))});
        agent.status = serde_json::from_value(active).unwrap();
        let key = index.put_agent(agent);
        for n in 0..if made.is_some() { 2 } else { 0 } {
            let mut waits = cycle(&format!("{namespace}-{agent_name}-{n}"), "1", None);
            waits.metadata.name = Some(format!("{agent_name}-{n}"));
            waits.metadata.namespace = Some(namespace.into());
            waits.metadata.creation_timestamp = made.map(|s| Time(at(s + n)));
            waits.spec.agent_ref.name = agent_name.into();
            let status = json!({"phase": "Pending", "reason": "WaitingForCapacity"});
            waits.status = serde_json::from_value(status).unwrap();
            index.put_cycle(&waits, at(1000));
        }
        key
    };
    put("full", "works", None, true);
    let (blocked, old) = (put("full", "blocked", Some(1), false), put("n", "old", Some(10), false));
    let (young, none) = (put("n", "young", Some(20), false), put("n", "none", None, false));
    let limits = |cycles, cycles_per_namespace| Capacity { cycles, cycles_per_namespace };
    let full = |index: &Index, key: &Key, since: Option<i64>, limits: Capacity| {
        index.is_full(key, since.map(at), &limits)
    };
    // One place is free: the oldest of the agents has it, however many cycles each has.
    assert!(!full(&index, &blocked, Some(1), limits(2, 0)));
    assert!(full(&index, &old, Some(10), limits(2, 0)) && full(&index, &young, Some(20), limits(2, 0)));
    // With one cycle for each namespace at most, the oldest can't have it.
    assert!(full(&index, &blocked, Some(1), limits(2, 1)));
    assert!(!full(&index, &old, Some(10), limits(2, 1)) && full(&index, &young, Some(20), limits(2, 1)));
    assert!(!full(&index, &young, Some(20), limits(4, 0)), "places for all");
    assert!(!full(&index, &none, None, limits(2, 0)), "a look into the store waits for nobody");
    assert!(!full(&index, &young, Some(20), limits(0, 0)));
    // Once it runs, or is told to wait for something else, it is ahead of nobody.
    let mut held = cycle("n-old-0", "2", None);
    (held.metadata.name, held.metadata.namespace) = (Some("old-0".into()), Some("n".into()));
    held.spec.agent_ref.name = "old".into();
    held.status = serde_json::from_value(json!({"phase": "Pending", "reason": "Held"})).unwrap();
    index.put_cycle(&held, at(1000));
    index.remove_cycle(&Key::new("n", "old-1"), "n-old-1", at(1000));
    assert!(!full(&index, &young, Some(20), limits(2, 1)));
}

/// Kueue makes Jobs wait: such a Job has its time to start from when it was let go.
#[test]
fn a_job_is_in_its_queue_until_its_controller_has_let_it_go() {
    let mut version = 0;
    let mut seen = |spec: serde_json::Value, status: serde_json::Value| {
        version += 1;
        let mut value = serde_json::to_value(job(&names::job("c", "c1"), &version.to_string())).unwrap();
        value["metadata"]["creationTimestamp"] = json!("2026-12-01T07:00:00Z");
        (value["spec"], value["status"]) = (spec, status);
        let mut index = Index::default();
        index.put_job(&serde_json::from_value(value).unwrap());
        let view = index.job("c1", Purpose::Cycle).unwrap().1.view;
        (view.suspended, view.released.to_string())
    };
    let pod = |suspend: bool| json!({"suspend": suspend, "template": {}});
    let made = "2026-12-01T07:00:00Z".to_owned();
    assert_eq!(seen(pod(true), json!({})), (true, made.clone()));
    let before = json!({"conditions": [{"type": "Suspended", "status": "True", "lastTransitionTime": made}]});
    assert_eq!(seen(pod(false), before), (true, made.clone()), "let go, and nobody has seen to it");
    let after = json!({"startTime": "2026-12-01T09:00:00Z", "conditions": [{"type": "Suspended", "status": "False"}]});
    assert_eq!(seen(pod(false), after), (false, "2026-12-01T09:00:00Z".to_owned()));
    assert_eq!(seen(pod(false), json!({})), (false, made));
}
