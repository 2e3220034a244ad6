//! What the tests share.

use std::path::PathBuf;
use std::time::Duration;

use cicada_contract::plan::{Executor, Owner, PlanConfig, SqlSource, StoreConfig};
use cicada_memory::{Launcher, LedgerOptions, LedgerWorker, MemoryOptions, MemoryWorker};
use jiff::Timestamp;

/// The worker program of this crate.
pub(crate) fn launcher() -> Launcher {
    Launcher { program: env!("CARGO_BIN_EXE_cicada-memory-worker").into(), prefix_args: vec![] }
}

/// A folder with workers.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["memory", "ledger"] {
            std::fs::create_dir_all(dir.path().join(name).join("files")).unwrap();
        }
        Self { dir }
    }

    pub(crate) fn memory_dir(&self) -> PathBuf {
        self.dir.path().join("memory")
    }

    pub(crate) fn file(&self, name: &str, content: &str) {
        std::fs::write(self.memory_dir().join("files").join(name), content).unwrap();
    }

    pub(crate) fn memory(&self) -> MemoryWorker {
        self.memory_with(options())
    }

    pub(crate) fn memory_with(&self, options: MemoryOptions) -> MemoryWorker {
        MemoryWorker::spawn(&launcher(), &self.memory_dir(), options).unwrap()
    }

    pub(crate) fn ledger(&self) -> LedgerWorker {
        LedgerWorker::spawn(&launcher(), &self.dir.path().join("ledger"), LedgerOptions::default()).unwrap()
    }
}

/// Small bounds, so that a test that runs into one is quick.
pub(crate) fn options() -> MemoryOptions {
    MemoryOptions::new(64 << 20, 64 << 20, Duration::from_secs(2))
}

pub(crate) fn config() -> PlanConfig {
    let owner = Owner {
        cluster: "local".into(),
        namespace: "shop".into(),
        name: "price-watch".into(),
        ..Owner::default()
    };
    let store = StoreConfig::Directory { path: "/store".into(), claim_name: None };
    let executor = Executor::Sql(SqlSource::Inline("SELECT 1".into()));
    PlanConfig { charter: "Watch prices.".into(), ..PlanConfig::new(owner, store, executor) }
}

pub(crate) fn now() -> Timestamp {
    "2026-12-01T12:00:00Z".parse().unwrap()
}
