//! Files: those of the manifest are read, the agent's own are written too and kept in the store.

use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use cicada_contract::text::cut;
use cicada_memory::ledger::FileEntry;
use cicada_store::StoreError;

use super::ModelError;
use super::desk::{Desk, Said};
use super::results;
use crate::context::Context;
use crate::download::measure;
use crate::phase::acquire::Claim;

/// Where the agent's own files lie below `files/` of the store.
pub(crate) const PREFIX: &str = "agent/";
/// Largest own file.
pub(crate) const FILE_BYTES: u64 = 1 << 20;
/// Most own files.
const FILES: usize = 200;

/// A relative path without `..`, of at most 512 bytes of plain names.
fn safe(path: &str) -> Option<&Path> {
    let p = Path::new(path);
    let plain = !path.is_empty() && path.len() <= 512 && !path.contains(['\\', '\0']) && !path.ends_with('/');
    (plain && p.components().all(|c| matches!(c, Component::Normal(_)))).then_some(p)
}

/// Opens a file below `root` for reading. Nothing on the way may be a link: the worker that runs the
/// agent's SQL can write this folder, and must not be able to make us read another.
fn open_inside(root: &Path, path: &Path) -> std::io::Result<std::fs::File> {
    let root = root.canonicalize()?;
    let real = root.join(path).canonicalize()?;
    if real != root.join(path) {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "a link"));
    }
    let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(real)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(std::io::ErrorKind::InvalidInput.into()) }
}

/// Puts the agent's own files of earlier cycles into the working directory.
pub(super) async fn restore(
    cx: &Context,
    claim: &Claim,
    files: &mut Vec<FileEntry>,
) -> Result<(), ModelError> {
    for stored in claim.store.list_files().await? {
        let Some(path) = stored.key.strip_prefix(PREFIX).and_then(|p| Some((p, safe(p)?))) else { continue };
        if files.iter().any(|f| f.path == path.0) {
            continue;
        }
        let target = cx.work.files().join(path.1);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        match claim.store.fetch_file(&stored.key, &target, FILE_BYTES).await {
            Ok(_) => files.push(entry(path.0, &target)?),
            Err(StoreError::NotFound { .. } | StoreError::TooLarge { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn entry(path: &str, target: &Path) -> std::io::Result<FileEntry> {
    let (size, sha256) = measure(target)?;
    Ok(FileEntry { path: path.to_owned(), mime_type: None, size, sha256 })
}

impl Desk<'_> {
    pub(super) fn read_file(&mut self, path: &str, offset: u64, limit: u64) -> Said {
        let Some(relative) = safe(path) else {
            return Said::error(format!("{:?} is not a path of __files", cut(path, 200)));
        };
        let mut bytes = vec![];
        let read = open_inside(&self.cx.work.files(), relative)
            .and_then(|file| file.take(64 << 20).read_to_end(&mut bytes));
        if read.is_err() {
            let known: Vec<&str> = self.files.iter().take(20).map(|f| f.path.as_str()).collect();
            return Said::error(format!(
                "there is no file {:?}; __files has: {}",
                cut(path, 200),
                known.join(", ")
            ));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Said::ok(results::slice(path, &text, offset, limit)),
            Err(_) => Said::error("the file is not text; load_table reads CSV, JSON and SQLite files"),
        }
    }

    pub(super) fn write_file(&mut self, path: &str, content: &str, append: bool) -> Result<Said, ModelError> {
        let Some(relative) = safe(path) else {
            return Ok(Said::error(format!("{:?} is not a relative path without ..", cut(path, 200))));
        };
        if self.cx.plan.config.files.iter().any(|f| f.path == path) {
            return Ok(Said::error(format!(
                "{path} comes from the manifest and is read-only; write under another name"
            )));
        }
        let own =
            self.files.iter().filter(|f| !self.cx.plan.config.files.iter().any(|m| m.path == f.path)).count();
        if own >= FILES && !self.files.iter().any(|f| f.path == path) {
            return Ok(Said::error(format!(
                "{FILES} files of your own are the most; write into one that exists"
            )));
        }
        let root = self.cx.work.files();
        let mut old = String::new();
        if append && let Ok(file) = open_inside(&root, relative) {
            file.take(FILE_BYTES).read_to_string(&mut old)?;
        }
        if (old.len() + content.len()) as u64 > FILE_BYTES {
            return Ok(Said::error(format!(
                "a file may have {FILE_BYTES} bytes; this would have {}",
                old.len() + content.len()
            )));
        }
        let target = root.join(relative);
        write_new(&target, &root, relative, &format!("{old}{content}"))?;
        let entry = entry(path, &target)?;
        let size = entry.size;
        self.files.retain(|f| f.path != path);
        self.files.push(entry);
        self.written.insert(path.to_owned());
        self.changed("__files");
        Ok(Said::ok(format!("{path} has {size} bytes now")))
    }

    /// Uploads the files that this cycle wrote.
    pub(in crate::executor) async fn store_files(&mut self) -> Result<(), ModelError> {
        for path in std::mem::take(&mut self.written) {
            self.claim.store.put_file(&format!("{PREFIX}{path}"), &self.cx.work.files().join(&path)).await?;
        }
        Ok(())
    }
}

/// Replaces a file by one that is new, so that a link of the same name is not followed.
fn write_new(target: &Path, root: &Path, relative: &Path, content: &str) -> std::io::Result<()> {
    if let Some(parent) = relative.parent() {
        std::fs::create_dir_all(root.join(parent))?;
        let real: PathBuf = root.join(parent).canonicalize()?;
        if real != root.canonicalize()?.join(parent) {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "a link"));
        }
    }
    match std::fs::remove_file(target) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    std::fs::OpenOptions::new().write(true).create_new(true).open(target)?.write_all(content.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_out() {
        for bad in ["", "/etc/passwd", "../x", "a/../../x", "a\\b", "a/", "./a", "a\0b"] {
            assert!(safe(bad).is_none(), "{bad}");
        }
        assert!(safe("notes/today.md").is_some());
    }

    #[test]
    fn a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("files");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(dir.path().join("secret"), "canary").unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), root.join("a.txt")).unwrap();
        std::os::unix::fs::symlink(dir.path(), root.join("d")).unwrap();
        assert!(open_inside(&root, Path::new("a.txt")).is_err());
        assert!(open_inside(&root, Path::new("d/secret")).is_err());
        write_new(&root.join("a.txt"), &root, Path::new("a.txt"), "own").unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("secret")).unwrap(), "canary");
        assert!(write_new(&root.join("d/secret"), &root, Path::new("d/secret"), "own").is_err());
        assert!(open_inside(&root, Path::new("a.txt")).is_ok());
    }
}
