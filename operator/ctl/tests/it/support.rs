//! A folder with an agent whose executor is plain SQL, and the program itself.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cicada_memory::{Launcher, LedgerOptions, LedgerWorker};
use cicada_store::{AgentStore, Archive, DirectoryStore, PublishRequest, SnapshotKind};
use serde_json::Value;

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_cicadactl");
/// What the agent does each cycle: one row more.
pub(crate) const VISIT: &str = "CREATE TABLE IF NOT EXISTS visits(n INTEGER PRIMARY KEY, note TEXT); \
                                INSERT INTO visits(note) VALUES ('visit');";

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Its output. Panics if it did not exit with 0.
    #[track_caller]
    pub(crate) fn must(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out
    }

    /// What it said on standard error. Panics if it did not exit with this code.
    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        self.err
    }
}

/// A folder of `cicadactl local` with the agent `shop/clerk`.
pub(crate) struct Folder {
    pub(crate) dir: tempfile::TempDir,
}

impl Folder {
    /// With an agent that does `sql`.
    pub(crate) fn new(sql: &str) -> Self {
        let folder = Self { dir: tempfile::tempdir().unwrap() };
        folder.manifest("clerk", sql, "");
        folder
    }

    /// With an agent that has run `cycles` times.
    pub(crate) fn after(cycles: usize) -> Self {
        let folder = Self::new(VISIT);
        for _ in 0..cycles {
            folder.cycle();
        }
        folder
    }

    /// Writes an agent's manifest; `more` are further lines of its spec.
    pub(crate) fn manifest(&self, name: &str, sql: &str, more: &str) {
        let text = format!(
            "apiVersion: cicada.dev/v1alpha1\nkind: PersistentAgent\nmetadata: {{name: {name}, namespace: shop}}\nspec:\n  \
             charter: Count visits.\n  executor:\n    sql:\n      inline: |\n        {}\n{more}",
            sql.replace('\n', "\n        ")
        );
        std::fs::write(self.dir.path().join(format!("{name}.yaml")), text).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// One cycle that must succeed.
    #[track_caller]
    pub(crate) fn cycle(&self) -> String {
        run(&["local", &self.path().display().to_string(), "--once"]).must()
    }

    /// A command on the folder: `--local` is added.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        let dir = self.path().display().to_string();
        run(&[args, &["--local", &dir]].concat())
    }

    /// A query on the agent's memory; the first cell of the first row.
    #[track_caller]
    pub(crate) fn ask(&self, sql: &str) -> String {
        let out = self.run(&["query", "shop/clerk", sql, "-o", "csv"]).must();
        out.lines().nth(1).unwrap_or_default().to_owned()
    }

    /// The agent's part of the store.
    pub(crate) fn agent_dir(&self) -> PathBuf {
        self.path().join(".cicada/store/shop/clerk")
    }

    pub(crate) fn head(&self) -> Value {
        head_of(&self.agent_dir())
    }

    /// HEAD of another agent of the namespace.
    pub(crate) fn head_of(&self, name: &str) -> Value {
        head_of(&self.path().join(".cicada/store/shop").join(name))
    }

    /// Ids of the snapshots, oldest first.
    pub(crate) fn snapshots(&self) -> Vec<String> {
        ids(&self.head())
    }

    /// The store as the library opens it.
    pub(crate) fn store(&self) -> AgentStore {
        let store = DirectoryStore::new(self.path().join(".cicada/store"));
        AgentStore::new(Arc::new(store), "shop", "clerk").unwrap()
    }

    /// Changes a byte in the middle of a snapshot's archive of the memory.
    pub(crate) fn damage(&self, id: &str) {
        let head = self.head();
        let snapshot = head["snapshots"].as_array().unwrap().iter().find(|s| s["id"] == id).unwrap();
        let path = self.agent_dir().join(snapshot["memory"]["key"].as_str().unwrap());
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        // The store makes archives read-only for everybody, but this test may be root or not.
        let _ = std::fs::remove_file(&path);
        std::fs::write(path, bytes).unwrap();
    }

