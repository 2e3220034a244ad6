//! What the operator says on standard error.

use std::{fs, net::TcpListener, process::Command};

use serde_json::Value;

use crate::{
    agent,
    operator::Operator,
    plane::{Plane, until},
};

/// Refuses each write of the status of an agent that has an active cycle.
const REFUSE: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refuse-logs}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [cicada.dev], apiVersions: ["*"], operations: [UPDATE], resources: [persistentagents/status]}
  validations:
  - expression: "!has(oldObject.status) || !has(oldObject.status.activeCycle)"
    message: refused by a test
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refuse-logs}
spec:
  policyName: refuse-logs
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: logs}}}
"#;

/// Each line as what it must be.
#[track_caller]
fn parsed(text: &str) -> Vec<Value> {
    let line = |line: &str| -> Value {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        for field in ["timestamp", "level", "target", "message"] {
            assert!(value[field].is_string(), "{field} is missing: {line}");
        }
        value
    };
    text.lines().map(line).collect()
}

#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn each_line_of_the_log_is_json_with_its_ids_as_fields() {
    let plane = Plane::get();
    let ns = plane.namespace("logs");
    let mut operator =
        Operator::start_with(plane, &ns.name, "logs", "lease-logs", None, &["--log-format=json"]);
    ns.apply(REFUSE);
    ns.apply(&agent("a", "  runToken: x\n"));
    let read = || parsed(&fs::read_to_string(plane.folder.join("logs.log")).unwrap());
    let find = |message: &str| read().into_iter().find(|line| line["message"] == message);
    let failed = until("a look has failed while the cycle is at work", 90, || {
        find("a look at an agent failed").filter(|line| line["cycle"].is_string())
    });
    let names = "validatingadmissionpolicybinding/refuse-logs,validatingadmissionpolicy/refuse-logs";
    names.split(',').for_each(|name| drop(plane.kubectl(&["delete", name])));
    let ended = until("the cycle has ended", 120, || find("a cycle ended"));
    let started = find("a cycle started").unwrap();
    let job = ns.jobs()[0]["metadata"]["name"].clone();
    for field in ["agent", "cycle"] {
        assert_eq!((&failed[field], &ended[field]), (&started[field], &started[field]));
    }
    for field in ["cycle_uid", "job"] {
        assert_eq!(ended[field], started[field]);
    }
    assert_eq!((started["agent"].as_str(), &started["job"]), (Some("logs/a"), &job));
    assert_eq!(ended["result"], "Completed");
    assert!(ended["seconds"].is_u64() && started["cycle"].is_string() && failed["error"].is_string());
    let count = |message: &str| read().iter().filter(|line| line["message"] == message).count();
    assert_eq!((count("a cycle started"), count("a cycle ended")), (1, 1));
    operator.signal("TERM");
    until("it ends", 20, || operator.ended().then_some(()));
    assert_eq!(read().last().unwrap()["message"], "ended");
}

/// A process without one of its parts would look healthy and not do its work.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn the_end_of_a_part_is_one_line_and_the_end_of_the_process() {
    let plane = Plane::get();
    let ns = plane.namespace("parts");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let config = plane.folder.join("operator.yaml").to_string_lossy().into_owned();
    let ended = Command::new(env!("CARGO_BIN_EXE_cicada-operator"))
        .args(["run", "--listen", &listen, "--watch-namespaces", &ns.name, "--lease", "lease-parts"])
        .args(["--config", &config])
        .env("KUBECONFIG", plane.folder.join("kubeconfig"))
        .output()
        .unwrap();
    let lines = parsed(&String::from_utf8(ended.stderr).unwrap());
    let ends: Vec<_> = lines.iter().filter(|line| line["part"] == "server").collect();
    assert_eq!((ended.status.code(), ends.len()), (Some(1), 1), "{lines:#?}");
    assert!(ends[0]["why"].as_str().unwrap().contains(&listen), "{}", ends[0]);
}
