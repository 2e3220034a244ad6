//! An agent on this machine: its store in a folder, its cycles as real processes of the built program.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cicada_contract::plan::{
    Channel, ContainerConfig, CycleIdentity, Executor, Expect, Mode, ModelConfig, Owner, PLAN_VERSION,
    PlanConfig, PlanRun, PlanSecret, Provider, SecretRef, SqlSource, StoreConfig, Trigger, TriggerKind,
};
use cicada_contract::report::CycleReport;
use cicada_memory::{
    Launcher, LedgerOptions, LedgerWorker, Link, MemoryOptions, MemoryWorker, Rows, UnpackLimits, Value,
};
use cicada_store::{AgentStore, ArchiveRef, Head};

/// One agent and everything that is left of it.
pub(crate) struct Agent {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) config: PlanConfig,
    /// Further variables of its cycles.
    pub(crate) env: Vec<(String, String)>,
    cycles: u32,
}

impl Agent {
    /// An agent whose model is at `url`.
    pub(crate) fn with_model(provider: Provider, url: &str) -> Self {
        let model = ModelConfig {
            provider,
            name: "scripted".into(),
            base_url: Some(url.to_owned()),
            api_key: Some(SecretRef { name: "model".into(), key: "key".into() }),
            temperature: None,
            max_output_tokens: None,
            prices: None,
        };
        let agent = Self::new(Executor::Model(model));
        agent.secret("model", "key", "sk-canary-model-key");
        agent
    }

    /// An agent whose work is a program of its own.
    pub(crate) fn with_command() -> Self {
        let mut agent = Self::with_model(Provider::OpenAICompatible, "http://127.0.0.1:9/v1");
        agent.config.executor = Executor::Container(ContainerConfig {
            image: "none".into(),
            command: vec!["none".into()],
            args: vec![],
            env: std::collections::BTreeMap::new(),
        });
        agent.config.secrets = vec![PlanSecret {
            name: "crm".into(),
            from: SecretRef { name: "model".into(), key: "key".into() },
            allowed_hosts: vec!["crm.test".into()],
        }];
        agent
    }

    /// The other container: `cycle-job child` with a command.
    pub(crate) fn child(&self, command: &[&str]) -> Child {
        let log = std::fs::File::create(self.dir.path().join("child-log")).unwrap();
        Command::new(env!("CARGO_BIN_EXE_cycle-job"))
            .args(["child", "--mcp", self.dir.path().join("mcp").to_str().unwrap(), "--"])
            .args(command)
            .current_dir(self.dir.path())
            // An image of somebody else may have no CA certificates at all.
            .env("SSL_CERT_FILE", "/nonexistent")
            .env("SSL_CERT_DIR", "/nonexistent")
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// What the command and its supervisor printed.
    pub(crate) fn printed(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("child-log")).unwrap_or_default()
    }

    /// An agent that runs these statements in each cycle.
    pub(crate) fn with_sql(sql: &str) -> Self {
        Self::new(Executor::Sql(SqlSource::Inline(sql.to_owned())))
    }

