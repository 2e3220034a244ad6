//! The operator against a real API server without nodes: etcd, kube-apiserver and the Job and garbage
//! collection controllers run for real, pods are ended by `tests/bench/fake_pods.py`.
//!
//! Needs the programs of `tests/cluster/tools` (CICADA_TOOLS, default `target/tools/bin`).

#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, reason = "a test program")]

mod conflicts;
mod field;
mod holds;
mod installations;
mod jobs;
mod late;
mod logs;
mod namespace;
mod numbers;
mod operator;
mod outages;
mod peers;
mod pipelines;
mod plane;
mod policies;
mod proxy;
mod starts;

use std::{thread::sleep, time::Duration};

use operator::Operator;
use plane::{Plane, until};
use serde_json::Value;

const NEEDS: &str =
    "spec:\n  executor: {sql: {inline: \"SELECT 1\"}}\n  store: {directory: {path: /store, claimName: c}}\n";

fn agent(name: &str, more: &str) -> String {
    format!(
        "apiVersion: cicada.dev/v1alpha1\nkind: PersistentAgent\nmetadata: {{name: {name}}}\n{NEEDS}{more}"
    )
}

fn cycle(name: &str, agent: &str) -> String {
    format!(
        "apiVersion: cicada.dev/v1alpha1\nkind: AgentCycle\nmetadata: {{name: {name}}}\nspec: {{agentRef: {{name: {agent}}}}}\n"
    )
}

fn phase(cycle: &Value) -> &str {
    cycle["status"]["phase"].as_str().unwrap_or_default()
}

/// argo-workflows#2694, #2773, #4558: two controllers started one slot twice. Here two operators that do
/// not know of each other (two Leases) work on the same agents.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn two_operators_without_a_common_lease_make_one_job_for_each_request() {
    let plane = Plane::get();
    let ns = plane.namespace("twins");
    let _one = Operator::start_with(plane, &ns.name, "twin-1", "lease-1", None, &["--share"]);
    let _two = Operator::start_with(plane, &ns.name, "twin-2", "lease-2", None, &["--share"]);
    ns.apply(&agent(
        "a",
        "  successfulCyclesHistoryLimit: 100\n  schedules: [{name: m, cron: \"* * * * *\"}]\n",
    ));
    for n in 0..8 {
        ns.kubectl(&["annotate", "pa", "a", &format!("cicada.dev/run-now={n}"), "--overwrite"]);
        // Each operator hears of these when it does.
        let messages: Vec<_> = (0..4)
            .map(|m| cycle(&format!("m{n}-{m}"), "a").replace("}}", "}, message: {body: hi}}"))
            .collect();
        ns.apply(&messages.join("---\n"));
        until("the request is taken up", 60, || {
            (ns.get("pa", "a")["status"]["lastHandledRunNow"] == n.to_string().as_str()).then_some(())
        });
    }
    until("all is quiet", 90, || (ns.get("pa", "a")["status"]["state"] == "Idle").then_some(()));
    let created = plane
        .audit()
        .iter()
        .filter(|e| {
            e["verb"] == "create"
                && e["objectRef"]["resource"] == "jobs"
                && e["objectRef"]["namespace"] == ns.name.as_str()
                && e["responseStatus"]["code"] == 201
        })
        .count();
    let cycles = ns.list("pac");
    let leads = cycles.iter().filter(|c| c["status"]["job"].is_string()).count();
    assert_eq!(created, leads, "one Job for each cycle that led");
    assert!(cycles.iter().all(|c| phase(c) == "Succeeded"), "{cycles:#?}");
    each_message_is_in_the_job_that_its_cycle_names(&ns.jobs(), &cycles);
}

