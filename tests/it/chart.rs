//! The chart as text: what `helm template` makes of values, above all of false, 0 and "".

use std::collections::BTreeSet;

use cicada_tests::shell::{Ran, root, run, run_command, variable};
use serde_json::Value;

/// `helm template` with `--set` for each of `values`.
fn template(values: &[&str]) -> Ran {
    template_with("--set", values)
}

/// As `template`, with another way to set values.
fn template_with(set: &str, values: &[&str]) -> Ran {
    let helm = format!("{}/helm", variable("CICADA_TOOLS"));
    let chart = root().join("charts/cicada").to_string_lossy().into_owned();
    let mut args = vec!["template", "cicada", chart.as_str(), "--namespace", "cicada-system"];
    for value in values {
        args.extend([set, value]);
    }
    run(&helm, args)
}

/// All objects of `helm template`.
#[track_caller]
pub(crate) fn objects(values: &[&str]) -> Vec<Value> {
    parsed(&template(values).must())
}

#[track_caller]
fn parsed(rendered: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(rendered).unwrap();
    all.into_iter().filter(|object| !object.is_null()).collect()
}

fn on_hold() -> Value {
    "the operator is on hold (chart value hold)".into()
}

fn kinds(objects: &[Value]) -> BTreeSet<&str> {
    objects.iter().map(|o| o["kind"].as_str().unwrap()).collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|o| o["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

fn config(objects: &[Value]) -> Value {
    let text = of_kind(objects, "ConfigMap")["data"]["operator.yaml"].as_str().unwrap();
    serde_saphyr::from_str(text).unwrap()
}

fn operator(objects: &[Value]) -> Value {
    of_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0].clone()
}

/// agent-sandbox#942, kagent#2120: a template that asks `if value` takes false, 0 and "" for "not given".
#[test]
#[ignore = "needs helm: tests/run"]
fn false_zero_and_empty_are_values() {
    let none = objects(&["replicas=0"]);
    assert_eq!(of_kind(&none, "Deployment")["spec"]["replicas"], 0);
    let crd = |o: &[Value]| o.iter().filter(|o| o["kind"] == "CustomResourceDefinition").count();
    assert_eq!((crd(&objects(&[])), crd(&objects(&["crds.install=false"]))), (2, 0));
    let keep = |values: &[&str]| {
        of_kind(&objects(values), "CustomResourceDefinition")["metadata"]["annotations"]["helm.sh/resource-policy"].clone()
    };
    assert_eq!((keep(&[]), keep(&["crds.keep=false"])), (Value::from("keep"), Value::Null));
    assert!(!kinds(&objects(&["rbac.create=false"])).contains("ClusterRoleBinding"));
    assert!(!kinds(&objects(&["rbac.create=false", "rbac.aggregate=false"])).contains("ClusterRole"));
    for (value, expected) in [
        ("hold=false", Value::Null),
        ("hold=", Value::Null),
        ("hold=true", on_hold()),
        ("hold=release", "release".into()),
    ] {
        assert_eq!(config(&objects(&[value]))["hold"], expected, "{value}");
    }
    let capacity =
        config(&objects(&["capacity.cycles=0", "capacity.cyclesPerNamespace=3"]))["capacity"].clone();
    assert_eq!((&capacity["cycles"], &capacity["cyclesPerNamespace"]), (&0.into(), &3.into()));
    assert_eq!(config(&objects(&["runbookUrl="]))["runbookUrl"], "");
    assert_eq!(config(&objects(&[]))["defaults"]["cluster"], "");
    assert!(config(&objects(&["store=null"]))["defaults"]["store"].is_null());
    let whole =
        config(&objects(&["store.adoptFrom=old", "modelBaseUrl=https://gateway"]))["defaults"].clone();
    assert_eq!((&whole["adoptFrom"], &whole["modelBaseUrl"]), (&"old".into(), &"https://gateway".into()));
    assert!(whole["store"].is_null(), "a name alone is no store: {whole}");
    let none = config(&objects(&["store.adoptFrom=", "modelBaseUrl="]))["defaults"].clone();
    assert!(none["modelBaseUrl"].is_null() && none["adoptFrom"].is_null(), "{none}");
    let ca = |value: &str| config(&objects(&[value]))["defaults"]["caConfigMapName"].clone();
    assert_eq!((ca("caConfigMapName="), ca("caConfigMapName=company")), (Value::Null, "company".into()));
    let path_style = config(&objects(&["store.s3.bucket=b", "store.s3.forcePathStyle=false"]));
    assert_eq!(path_style["defaults"]["store"]["s3"]["forcePathStyle"], false);
    assert!(operator(&objects(&["resources=null"]))["resources"].is_null());
    for (value, expected) in [("hold=false", Value::Null), ("hold=true", on_hold())] {
        let told = template_with("--set-string", &[value]).must();
        assert_eq!(config(&parsed(&told))["hold"], expected, "as a word: {value}");
    }
}

/// A page that nobody has is no link to it.
#[test]
#[ignore = "needs helm: tests/run"]
fn alerts_link_to_the_runbook_that_is_given() {
    let links = |values: &[&str]| -> Vec<Value> {
        let all = objects(&[&["prometheusRule.enabled=true"], values].concat());
        let rules = &of_kind(&all, "PrometheusRule")["spec"]["groups"][0]["rules"];
        rules.as_array().unwrap().iter().map(|r| r["annotations"]["runbook_url"].clone()).collect()
    };
    let own = links(&["runbookUrl=https://wiki.example/cicada"]);
    assert!(own.len() >= 7);
    for link in &own {
        assert!(link.as_str().is_some_and(|l| l.starts_with("https://wiki.example/cicada#")), "{link}");
    }
    assert!(links(&["runbookUrl="]).iter().all(Value::is_null));
}

/// Values of a release from before a value moved come along with `helm upgrade --reuse-values`.
#[test]
#[ignore = "needs helm: tests/run"]
fn a_value_that_moved_says_where_it_went() {
    let said = template(&["adoptFrom=old"]).must_fail();
    assert!(said.contains("write store.adoptFrom"), "{said}");
    assert_eq!(objects(&["adoptFrom="]), objects(&[]));
    let said = template(&["store.s3.bucket=b", "store.directory.path=/store"]).must_fail();
    assert!(said.contains("give one of them"), "{said}");
}

#[test]
#[ignore = "needs helm: tests/run"]
fn network_policies_stand_in_each_namespace_and_let_more_out_where_told() {
    let all = objects(&[
        "networkPolicy.operator=true",
        "networkPolicy.operatorEgress[0].ports[0].port=16443",
        "networkPolicy.cycleNamespaces={shop,lab}",
        "networkPolicy.cycleEgress[0].ports[0].port=587",
    ]);
    let policies: Vec<&Value> = all.iter().filter(|o| o["kind"] == "NetworkPolicy").collect();
    let places: Vec<&str> = policies.iter().map(|p| p["metadata"]["namespace"].as_str().unwrap()).collect();
    assert_eq!(places, ["cicada-system", "shop", "lab"]);
    for (policy, port, selected) in [
        (policies[0], 16443, "app.kubernetes.io/name"),
        (policies[1], 587, "cicada.dev/purpose"),
        (policies[2], 587, "cicada.dev/purpose"),
    ] {
        let spec = &policy["spec"];
        assert_eq!(spec["policyTypes"], serde_json::json!(["Ingress", "Egress"]));
        assert_eq!(spec["podSelector"]["matchExpressions"][0]["key"], selected);
        let ports = spec["egress"].as_array().unwrap().iter().map(|e| &e["ports"][0]["port"]);
        assert!(ports.clone().any(|p| *p == 53) && ports.clone().any(|p| *p == port), "{spec}");
    }
    assert_eq!(policies[1]["spec"]["ingress"], serde_json::json!([]));
    template(&["networkPolicy.cycleNamespaces={shop,shop}"]).must_fail();
}

/// Images of an object's containers, a pod's or of a pod template.
fn images(object: &Value) -> Vec<&Value> {
    let specs = [&object["spec"], &object["spec"]["template"]["spec"]];
    let containers = specs.into_iter().filter_map(|s| s["containers"].as_array()).flatten();
    containers.map(|c| &c["image"]).collect()
}

#[test]
#[ignore = "needs helm: tests/run"]
fn images_come_from_one_registry_and_by_digest() {
    let digest = format!("sha256:{}", "a".repeat(64));
    for (values, expected) in [
        (vec![], "cicada-dev/cicada-operator:0.1.0".to_owned()),
        (vec!["image.tag=x"], "cicada-dev/cicada-operator:x".into()),
        (vec!["global.imageRegistry="], "cicada-dev/cicada-operator:0.1.0".into()),
        (vec!["global.imageRegistry=r.example/"], "r.example/cicada-dev/cicada-operator:0.1.0".into()),
        (
            vec!["global.imageRegistry=r.example", "image.repository=ghcr.io/o/p"],
            "r.example/o/p:0.1.0".into(),
        ),
    ] {
        assert_eq!(operator(&objects(&values))["image"], expected.as_str(), "{values:?}");
    }
    let by_digest = objects(&["image.tag=x", &format!("image.digest={digest}")]);
    assert_eq!(operator(&by_digest)["image"], format!("cicada-dev/cicada-operator@{digest}").as_str());
    let both = objects(&[
        "global.imageRegistry=r.example:5000",
        &format!("image.digest={digest}"),
        &format!("cycleJob.image.digest={digest}"),
    ]);
    let cycle = format!("r.example:5000/cicada-dev/cycle-job@{digest}");
    assert_eq!(config(&both)["defaults"]["cycleImage"], cycle.as_str());
    // Not one image of the chart comes from elsewhere, hooks and tests included.
    let images: Vec<&Value> = both.iter().flat_map(images).collect();
    assert_eq!(images.len(), 3);
    assert!(
        images.iter().all(|i| *i == format!("r.example:5000/cicada-dev/cicada-operator@{digest}").as_str())
    );
}

#[test]
#[ignore = "needs helm: tests/run"]
fn a_namespaced_operator_has_no_right_outside() {
    let said = template(&["watchNamespaces={shop}"]).must_fail();
    assert!(said.contains("clusterName is needed"), "{said}");
    let all = objects(&["watchNamespaces={shop,lab}", "clusterName=c", "rbac.aggregate=false"]);
    assert!(!kinds(&all).contains("ClusterRole") && !kinds(&all).contains("ClusterRoleBinding"));
    let roles: BTreeSet<_> = all
        .iter()
        .filter(|o| o["kind"] == "Role")
        .map(|o| o["metadata"]["namespace"].as_str().unwrap())
        .collect();
    assert_eq!(roles, BTreeSet::from(["cicada-system", "lab", "shop"]));
}

/// The Job of `helm uninstall` runs under the restricted profile, by the operator's own account and image.
#[test]
#[ignore = "needs helm: tests/run"]
fn the_uninstall_hook_is_one_restricted_job_and_can_be_left_out() {
    let hooks = |values: &[&str]| -> Vec<Value> {
        let all = objects(values).into_iter();
        all.filter(|o| o["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete").collect()
    };
    assert!(hooks(&["uninstallHook=false"]).is_empty());
    let one = hooks(&[
        "image.tag=x",
        "serviceAccount.create=false",
        "serviceAccount.name=mine",
        "rbac.create=false",
    ]);
    let pod = &one[0]["spec"]["template"]["spec"];
    assert_eq!((one.len(), one[0]["kind"].as_str()), (1, Some("Job")));
    assert_eq!(pod["serviceAccountName"], "mine");
    assert_eq!(pod["containers"][0]["image"], "cicada-dev/cicada-operator:x");
    assert_eq!(
        (&pod["securityContext"]["runAsNonRoot"], &pod["restartPolicy"]),
        (&true.into(), &"Never".into())
    );
    let security = &pod["containers"][0]["securityContext"];
    assert_eq!(security["capabilities"]["drop"][0], "ALL");
    assert_eq!(security["allowPrivilegeEscalation"], false);
    let args =
        hooks(&["watchNamespaces={shop,lab}", "clusterName=c"])[0]["spec"]["template"]["spec"]["containers"]
            [0]["args"]
            .clone();
    assert!(args.as_array().unwrap().contains(&"--watch-namespaces=shop,lab".into()), "{args}");
}

/// What everything on turns on; each part alone is covered by the server-side dry run of the cluster tests.
const EVERYTHING: [&str; 10] = [
    "dashboard.enabled=true",
    "podDisruptionBudget.enabled=true",
    "networkPolicy.operator=true",
    "networkPolicy.cycleNamespaces={shop}",
    "serviceMonitor.enabled=true",
    "prometheusRule.enabled=true",
    "admissionPolicies.instruct=true",
    "admissionPolicies.approve=true",
    "admissionPolicies.storePrefixes={s3://team-}",
    "admissionPolicies.imagePrefixes={registry.example.com/}",
];

#[test]
#[ignore = "needs helm: tests/run"]
fn a_misspelt_value_is_refused_wherever_it_stands() {
    for value in [
        "replica=2",
        "image.tags=x",
        "cycleJob.image.tags=x",
        "capacity.cycels=1",
        "crds.instal=false",
        "store.s3.buckets=b",
        "store.adoptsFrom=c",
        "store.s3.credentials.secret=s",
        "admissionPolicies.instructs=true",
        "networkPolicy.operators=true",
        "serviceMonitor.enable=true",
        "prometheusRule.runbookUrl=https://x",
        "rbac.creates=false",
        "log.level=debug",
    ] {
        let said = template(&[value]).must_fail();
        assert!(said.contains("additional properties"), "{value}: {said}");
    }
    for value in [
        "replicas=many",
        "hold=3",
        "capacity.cycles=-1",
        "image.digest=latest",
        "concurrency=0",
        "serviceMonitor.interval=",
    ] {
        template(&[value]).must_fail();
    }
    let open = objects_without_bound(&serde_json::from_str(&schema()).unwrap(), "");
    // Values of an umbrella chart stand beside ours in `global`.
    assert_eq!(open, ["global"]);
}

fn schema() -> String {
    std::fs::read_to_string(root().join("charts/cicada/values.schema.json")).unwrap()
}

/// Paths of objects that take any key.
fn objects_without_bound(schema: &Value, path: &str) -> Vec<String> {
    let mut open = vec![];
    if let Some(properties) = schema["properties"].as_object() {
        if schema["additionalProperties"].is_null() {
            open.push(path.to_owned());
        }
        for (name, inner) in properties {
            let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            open.extend(objects_without_bound(inner, &below));
        }
    }
    if schema["items"].is_object() {
        open.extend(objects_without_bound(&schema["items"], &format!("{path}[]")));
    }
    open
}

/// The rules, evaluated: an expression that is only written down can be silent for ever.
#[test]
#[ignore = "needs helm and promtool: tests/run"]
fn alerts_fire_when_they_should_and_not_else() {
    let values = ["prometheusRule.enabled=true", "runbookUrl=https://runbook"];
    let groups = of_kind(&objects(&values), "PrometheusRule")["spec"].clone();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rules.yaml"), groups.to_string()).unwrap();
    let cases = std::fs::read_to_string(root().join("tests/rules/alerts.yaml")).unwrap();
    for rule in groups["groups"][0]["rules"].as_array().unwrap() {
        let name = rule["alert"].as_str().unwrap();
        assert!(cases.contains(&format!("- alertname: {name}\n")), "no case in which {name} fires");
    }
    std::fs::write(folder.path().join("alerts.yaml"), cases).unwrap();
    let promtool = format!("{}/promtool", variable("CICADA_TOOLS"));
    for (what, file) in [("check", "rules.yaml"), ("test", "alerts.yaml")] {
        let mut command = std::process::Command::new(&promtool);
        command.current_dir(folder.path()).args([what, "rules", file]);
        let said = run_command(command, None).must();
        assert!(said.contains("SUCCESS"), "{said}");
    }
}

/// `helm template > plain.yaml` is an installation too.
#[test]
#[ignore = "needs the test cluster: tests/run"]
fn the_api_server_takes_the_plain_yaml_of_everything() {
    let cluster = cicada_tests::cluster::Cluster::get();
    // Kinds of the Prometheus operator are not in this cluster.
    let all: Vec<Value> = objects(&EVERYTHING)
        .into_iter()
        .filter(|o| {
            o["kind"] != "ServiceMonitor"
                && o["kind"] != "PrometheusRule"
                && o["metadata"]["namespace"] != "shop"
        })
        .collect();
    assert!(all.len() >= 20, "{}", all.len());
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": all});
    let arguments = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "--validate=strict",
        "--filename",
        "-",
    ];
    cluster.kubectl_with("cicada-system", &arguments, &list.to_string()).must();
}

/// kubectl-validate knows schemas without a server, as a pipeline before Git does.
#[test]
#[ignore = "needs kubectl-validate: tests/run"]
fn examples_and_rendered_chart_validate_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    for (index, object) in objects(&[]).into_iter().enumerate() {
        std::fs::write(folder.path().join(format!("{index}.json")), object.to_string()).unwrap();
    }
    for paths in [folder.path().to_path_buf(), root().join("crds/examples")] {
        let mut command =
            std::process::Command::new(format!("{}/kubectl-validate", variable("CICADA_TOOLS")));
        command.args(["--version", "1.30", "--local-crds"]).arg(root().join("crds/generated")).arg(paths);
        run_command(command, None).must();
    }
}
