//! A control plane without nodes, shared by the tests of this program.

use std::{
    fs::{self, File},
    io::Write as _,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Mutex, OnceLock, PoisonError, RwLock,
        mpsc::{Sender, channel},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    namespace::{Namespace, Turn},
    proxy::{self, Proxy},
};

/// Of an administrator.
pub const TOKEN: &str = "test";

/// Etcd, API server and controllers on ports of their own.
pub struct Plane {
    /// Everything that its processes write.
    pub folder: PathBuf,
    tools: PathBuf,
    pub api: u16,
    etcd: u16,
    apiserver: Mutex<Child>,
    turn: RwLock<()>,
    others: Vec<Guard>,
}

/// A child that is killed with us.
pub struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Asks until there is an answer.
#[track_caller]
pub fn until<T>(what: &str, seconds: u64, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "{what}: not within {seconds} s");
        sleep(Duration::from_millis(200));
    }
}

impl Plane {
    /// The one of this program.
    pub fn get() -> &'static Self {
        static PLANE: OnceLock<Plane> = OnceLock::new();
        PLANE.get_or_init(Self::start)
    }

    fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let tools =
            std::env::var_os("CICADA_TOOLS").map_or_else(|| root.join("target/tools/bin"), PathBuf::from);
        let folder = std::env::temp_dir().join(format!("cicada-operator-it-{}", std::process::id()));
        fs::create_dir_all(folder.join("pki")).unwrap();
        let (api, etcd, peer, kcm) = (free_port(), free_port(), free_port(), free_port());
        let file = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        file("tokens.csv", &format!("{TOKEN},admin,admin,system:masters\n"));
        file(
            "audit.yaml",
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- {level: None, verbs: [get, list, watch]}\n- {level: Metadata}\n",
        );
        file("operator.yaml", "defaults: {cluster: test, cycleImage: none}\n");
        file("kubeconfig", &kubeconfig(&https(api), TOKEN));
        let key = folder.join("pki/sa.key");
        assert!(
            Command::new("openssl")
                .args(["genrsa", "-out"])
                .arg(&key)
                .arg("2048")
                .stderr(Stdio::null())
                .status()
                .unwrap()
                .success()
        );
        let local = |port: u16| format!("http://127.0.0.1:{port}");
        let mut command = Command::new(tools.join("server"));
        command.arg("--data-dir").arg(folder.join("etcd")).args([
            "--unsafe-no-fsync",
            "--listen-client-urls",
            &local(etcd),
            "--advertise-client-urls",
            &local(etcd),
        ]);
        command.args([
            "--listen-peer-urls",
            &local(peer),
            "--initial-advertise-peer-urls",
            &local(peer),
            "--initial-cluster",
            &format!("default={}", local(peer)),
        ]);
        let etcd_child = spawn(command, &folder, "etcd");
        let apiserver = Mutex::new(api_server(&tools, &folder, api, etcd));
        let others = vec![Guard(etcd_child)];
        let mut plane = Self { folder, tools, api, etcd, apiserver, turn: RwLock::default(), others };
        plane.wait_for_api();
        let mut command = Command::new(plane.tools.join("kube-controller-manager"));
        command.args([
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            &format!("--secure-port={kcm}"),
        ]);
        command
            .arg(format!("--kubeconfig={}/kubeconfig", plane.folder.display()))
            .arg(format!("--cert-dir={}/pki/kcm", plane.folder.display()));
        command.arg(format!("--service-account-private-key-file={}/pki/sa.key", plane.folder.display()));
        command.arg("--controllers=job-controller,garbage-collector-controller,namespace-controller,resourcequota-controller,serviceaccount-controller,ttl-after-finished-controller");
        let kcm = spawn(command, &plane.folder, "kcm");
        let mut command = Command::new("python3");
        command.arg(root.join("tests/bench/fake_pods.py")).args([
            &format!("https://127.0.0.1:{}", plane.api),
            TOKEN,
            "0.3",
        ]);
        let pods = spawn(command, &plane.folder, "fake_pods");
        plane.others.extend([Guard(kcm), Guard(pods)]);
        let definitions = root.join("crds/generated");
        plane.kubectl(&["apply", "--server-side", "-f", &definitions.to_string_lossy()]);
        // kubectl fails at once on a definition that has no conditions yet.
        until("the definitions are served", 60, || {
            let wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
            plane.run(&wait, None).status.success().then_some(())
        });
        plane
    }

    fn wait_for_api(&self) {
        until("the API server is ready", 120, || {
            let said = self.run(&["get", "--raw", "/readyz"], None);
            said.status.success().then_some(())
        });
    }

    /// Ends the API server and starts it again on the same port and store.
    pub fn restart_api_server(&self) {
        let mut child = self.apiserver.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        sleep(Duration::from_secs(3));
        *child = api_server(&self.tools, &self.folder, self.api, self.etcd);
        self.wait_for_api();
    }

    /// A proxy before the API server.
    pub fn proxy(&self) -> Proxy {
        Proxy::start(self.api)
    }

    pub fn kubeconfig_for(&self, port: u16, name: &str, token: &str) -> PathBuf {
        self.kubeconfig_at(&https(port), name, token)
    }

    fn kubeconfig_at(&self, url: &str, name: &str, token: &str) -> PathBuf {
        let path = self.folder.join(format!("kubeconfig-{name}"));
        fs::write(&path, kubeconfig(url, token)).unwrap();
        path
    }

    /// A way to the API server on which all that a watch tells comes this much later, and nothing else does. It
    /// holds as long as the value.
    pub fn late_watches(&self, name: &str, delay: Duration) -> (Guard, PathBuf) {
        let port = free_port();
        let mut command = Command::new(self.tools.join("kubectl"));
        // It speaks HTTP without TLS, in which a watch can be told from other requests.
        command
            .arg(format!("--kubeconfig={}/kubeconfig", self.folder.display()))
            .args(["proxy", &format!("--port={port}")]);
        let relay = Guard(spawn(command, &self.folder, &format!("relay-{name}")));
        until("the relay listens", 30, || TcpStream::connect(("127.0.0.1", port)).ok());
        let url = format!("http://127.0.0.1:{}", proxy::start_late(port, delay));
        (relay, self.kubeconfig_at(&url, name, TOKEN))
    }

    /// Token of a user with all rights, by whom writes are told from others in the audit log:
    /// `system:serviceaccount:<namespace>:<name>`.
    pub fn user(&self, namespace: &str, name: &str) -> String {
        let (role, subject) = ("--clusterrole=cluster-admin", format!("--serviceaccount={namespace}:{name}"));
        self.kubectl(&["create", "serviceaccount", name, "-n", namespace]);
        self.kubectl(&["create", "clusterrolebinding", &format!("{namespace}-{name}"), role, &subject]);
        self.kubectl(&["create", "token", name, "-n", namespace]).trim().to_owned()
    }

    pub fn run(&self, args: &[&str], input: Option<&str>) -> Output {
        let mut command = Command::new(self.tools.join("kubectl"));
        command.arg(format!("--kubeconfig={}/kubeconfig", self.folder.display())).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.unwrap_or_default().as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// kubectl, which must succeed.
    #[track_caller]
    pub fn kubectl(&self, args: &[&str]) -> String {
        let said = self.run(args, None);
        assert!(said.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).unwrap()
    }

    /// What kubectl says, whatever its exit code.
    pub fn say(&self, args: &[&str]) -> String {
        String::from_utf8(self.run(args, None).stdout).unwrap()
    }

    /// A fresh namespace with a service account in it. Tests run side by side, each in its own.
    pub fn namespace(&'static self, name: &str) -> Namespace {
        let shared = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        self.make_namespace(name, Turn::Shared(shared))
    }

    /// A fresh namespace for a test that disturbs all others: it waits until they have ended.
    pub fn namespace_alone(&'static self, name: &str) -> Namespace {
        let alone = self.turn.write().unwrap_or_else(PoisonError::into_inner);
        self.make_namespace(name, Turn::Alone(alone))
    }

    fn make_namespace(&'static self, name: &str, turn: Turn) -> Namespace {
        self.kubectl(&["create", "namespace", name]);
        let ns = Namespace { plane: self, name: name.to_owned(), _turn: turn };
        until("its service account is there", 60, || {
            self.run(&["get", "sa", "default", "-n", name], None).status.success().then_some(())
        });
        ns
    }

    /// All writes that the API server has seen.
    pub fn audit(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.join("audit.log")).unwrap();
        text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
    }

    /// `kubectl apply` in a namespace.
    #[track_caller]
    pub fn apply(&self, namespace: &str, manifest: &str) {
        let said = self.run(&["apply", "-n", namespace, "-f", "-"], Some(manifest));
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }

    /// Puts a definition in the place of the served one.
    #[track_caller]
    pub fn replace_definition(&self, definition: &Value) {
        let mut definition = definition.clone();
        definition["metadata"] = serde_json::json!({"name": definition["metadata"]["name"]});
        definition.as_object_mut().unwrap().remove("status");
        let said = self
            .run(&["apply", "--server-side", "--force-conflicts", "-f", "-"], Some(&definition.to_string()));
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }

    /// `helm template` and `kubectl apply`: roles and definitions as the chart makes them.
    pub fn install_chart(&self, namespace: &str) {
        self.install_chart_with(namespace, &[]);
    }

    /// As `install_chart`, with roles in these namespaces only.
    pub fn install_chart_with(&self, namespace: &str, watched: &[String]) {
        self.install_release("cicada", namespace, watched);
    }

    /// As `install_chart_with`, as a release of this name, which all its objects have.
    pub fn install_release(&self, release: &str, namespace: &str, watched: &[String]) {
        let watched = watched.iter().enumerate().map(|(n, name)| format!("watchNamespaces[{n}]={name}"));
        let mut values =
            vec!["crds.install=false".to_owned(), "replicas=0".into(), "clusterName=test".into()];
        values.extend(watched);
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let rendered = self.template_release(release, namespace, &values);
        // Every object says where it belongs.
        let said = self.run(&["apply", "-f", "-"], Some(&rendered));
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }

    /// `helm template` with these values.
    pub fn template_chart(&self, values: &[&str]) -> String {
        self.template_release("cicada", "cicada-system", values)
    }

    fn template_release(&self, release: &str, namespace: &str, values: &[&str]) -> String {
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/cicada");
        let mut command = Command::new(self.tools.join("helm"));
        command.args(["template", release, "--no-hooks", "--namespace", namespace]).arg(chart);
        let rendered = command.args(values.iter().flat_map(|v| ["--set", v])).output().unwrap();
        assert!(rendered.status.success(), "{}", String::from_utf8_lossy(&rendered.stderr));
        String::from_utf8(rendered.stdout).unwrap()
    }
}

