//! What becomes of a cycle whose manifest, operator or pod changes under it, and what people are told of its end.

use std::time::{Duration, Instant};

use cicada_contract::{
    CycleReport, Ending, FailureClass,
    report::{CycleResult, Outcome},
};
use cicada_operator_core::names;
use serde_json::{Value, json};

use crate::{
    agent, cycle,
    namespace::Namespace,
    operator::Operator,
    phase,
    plane::{Plane, until},
};

/// `fake_pods.py` leaves its pods alone.
const STAYS: &str = "  pod: {labels: {fake: stay}}\n";

fn done() -> CycleReport {
    CycleReport { outcome: Outcome::Done, ..CycleReport::new(CycleResult::Done) }
}

fn condition(object: &Value, kind: &str) -> Value {
    let all = object["status"]["conditions"].as_array();
    all.and_then(|all| all.iter().find(|c| c["type"] == kind)).cloned().unwrap_or_default()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// The newest pod of the cycle's Job, once it is there.
fn pod_of(ns: &Namespace, cycle: &str, count: usize) -> Value {
    until("the pod is there", 90, || {
        let job = ns.get("pac", cycle)["status"]["job"].as_str()?.to_owned();
        let mut pods = ns.pods_of(&job);
        (pods.len() == count).then(|| pods.pop())?
    })
}

/// KEDA#5656, #4041, #6233: the first look after a restart, or an edit, deleted what ran. volsync#1710: after an
/// upgrade a second mover wrote beside the first.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn what_runs_ends_by_its_old_manifest_whatever_is_edited_or_restarted() {
    let plane = Plane::get();
    let ns = plane.namespace("edited");
    let mut operator = Operator::start(plane, &ns.name, "edited", "lease-edited");
    let manifest = |release: &str| {
        let more = format!(
            "  charter: Of {release}.\n  pod: {{labels: {{release: {release}, fake-seconds: \"25\"}}}}\n"
        );
        agent("a", &more)
    };
    ns.apply(&manifest("old"));
    ns.apply(&cycle("first", "a"));
    let job = until("the Job is there", 60, || ns.jobs().pop());
    ns.apply(&manifest("new"));
    ns.apply(&cycle("second", "a"));
    operator.signal("KILL");
    until("the operator is dead", 10, || operator.ended().then_some(()));
    operator.revive();
    until("the operator leads again", 60, || operator.leads().then_some(()));
    until("the first has ended", 90, || {
        let jobs = ns.jobs();
        let ended = phase(&ns.get("pac", "first")) == "Succeeded";
        assert!(ended || jobs.len() == 1, "another began while it ran: {jobs:#?}");
        ended.then_some(())
    });
    until("the second has ended", 90, || (phase(&ns.get("pac", "second")) == "Succeeded").then_some(()));
    let mut jobs = ns.jobs();
    jobs.sort_by_key(|j| j["metadata"]["creationTimestamp"].as_str().map(str::to_owned));
    let releases: Vec<_> =
        jobs.iter().map(|j| j["spec"]["template"]["metadata"]["labels"]["release"].clone()).collect();
    assert_eq!(releases, ["old", "new"]);
    assert_eq!(jobs[0]["metadata"]["uid"], job["metadata"]["uid"], "the same Job");
    assert!(
        jobs[0]["status"]["completionTime"].as_str() <= jobs[1]["metadata"]["creationTimestamp"].as_str()
    );
}

/// prefect-kubernetes#118: a run was judged by a pod that had been evicted, though its replacement did the work.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn an_evicted_pod_says_nothing_about_a_cycle_whose_next_pod_does_the_work() {
    let plane = Plane::get();
    let ns = plane.namespace("evicted");
    let _operator = Operator::start(plane, &ns.name, "evicted", "lease-evicted");
    ns.apply(&agent("a", STAYS));
    ns.apply(&cycle("first", "a"));
    ns.evict_pod(&pod_of(&ns, "first", 1));
    let second = pod_of(&ns, "first", 2);
    assert_eq!(phase(&ns.get("pac", "first")), "Running");
    ns.end_pod(&second, &done());
    let ended = until("the cycle has ended", 60, || {
        Some(ns.get("pac", "first")).filter(|c| ["Succeeded", "Failed"].contains(&phase(c)))
    });
    assert_eq!((phase(&ended), &ended["status"]["outcome"]), ("Succeeded", &json!("done")), "{ended:#}");
    until("the agent is idle", 30, || (ns.get("pa", "a")["status"]["state"] == "Idle").then_some(()));
    let agent = ns.get("pa", "a");
    assert_eq!(condition(&agent, "LastCycleFailed")["status"], "False", "{agent:#}");
    assert_eq!(agent["status"]["consecutiveFailures"], Value::Null);
}