    /// Publishes a snapshot with a changed ledger, as a cycle would.
    pub(crate) fn change_ledger(&self, change: impl FnOnce(&mut LedgerWorker)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = self.store();
            let head = store.read_head().await.unwrap().unwrap().head;
            let dir = tempfile::tempdir().unwrap();
            let archive = head.current().unwrap().ledger.clone().unwrap();
            let (packed, file) = (dir.path().join("l.zst"), dir.path().join("ledger.db"));
            store.store().download(&store.key(&archive.key), &packed, u64::MAX).await.unwrap();
            let launcher = Launcher { program: PROGRAM.into(), prefix_args: vec![] };
            let limits = cicada_memory::UnpackLimits::default();
            cicada_memory::unpack(&launcher, &packed, &file, limits, &archive.file_sha256).unwrap();
            let mut ledger = LedgerWorker::spawn(&launcher, dir.path(), LedgerOptions::default()).unwrap();
            change(&mut ledger);
            let now = jiff::Timestamp::now();
            ledger.seal(&cicada_contract::plan::Retention::default(), now).unwrap();
            let mut writer = hold(&store, "test", now).await;
            let packed = cicada_store::pack(&file, &dir.path().join("new.zst")).await.unwrap();
            let request = PublishRequest {
                ledger: Archive::New(packed),
                done: true,
                ..PublishRequest::new(SnapshotKind::Final, now)
            };
            writer.publish(request).await.unwrap();
        });
    }

    /// A cycle that is at work: it holds the memory until a minute from now.
    pub(crate) fn busy(&self) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(hold(&self.store(), "clerk-busy", jiff::Timestamp::now()));
    }
}

async fn hold(store: &AgentStore, cycle: &str, now: jiff::Timestamp) -> cicada_store::Writer {
    let head = store.read_head().await.unwrap().unwrap().head;
    let owner = cicada_contract::plan::Owner {
        cluster: head.owner.cluster.clone(),
        namespace: "shop".into(),
        name: "clerk".into(),
        uid: head.owner.uid.clone(),
        namespace_uid: String::new(),
    };
    let cycle = cicada_contract::plan::CycleIdentity { name: cycle.into(), uid: format!("{cycle}-{now}") };
    let deadline = now + jiff::SignedDuration::from_mins(1);
    let request = cicada_store::AcquireRequest {
        has_other_triggers: true,
        ..cicada_store::AcquireRequest::new(owner, cycle, deadline, now)
    };
    match store.acquire(request).await.unwrap() {
        cicada_store::Acquisition::Held(acquired) => acquired.writer,
        handled @ cicada_store::Acquisition::AlreadyHandled(_) => panic!("{handled:?}"),
    }
}

pub(crate) fn head_of(agent: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(agent.join("HEAD.json")).unwrap()).unwrap()
}

pub(crate) fn ids(head: &Value) -> Vec<String> {
    head["snapshots"].as_array().unwrap().iter().map(|s| s["id"].as_str().unwrap().to_owned()).collect()
}

/// The program with nothing of this process's own settings.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args).stdin(Stdio::null()).env("KUBECONFIG", "/nonexistent");
    // Nothing answers there, and the SDK would wait for it.
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    for name in ["CICADA_STORE", "AWS_ENDPOINT_URL", "AWS_REGION", "CICADA_MODEL_URL", "OPENAI_API_KEY"] {
        command.env_remove(name);
    }
    command
}

/// Names below "Commands:" of a help text.
pub(crate) fn commands(help: &str) -> Vec<String> {
    let rest = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    rest.lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// Runs the program to its end.
pub(crate) fn run(args: &[&str]) -> Ran {
    finish(command(args))
}

pub(crate) fn finish(mut command: Command) -> Ran {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Waits for something.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{what} did not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A `cicadactl local` without `--once`; ended with the value.
pub(crate) struct Running(Child);

impl Running {
    /// On a folder, once it has said that it runs.
    pub(crate) fn start(folder: &Folder) -> Self {
        let dir = folder.path().display().to_string();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut command = command(&["local", &dir]);
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let running = Self(child);
        wait_for("the start", || Self::log(folder).contains("running ").then_some(()));
        running
    }

    /// What it has said so far.
    pub(crate) fn log(folder: &Folder) -> String {
        std::fs::read_to_string(folder.path().join("log")).unwrap_or_default()
    }

    /// SIGTERM, and its exit code.
    pub(crate) fn end(mut self) -> Option<i32> {
        Command::new("kill").arg(self.0.id().to_string()).status().unwrap();
        self.0.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
