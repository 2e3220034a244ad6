//! A namespace of one test.

use std::sync::{RwLockReadGuard, RwLockWriteGuard};

use cicada_contract::CycleReport;
use serde_json::{Value, json};

use crate::plane::Plane;

/// Held as long as a test runs.
#[expect(dead_code, reason = "held, not read")]
pub enum Turn {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

/// A namespace of one test.
pub struct Namespace {
    pub(crate) _turn: Turn,
    pub(crate) plane: &'static Plane,
    /// Its name.
    pub name: String,
}

impl Namespace {
    /// kubectl in it.
    #[track_caller]
    pub fn kubectl(&self, args: &[&str]) -> String {
        self.plane.kubectl(&[args, &["-n", &self.name]].concat())
    }

    /// `kubectl apply`.
    #[track_caller]
    pub fn apply(&self, manifest: &str) {
        self.plane.apply(&self.name, manifest);
    }

    /// `kubectl replace --force`: deletes and makes again.
    #[track_caller]
    pub fn replace(&self, manifest: &str) -> String {
        let said = self.plane.run(&["replace", "--force", "-n", &self.name, "-f", "-"], Some(manifest));
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).unwrap()
    }

    /// `kubectl apply`; false if it is refused.
    pub fn try_apply(&self, manifest: &str) -> bool {
        self.plane.run(&["apply", "-n", &self.name, "-f", "-"], Some(manifest)).status.success()
    }

    /// `kubectl apply --dry-run=server` with more arguments: whether it is taken, and what is said.
    pub fn tries(&self, more: &[&str], manifest: &str) -> (bool, String) {
        let args = [more, &["apply", "--dry-run=server", "-n", &self.name, "-f", "-"]].concat();
        let ran = self.plane.run(&args, Some(manifest));
        (ran.status.success(), String::from_utf8_lossy(&ran.stderr).into_owned())
    }

    /// `kubectl apply --server-side` by this manager; a conflict is a failure.
    #[track_caller]
    pub fn apply_as(&self, manager: &str, manifest: &str) {
        let manager = format!("--field-manager={manager}");
        let said = self
            .plane
            .run(&["apply", "--server-side", &manager, "-n", &self.name, "-f", "-"], Some(manifest));
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }

    /// One object; Null if it is not there.
    pub fn get(&self, kind: &str, name: &str) -> Value {
        let said = self.plane.say(&["get", kind, name, "-n", &self.name, "-o", "json", "--ignore-not-found"]);
        serde_json::from_str(&said).unwrap_or(Value::Null)
    }

    /// One object with its managed fields.
    pub fn get_with_managed_fields(&self, kind: &str, name: &str) -> Value {
        let said = self.kubectl(&["get", kind, name, "-o", "json", "--show-managed-fields"]);
        serde_json::from_str(&said).unwrap()
    }

    /// The pods of a Job, the oldest first.
    pub fn pods_of(&self, job: &str) -> Vec<Value> {
        let mut pods = self.selected("pods", &format!("batch.kubernetes.io/job-name={job}"));
        pods.sort_by_key(|p| p["metadata"]["creationTimestamp"].as_str().map(str::to_owned));
        pods
    }

    /// Ends a pod that `fake_pods.py` leaves alone, with this report.
    #[track_caller]
    pub fn end_pod(&self, pod: &Value, report: &CycleReport) {
        let code = report.exit_code();
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let terminated = json!({"exitCode": code, "reason": "Ended", "message": report.render()});
        self.set_pod(pod, &terminated, &json!({ "phase": phase }));
    }

    /// Evicts a pod that `fake_pods.py` leaves alone, as a node does that needs its memory.
    #[track_caller]
    pub fn evict_pod(&self, pod: &Value) {
        let condition =
            json!({"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"});
        let status = json!({"phase": "Failed", "reason": "Evicted", "conditions": [condition]});
        self.set_pod(pod, &json!({"exitCode": 137, "reason": "Error"}), &status);
    }

    /// Puts a pod onto a node.
    #[track_caller]
    pub fn bind_pod(&self, pod: &Value, node: &str) {
        let name = &pod["metadata"]["name"];
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        let path = format!("/api/v1/namespaces/{}/pods/{}/binding", self.name, name.as_str().unwrap());
        let said = self.plane.run(&["create", "--raw", &path, "-f", "-"], Some(&binding.to_string()));
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }

    #[track_caller]
    fn set_pod(&self, pod: &Value, terminated: &Value, status: &Value) {
        let mut status = status.clone();
        let containers = pod["spec"]["containers"].as_array().unwrap().iter();
        let ended = |c: &Value| {
            let state = json!({ "terminated": terminated });
            json!({"name": c["name"], "image": c["image"], "imageID": "sha256:fake", "ready": false, "restartCount": 0, "state": state})
        };
        status["containerStatuses"] = containers.map(ended).collect();
        let patch = json!({ "status": status }).to_string();
        let name = pod["metadata"]["name"].as_str().unwrap();
        self.kubectl(&["patch", "pod", name, "--subresource=status", "--type=merge", "--patch", &patch]);
    }

    /// All Jobs of cycles; a look into the store is none.
    pub fn jobs(&self) -> Vec<Value> {
        self.selected("jobs", "cicada.dev/purpose=cycle")
    }

    /// All objects of a kind; none while the API server is away.
    pub fn list(&self, kind: &str) -> Vec<Value> {
        self.selected(kind, "")
    }

    fn selected(&self, kind: &str, selector: &str) -> Vec<Value> {
        let said = self.plane.say(&["get", kind, "-n", &self.name, "-l", selector, "-o", "json"]);
        let list: Value = serde_json::from_str(&said).unwrap_or(Value::Null);
        list["items"].as_array().cloned().unwrap_or_default()
    }
}
