//! Starts that Kubernetes refuses, each by a real quota, policy or rule: the cycle says why, and goes on by itself once
//! the reason is gone.

use serde_json::Value;

use crate::{
    agent, cycle,
    namespace::Namespace,
    operator::Operator,
    phase,
    plane::{Plane, until},
};

/// An agent with one cycle, and its operator. Where it ends, since a busy machine cost it its Lease, it is started again.
fn start(plane: &Plane, ns: &Namespace) -> Operator {
    let operator = Operator::start(plane, &ns.name, &ns.name, &format!("lease-{}", ns.name));
    ns.apply(&agent("a", ""));
    ns.apply(&cycle("c", "a"));
    operator
}

/// The cycle waits and says why; nothing counts as a failure.
#[track_caller]
fn waits(ns: &Namespace, operator: &mut Operator, reason: &str, words: &str) {
    let told = until(&format!("it waits with {reason}"), 100, || {
        operator.revive();
        let cycle = ns.get("pac", "c");
        assert_ne!(phase(&cycle), "Failed", "{cycle:#}");
        (cycle["status"]["reason"] == reason).then_some(cycle)
    });
    assert_eq!(phase(&told), "Pending");
    let message = told["status"]["message"].as_str().unwrap();
    assert!(message.contains(words), "{message}");
    let status = ns.get("pa", "a")["status"].clone();
    assert_eq!((&status["consecutiveFailures"], &status["activeCycle"]["name"]), (&Value::Null, &"c".into()));
}

/// Quota and policies tell nobody that they gave way: the Job is tried again each minute, a pod by the Job controller,
/// whose wait doubles.
#[track_caller]
fn goes_on(ns: &Namespace, operator: &mut Operator) {
    until("it goes on", 240, || {
        operator.revive();
        (phase(&ns.get("pac", "c")) == "Succeeded").then_some(())
    });
    assert_eq!((ns.list("pac").len(), ns.jobs().len()), (1, 1));
}

fn quota(ns: &Namespace, resource: &str) {
    ns.apply(&format!(
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {{name: q}}\nspec: {{hard: {{{resource}: \"0\"}}}}\n"
    ));
    until("the quota is in force", 60, || {
        ns.get("resourcequota", "q")["status"]["hard"].is_object().then_some(())
    });
}

fn quota_of_jobs(plane: &'static Plane) {
    let ns = plane.namespace("quota-jobs");
    quota(&ns, "count/jobs.batch");
    let mut operator = start(plane, &ns);
    waits(&ns, &mut operator, "QuotaExceeded", "exceeded quota: q");
    assert!(ns.jobs().is_empty());
    ns.kubectl(&["delete", "resourcequota", "q"]);
    goes_on(&ns, &mut operator);
}

fn quota_of_pods(plane: &'static Plane) {
    let ns = plane.namespace("quota-pods");
    quota(&ns, "pods");
    let mut operator = start(plane, &ns);
    waits(&ns, &mut operator, "QuotaExceeded", "exceeded quota: q");
    assert_eq!((ns.jobs().len(), ns.list("pods").len()), (1, 0));
    ns.kubectl(&["delete", "resourcequota", "q"]);
    goes_on(&ns, &mut operator);
}

/// A policy that lets nothing of this kind into the namespace, in force once a trial is refused.
fn policy(plane: &Plane, ns: &Namespace, group: &str, resource: &str, reason: &str, trial: &[&str]) {
    let name = &ns.name;
    plane.apply(
        name,
        &format!(
            r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints:
    namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {name}}}}}
    resourceRules:
    - {{apiGroups: ["{group}"], apiVersions: [v1], operations: [CREATE], resources: [{resource}]}}
  validations:
  - {{expression: "false", message: not before Monday{reason}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}, validationActions: [Deny]}}
"#
        ),
    );
    until("the policy is in force", 60, || {
        let said = plane.run(&[trial, &["--dry-run=server", "-n", name]].concat(), None);
        String::from_utf8_lossy(&said.stderr).contains("not before Monday").then_some(())
    });
}

