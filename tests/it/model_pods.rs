//! The three example agents with a language model in real pods: scripted conversations, a real mail server,
//! a webhook's receiver.

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use cicada_tests::cluster::{Cluster, SYSTEM};
use cicada_tests::data;
use cicada_tests::memory::Unpacked;
use cicada_tests::model_server::{Conversation, ModelServer};
use cicada_tests::namespace::Namespace;
use cicada_tests::shell::{root, run, variable};
use cicada_tests::wait;
use serde_json::Value;

use crate::agents::cycle;
use crate::model_agents::{best_genre, busiest_director, states};

const KEY: &str = "sk-canary-model-key-7c1d";

/// An example in a namespace of its own, with its model.
struct Example {
    ns: Namespace,
    agent: String,
    manifest: String,
    model: ModelServer,
    runtime: tokio::runtime::Runtime,
}

impl Example {
    fn new(name: &str) -> Self {
        Self::of(name, "agent.yaml", &[name])
    }

    /// With the conversations of several agents, whose first is the one that is asked.
    fn of(name: &str, file: &str, conversations: &[&str]) -> Self {
        let ns = Namespace::new(name);
        let manifest =
            std::fs::read_to_string(root().join("crds/examples/model").join(name).join(file)).unwrap();
        let conversation = |name: &&str| -> Conversation {
            let script = std::fs::read(root().join(format!("tests/conversations/{name}.json"))).unwrap();
            let mut conversation: Conversation = serde_json::from_slice(&script).unwrap();
            conversation.agent = conversation.agent.replace("shop/", &format!("{}/", ns.name));
            conversation
        };
        let conversations: Vec<_> = conversations.iter().map(conversation).collect();
        let (_, agent) = conversations[0].agent.split_once('/').unwrap();
        let agent = agent.to_owned();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let model = runtime.block_on(ModelServer::listen(&format!("{}:0", host()), conversations)).unwrap();
        let mut example = Self { ns, agent, manifest, model, runtime };
        example.key(KEY);
        let url = example.model.url.clone();
        example.set("namespace: shop", &format!("namespace: {}", example.ns.name.clone()));
        example.set(
            "provider: OpenAI\n",
            &format!("provider: OpenAI\n      baseUrl: {url}\n      apiKeySecretRef: {{name: model, key: api-key}}\n"),
        );
        example
    }

    /// Makes (or replaces) the Secret with the model's key.
    fn key(&self, key: &str) {
        self.ns.apply(&format!(
            "{{apiVersion: v1, kind: Secret, metadata: {{name: model}}, stringData: {{api-key: {key}}}}}"
        ));
    }

    /// What differs between a laptop and a cluster.
    fn set(&mut self, from: &str, to: &str) {
        assert!(self.manifest.contains(from), "{from:?} is not in {}", self.manifest);
        self.manifest = self.manifest.replace(from, to);
    }

    /// Waits for one more cycle of this name.
    fn cycle(&self, name: &str, manifest: &str) -> Value {
        self.ns.create(manifest);
        let status = self.ns.wait_for_cycle(name, 180);
        self.model.must_have_gone_by_the_script();
        assert_eq!(status["phase"], "Succeeded", "{status:#}");
        status
    }

    fn request(&self, name: &str) -> Value {
        self.cycle(name, &cycle(name, &self.agent))
    }

    /// What every cycle leaves: usage in status, no mount in the memory, the model's key nowhere.
    fn check(&self) -> Unpacked {
        let unpacked = Unpacked::check(&self.ns.folder(&self.agent));
        let told: u64 =
            unpacked.ledger_sql("SELECT sum(input_tokens + output_tokens) FROM cycles").parse().unwrap();
        assert!(told > 1000, "{told}");
        // A cycle's end is in its own status a moment before it is in the agent's.
        wait::until_seen(
            "status and ledger agree on the usage",
            30,
            || self.ns.status(&self.agent)["usage"].clone(),
            |usage| usage["tokensToday"].as_u64() == Some(told),
        );
        for file in [&unpacked.memory, &unpacked.ledger] {
            assert!(!cicada_tests::memory::contains(file, KEY), "the key stands in {}", file.display());
        }
        let seen = format!(
            "{:?}{:?}{:?}",
            self.ns.list("agentcycles"),
            self.ns.list("pods"),
            self.ns.list("events")
        );
        assert!(!seen.contains(KEY));
        let operator = Cluster::get().operator_pods().remove(0);
        let path = format!("/api/v1/namespaces/{SYSTEM}/pods/{operator}:8080/proxy/metrics");
        let metrics = run("kubectl", ["get", "--raw", &path]).must();
        assert!(metrics.contains("cicada_") && !metrics.contains(KEY), "{metrics}");
        assert!(self.model.requests().iter().all(|r| r.key == format!("Bearer {KEY}")));
        assert!(!self.model.requests().iter().any(|r| String::from_utf8_lossy(&r.body).contains(KEY)));
        unpacked
    }
}

/// The node's address, which pods and this test reach.
fn host() -> String {
    Cluster::get().s3_address().rsplit_once(':').unwrap().0.to_owned()
}

