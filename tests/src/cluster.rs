//! The cluster that tests/run has started (or the one of KUBECONFIG).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::shell::{Ran, program, root, run, run_command, variable};
use crate::wait;

/// Namespace of the operator.
pub const SYSTEM: &str = "cicada-system";
/// Labels of the operator's pods.
pub const OPERATOR: &str = "app.kubernetes.io/instance=cicada";

/// The cluster, its S3 server and the operator in it.
#[derive(Debug)]
pub struct Cluster {
    state: PathBuf,
}

impl Cluster {
    /// The one of this run. The first call installs the chart; every call gets the same cluster.
    pub fn get() -> &'static Self {
        static CLUSTER: OnceLock<Cluster> = OnceLock::new();
        CLUSTER.get_or_init(|| {
            let cluster = Self { state: variable("CICADA_CLUSTER").into() };
            cluster.install(&root().join("charts/cicada"));
            cluster
        })
    }

    /// `helm upgrade --install` of a chart with the values of the tests; a second test program of the same
    /// run finds it installed.
    pub fn install(&self, chart: &Path) {
        self.install_with(chart, &[]);
    }

    /// As `install`, with more values.
    pub fn install_with(&self, chart: &Path, more: &[(&str, String)]) {
        for name in [SYSTEM] {
            if !run("kubectl", ["get", "namespace", name]).ok() {
                run("kubectl", ["create", "namespace", name]).must();
                run("kubectl", ["label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted"])
                    .must();
            }
        }
        let chart = chart.to_string_lossy().into_owned();
        let mut args: Vec<String> =
            ["upgrade", "--install", "cicada", &chart, "--namespace", SYSTEM, "--wait", "--timeout", "300s"]
                .map(String::from)
                .into();
        for (key, value) in [
            ("image.repository", "docker.io/local/cicada-operator".to_owned()),
            ("image.tag", "test".into()),
            ("image.pullPolicy", "Never".into()),
            ("cycleJob.image.repository", "docker.io/local/cycle-job".into()),
            ("cycleJob.image.tag", "test".into()),
            ("cycleJob.image.pullPolicy", "Never".into()),
            ("clusterName", "test".into()),
            ("store.s3.bucket", self.bucket_name()),
            ("store.s3.endpoint", self.s3_endpoint()),
            ("store.s3.forcePathStyle", "true".into()),
            ("store.s3.credentials.secretName", "cicada-store".into()),
        ]
        .into_iter()
        .chain(more.iter().cloned())
        {
            args.push("--set".into());
            args.push(format!("{key}={value}"));
        }
        let installed = run("helm", &args);
        if !installed.ok() {
            eprintln!("{}", self.diagnose(SYSTEM));
        }
        installed.must();
    }

    /// Folder of the cluster's state on this machine.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// URL of the S3 server, the same from pods and from the tests.
    pub fn s3_endpoint(&self) -> String {
        variable("CICADA_S3_ENDPOINT")
    }

    /// Host and port of the S3 server.
    pub fn s3_address(&self) -> String {
        self.s3_endpoint().trim_start_matches("http://").to_owned()
    }

    /// The bucket.
    pub fn bucket_name(&self) -> String {
        variable("CICADA_S3_BUCKET")
    }

    /// kubectl in a namespace.
    #[track_caller]
    pub fn kubectl(&self, namespace: &str, args: &[&str]) -> Ran {
        run("kubectl", ["--namespace", namespace].iter().chain(args))
    }

    /// kubectl in a namespace, with a manifest as its input.
    #[track_caller]
    pub fn kubectl_with(&self, namespace: &str, args: &[&str], manifest: &str) -> Ran {
        let mut command = Command::new("kubectl");
        command.args(["--namespace", namespace]).args(args);
        run_command(command, Some(manifest))
    }

    /// `kubectl get ... -o json`; `Null` if it is not there.
    #[track_caller]
    pub fn json(&self, namespace: &str, args: &[&str]) -> Value {
        let ran = self.kubectl(namespace, &[&["get", "-o", "json", "--ignore-not-found"], args].concat());
        let text = ran.must();
        if text.trim().is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() }
    }

    /// The items of `kubectl get KIND -o json`.
    #[track_caller]
    pub fn list(&self, namespace: &str, args: &[&str]) -> Vec<Value> {
        let mut list = self.json(namespace, args);
        list["items"].as_array_mut().map(std::mem::take).unwrap_or_default()
    }

    /// cicadactl with the store's credentials in its environment.
    #[track_caller]
    pub fn cicadactl(&self, args: &[&str]) -> Ran {
        let mut command = Command::new(program("cicadactl"));
        command
            .args(args)
            .env("AWS_ACCESS_KEY_ID", variable("CICADA_S3_ACCESS_KEY"))
            .env("AWS_SECRET_ACCESS_KEY", variable("CICADA_S3_SECRET_KEY"));
        run_command(command, None)
    }

    /// The operator's pods that are there now.
    pub fn operator_pods(&self) -> Vec<String> {
        self.list(SYSTEM, &["pods", "--selector", OPERATOR])
            .iter()
            .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Waits until the operator's Deployment has all its pods.
    #[track_caller]
    pub fn wait_for_operator(&self) {
        wait::until_seen(
            "the operator is ready",
            60,
            || self.list(SYSTEM, &["deployments"]).first().map(|d| d["status"].clone()).unwrap_or_default(),
            |status| status["readyReplicas"].as_u64() >= Some(1) && status["unavailableReplicas"].is_null(),
        );
    }

    /// Processes of a container on this node, by its id (`containerd://...`), from its cgroup.
    pub fn processes(&self, container_id: &str) -> Vec<i32> {
        let id = container_id.trim_start_matches("containerd://");
        let mut found = vec![];
        let roots: &[&str] = if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            &["/sys/fs/cgroup"]
        } else {
            &["/sys/fs/cgroup/pids"]
        };
        for root in roots {
            let root = format!("{root}/cicada-test-{}", variable("CICADA_NETNS"));
            for folder in run("find", [root.as_str(), "-type", "d", "-name", id]).out.lines() {
                let procs = std::fs::read_to_string(format!("{folder}/cgroup.procs")).unwrap_or_default();
                found.extend(procs.lines().filter_map(|line| line.parse::<i32>().ok()));
            }
        }
        found
    }

    /// Kills all processes of a pod's container with SIGKILL, as the kernel or a lost node would.
    #[track_caller]
    pub fn kill_container(&self, namespace: &str, pod: &str, container: &str) {
        for pid in self.container_processes(namespace, pod, container) {
            run("kill", ["-9", &pid.to_string()]);
        }
    }

    /// Processes of a pod's container, as this machine numbers them; panics if there is none.
    #[track_caller]
    pub fn container_processes(&self, namespace: &str, pod: &str, container: &str) -> Vec<i32> {
        let status = self.json(namespace, &["pod", pod])["status"].clone();
        let id = status["containerStatuses"]
            .as_array()
            .and_then(|all| all.iter().find(|c| c["name"] == container))
            .and_then(|c| c["containerID"].as_str())
            .unwrap_or_else(|| panic!("pod {pod} has no container {container}: {status:#}"))
            .to_owned();
        let processes = self.processes(&id);
        assert!(!processes.is_empty(), "container {container} of pod {pod} has no process on this node");
        processes
    }

    /// Writes that the API server has seen since `since` (RFC 3339), as audit events.
    pub fn writes(&self, since: &str, keep: impl Fn(&Value) -> bool) -> Vec<Value> {
        let log = std::fs::read_to_string(self.state.join("audit.log")).expect("the API server's audit log");
        log.lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|event| event["requestReceivedTimestamp"].as_str() >= Some(since))
            .filter(|event| keep(event))
            .collect()
    }

    /// Everything that helps to understand a failure in a namespace.
    pub fn diagnose(&self, namespace: &str) -> String {
        let show = |namespace: &str, args: &[&str]| {
            let ran = self.kubectl(namespace, args);
            format!("$ kubectl -n {namespace} {}\n{}{}", args.join(" "), ran.out, ran.err)
        };
        let mut parts = vec![
            show(namespace, &["get", "persistentagents,agentcycles,jobs,pods,configmaps", "-o", "wide"]),
            show(namespace, &["get", "persistentagents,agentcycles", "-o", "yaml"]),
            show(namespace, &["get", "events", "--sort-by=.lastTimestamp"]),
        ];
        for pod in self.list(namespace, &["pods"]) {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            parts.push(format!("status of pod {name}: {}", pod["status"]["containerStatuses"]));
            parts.push(show(namespace, &["logs", name, "--tail=40", "--all-containers"]));
        }
        parts.push(show(SYSTEM, &["logs", "--selector", OPERATOR, "--tail=60"]));
        parts.join("\n----\n")
    }
}
