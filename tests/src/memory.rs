//! The check of every persisted memory, by the programs that any user has: `zstd`, `sqlite3`, `sha256sum`.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::bucket::AgentFolder;
use crate::shell::run;

/// Names of the mounted tables, none of which may ever be in a persisted memory.
pub const MOUNTS: [&str; 8] = [
    "__messages",
    "__files",
    "__contacts",
    "__agent_config",
    "__agent_schedules",
    "__agent_skills",
    "__tool_results",
    "__kanban_cards",
];

/// The current snapshot of an agent, unpacked.
#[derive(Debug)]
pub struct Unpacked {
    _folder: TempDir,
    /// The memory as a plain SQLite file.
    pub memory: PathBuf,
    /// The ledger as a plain SQLite file.
    pub ledger: PathBuf,
}

impl Unpacked {
    /// Unpacks the current snapshot and checks what holds on every persist path: the archives are those
    /// of HEAD, byte for byte; both files are sound SQLite databases; the memory's schema holds nothing
    /// of the platform; no mounted table's name stands in its bytes; the store's secret is nowhere.
    #[track_caller]
    pub fn check(agent: &AgentFolder) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let snapshot = agent.current();
        let unpack = |name: &str| {
            let archive = &snapshot[name];
            let packed =
                agent.object(archive["key"].as_str().unwrap_or_else(|| panic!("no {name} in {snapshot:#}")));
            assert_eq!(sha256(&packed), archive["archiveSha256"], "archive of {name}");
            let file = folder.path().join(format!("{name}.db"));
            run("zstd", ["-q", "-d", &packed.to_string_lossy(), "-o", &file.to_string_lossy()]).must();
            assert_eq!(sha256(&file), archive["fileSha256"], "file of {name}");
            assert_eq!(query(&file, "PRAGMA integrity_check"), "ok", "{name}");
            file
        };
        let unpacked = Self { memory: unpack("memory"), ledger: unpack("ledger"), _folder: folder };
        for name in unpacked.schema_names() {
            assert!(!name.starts_with("__"), "{name} was persisted");
        }
        for mount in MOUNTS {
            assert!(!contains(&unpacked.memory, mount), "the name {mount} stands in the memory's bytes");
        }
        let secret = std::env::var("CICADA_S3_SECRET_KEY").unwrap_or_default();
        if !secret.is_empty() {
            for file in [&unpacked.memory, &unpacked.ledger] {
                assert!(!contains(file, &secret), "the store's secret stands in {}", file.display());
            }
            for key in agent.keys().iter().filter(|key| !key.ends_with(".db.zst")) {
                assert!(!contains(&agent.object(key), &secret), "the store's secret stands in {key}");
            }
        }
        unpacked
    }

    /// Names of the memory's tables, views, indexes and triggers, without SQLite's own.
    pub fn schema_names(&self) -> Vec<String> {
        self.sql("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name")
            .lines()
            .map(String::from)
            .collect()
    }

    /// Names of the memory's tables.
    pub fn tables(&self) -> Vec<String> {
        self.sql("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name")
            .lines()
            .map(String::from)
            .collect()
    }

    /// The answer of a query on the memory, columns parted by `|`, one row a line.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> String {
        query(&self.memory, sql)
    }

    /// The answer of a query on the ledger.
    #[track_caller]
    pub fn ledger_sql(&self, sql: &str) -> String {
        query(&self.ledger, sql)
    }

    /// True if the text stands anywhere in the memory's bytes, free pages included.
    pub fn memory_contains(&self, text: &str) -> bool {
        contains(&self.memory, text)
    }
}

/// SHA-256 of a file, by the command-line tool.
#[track_caller]
pub fn sha256(file: &Path) -> String {
    run("sha256sum", [file]).must().split_whitespace().next().unwrap().to_owned()
}

/// The answer of a query, by the command-line tool, on a file opened read-only.
#[track_caller]
pub fn query(file: &Path, sql: &str) -> String {
    run("sqlite3", ["-readonly", "-batch", &file.to_string_lossy(), sql]).must().trim_end().to_owned()
}

/// True if the text's bytes stand anywhere in the file.
pub fn contains(file: &Path, text: &str) -> bool {
    let bytes = std::fs::read(file).unwrap();
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}
