//! The operator, stopped at a bad moment and faced with objects that come back.

use std::time::Duration;

use cicada_tests::{
    cluster::{Cluster, SYSTEM},
    memory::Unpacked,
    namespace::Namespace,
    wait,
};

use crate::agents::{COUNTER, cycle, sql_agent};

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_git_folder_that_is_applied_again_starts_no_executor() {
    let ns = Namespace::new("git");
    let folder = format!(
        "{}---\n{}\n",
        sql_agent(
            "worker",
            COUNTER,
            "  runToken: \"2026-12-01-a\"\n  schedules: [{name: year, cron: \"0 0 1 1 *\"}]\n"
        ),
        cycle("from-git", "worker")
    );
    ns.apply(&folder);
    let ended = wait::until_seen(
        "the token's cycle and the folder's have ended",
        180,
        || ns.list("agentcycles"),
        |cycles| cycles.len() >= 2 && cycles.iter().all(|c| c["status"]["phase"] == "Succeeded"),
    );
    assert_eq!(ended.len(), 2);
    let runs = |ns: &Namespace| Unpacked::check(&ns.folder("worker")).sql("SELECT count(*) FROM runs");
    let (before, memory) = (runs(&ns), ns.folder("worker").current()["memory"].clone());
    assert!(before == "1" || before == "2", "one cycle each, or one that took the other along: {before}");

    ns.kubectl(&["delete", "persistentagents,agentcycles", "--all", "--cascade=orphan"]).must();
    ns.kubectl(&["delete", "jobs", "--all", "--cascade=orphan"]).must();
    assert!(ns.list("agentcycles").is_empty() && ns.list("persistentagents").is_empty());
    ns.apply(&folder);
    let again = wait::until_seen(
        "the requests are settled again",
        180,
        || ns.list("agentcycles"),
        |cycles| {
            cycles.iter().any(|c| c["metadata"]["name"] == "from-git")
                && cycles.iter().all(|c| c["status"]["phase"] == "Succeeded")
        },
    );
    wait::until("the token is settled again", 60, || {
        (ns.status("worker")["lastHandledRunToken"] == "2026-12-01-a").then_some(())
    });
    wait::until("the agent is idle", 120, || (ns.status("worker")["state"] == "Idle").then_some(()));
    assert!(again.iter().any(|c| c["status"]["reason"] == "AlreadyHandled"), "{again:#?}");
    assert_eq!(runs(&ns), before, "no executor ran");
    assert_eq!(ns.folder("worker").current()["memory"], memory, "the same memory");
    assert_eq!(ns.status("worker")["memory"]["snapshot"], ns.folder("worker").must_head()["current"]);
}

/// cloudnative-pg#10562: the child was there, the status write was lost, and the schedule was dead. velero 480fe445b,
/// 045029009: after a restart, what had been under way stayed so for ever.
#[test]
#[ignore = "needs the test cluster: tests/run"]
fn an_operator_killed_between_job_and_status_makes_one_job_for_the_slot() {
    let cluster = Cluster::get();
    let ns = Namespace::new("restart");
    // Once the agent is claimed for the cycle, the API server refuses each further write of its status:
    // so the operator is stopped for certain after it has made the Job and before it could say so.
    let guard = RefuseStatus::of_claimed_agents(&ns.name);
    ns.apply(&sql_agent("worker", COUNTER, "  schedules: [{name: often, cron: \"* * * * *\"}]\n"));
    let job = wait::until("the slot's Job exists", 150, || ns.list("jobs").pop());
    kill_operator(cluster);
    let yearly = r#"{"spec": {"schedules": [{"name": "often", "cron": "0 0 1 1 *"}]}}"#;
    ns.kubectl(&["patch", "persistentagent", "worker", "--type=merge", "--patch", yearly]).must();
    drop(guard);
    cluster.wait_for_operator();

    let cycles = wait::until_seen(
        "the slot's cycle has ended",
        180,
        || ns.list("agentcycles"),
        |cycles| !cycles.is_empty() && cycles.iter().all(|c| c["status"]["phase"] == "Succeeded"),
    );
    let named: Vec<&str> = cycles.iter().filter_map(|c| c["status"]["job"].as_str()).collect();
    assert_eq!(named.len(), cycles.len(), "each cycle has one Job");
    assert!(
        named.contains(&job["metadata"]["name"].as_str().unwrap()),
        "the Job made before the kill is the slot's: {named:?}"
    );
    let created = cluster.writes("", |event| {
        event["verb"] == "create"
            && event["objectRef"]["resource"] == "jobs"
            && event["objectRef"]["namespace"] == ns.name.as_str()
            && event["responseStatus"]["code"] == 201
    });
    assert_eq!(created.len(), cycles.len(), "no Job was made twice");
    assert_eq!(
        Unpacked::check(&ns.folder("worker")).sql("SELECT count(*) FROM runs"),
        cycles.len().to_string()
    );
}

/// SIGKILL to the operator's process, as a lost node would: it gets no chance to finish anything.
fn kill_operator(cluster: &Cluster) {
    for pod in cluster.operator_pods() {
        let container = cluster.json(SYSTEM, &["pod", &pod])["spec"]["containers"][0]["name"]
            .as_str()
            .unwrap()
            .to_owned();
        cluster.kill_container(SYSTEM, &pod, &container);
    }
}

/// While it lives, the API server refuses some status writes in one namespace.
struct RefuseStatus {
    name: String,
}

impl RefuseStatus {
    /// Those on agents that have an active cycle already.
    fn of_claimed_agents(namespace: &str) -> Self {
        let name = format!("refuse-status-{namespace}");
        let manifest = format!(
            r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [cicada.dev]
      apiVersions: ["*"]
      operations: [UPDATE]
      resources: [persistentagents/status]
  validations:
  - expression: "!has(oldObject.status) || !has(oldObject.status.activeCycle)"
    message: refused by a test
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec:
  policyName: {name}
  validationActions: [Deny]
  matchResources: {{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}}}
"#
        );
        Cluster::get().kubectl_with("default", &["apply", "--filename", "-"], &manifest).must();
        // The API server takes a new policy up within a second or two.
        std::thread::sleep(Duration::from_secs(3));
        Self { name }
    }
}

impl Drop for RefuseStatus {
    fn drop(&mut self) {
        for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
            Cluster::get().kubectl("default", &["delete", kind, &self.name, "--ignore-not-found"]);
        }
        std::thread::sleep(Duration::from_secs(3));
    }
}