fn https(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

fn kubeconfig(url: &str, token: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: c, cluster: {{server: '{url}', insecure-skip-tls-verify: true}}}}]\nusers: [{{name: u, user: {{token: {token}}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n"
    )
}

/// Starts a child that the kernel ends with this process, since statics are not dropped. The signal is
/// bound to the *thread* that started the child: hence one thread that never ends starts them all.
pub fn spawn(command: Command, folder: &Path, name: &str) -> Child {
    type Order = (Command, Sender<std::io::Result<Child>>);
    static STARTER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let log = File::options().create(true).append(true).open(folder.join(format!("{name}.log"))).unwrap();
    let mut wrapped = Command::new("setpriv");
    wrapped.args(["--pdeathsig", "KILL"]).arg(command.get_program()).args(command.get_args());
    wrapped.envs(command.get_envs().filter_map(|(k, v)| Some((k.to_owned(), v?.to_owned()))));
    wrapped.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let starter = STARTER.get_or_init(|| {
        let (orders, inbox) = channel::<Order>();
        std::thread::spawn(move || {
            inbox.into_iter().for_each(|(mut command, reply)| drop(reply.send(command.spawn())))
        });
        Mutex::new(orders)
    });
    let (reply, answer) = channel();
    starter.lock().unwrap().send((wrapped, reply)).unwrap();
    answer.recv().unwrap().unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn api_server(tools: &Path, folder: &Path, port: u16, etcd: u16) -> Child {
    let mut command = Command::new(tools.join("kube-apiserver"));
    let at = |path: &str| format!("{}/{path}", folder.display());
    command.args([
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        format!("--cert-dir={}", at("pki")),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".into(),
        "--service-cluster-ip-range=10.99.0.0/16".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", at("pki/sa.key")),
        format!("--service-account-signing-key-file={}", at("pki/sa.key")),
        format!("--token-auth-file={}", at("tokens.csv")),
        "--authorization-mode=RBAC".into(),
        format!("--audit-policy-file={}", at("audit.yaml")),
        format!("--audit-log-path={}", at("audit.log")),
    ]);
    spawn(command, folder, "apiserver")
}
