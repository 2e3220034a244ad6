//! The resource definitions on the real API server.

use cicada_tests::{namespace::Namespace, shell::root};

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn every_example_is_accepted_under_strict_validation() {
    let ns = Namespace::without_credentials("examples");
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("crds/examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path)
            .unwrap()
            .replace("namespace: shop", &format!("namespace: {}", ns.name));
        ns.cluster()
            .kubectl_with(
                &ns.name,
                &["create", "--dry-run=server", "--validate=strict", "--filename", "-"],
                &text,
            )
            .must();
        count += 1;
    }
    assert!(count >= 3, "only {count} examples were found");
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn the_fields_are_documented_in_kubectl_explain() {
    let ns = Namespace::without_credentials("explain");
    for field in [
        "persistentagent.spec.schedules.cron",
        "persistentagent.spec.executor.sql",
        "agentcycle.spec.agentRef",
        "agentcycle.status.phase",
    ] {
        let text = ns.kubectl(&["explain", field]).must();
        assert!(text.contains("DESCRIPTION") && !text.contains("<no description>"), "{field}: {text}");
    }
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn the_spec_of_a_cycle_never_changes() {
    let ns = Namespace::new("immutable");
    ns.create(&crate::agents::cycle("request", "nobody"));
    let said = ns
        .kubectl(&[
            "patch",
            "agentcycle",
            "request",
            "--type=merge",
            "--patch",
            r#"{"spec": {"instruction": "something else"}}"#,
        ])
        .must_fail();
    assert!(said.contains("the spec of an AgentCycle is immutable: create another one"), "{said}");
    // And one for an agent that is not there fails; not at once, since a Git folder is applied in any order.
    let status = ns.wait_for_cycle("request", 150);
    assert_eq!(status["phase"], "Failed");
    assert_eq!(status["reason"], "AgentNotFound", "{status:#}");
}
