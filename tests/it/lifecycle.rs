//! The life of an installation: the chart before this one, this one, back, forward, and away. It ends the
//! release that all other tests share, so it runs after them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cicada_tests::{
    cluster::{Cluster, OPERATOR, SYSTEM},
    memory::Unpacked,
    namespace::Namespace,
    shell::{root, run},
    wait,
};
use serde_json::Value;

use crate::agents::{COUNTER, cycle, sql_agent};
use crate::deletion::{is_named, wants_deletion};

/// A field that the chart before this one did not have.
const NEW_FIELD: &str = "approvals";
/// Promised to people who wait for `kubectl delete ns` or `helm uninstall`.
const PATIENCE: Duration = Duration::from_secs(60);

/// Another project's kind of the same everyday name, as kagent has it.
const NEIGHBOUR: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: agents.kagent.dev}
spec:
  group: kagent.dev
  scope: Namespaced
  names: {kind: Agent, plural: agents, singular: agent, categories: [kagent]}
  versions:
  - name: v1alpha2
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {description: {type: string}}}}}}
";

/// This chart as a release before it may have been: an older version, definitions without a field.
fn chart_before(folder: &Path) -> PathBuf {
    let chart = folder.join("cicada");
    run("cp", ["-r", &root().join("charts/cicada").to_string_lossy(), &chart.to_string_lossy()]).must();
    let read = |file: &str| std::fs::read_to_string(chart.join(file)).unwrap();
    std::fs::write(chart.join("Chart.yaml"), read("Chart.yaml").replace("version: 0.1.0", "version: 0.0.9"))
        .unwrap();
    let file = "files/crds/persistentagents.yaml";
    let mut definition: Value = serde_saphyr::from_str(&read(file)).unwrap();
    let spec = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert!(spec["properties"].as_object_mut().unwrap().remove(NEW_FIELD).is_some());
    // A server-side apply with a field that the definition lacks is refused as a whole.
    let status = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    assert!(status["properties"].as_object_mut().unwrap().remove("operator").is_some());
    std::fs::write(chart.join(file), definition.to_string()).unwrap();
    chart
}

fn knows_the_new_field(cluster: &Cluster) -> bool {
    let definition = cluster.json("default", &["crd", "persistentagents.cicada.dev"]);
    let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["properties"][NEW_FIELD].is_object()
}

fn says_that_definitions_are_old(cluster: &Cluster) -> bool {
    let pods = cluster.operator_pods();
    let log = |pod: &String| cluster.kubectl(SYSTEM, &["logs", pod]).out;
    pods.iter().any(|pod| log(pod).contains("are older than this operator"))
}

fn runs(ns: &Namespace) -> String {
    Unpacked::check(&ns.folder("worker")).sql("SELECT count(*) FROM runs")
}

/// One more cycle goes through, and the memory goes on from the one before.
fn works(ns: &Namespace, name: &str, expected: &str) {
    ns.create(&cycle(name, "worker"));
    assert_eq!(ns.wait_for_cycle(name, 180)["phase"], "Succeeded", "{name}");
    assert_eq!(runs(ns), expected, "{name}");
}

fn helm(args: &[&str]) {
    run("helm", args.iter().chain(&["--namespace", SYSTEM, "--wait", "--timeout", "180s"])).must();
}