/// A receiver of webhooks: remembers bodies by their key, and takes each once.
fn webhook(runtime: &tokio::runtime::Runtime) -> (String, Arc<Mutex<Vec<(String, Value)>>>) {
    let seen = Arc::<Mutex<Vec<(String, Value)>>>::default();
    let log = seen.clone();
    let receive = move |headers: axum::http::HeaderMap, body: axum::body::Bytes| async move {
        let key = headers["idempotency-key"].to_str().unwrap().to_owned();
        log.lock().unwrap().push((key, serde_json::from_slice(&body).unwrap()));
    };
    let listener = runtime.block_on(tokio::net::TcpListener::bind(format!("{}:0", host()))).unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let app = axum::Router::new().route("/hook", axum::routing::post(receive));
    runtime.spawn(async move { axum::serve(listener, app).await });
    (url, seen)
}

/// A real mail server with a mailbox in a folder.
struct MailServer {
    folder: tempfile::TempDir,
    address: String,
    process: Child,
}

impl MailServer {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind((host(), 0)).unwrap().local_addr().unwrap().port();
        let address = format!("{}:{port}", host());
        let python =
            std::path::Path::new(&variable("CICADA_TOOLS")).parent().unwrap().join("mcp-client/bin/python");
        let process = Command::new(python)
            .args([
                "-m",
                "aiosmtpd",
                "--nosetuid",
                "--listen",
                &address,
                "--class",
                "aiosmtpd.handlers.Mailbox",
            ])
            .arg(folder.path().join("mail"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        wait::until("the mail server listens", 30, || std::net::TcpStream::connect(&address).ok());
        Self { folder, address, process }
    }

    /// Mails so far, as they lie in the mailbox.
    fn mails(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join("mail/new")).into_iter().flatten().flatten();
        entries.map(|e| std::fs::read_to_string(e.path()).unwrap()).collect()
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn price_watch_in_pods_tells_the_buyer_once() {
    let mut example = Example::new("price-watch");
    let (url, hook) = webhook(&example.runtime);
    example.set("console: {}", &format!("webhook: {{url: \"{url}\"}}"));
    example.set(
        "path: prices.csv # relative to this folder; in a cluster: configMapKeyRef, storeKey or url",
        "configMapKeyRef: {name: prices, key: prices.csv}",
    );
    let csv = std::fs::read_to_string(root().join("crds/examples/model/price-watch/prices.csv")).unwrap();
    let prices = |text: &str| {
        let object = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "prices"}, "data": {"prices.csv": text}});
        example.ns.apply(&object.to_string());
    };
    prices(&csv);
    example.ns.apply(&example.manifest);
    example.request("first");
    prices(&csv.replace("Teehaus,620", "Teehaus,540"));
    example.request("second");
    assert_eq!(example.request("third")["outcome"], "nothing_to_do");

    let memory = example.check();
    let sums = memory.sql("SELECT sum(cents) FROM prices GROUP BY seen_at ORDER BY min(rowid)");
    let first: u32 = 549 + 620 + 799 + 840 + 310;
    assert_eq!(sums.lines().collect::<Vec<_>>(), [first.to_string(), (first - 80).to_string()]);
    assert_eq!(memory.ledger_sql("SELECT to_address, state FROM outbox"), "buyer|sent");
    let told = hook.lock().unwrap().clone();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].1.to_string().contains("540"), "{told:?}");
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn inbox_triage_in_pods_mails_its_contact_and_makes_cards() {
    let mut example = Example::new("inbox-triage");
    let mail = MailServer::start();
    example.set(
        "console: {}",
        &format!("email: {{server: \"smtp://{}\", from: shop@example.org}}", mail.address),
    );
    example.ns.apply(&example.manifest);
    example.request("empty");
    let messages =
        std::fs::read_to_string(root().join("crds/examples/model/inbox-triage/messages.yaml")).unwrap();
    for (message, name) in messages.split("\n---\n").zip(["mail-1", "mail-2", "mail-3"]) {
        assert!(message.contains(&format!("name: {name},")), "{message}");
        example.cycle(name, &message.replace("namespace: shop", &format!("namespace: {}", example.ns.name)));
    }
    let memory = example.check();
    assert_eq!(
        memory.sql("SELECT sender, kind FROM requests ORDER BY sender"),
        "anna@example.org|question\nben@example.net|complaint\neve@example.net|spam"
    );
    assert_eq!(
        memory.ledger_sql("SELECT card_id, status FROM cards ORDER BY card_id"),
        "cup-ben|doing\ntea-anna|todo"
    );
    assert_eq!(memory.ledger_sql("SELECT to_address FROM outbox"), "anna@example.org");
    let mails = mail.mails();
    assert_eq!(mails.len(), 1, "{mails:?}");
    assert!(
        mails[0].contains("To: anna@example.org") && mails[0].contains("The tea waits for you."),
        "{mails:?}"
    );
    let asked = example.ns.status("inbox-triage")["humanRequests"].clone();
    assert_eq!(asked.as_array().map(Vec::len), Some(1), "{asked:#}");
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn data_analyst_in_pods_finds_what_the_files_say() {
    let mut example = Example::new("data-analyst");
    for name in ["movies.json", "zipcodes.csv"] {
        example.set(&format!("from: {{path: {name}}}"), &format!("from: {{storeKey: {name}}}"));
        let file = data::file(name);
        example
            .ns
            .cicadactl(&["files", "put"], "data-analyst", &[&file.to_string_lossy(), "--key", name])
            .must();
    }
    example.ns.apply(&example.manifest);
    for name in ["first", "second", "third"] {
        example.request(name);
    }
    let memory = example.check();
    let movies: Vec<Value> =
        serde_json::from_slice(&std::fs::read(data::file("movies.json")).unwrap()).unwrap();
    let answer =
        |question: &str| memory.sql(&format!("SELECT answer FROM findings WHERE question = '{question}'"));
    assert_eq!(answer("best genre"), best_genre(&movies));
    assert_eq!(answer("busiest director"), busiest_director(&movies));
    assert_eq!(
        answer("states with ZIP codes"),
        states(&std::fs::read_to_string(data::file("zipcodes.csv")).unwrap())
    );
    assert_eq!(memory.sql("SELECT count(*) FROM movies"), movies.len().to_string());
}

/// gke-labs/kube-agents#1711: a rotated key of the model never reached an agent that had started with the old one.
#[test]
#[ignore = "needs the test cluster: tests/run"]
fn the_next_cycle_has_the_models_new_key() {
    const ROTATED: &str = "sk-canary-model-key-rotated-91ab";
    let example = Example::new("inbox-triage");
    example.ns.apply(&example.manifest);
    example.request("empty");
    let before = example.model.requests().len();
    assert!(before > 0);
    example.key(ROTATED);
    let messages =
        std::fs::read_to_string(root().join("crds/examples/model/inbox-triage/messages.yaml")).unwrap();
    let message = messages.split("\n---\n").next().unwrap();
    example.cycle("mail-1", &message.replace("namespace: shop", &format!("namespace: {}", example.ns.name)));
    let keys: Vec<String> = example.model.requests().into_iter().map(|r| r.key).collect();
    assert!(keys[..before].iter().all(|k| *k == format!("Bearer {KEY}")), "{keys:?}");
    assert!(
        keys.len() > before && keys[before..].iter().all(|k| *k == format!("Bearer {ROTATED}")),
        "{keys:?}"
    );
}

/// One agent asks another by its outbox, which wakes it; the answer wakes the one that asked.
#[test]
#[ignore = "needs the test cluster: tests/run"]
fn tea_desk_in_pods_asks_another_agent_and_tells_the_customer() {
    let mut example = Example::of("tea-desk", "agents.yaml", &["tea-desk", "tea-stock"]);
    let (url, hook) = webhook(&example.runtime);
    example.set("console: {}", &format!("webhook: {{url: \"{url}\"}}"));
    example.set(
        "path: stock.csv # relative to this folder; in a cluster: configMapKeyRef, storeKey or url",
        "configMapKeyRef: {name: stock, key: stock.csv}",
    );
    example.ns.config_map("stock", &root().join("crds/examples/model/tea-desk/stock.csv"));
    example.ns.apply(&example.manifest);
    example.request("empty");
    let question =
        std::fs::read_to_string(root().join("crds/examples/model/tea-desk/messages.yaml")).unwrap();
    example
        .cycle("anna-asks", &question.replace("namespace: shop", &format!("namespace: {}", example.ns.name)));
    // The one that stock wakes for, and the one that the desk wakes for.
    let cycles = example.ns.wait_for_cycles(4, 180);
    example.model.must_have_gone_by_the_script();
    assert!(cycles.iter().all(|c| c["status"]["phase"] == "Succeeded"), "{cycles:#?}");
    let woken: Vec<&Value> = cycles.iter().filter(|c| c["spec"]["triggers"][0]["type"] == "Peer").collect();
    let mut names: Vec<&str> =
        woken.iter().map(|c| c["spec"]["agentRef"]["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["desk", "stock"], "each was woken once");
    for cycle in woken {
        assert_eq!(cycle["metadata"]["ownerReferences"][0]["name"], cycle["spec"]["agentRef"]["name"]);
    }

    let memory = example.check();
    assert_eq!(memory.sql("SELECT status FROM questions"), "answered");
    let outbox = memory.ledger_sql("SELECT channel, to_address, state FROM outbox ORDER BY channel");
    // The ledger of the cycle that told the customer was kept before that message left.
    assert_eq!(outbox, "Peer|stock|sent\nconsole|anna@example.org|pending");
    let told = hook.lock().unwrap().clone();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].1.to_string().contains("12 packs"), "{told:?}");
    let stock = Unpacked::check(&example.ns.folder("stock"));
    assert_eq!(stock.sql("SELECT packs FROM stock WHERE product = 'green tea 100 g'"), "12");
    // Nobody is woken any more.
    std::thread::sleep(std::time::Duration::from_secs(10));
    assert_eq!(example.ns.list("agentcycles").len(), 4);
}
