//! A file system with little room.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Mounted as long as it lives.
pub(crate) struct SmallDisk {
    pub(crate) path: PathBuf,
}

impl SmallDisk {
    /// Of `kib` KiB at `path`.
    pub(crate) fn mount(path: &Path, kib: u32) -> Self {
        std::fs::create_dir_all(path).unwrap();
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "tmpfs"])
            .arg(path)
            .status()
            .unwrap();
        assert!(status.success(), "a small file system can't be mounted: this test needs root");
        Self { path: path.to_owned() }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
    }
}