    fn new(executor: Executor) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("store")).unwrap();
        let owner = Owner {
            cluster: "test".into(),
            namespace: "shop".into(),
            name: "price-watch".into(),
            uid: "uid-1".into(),
            ..Owner::default()
        };
        let store =
            StoreConfig::Directory { path: dir.path().join("store").display().to_string(), claim_name: None };
        let config = PlanConfig {
            charter: "Track prices.".into(),
            channels: [("console".to_owned(), Channel::Console {})].into(),
            ..PlanConfig::new(owner, store, executor)
        };
        Self { dir, config, env: vec![], cycles: 0 }
    }

    /// Another agent of this name in the same store.
    pub(crate) fn beside(&self, name: &str, executor: Executor) -> Self {
        let mut other = Self::new(executor);
        other.config.owner.name = name.to_owned();
        other.config.owner.uid = format!("uid of {name}");
        other.config.store = self.config.store.clone();
        other
    }

    /// Puts a secret where a pod would find it.
    pub(crate) fn secret(&self, name: &str, key: &str, value: &str) {
        let folder = self.dir.path().join("secrets").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(key), value).unwrap();
    }

    /// A run part for the next cycle.
    pub(crate) fn next_run(&mut self) -> PlanRun {
        self.cycles += 1;
        let name = format!("{}-{}", self.config.owner.name, self.cycles);
        PlanRun {
            version: PLAN_VERSION,
            config_sha256: String::new(),
            cycle: CycleIdentity { uid: format!("uid-{name}"), name },
            triggers: vec![Trigger {
                kind: TriggerKind::Request,
                schedule: None,
                slot: None,
                token: None,
                handled_key: None,
            }],
            instructions: vec!["Do your work.".into()],
            messages: vec![],
            approvals: vec![],
            unreachable_peers: vec![],
            expect: Expect::default(),
            mode: Mode::Cycle,
        }
    }

    /// What a report Job says of this cycle.
    pub(crate) async fn report(&self, run: &PlanRun) -> CycleReport {
        let child = self.start_as("report", run);
        self.end(child).await
    }

    /// Starts a cycle; its log lies in `log` of the folder.
    pub(crate) fn start(&self, run: &PlanRun) -> Child {
        self.start_as("run", run)
    }

    fn start_as(&self, command: &str, run: &PlanRun) -> Child {
        let path = |name: &str| self.dir.path().join(name);
        let _ = std::fs::remove_file(path("report.json"));
        // A pod's shared folder is new: address and end of the cycle before are not in it.
        let _ = std::fs::remove_dir_all(path("mcp"));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(path("log")).unwrap();
        self.command(command, run, self.dir.path(), &path("work"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// A process for one attempt, with its plan, report and shared folder in `folder`.
    pub(crate) fn command(&self, command: &str, run: &PlanRun, folder: &Path, work: &Path) -> Command {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::create_dir_all(work).unwrap();
        let (json, config_sha256) = self.config.render();
        std::fs::write(folder.join("config.json"), json).unwrap();
        let run = PlanRun { config_sha256, ..run.clone() };
        std::fs::write(folder.join("run.json"), serde_json::to_string(&run).unwrap()).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_cycle-job"));
        process.arg(command).arg("--config").arg(folder.join("config.json"));
        process.arg("--run").arg(folder.join("run.json")).arg("--work").arg(work);
        process.arg("--secrets").arg(self.dir.path().join("secrets"));
        process.arg("--report").arg(folder.join("report.json")).arg("--mcp").arg(folder.join("mcp"));
        process.env("CICADA_LOG", "debug,hyper=info").envs(self.env.iter().cloned());
        process
    }

    /// Waits for a cycle and reads its report.
    pub(crate) async fn end(&self, mut child: Child) -> CycleReport {
        let status = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
        let text = std::fs::read_to_string(self.dir.path().join("report.json")).unwrap_or_default();
        let report =
            CycleReport::parse(&text).unwrap_or_else(|e| panic!("{status}: {e}: {text}\n{}", self.log()));
        assert_eq!(status.code(), Some(report.exit_code().into()));
        report
    }

    /// One whole cycle.
    pub(crate) async fn cycle(&mut self) -> CycleReport {
        let run = self.next_run();
        self.run(&run).await
    }

    /// One attempt of this cycle.
    pub(crate) async fn run(&self, run: &PlanRun) -> CycleReport {
        let child = self.start(run);
        self.end(child).await
    }

    /// A run part for a Job of another kind.
    pub(crate) fn next_job(&mut self, mode: Mode) -> PlanRun {
        let mut run = self.next_run();
        let key = matches!(mode, Mode::Restore { .. }).then(|| format!("token/{}", run.cycle.name));
        run.triggers[0].handled_key = key;
        PlanRun { mode, instructions: vec![], ..run }
    }

    /// A Job of another kind.
    pub(crate) async fn job(&mut self, mode: Mode) -> CycleReport {
        let run = self.next_job(mode);
        self.run(&run).await
    }

    /// HEAD as it now is.
    pub(crate) async fn head(&self) -> Head {
        self.store().await.read_head().await.unwrap().unwrap().head
    }

    /// Id of the current snapshot.
    pub(crate) async fn current(&self) -> String {
        self.head().await.current.unwrap()
    }

    /// Folder of the agent's objects.
    pub(crate) fn objects(&self) -> PathBuf {
        self.dir.path().join("store/shop").join(&self.config.owner.name)
    }

    /// Keys of all objects below `prefix`.
    pub(crate) async fn list(&self, prefix: &str) -> Vec<String> {
        let store = self.store().await;
        let listed = store.store().list(&store.key(prefix)).await.unwrap();
        let own = store.key("");
        listed.into_iter().map(|o| o.key.trim_start_matches(&own).to_owned()).collect()
    }

    /// Lets claims and receipts of outgoing messages look older by so many minutes.
    pub(crate) async fn age_deliveries(&self, minutes: i64) {
        for key in self.list("outbox/").await {
            let path = self.objects().join(&key);
            let mut value: serde_json::Value =
                serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let at: jiff::Timestamp = value["at"].as_str().unwrap().parse().unwrap();
            value["at"] = (at - jiff::SignedDuration::from_mins(minutes)).to_string().into();
            std::fs::write(&path, value.to_string()).unwrap();
        }
    }

    /// Damages an archive: one byte in its middle.
    pub(crate) fn damage(&self, archive: &ArchiveRef) {
        let path = self.objects().join(&archive.key);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x55;
        std::fs::write(path, bytes).unwrap();
    }

    /// Everything that the cycles logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The agent's part of the store.
    pub(crate) async fn store(&self) -> AgentStore {
        let store = cicada_store::open(&self.config.store, None).await.unwrap();
        AgentStore::new(store, "shop", &self.config.owner.name).unwrap()
    }

    async fn fetch(&self, archive: &ArchiveRef, name: &str) -> tempfile::TempDir {
        let store = self.store().await;
        let dir = tempfile::tempdir().unwrap();
        let mut links = vec![];
        for (n, link) in archive.links().unwrap().into_iter().enumerate() {
            let packed = dir.path().join(format!("packed-{n}"));
            store.store().download(&store.key(&link.key), &packed, u64::MAX).await.unwrap();
            links.push(Link {
                archive: packed,
                file_size: link.file_size,
                file_sha256: link.file_sha256.clone(),
            });
        }
        let out = dir.path().join(name);
        cicada_memory::unpack_chain(&launcher(), &links, &out, UnpackLimits::default(), |_| {}).unwrap();
        links.iter().for_each(|link| std::fs::remove_file(&link.archive).unwrap());
        dir
    }

    /// A query on the memory of the current snapshot, as text.
    pub(crate) async fn memory(&self, sql: &str) -> Vec<Vec<String>> {
        let head = self.store().await.read_head().await.unwrap().unwrap().head;
        let dir = self.fetch(head.current().unwrap().memory.as_ref().unwrap(), "memory.db").await;
        let mut worker = MemoryWorker::spawn(&launcher(), dir.path(), MemoryOptions::default()).unwrap();
        text(worker.query(sql, 1000).unwrap_or_else(|e| panic!("{sql}: {e}")))
    }

    /// A query on the ledger of the current snapshot, as text.
    pub(crate) async fn ledger(&self, sql: &str) -> Vec<Vec<String>> {
        let head = self.store().await.read_head().await.unwrap().unwrap().head;
        let dir = self.fetch(head.current().unwrap().ledger.as_ref().unwrap(), "ledger.db").await;
        let mut worker = LedgerWorker::spawn(&launcher(), dir.path(), LedgerOptions::default()).unwrap();
        text(worker.query(sql, 1000).unwrap_or_else(|e| panic!("{sql}: {e}")))
    }

    /// Every file below the folder but the secrets themselves and the packed archives, which are read unpacked.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut found = vec![];
        let mut folders = vec![self.dir.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    if !path.ends_with("secrets") {
                        folders.push(path);
                    }
                } else {
                    found.push(path);
                }
            }
        }
        found
    }

    /// Raw bytes of both current databases.
    pub(crate) async fn databases(&self) -> Vec<Vec<u8>> {
        let head = self.store().await.read_head().await.unwrap().unwrap().head;
        let current = head.current().unwrap();
        let mut all = vec![];
        for (archive, name) in [(&current.memory, "memory.db"), (&current.ledger, "ledger.db")] {
            if let Some(archive) = archive {
                let dir = self.fetch(archive, name).await;
                all.push(std::fs::read(dir.path().join(name)).unwrap());
            }
        }
        all
    }
}

fn launcher() -> Launcher {
    Launcher { program: env!("CARGO_BIN_EXE_cycle-job").into(), prefix_args: vec![] }
}

fn text(rows: Rows) -> Vec<Vec<String>> {
    rows.rows.iter().map(|row| row.iter().map(Value::display).collect()).collect()
}

/// Waits until `condition` holds, at most half a minute.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..600 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what} did not happen within 30 s");
}