#[test]
#[ignore = "needs the test cluster, and ends its release: tests/run"]
fn the_chart_goes_forward_back_and_away_and_agents_stay() {
    let cluster = Cluster::get();
    let folder = tempfile::tempdir().unwrap();
    let (before, now) = (chart_before(folder.path()), root().join("charts/cicada"));
    helm(&["uninstall", "cicada"]);
    cluster
        .kubectl("default", &["delete", "crd", "persistentagents.cicada.dev", "agentcycles.cicada.dev"])
        .must();

    cluster.install(&before);
    assert!(!knows_the_new_field(cluster));
    wait::until("it says that its definitions are old", 30, || {
        says_that_definitions_are_old(cluster).then_some(())
    });
    let ns = Namespace::new("lifecycle");
    cluster.kubectl_with("default", &["apply", "--filename", "-"], NEIGHBOUR).must();
    wait::until("the neighbour's kind is served", 30, || {
        ns.kubectl(&["get", "agents.kagent.dev"]).ok().then_some(())
    });
    ns.apply("{apiVersion: kagent.dev/v1alpha2, kind: Agent, metadata: {name: worker}, spec: {description: theirs}}");
    ns.apply(&sql_agent("worker", COUNTER, ""));
    works(&ns, "first", "1");

    cluster.install(&now);
    assert!(knows_the_new_field(cluster), "openvox-operator#555: an upgrade left the old definitions");
    // A release brings another image and so other pods; this one has the same.
    cluster.kubectl(SYSTEM, &["rollout", "restart", "deployment", "--selector", OPERATOR]).must();
    cluster
        .kubectl(SYSTEM, &["rollout", "status", "deployment", "--selector", OPERATOR, "--timeout=120s"])
        .must();
    wait::until("no pod takes its definitions for old", 60, || {
        (!says_that_definitions_are_old(cluster)).then_some(())
    });
    cluster.wait_for_operator();
    works(&ns, "upgraded", "2");

    helm(&["rollback", "cicada", "1"]);
    assert!(!knows_the_new_field(cluster));
    cluster.wait_for_operator();
    works(&ns, "rolled-back", "3");

    cluster.install(&now);
    cluster.wait_for_operator();
    works(&ns, "forward", "4");
    run("helm", ["test", "cicada", "--namespace", SYSTEM, "--timeout", "120s"]).must();

    ns.apply(&sql_agent("leaver", COUNTER, ""));
    ns.create(&cycle("leaves", "leaver"));
    assert_eq!(ns.wait_for_cycle("leaves", 120)["phase"], "Succeeded");
    wants_deletion(&ns, "leaver");
    let left = ns.folder("leaver").keys();

    let start = Instant::now();
    helm(&["uninstall", "cicada"]);
    assert!(start.elapsed() < PATIENCE, "helm uninstall took {:?}", start.elapsed());
    wait::until("no pod of it stays", 30, || {
        let pods = cluster.list(SYSTEM, &["pods"]);
        pods.iter().all(|p| !p["metadata"]["deletionTimestamp"].is_null()).then_some(())
    });
    assert_eq!(ns.get("persistentagent", "leaver")["metadata"]["finalizers"], Value::Null);
    let text = is_named(&ns, "leaver");
    assert!(text.contains("the operator is uninstalled"), "{text}");
    assert!(knows_the_new_field(cluster), "the definitions stay, or all agents were gone");
    assert_eq!(ns.status("worker")["lastCycle"]["name"], "forward");
    assert_eq!(ns.get("agents.kagent.dev", "worker")["spec"]["description"], "theirs");

    // Kuadrant/dns-operator#267, koperator#414: with the operator gone, a namespace hung on a finalizer.
    let start = Instant::now();
    cluster.kubectl("default", &["delete", "namespace", &ns.name, "--timeout=60s"]).must();
    assert!(start.elapsed() < PATIENCE);
    assert_eq!(runs(&ns), "4", "the memory outlives agent, namespace and operator");
    assert_eq!(ns.folder("leaver").keys(), left, "a memory that nobody could delete is left as it was");

    cluster.kubectl("default", &["delete", "crd", "agents.kagent.dev"]).must();
    cluster.install(&now);
}

/// onepassword-operator#55, vault-secrets-operator#100: a Secret that went first held its namespace up. Here an
/// agent is at work, its credentials go with the namespace, and the operator is there.
#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_namespace_with_a_working_agent_goes_within_a_minute() {
    let ns = Namespace::new("leaving");
    ns.apply(&sql_agent("worker", COUNTER, "  schedules: [{name: often, cron: \"* * * * *\"}]\n"));
    ns.create(&cycle("first", "worker"));
    assert_eq!(ns.wait_for_cycle("first", 120)["phase"], "Succeeded");
    ns.create(&cycle("second", "worker"));
    let start = Instant::now();
    ns.cluster().kubectl("default", &["delete", "namespace", &ns.name, "--timeout=60s"]).must();
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
}

/// Kuadrant/dns-operator#267: here the operator's Role goes in the same sweep as the agents. Three namespaces, since
/// their controller takes the kinds in any order.
#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_namespace_goes_although_it_takes_the_rights_of_the_operator_along() {
    let cluster = Cluster::get();
    let chart = root().join("charts/cicada");
    let spaces = ["one", "two", "three"].map(|n| Namespace::new(&format!("ends-{n}")));
    let names = spaces.each_ref().map(|ns| ns.name.clone()).join(",");
    cluster.install_with(&chart, &[("watchNamespaces", format!("{{{names}}}"))]);
    cluster.wait_for_operator();
    for ns in &spaces {
        ns.apply(&sql_agent("worker", COUNTER, ""));
        ns.create(&cycle("first", "worker"));
    }
    for ns in &spaces {
        assert_eq!(ns.wait_for_cycle("first", 120)["phase"], "Succeeded");
        wants_deletion(ns, "worker");
    }
    for ns in &spaces {
        let (before, start) = (ns.folder("worker").keys(), Instant::now());
        cluster.kubectl("default", &["delete", "namespace", &ns.name, "--timeout=60s"]).must();
        assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
        assert!(is_named(ns, "worker").contains("its namespace is being deleted"));
        assert_eq!(ns.folder("worker").keys(), before);
    }
    cluster.install(&chart);
    cluster.wait_for_operator();
}