/// One Job has it, and that Job's cycle is the one that gave its cycle the outcome.
fn each_message_is_in_the_job_that_its_cycle_names(jobs: &[Value], cycles: &[Value]) {
    let messages: Vec<_> = cycles.iter().filter(|c| c["spec"]["message"].is_object()).collect();
    assert_eq!(messages.len(), 32);
    for cycle in messages {
        let (uid, status) = (cycle["metadata"]["uid"].as_str().unwrap(), &cycle["status"]);
        let plan = |job: &Value| {
            job["spec"]["template"]["metadata"]["annotations"]["cicada.dev/run-plan"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        let inside: Vec<_> =
            jobs.iter().filter(|job| plan(job).contains(&format!("\"id\":\"{uid}\""))).collect();
        assert_eq!(inside.len(), 1, "{cycle:#?}");
        let lead = status["lead"]["uid"].as_str().unwrap_or(uid);
        assert_eq!(inside[0]["metadata"]["ownerReferences"][0]["uid"], lead);
        let lead = cycles.iter().find(|c| c["metadata"]["uid"] == lead).unwrap();
        let joined = lead["status"]["joined"].as_array().cloned().unwrap_or_default();
        assert!(status["lead"].is_null() || joined.iter().any(|j| j["uid"] == uid), "{lead:#?}");
    }
}

/// Two installations that watch one namespace would write over each other for ever.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn an_agent_of_another_instance_is_left_alone_until_that_has_gone() {
    let plane = Plane::get();
    let ns = plane.namespace("foreign");
    let one = Operator::start(plane, &ns.name, "foreign-1", "lease-foreign-1");
    ns.apply(&agent("a", ""));
    until("the first works", 30, || ns.get("pa", "a")["status"]["state"].is_string().then_some(()));
    let _two = Operator::start(plane, &ns.name, "foreign-2", "lease-foreign-2");
    ns.kubectl(&["annotate", "pa", "a", "cicada.dev/run-now=x"]);
    until("it ran", 60, || ns.get("pa", "a")["status"]["lastCycle"].is_object().then_some(()));
    assert_eq!(ns.get("pa", "a")["status"]["operator"], "default/lease-foreign-1");
    drop(one);
    ns.kubectl(&["annotate", "pa", "a", "cicada.dev/run-now=y", "--overwrite"]);
    until("the second takes over", 180, || {
        (ns.get("pa", "a")["status"]["operator"] == "default/lease-foreign-2").then_some(())
    });
}

/// agent-sandbox#1249: every rollout waited for the Lease to run out.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_rollout_leaves_a_gap_of_two_seconds_at_most() {
    let plane = Plane::get();
    let ns = plane.namespace("rollout");
    let mut one = Operator::start(plane, &ns.name, "rollout-1", "lease-rollout");
    until("the first leads", 30, || one.leads().then_some(()));
    let two = Operator::start(plane, &ns.name, "rollout-2", "lease-rollout");
    until("the second is ready", 30, || two.ready().then_some(()));
    one.signal("TERM");
    until("the first ends", 20, || one.ended().then_some(()));
    let gone = std::time::Instant::now();
    until("the second leads", 20, || two.leads().then_some(()));
    assert!(gone.elapsed() < Duration::from_secs(2), "{:?}", gone.elapsed());
}

/// A Git folder is applied again and again; ten times are still three cycles.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_folder_that_is_applied_ten_times_runs_once() {
    let plane = Plane::get();
    let ns = plane.namespace("argo");
    let _operator = Operator::start(plane, &ns.name, "argo", "lease-argo");
    // The cycles come before their agent, as names may sort.
    let folder = format!(
        "{}---\n{}---\n{}---\n{}",
        cycle("c1", "z"),
        cycle("c2", "z"),
        cycle("c3", "z"),
        agent("z", "")
    );
    for _ in 0..10 {
        ns.apply(&folder);
        sleep(Duration::from_secs(1));
    }
    let ended = until("all have ended", 90, || {
        Some(ns.list("pac")).filter(|l| l.iter().all(|c| phase(c) == "Succeeded"))
    });
    assert_eq!(ended.len(), 3);
    assert!(
        ended
            .iter()
            .all(|c| c["metadata"].get("ownerReferences").is_none() && c["metadata"].get("labels").is_none())
    );
    let jobs: Vec<_> = ended.iter().filter_map(|c| c["status"]["job"].as_str()).collect();
    assert_eq!(ns.jobs().len(), jobs.len());
}