fn lift(plane: &Plane, ns: &Namespace) {
    plane.kubectl(&["delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", &ns.name]);
}

/// A policy refuses with 422 unless it says otherwise, a webhook with what it likes: neither says that the Job is bad.
fn policy_against_jobs(plane: &'static Plane) {
    let ns = plane.namespace("policy-jobs");
    let job = ["create", "job", "trial", "--image=none"];
    policy(plane, &ns, "batch", "jobs", "", &job);
    let mut operator = start(plane, &ns);
    waits(&ns, &mut operator, "JobForbidden", "not before Monday");
    lift(plane, &ns);
    goes_on(&ns, &mut operator);
    ns.kubectl(&["delete", "pac", "c"]);
    until("its Job has gone, too", 60, || ns.jobs().is_empty().then_some(()));
    policy(plane, &ns, "batch", "jobs", ", reason: Forbidden", &job);
    ns.apply(&cycle("c", "a").replace("spec: {", "spec: {instruction: again, "));
    waits(&ns, &mut operator, "JobForbidden", "not before Monday");
    lift(plane, &ns);
    goes_on(&ns, &mut operator);
}

fn policy_against_pods(plane: &'static Plane) {
    let ns = plane.namespace("policy-pods");
    policy(plane, &ns, "", "pods", "", &["run", "trial", "--image=none"]);
    let mut operator = start(plane, &ns);
    waits(&ns, &mut operator, "PodRejected", "not before Monday");
    assert_eq!((ns.jobs().len(), ns.list("pods").len()), (1, 0));
    lift(plane, &ns);
    goes_on(&ns, &mut operator);
}

fn limit_range(plane: &'static Plane) {
    let ns = plane.namespace("range-pods");
    ns.apply("apiVersion: v1\nkind: LimitRange\nmetadata: {name: r}\nspec: {limits: [{type: Container, max: {memory: 8Mi}}]}\n");
    let mut operator = start(plane, &ns);
    waits(&ns, &mut operator, "PodRejected", "maximum memory usage per Container is 8Mi");
    ns.kubectl(&["delete", "limitrange", "r"]);
    goes_on(&ns, &mut operator);
}

/// Side by side, since they mostly wait.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_cycle_that_quota_or_policy_refuses_waits_and_says_why_and_goes_on() {
    let plane = Plane::get();
    std::thread::scope(|scope| {
        for case in [quota_of_jobs, quota_of_pods, policy_against_jobs, policy_against_pods, limit_range] {
            scope.spawn(move || case(plane));
        }
    });
}

/// What the API server finds invalid it will never take: the cycle ends, and the next one with what was mended.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn an_invalid_job_ends_its_cycle_and_the_mended_manifest_runs() {
    let plane = Plane::get();
    let ns = plane.namespace("invalid");
    let mut operator = Operator::start(plane, &ns.name, "invalid", "lease-invalid");
    ns.apply(&agent("a", "  pod: {nodeSelector: {\"not a label\": x}}\n"));
    ns.apply(&cycle("c", "a"));
    let failed = until("it ends", 60, || {
        operator.revive();
        Some(ns.get("pac", "c")).filter(|c| phase(c) == "Failed")
    });
    assert_eq!(failed["status"]["reason"], "JobRejected");
    assert!(failed["status"]["message"].as_str().unwrap().contains("nodeSelector"), "{failed:#}");
    let status = until("the agent knows", 60, || {
        operator.revive();
        Some(ns.get("pa", "a")["status"].clone()).filter(|s| s["activeCycle"].is_null())
    });
    assert_eq!(
        (&status["consecutiveFailures"], &status["lastCycle"]["result"]),
        (&1.into(), &"JobRejected".into())
    );
    assert!(ns.jobs().is_empty());
    ns.apply(&agent("a", ""));
    ns.apply(&cycle("d", "a"));
    until("the next runs", 60, || {
        operator.revive();
        (phase(&ns.get("pac", "d")) == "Succeeded").then_some(())
    });
}