/// cloudnative-pg#10859, #9370: a run whose pod could not end, since its node had gone, was active for ever.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_pod_on_a_node_that_is_gone_holds_its_agent_up_for_its_grace_period_only() {
    let plane = Plane::get();
    let ns = plane.namespace("node-gone");
    let _operator = Operator::start(plane, &ns.name, "node-gone", "lease-node-gone");
    ns.apply(&agent("a", "  pod: {labels: {fake: stay}, terminationGracePeriodSeconds: 30}\n"));
    ns.apply(&cycle("first", "a"));
    let pod = pod_of(&ns, "first", 1);
    // With a node, only its kubelet may say that the pod has ended; this one never does.
    ns.bind_pod(&pod, "gone");
    ns.kubectl(&["delete", "pod", name(&pod), "--wait=false"]);
    let ended =
        until("the cycle is given up", 180, || Some(ns.get("pac", "first")).filter(|c| phase(c) == "Failed"));
    assert_eq!(ended["status"]["reason"], "NodeLost", "{ended:#}");
    let left = ns.get("pod", name(&pod));
    assert!(left["metadata"]["deletionTimestamp"].is_string(), "the pod was never heard of again: {left:#}");
    ns.apply(&cycle("second", "a"));
    let next = pod_of(&ns, "second", 1);
    ns.end_pod(&next, &done());
    until("the agent goes on", 60, || (phase(&ns.get("pac", "second")) == "Succeeded").then_some(()));
}

/// Waits for a Job's end and then for what the agent tells of it: five seconds, and the machine is busy.
fn told_soon(ns: &Namespace, agent: &str, job: &str, told: impl Fn(&Value) -> bool) {
    until("the Job has ended", 90, || {
        let job = ns.get("job", job);
        (!condition(&job, "Failed").is_null() || !condition(&job, "Complete").is_null()).then_some(())
    });
    let since = Instant::now();
    until(&format!("{agent} tells the end"), 30, || told(&ns.get("pa", agent)).then_some(()));
    assert!(since.elapsed() < Duration::from_secs(5), "{agent}: {:?}", since.elapsed());
}

/// cloudnative-pg#7892: a path to failure ended before it had set the status, and nobody was alarmed. KEDA#7792,
/// #6329: what had passed was told for ever.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn every_failure_is_told_within_seconds_and_no_longer_than_until_the_next_success() {
    let plane = Plane::get();
    let ns = plane.namespace("failures");
    let _operator = Operator::start(plane, &ns.name, "failures", "lease-failures");
    // The Job makes another attempt of one that a later attempt fenced: it is never the end of a cycle.
    let classes: Vec<_> = FailureClass::all().filter(|c| *c != FailureClass::Superseded).collect();
    let agents: Vec<String> = (0..classes.len()).map(|n| format!("a{n}")).collect();
    let more = format!("  backoffLimit: 0\n{STAYS}");
    ns.apply(&agents.iter().map(|a| agent(a, &more)).collect::<Vec<_>>().join("---\n"));
    let round = |name: &str, report: &dyn Fn(usize) -> CycleReport, told: &dyn Fn(usize, &Value) -> bool| {
        let of = |a: &String| format!("{a}-{name}");
        ns.apply(&agents.iter().map(|a| cycle(&of(a), a)).collect::<Vec<_>>().join("---\n"));
        for (n, agent) in agents.iter().enumerate() {
            let pod = pod_of(&ns, &of(agent), 1);
            ns.end_pod(&pod, &report(n));
            let job = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"].as_str().unwrap();
            told_soon(&ns, agent, job, |seen| told(n, seen));
        }
    };
    round("fails", &|n| CycleReport::failed(classes[n], "what happened"), &|n, agent| {
        let class = classes[n];
        let (last, ready) = (&agent["status"]["lastCycle"], condition(agent, "Ready"));
        // Which snapshot is to be restored, a person said; the agent can go on.
        let stalls = class.ending() == Ending::Stall && class != FailureClass::SnapshotMissing;
        let fails = if stalls {
            ready["status"] == "False" && condition(agent, "Stalled")["reason"] == class.reason()
        } else {
            let failed = condition(agent, "LastCycleFailed");
            ready["status"] == "True"
                && (class.ending() == Ending::Neutral || failed["reason"] == class.reason())
        };
        last["result"] == class.reason() && last["message"] == "what happened" && fails
    });
    for (n, agent) in agents.iter().enumerate() {
        let cycle = ns.get("pac", &format!("{agent}-fails"));
        assert_eq!(
            (phase(&cycle), cycle["status"]["reason"].as_str()),
            ("Failed", Some(classes[n].reason()))
        );
    }
    round("works", &|_| done(), &|_, agent| {
        condition(agent, "Ready")["status"] == "True"
            && condition(agent, "Ready")["reason"] == "Ready"
            && condition(agent, "Stalled").is_null()
            && condition(agent, "LastCycleFailed")["status"] == "False"
            && agent["status"]["consecutiveFailures"].is_null()
    });
}

