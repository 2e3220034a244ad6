//! The chart's admission policies on a real API server, each by what it lets through and what it does not.

use serde_json::{Value, json};

use crate::{
    agent, cycle,
    namespace::Namespace,
    plane::{Plane, until},
};

/// Puts the chart's policies in force in this namespace only, since other tests run beside it.
fn put_in_force(plane: &Plane, ns: &Namespace) {
    let rendered = plane.template_chart(&[
        "admissionPolicies.instruct=true",
        "admissionPolicies.approve=true",
        "admissionPolicies.storePrefixes={s3://team-,file:///store/}",
        "admissionPolicies.storeEndpoints={https://s3.example.com}",
        "admissionPolicies.imagePrefixes={registry.example.com/}",
    ]);
    let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
    let of_policies =
        |o: &&Value| o["kind"].as_str().is_some_and(|k| k.starts_with("ValidatingAdmissionPolicy"));
    let policies: Vec<&Value> = objects.iter().filter(of_policies).collect();
    assert_eq!(policies.len(), 8);
    for policy in policies {
        let mut policy = policy.clone();
        if policy["kind"] == "ValidatingAdmissionPolicyBinding" {
            policy["spec"]["matchResources"] =
                json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns.name}}});
        }
        plane.apply(&ns.name, &policy.to_string());
    }
    let refused = |manifest: &str| !ns.tries(&[], manifest).0;
    until("all policies are in force", 60, || {
        let container = container("elsewhere.example.com/x");
        let all = refused(&with_store("s3: {bucket: other}"))
            && refused(&container)
            && !ns.tries(&["--as=dev"], &instruction()).0
            && !ns.tries(&["--as=dev"], &approval()).0;
        all.then_some(())
    });
}

fn with_store(store: &str) -> String {
    agent("a", "").replace("directory: {path: /store, claimName: c}", store)
}

fn container(image: &str) -> String {
    with_store("s3: {bucket: team-a}")
        .replace("sql: {inline: \"SELECT 1\"}", &format!("container: {{image: {image}, command: [/x]}}"))
}

fn instruction() -> String {
    cycle("c", "a").replace("spec: {", "spec: {instruction: sell all, ")
}

fn approval() -> String {
    with_store("s3: {bucket: team-a}")
        .replace("{name: a}", "{name: a, annotations: {cicada.dev/approve: p1-abc}}")
}

/// A role for `dev` in this namespace.
fn may(ns: &Namespace, name: &str, verbs: &str) {
    ns.apply(&format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: {name}}}\nrules: [{{apiGroups: [cicada.dev], resources: [persistentagents, agentcycles], verbs: [{verbs}]}}]\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: {name}}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {name}}}\nsubjects: [{{kind: User, name: dev, apiGroup: rbac.authorization.k8s.io}}]\n"
    ));
}

#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn the_admission_policies_let_through_what_they_name_and_nothing_else() {
    let plane = Plane::get();
    let ns = plane.namespace("policies");
    may(&ns, "edit", "get, list, create, update, patch");
    ns.apply(&agent("old", "").replace("path: /store,", "path: /tmp,"));
    put_in_force(plane, &ns);
    // The operator's finalizer would else never come off one that was there before.
    ns.kubectl(&["annotate", "pa", "old", "x=y"]);
    let said = plane.run(
        &["patch", "pa", "old", "-n", &ns.name, "--type=merge", "-p", r#"{"spec":{"charter":"x"}}"#],
        None,
    );
    assert!(!said.status.success(), "an edit must mend it");
    let store = "not among those that agents of this cluster may name";
    for (manifest, refusal) in [
        (with_store("s3: {bucket: team-a}"), ""),
        (with_store("s3: {bucket: team-a, endpoint: \"https://s3.example.com\"}"), ""),
        (with_store("directory: {path: /store/a, claimName: c}"), ""),
        (agent("a", "").replace("  store: {directory: {path: /store, claimName: c}}\n", ""), ""),
        (with_store("s3: {bucket: other}"), store),
        (with_store("s3: {bucket: team-a, endpoint: \"https://s3.example.com.evil.example\"}"), store),
        (with_store("directory: {path: /tmp, claimName: c}"), store),
        (with_store("directory: {path: /store/../tmp, claimName: c}"), "lead upwards"),
        (container("registry.example.com/x"), ""),
        (container("elsewhere.example.com/x"), "this image is not among those"),
    ] {
        let (taken, said) = ns.tries(&[], &manifest);
        assert!(taken == refusal.is_empty() && said.contains(refusal), "{manifest}: {said}");
    }
    for (verb, manifest) in [("instruct", instruction()), ("approve", approval())] {
        let (taken, said) = ns.tries(&["--as=dev"], &manifest);
        assert!(!taken && said.contains(&format!("needs the verb {verb}")), "{said}");
        may(&ns, verb, verb);
        until("the verb counts", 30, || ns.tries(&["--as=dev"], &manifest).0.then_some(()));
    }
    let (taken, said) = ns.tries(&["--as=dev"], &cycle("c", "a"));
    assert!(taken, "without an instruction: {said}");
}
