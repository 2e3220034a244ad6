//! The working directory of one cycle: what lies where, and that it starts empty.

use std::io;
use std::path::{Path, PathBuf};

/// Paths below the working directory. The two databases lie in folders of their own, because a
/// sandboxed child may touch its own folder only.
#[derive(Debug, Clone)]
pub struct WorkDir {
    root: PathBuf,
}

impl WorkDir {
    /// Makes `root` empty: a container that restarts in the same pod finds its predecessor's files.
    /// Only our own folders are removed, so a wrong `--work` loses nothing.
    pub fn prepare(root: &Path) -> io::Result<Self> {
        let this = Self { root: root.to_owned() };
        for folder in [this.memory(), this.ledger(), this.archives(), this.scratch()] {
            match std::fs::remove_dir_all(&folder) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => std::fs::create_dir_all(&folder)?,
            }
        }
        std::fs::create_dir_all(this.files())?;
        Ok(this)
    }

    /// Folder of `memory.db`, and of the files that SQL may load.
    pub fn memory(&self) -> PathBuf {
        self.root.join("memory")
    }

    /// Folder of `ledger.db`.
    pub fn ledger(&self) -> PathBuf {
        self.root.join("ledger")
    }

    /// The files of the manifest, below the memory's folder.
    pub fn files(&self) -> PathBuf {
        self.memory().join("files")
    }

    /// The memory file.
    pub fn memory_db(&self) -> PathBuf {
        self.memory().join("memory.db")
    }

    /// The ledger file.
    pub fn ledger_db(&self) -> PathBuf {
        self.ledger().join("ledger.db")
    }

    /// Downloaded and finished archives.
    pub fn archives(&self) -> PathBuf {
        self.root.join("archives")
    }

    /// Where archives are unpacked by a child that sees nothing else.
    pub fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }
}
