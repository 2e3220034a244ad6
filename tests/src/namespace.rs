//! A namespace of one test, with its agents.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::bucket::AgentFolder;
use crate::cluster::Cluster;
use crate::shell::{Ran, variable};
use crate::wait;

/// A namespace under the restricted profile, with the store's credentials in it. It goes when the test
/// succeeds; when the test fails, its state is printed first.
#[derive(Debug)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    cluster: &'static Cluster,
}

impl Namespace {
    /// Makes a namespace with a fresh name and the credentials Secret `cicada-store`.
    #[track_caller]
    pub fn new(test: &str) -> Self {
        let namespace = Self::without_credentials(test);
        namespace.credentials(&variable("CICADA_S3_ACCESS_KEY"), &variable("CICADA_S3_SECRET_KEY"));
        namespace
    }

    /// Makes a namespace with a fresh name and nothing in it.
    #[track_caller]
    pub fn without_credentials(test: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{test}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let namespace = Self { name, cluster: Cluster::get() };
        namespace
            .cluster
            .kubectl_with(
                "default",
                &["create", "--filename", "-"],
                &format!(
                    "{{apiVersion: v1, kind: Namespace, metadata: {{name: {}, labels: {{pod-security.kubernetes.io/enforce: restricted}}}}}}",
                    namespace.name
                ),
            )
            .must();
        namespace
    }

    /// The cluster.
    pub fn cluster(&self) -> &'static Cluster {
        self.cluster
    }

    /// Makes (or replaces) the Secret that the default store names.
    #[track_caller]
    pub fn credentials(&self, access: &str, secret: &str) {
        self.apply(&format!(
            "{{apiVersion: v1, kind: Secret, metadata: {{name: cicada-store}}, stringData: {{AWS_ACCESS_KEY_ID: {access}, AWS_SECRET_ACCESS_KEY: {secret}}}}}"
        ));
    }

    /// kubectl in this namespace.
    #[track_caller]
    pub fn kubectl(&self, args: &[&str]) -> Ran {
        self.cluster.kubectl(&self.name, args)
    }

    /// `kubectl apply` of a manifest; panics if it is refused.
    #[track_caller]
    pub fn apply(&self, manifest: &str) {
        self.try_apply(manifest).must();
    }

    /// `kubectl apply` of a manifest.
    #[track_caller]
    pub fn try_apply(&self, manifest: &str) -> Ran {
        self.cluster.kubectl_with(&self.name, &["apply", "--filename", "-"], manifest)
    }

    /// `kubectl create` of a manifest; panics if it is refused.
    #[track_caller]
    pub fn create(&self, manifest: &str) {
        self.cluster.kubectl_with(&self.name, &["create", "--filename", "-"], manifest).must();
    }

    /// A ConfigMap with one file as its only key.
    #[track_caller]
    pub fn config_map(&self, name: &str, file: &std::path::Path) {
        self.kubectl(&["create", "configmap", name, "--from-file", &file.to_string_lossy()]).must();
    }

    /// One object; `Null` if it is not there.
    #[track_caller]
    pub fn get(&self, kind: &str, name: &str) -> Value {
        self.cluster.json(&self.name, &[kind, name])
    }

    /// All objects of a kind.
    #[track_caller]
    pub fn list(&self, kind: &str) -> Vec<Value> {
        self.cluster.list(&self.name, &[kind])
    }

    /// The agent's status.
    #[track_caller]
    pub fn status(&self, agent: &str) -> Value {
        self.get("persistentagent", agent)["status"].clone()
    }

    /// A condition of the agent; `Null` if it has none of that type.
    #[track_caller]
    pub fn condition(&self, agent: &str, kind: &str) -> Value {
        condition(&self.status(agent), kind)
    }

    /// Asks for a cycle by hand, as a person does: the annotation with a new value.
    #[track_caller]
    pub fn run_now(&self, agent: &str, token: &str) {
        self.kubectl(&[
            "annotate",
            "--overwrite",
            "persistentagent",
            agent,
            &format!("cicada.dev/run-now={token}"),
        ])
        .must();
    }

    /// Waits until `count` cycles of the namespace have ended; gives all that have.
    #[track_caller]
    pub fn wait_for_cycles(&self, count: usize, seconds: u64) -> Vec<Value> {
        let ended = |cycles: &[Value]| -> Vec<Value> {
            let done = ["Succeeded", "Failed"];
            cycles
                .iter()
                .filter(|c| done.contains(&c["status"]["phase"].as_str().unwrap_or_default()))
                .cloned()
                .collect()
        };
        let cycles = wait::until_seen(
            &format!("{count} cycles have ended in {}", self.name),
            seconds,
            || self.list("agentcycles"),
            |cycles| ended(cycles).len() >= count,
        );
        ended(&cycles)
    }

    /// Waits until a cycle has ended; gives its status.
    #[track_caller]
    pub fn wait_for_cycle(&self, name: &str, seconds: u64) -> Value {
        wait::until_seen(
            &format!("cycle {name} has ended"),
            seconds,
            || self.get("agentcycle", name)["status"].clone(),
            |status| matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")),
        )
    }

    /// Waits for the agent's condition to have this status.
    #[track_caller]
    pub fn wait_for_condition(&self, agent: &str, kind: &str, status: &str, seconds: u64) -> Value {
        wait::until_seen(
            &format!("condition {kind} of {agent} is {status}"),
            seconds,
            || self.status(agent),
            |seen| condition(seen, kind)["status"] == status,
        );
        self.condition(agent, kind)
    }

    /// Waits until the namespace has a running pod of a cycle; gives its name.
    #[track_caller]
    pub fn wait_for_running_pod(&self, seconds: u64) -> String {
        wait::until("a pod of a cycle runs", seconds, || {
            let pods = self.list("pods");
            let pod = pods.iter().find(|pod| {
                pod["status"]["phase"] == "Running"
                    && pod["metadata"]["labels"]["cicada.dev/purpose"] == "cycle"
                    && pod["spec"]["containers"]
                        .as_array()
                        .is_some_and(|c| c.iter().any(|c| c["name"] == "cycle"))
            })?;
            Some(pod["metadata"]["name"].as_str()?.to_owned())
        })
    }

    /// Where the agent's memory lies in the bucket.
    pub fn folder(&self, agent: &str) -> AgentFolder {
        AgentFolder::new(
            PathBuf::from(variable("CICADA_S3_DATA"))
                .join(self.cluster.bucket_name())
                .join(&self.name)
                .join(agent),
        )
    }

    /// `cicadactl COMMAND... NAMESPACE/AGENT ARGS...` on the store itself, without the cluster.
    #[track_caller]
    pub fn cicadactl(&self, command: &[&str], agent: &str, args: &[&str]) -> Ran {
        let (endpoint, store) = (self.cluster.s3_endpoint(), format!("s3://{}", self.cluster.bucket_name()));
        let agent = format!("{}/{agent}", self.name);
        let place = ["--store", store.as_str(), "--endpoint", endpoint.as_str()];
        self.cluster.cicadactl(&[command, &[agent.as_str()], args, &place].concat())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.cluster.diagnose(&self.name));
        } else {
            self.cluster.kubectl("default", &["delete", "namespace", &self.name, "--wait=false"]);
        }
    }
}

/// A condition in a status; `Null` if it has none of that type.
pub fn condition(status: &Value, kind: &str) -> Value {
    status["conditions"]
        .as_array()
        .and_then(|all| all.iter().find(|c| c["type"] == kind))
        .cloned()
        .unwrap_or_default()
}