/// What pipelines do: `kubectl wait` for a cycle and its agent, and server-side apply by a manager of their own,
/// which must never meet a field that the operator has taken.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_pipeline_applies_and_waits_over_a_hundred_cycles() {
    let plane = Plane::get();
    let ns = plane.namespace("pipeline");
    let _operator = Operator::start(plane, &ns.name, "pipeline", "lease-pipeline");
    for n in 0..100 {
        ns.apply_as("gitops", &agent("a", &format!("  charter: version {n}\n")));
        ns.apply_as("gitops", &cycle(&format!("c{n}"), "a"));
        ns.kubectl(&["wait", "--for=condition=Complete", &format!("pac/c{n}"), "--timeout=60s"]);
    }
    ns.kubectl(&["wait", "--for=condition=Ready", "pa/a", "--timeout=60s"]);
    let (cycles, jobs) = (ns.list("pac"), ns.jobs());
    assert_eq!((cycles.len(), jobs.len()), (100, 100));
    assert_eq!(ns.get("pa", "a")["metadata"]["generation"], 100, "only the pipeline writes the spec");
    assert!(cycles.iter().all(|c| c["metadata"]["generation"] == 1 && phase(c) == "Succeeded"));
}

/// velero 79e176086, numaflow#3585: a controller that writes spec or metadata fights with Git for ever.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn the_operator_owns_nothing_of_an_agent_but_its_status() {
    let plane = Plane::get();
    let ns = plane.namespace("owner");
    let _operator = Operator::start(plane, &ns.name, "owner", "lease-owner");
    let labelled = agent("a", "").replace("{name: a}", "{name: a, labels: {app.kubernetes.io/instance: app, team: x}, annotations: {argocd.argoproj.io/tracking-id: shop-a}}");
    for n in 0..3 {
        ns.apply_as("gitops", &labelled);
        ns.kubectl(&["annotate", "pa", "a", &format!("cicada.dev/run-now={n}"), "--overwrite"]);
        until("it ran", 60, || {
            (ns.get("pa", "a")["status"]["lastHandledRunNow"] == n.to_string().as_str()).then_some(())
        });
    }
    until("it is idle", 60, || (ns.get("pa", "a")["status"]["state"] == "Idle").then_some(()));
    let found = ns.get_with_managed_fields("pa", "a");
    assert_eq!(found["metadata"]["generation"], 1);
    for entry in found["metadata"]["managedFields"].as_array().unwrap() {
        if entry["manager"] == "cicada-operator" {
            let fields: Vec<&str> =
                entry["fieldsV1"].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!((fields, entry["subresource"].as_str()), (vec!["f:status"], Some("status")));
        }
    }
    for kind in ["pac", "jobs", "pods"] {
        for child in ns.list(kind) {
            let text = format!("{} {}", child["metadata"]["labels"], child["metadata"]["annotations"]);
            assert!(
                !text.contains("app.kubernetes.io/instance")
                    && !text.contains("argocd")
                    && !text.contains("\"team\""),
                "{text}"
            );
        }
    }
}