/// Somebody's own Job under the name of a cycle's; gives the name.
fn stranger_in_the_place_of(ns: &Namespace, cycle: &str) -> String {
    let uid = ns.get("pac", cycle)["metadata"]["uid"].as_str().unwrap().to_owned();
    let name = names::job(cycle, &uid);
    let spec = json!({"suspend": true,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec});
    ns.apply(&job.to_string());
    name
}

fn refused(ns: &Namespace, cycle: &str) -> Value {
    until("the cycle is refused", 60, || Some(ns.get("pac", cycle)).filter(|c| phase(c) == "Failed"))
}

/// A Job that was refused took conditions along that have nothing to do with it, until the next look.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_refused_job_leaves_the_other_conditions_as_they_were() {
    let plane = Plane::get();
    let ns = plane.namespace("refused");
    let _operator = Operator::start(plane, &ns.name, "refused", "lease-refused");
    let shared = |name: &str, more: &str| {
        let bucket =
            "{s3: {bucket: b, endpoint: \"http://127.0.0.1:9\", credentials: {secretName: cicada-store}}}";
        agent(name, more).replace("{directory: {path: /store, claimName: c}}", bucket)
    };
    ns.apply(&format!("{}---\n{}", shared("a", "  suspend: true\n"), shared("b", "")));
    ns.apply(&cycle("first", "a"));
    let found = || Some(condition(&ns.get("pa", "a"), "CredentialsShared")).filter(|c| c["status"] == "True");
    let before = until("the agents share their credentials", 60, found);
    stranger_in_the_place_of(&ns, "first");
    // Times in conditions are whole seconds.
    std::thread::sleep(Duration::from_secs(2));
    ns.apply(&shared("a", ""));
    assert_eq!(refused(&ns, "first")["status"]["reason"], "UnexpectedJob");
    let looked_at = || (ns.get("pa", "a")["status"]["lastCycle"]["name"] == "first").then_some(());
    until("the agent tells of it", 30, looked_at);
    let after = until("the credentials are shared as before", 30, found);
    assert_eq!(before["lastTransitionTime"], after["lastTransitionTime"]);
}

/// agent-sandbox#784, #875, #822: what somebody had made under a name that could be guessed was taken over.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn what_a_stranger_made_under_our_name_is_left_alone_and_told() {
    let plane = Plane::get();
    let ns = plane.namespace("strangers");
    let _operator = Operator::start(plane, &ns.name, "strangers", "lease-strangers");
    ns.apply(&agent("a", "  suspend: true\n"));
    ns.apply(&cycle("first", "a"));
    let theirs = stranger_in_the_place_of(&ns, "first");
    ns.apply(&agent("a", ""));
    let first = refused(&ns, "first");
    assert_eq!(first["status"]["reason"], "UnexpectedJob", "{first:#}");
    assert!(first["status"]["message"].as_str().unwrap().contains(&theirs), "{first:#}");
    let found = ns.get("job", &theirs);
    assert!(found["metadata"]["ownerReferences"].is_null() && found["spec"]["suspend"] == true, "{found:#}");

    // The ConfigMap that the next cycle needs, with other content.
    ns.apply(&cycle("second", "a"));
    until("another cycle works", 60, || (phase(&ns.get("pac", "second")) == "Succeeded").then_some(()));
    let map = ns.list("configmaps").into_iter().find(|m| name(m).starts_with("a-")).unwrap();
    ns.kubectl(&["delete", "configmap", name(&map)]);
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name(&map)}, "data": {"x": "y"}});
    ns.apply(&theirs.to_string());
    ns.apply(&cycle("third", "a"));
    let third = refused(&ns, "third");
    assert_eq!(third["status"]["reason"], "UnexpectedJob", "{third:#}");
    assert_eq!(ns.get("configmap", name(&map))["data"], json!({"x": "y"}));
    ns.kubectl(&["delete", "configmap", name(&map)]);
    ns.apply(&cycle("fourth", "a"));
    until("with it gone, the agent works", 90, || {
        (phase(&ns.get("pac", "fourth")) == "Succeeded").then_some(())
    });
}
