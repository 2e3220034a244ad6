//! The bucket as the S3 server keeps it: one plain file per object.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// What lies below `<prefix>/<namespace>/<agent>/`.
#[derive(Debug, Clone)]
pub struct AgentFolder(PathBuf);

impl AgentFolder {
    /// The folder of an agent.
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// HEAD, if there is one.
    pub fn head(&self) -> Option<Value> {
        let text = std::fs::read_to_string(self.0.join("HEAD.json")).ok()?;
        Some(serde_json::from_str(&text).expect("HEAD is JSON"))
    }

    /// HEAD; panics if there is none.
    #[track_caller]
    pub fn must_head(&self) -> Value {
        self.head().unwrap_or_else(|| panic!("there is no HEAD in {}", self.0.display()))
    }

    /// HEAD's current snapshot; panics if there is none.
    #[track_caller]
    pub fn current(&self) -> Value {
        let head = self.must_head();
        let snapshots = head["snapshots"].as_array().cloned().unwrap_or_default();
        let current =
            snapshots.into_iter().find(|s| s["id"] == head["current"] && head["current"].is_string());
        current.unwrap_or_else(|| panic!("HEAD has no current snapshot: {head:#}"))
    }

    /// Keys of all objects, below the folder, sorted.
    pub fn keys(&self) -> Vec<String> {
        fn walk(folder: &Path, base: &Path, keys: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    walk(&path, base, keys);
                } else {
                    keys.push(path.strip_prefix(base).unwrap().to_string_lossy().into_owned());
                }
            }
        }
        let mut keys = vec![];
        walk(&self.0, &self.0, &mut keys);
        keys.sort();
        keys
    }

    /// Path of an object.
    pub fn object(&self, key: &str) -> PathBuf {
        self.0.join(key)
    }
}