/// kubernetes#37957, #82753, #108023: a Job that somebody deleted stayed active for ever.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_deleted_job_frees_the_agent_whatever_the_cascade() {
    let plane = Plane::get();
    let ns = plane.namespace("cascade");
    let _operator = Operator::start(plane, &ns.name, "cascade", "lease-cascade");
    // fake_pods.py leaves pods with this label alone.
    ns.apply(&agent("a", "  pod: {labels: {fake: stay}}\n"));
    for cascade in ["background", "foreground", "orphan"] {
        ns.kubectl(&["annotate", "pa", "a", &format!("cicada.dev/run-now={cascade}"), "--overwrite"]);
        let job = until("the Job is there", 60, || {
            ns.jobs().into_iter().find(|j| j["metadata"]["deletionTimestamp"].is_null())
        });
        let name = job["metadata"]["name"].as_str().unwrap().to_owned();
        ns.kubectl(&["delete", "job", &name, &format!("--cascade={cascade}"), "--wait=false"]);
        ns.kubectl(&["delete", "pods", "--all", "--force", "--grace-period=0"]);
        until("the agent is free", 90, || ns.get("pa", "a")["status"]["activeCycle"].is_null().then_some(()));
        assert_eq!(ns.get("pa", "a")["status"]["lastCycle"]["result"], "JobDeleted", "{cascade}");
    }
}

/// cloudnative-pg#9485: the guard against overlaps looked at the wrong owner and let everything through.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn no_slot_starts_a_second_job_while_a_cycle_is_at_work() {
    let plane = Plane::get();
    let ns = plane.namespace("overlap");
    let _operator = Operator::start(plane, &ns.name, "overlap", "lease-overlap");
    ns.apply(&agent("a", "  pod: {labels: {fake: stay}}\n  schedules: [{name: m, cron: \"* * * * *\"}]\n"));
    ns.apply(&cycle("first", "a"));
    until("the Job is there", 60, || (ns.jobs().len() == 1).then_some(()));
    sleep(Duration::from_secs(130));
    let (jobs, cycles) = (ns.jobs(), ns.list("pac"));
    assert_eq!(jobs.len(), 1);
    assert!(cycles.len() <= 2, "one cycle waits for all slots that passed: {cycles:#?}");
}

/// Kuadrant/dns-operator#267, koperator#414: a namespace hung because a Secret or the operator went first.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_namespace_goes_within_a_minute() {
    let plane = Plane::get();
    let ns = plane.namespace("leaving");
    let operator = Operator::start(plane, &ns.name, "leaving", "lease-leaving");
    ns.kubectl(&["create", "secret", "generic", "cicada-store", "--from-literal=AWS_ACCESS_KEY_ID=x"]);
    ns.apply(&agent("a", "  schedules: [{name: m, cron: \"* * * * *\"}]\n"));
    until("it is looked at", 30, || ns.get("pa", "a")["status"]["state"].is_string().then_some(()));
    drop(operator);
    plane.kubectl(&["delete", "namespace", &ns.name, "--timeout=60s"]);
}

/// cloudnative-pg#2956 turned around: the operator has no right that it does not use.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn the_chart_gives_no_right_to_secrets_or_to_make_and_remove_agents() {
    let plane = Plane::get();
    let ns = plane.namespace("rights");
    plane.install_chart(&ns.name);
    let account = format!("--as=system:serviceaccount:{}:cicada", ns.name);
    for (verb, resource, allowed) in [
        ("get", "secrets", "no"),
        ("list", "secrets", "no"),
        ("update", "persistentagents.cicada.dev", "no"),
        ("create", "persistentagents.cicada.dev", "no"),
        // For the finalizer of deletionPolicy Delete; that no field of a spec is owned by the operator is
        // `the_operator_owns_nothing_of_an_agent_but_its_status`.
        ("patch", "persistentagents.cicada.dev", "yes"),
        ("delete", "persistentagents.cicada.dev", "no"),
        ("create", "pods", "no"),
        ("delete", "pods", "no"),
        ("create", "rolebindings.rbac.authorization.k8s.io", "no"),
        ("patch", "persistentagents.cicada.dev/status", "yes"),
        ("create", "jobs.batch", "yes"),
    ] {
        let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
        let part = format!("--subresource={part}");
        let said = plane.say(&["auth", "can-i", verb, resource, &part, &account, "-n", &ns.name]);
        assert_eq!(said.trim(), allowed, "{verb} {resource}");
    }
}
