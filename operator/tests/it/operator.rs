//! An operator as a process of its own.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command},
};

use crate::{
    plane::{Guard, Plane, TOKEN, free_port, spawn, until},
    proxy::Proxy,
};

/// A running operator.
pub struct Operator {
    child: Guard,
    port: u16,
    identity: String,
    args: Vec<String>,
    folder: PathBuf,
    kubeconfig: PathBuf,
}

impl Operator {
    /// Starts one for a namespace, with this identity and in competition for this Lease.
    pub fn start(plane: &Plane, namespace: &str, identity: &str, lease: &str) -> Self {
        Self::start_with(plane, namespace, identity, lease, None, &[])
    }

    /// As `start`, with the API server behind `proxy` and more arguments.
    pub fn start_with(
        plane: &Plane,
        namespace: &str,
        identity: &str,
        lease: &str,
        proxy: Option<&Proxy>,
        more: &[&str],
    ) -> Self {
        let kubeconfig = proxy.map_or_else(
            || plane.folder.join("kubeconfig"),
            |proxy| plane.kubeconfig_for(proxy.port, identity, TOKEN),
        );
        Self::start_by(plane, namespace, identity, lease, kubeconfig, more)
    }

    /// With the rights of this token, and its Lease in `home`.
    pub fn start_as(
        plane: &Plane,
        namespaces: &str,
        identity: &str,
        lease: &str,
        home: &str,
        token: &str,
    ) -> Self {
        let kubeconfig = plane.kubeconfig_for(plane.api, identity, token);
        Self::start_by(plane, namespaces, identity, lease, kubeconfig, &["--namespace", home])
    }

    /// As `start`, by this kubeconfig.
    pub fn start_by(
        plane: &Plane,
        namespace: &str,
        identity: &str,
        lease: &str,
        kubeconfig: PathBuf,
        more: &[&str],
    ) -> Self {
        let port = free_port();
        let listen = format!("127.0.0.1:{port}");
        let config = plane.folder.join("operator.yaml").to_string_lossy().into_owned();
        let args = [
            "run",
            "--identity",
            identity,
            "--lease",
            lease,
            "--listen",
            &listen,
            "--watch-namespaces",
            namespace,
            "--config",
            &config,
        ];
        let format = if more.contains(&"--log-format=json") { None } else { Some(&"--log-format=text") };
        let args: Vec<String> = args.iter().chain(format).chain(more).map(|&a| a.to_owned()).collect();
        let child = Guard(operator_process(&plane.folder, identity, &args, &kubeconfig));
        let (identity, folder) = (identity.to_owned(), plane.folder.clone());
        let operator = Self { child, port, identity, args, folder, kubeconfig };
        until("the operator is ready", 60, || operator.ready().then_some(()));
        operator
    }

    /// What a kubelet does: starts it again if it has ended.
    pub fn revive(&mut self) {
        if self.ended() {
            self.child = Guard(operator_process(&self.folder, &self.identity, &self.args, &self.kubeconfig));
        }
    }

    fn ask(&self, path: &str) -> String {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        let said = Command::new("curl").args(["--silent", "--max-time", "2", &url]).output().unwrap();
        String::from_utf8(said.stdout).unwrap()
    }

    /// What another command of the program says, for the installation of this operator.
    #[track_caller]
    pub fn command(&self, name: &str, namespace: &str) -> String {
        let lease = self.args.iter().skip_while(|a| *a != "--lease").nth(1).unwrap();
        let config = self.args.iter().skip_while(|a| *a != "--config").nth(1).unwrap();
        let ran = Command::new(env!("CARGO_BIN_EXE_cicada-operator"))
            .args([name, "--config", config, "--lease", lease, "--watch-namespaces", namespace])
            .env("KUBECONFIG", &self.kubeconfig)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success(), "{said}");
        said
    }

    /// It has listed everything.
    pub fn ready(&self) -> bool {
        self.ask("/readyz") == "ok\n"
    }

    /// Its own word on whether it does its work.
    pub fn is_healthy(&self) -> bool {
        self.ask("/healthz") == "ok\n"
    }

    /// All its metrics, as text.
    pub fn metrics(&self) -> String {
        self.ask("/metrics")
    }

    /// A number of its metrics; 0 if it has none of this name.
    pub fn metric(&self, name: &str) -> u64 {
        let text = self.metrics();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_default()
    }

    /// Errors that it has counted.
    pub fn errors(&self) -> Vec<String> {
        let text = self.ask("/metrics");
        text.lines().filter(|line| line.starts_with("cicada_errors_total")).map(str::to_owned).collect()
    }

    /// All that it has written to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join(format!("{}.log", self.identity))).unwrap()
    }

    /// It holds its Lease.
    pub fn leads(&self) -> bool {
        self.ask("/metrics").lines().any(|line| line == "cicada_leader 1")
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        assert!(
            Command::new("kill")
                .args([&format!("-{name}"), &self.child.0.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
    }

    /// It has ended.
    pub fn ended(&mut self) -> bool {
        self.child.0.try_wait().unwrap().is_some()
    }
}

fn operator_process(folder: &Path, identity: &str, args: &[String], kubeconfig: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cicada-operator"));
    command.args(args).env("KUBECONFIG", kubeconfig);
    spawn(command, folder, identity)
}
