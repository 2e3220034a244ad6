//! Folders for what passes through this machine: memories among it, so they are their user's only. Each goes
//! with its value; those of a process that was killed go with the next command.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

/// Beginning of the names of temporary folders.
const PREFIX: &str = "cicadactl-";
/// The same beside what people asked for: a folder that is not shown.
const HIDDEN_PREFIX: &str = ".cicadactl-";
/// A file in each folder, locked as long as its process lives. One without it is nobody's business.
const LOCK: &str = ".lock";

/// Folders that this process has now.
static MINE: Mutex<Vec<PathBuf>> = Mutex::new(vec![]);

/// A folder that goes with the value.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// In the system's folder for such.
    pub(crate) fn new() -> io::Result<Self> {
        Self::make(&std::env::temp_dir(), PREFIX)
    }

    /// In `parent`, for what is to be renamed to a name beside it.
    pub(crate) fn beside(parent: &Path) -> io::Result<Self> {
        Self::make(parent, HIDDEN_PREFIX)
    }

    fn make(parent: &Path, prefix: &str) -> io::Result<Self> {
        Self::try_make(parent, prefix).map_err(|error| {
            let what = format!(
                "can't make a temporary folder in {} (TMPDIR names another): {error}",
                parent.display()
            );
            io::Error::new(error.kind(), what)
        })
    }

    fn try_make(parent: &Path, prefix: &str) -> io::Result<Self> {
        let private = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix(prefix).permissions(private).tempdir_in(parent)?;
        mine().push(folder.path().to_owned());
        let lock = locked(folder.path())?;
        sweep(parent, prefix, folder.path());
        Ok(Self { folder, _lock: lock })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves it to its user.
    pub(crate) fn keep(mut self) -> io::Result<PathBuf> {
        std::fs::remove_file(self.path().join(LOCK))?;
        self.folder.disable_cleanup(true);
        Ok(self.path().to_owned())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        mine().retain(|path| path != self.folder.path());
    }
}

fn mine() -> MutexGuard<'static, Vec<PathBuf>> {
    MINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what this process has, for one that ends at once.
pub(crate) fn remove_all() {
    for path in mine().drain(..) {
        // A file that is being written at this moment stays; the next command finds it.
        let _ = std::fs::remove_dir_all(path);
    }
}

/// Locks the folder for this process. The file gets its name when it is locked: nobody meets it before.
fn locked(folder: &Path) -> io::Result<File> {
    let unnamed = folder.join(".locking");
    let file = File::create(&unnamed)?;
    file.lock()?;
    std::fs::rename(unnamed, folder.join(LOCK))?;
    Ok(file)
}

/// Removes what dead processes of the same user left in `parent`.
fn sweep(parent: &Path, prefix: &str, own: &Path) {
    let user = |meta: std::fs::Metadata| meta.uid();
    let Ok(me) = own.symlink_metadata().map(user) else { return };
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let named = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
        // Of the entry itself: a link leads to what is somebody else's.
        let is_mine = entry.metadata().is_ok_and(|meta| meta.is_dir() && user(meta) == me);
        if named && is_mine && path != own && is_left_behind(&path) {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

fn is_left_behind(folder: &Path) -> bool {
    File::open(folder.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_dead_left_behind_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let alive = Scratch::make(parent.path(), PREFIX).unwrap();
        let kept = Scratch::make(parent.path(), PREFIX).unwrap().keep().unwrap();
        let dead = parent.path().join("cicadactl-dead");
        std::fs::create_dir_all(dead.join("memory")).unwrap();
        std::fs::write(dead.join(LOCK), "").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join(LOCK), "").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), parent.path().join("cicadactl-link")).unwrap();
        std::fs::create_dir(parent.path().join("cicadactl-notes")).unwrap();
        let mode = alive.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);

        drop(Scratch::make(parent.path(), PREFIX).unwrap());
        assert!(!dead.exists());
        for stays in [alive.path(), &kept, elsewhere.path(), &parent.path().join("cicadactl-notes")] {
            assert!(stays.exists(), "{}", stays.display());
        }
    }
}
