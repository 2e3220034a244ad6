//! A directory of one machine as a store. The layout is the same as in a bucket.
//!
//! A replaced object is written as temporary file + fsync + rename + fsync of the directory, with a lock
//! file held over compare and rename; a created one comes into being by `link`, which fails if the name
//! exists. Locks are `flock`s: released by the kernel when a process dies, so there is nothing to unlock,
//! and not dependable on NFS, so this store is not for network file systems.

mod files;

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use self::files::{CopyError, copy_hashed, etag_of, make_folder, open, sync_folder, unavailable};
use crate::store::{
    BucketFacts, Condition, Downloaded, ETag, GET_MAX_BYTES, Object, ObjectMeta, ObjectStore, RESERVED,
    Result, StoreError, check_key,
};

/// Where unfinished writes lie, below the root; never listed.
const TEMPORARY: &str = ".cicada-tmp";
/// Where lock files lie, below the root; never listed.
const LOCKS: &str = ".cicada-lock";
/// Lock files in all: keys share them by hash, so their number does not grow with the store.
const LOCK_FILES: u8 = 64;
/// A lock is held for one compare and rename, milliseconds. Longer means a stopped process.
const LOCK_WAIT: Duration = Duration::from_secs(30);
/// Most directories that vanish under a writer (removed by a delete of their last object) before it gives up.
const VANISHED_MAX: u32 = 20;

/// A directory as a store.
#[derive(Debug, Clone)]
pub struct DirectoryStore {
    root: PathBuf,
}

impl DirectoryStore {
    /// The directory is made by the first write, not before: reading a wrong path makes nothing.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn path(&self, key: &str) -> Result<PathBuf> {
        check_key(key)?;
        Ok(self.root.join(key))
    }

    /// Runs blocking file work on its own thread.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let this = self.clone();
        match tokio::task::spawn_blocking(move || work(&this)).await {
            Ok(result) => result,
            Err(error) => Err(unavailable("work", "", &io::Error::other(error))),
        }
    }

    /// Takes the lock that writers of `key` share.
    fn lock(&self, key: &str) -> Result<File> {
        let lost = |error| unavailable("lock", key, &error);
        let folder = self.root.join(LOCKS);
        make_folder(&folder).map_err(lost)?;
        let stripe = Sha256::digest(key)[0] % LOCK_FILES;
        let path = folder.join(format!("{stripe:02}"));
        let file = File::options().create(true).truncate(false).write(true).open(path).map_err(lost)?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if start.elapsed() < LOCK_WAIT => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(lost(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "another process holds the lock file",
                    )));
                }
                Err(TryLockError::Error(error)) => return Err(lost(error)),
            }
        }
    }

    /// Writes `source` to a temporary file, to the disk, and gives its path and version.
    fn stage(
        &self,
        key: &str,
        source: &mut dyn Read,
        local: Option<&Path>,
    ) -> Result<(tempfile::TempPath, ETag)> {
        let lost = |error| unavailable("put", key, &error);
        let folder = self.root.join(TEMPORARY);
        make_folder(&folder).map_err(lost)?;
        let mut file = tempfile::Builder::new().prefix("w-").tempfile_in(&folder).map_err(lost)?;
        let (_, hash) =
            copy_hashed(source, file.as_file_mut(), u64::MAX).map_err(|error| match (error, local) {
                (CopyError::Read(source), Some(path)) => StoreError::LocalFile { path: path.into(), source },
                (CopyError::Read(error) | CopyError::Write(error), _) => lost(error),
                (CopyError::TooLarge, _) => StoreError::TooLarge { key: key.into(), limit: u64::MAX },
            })?;
        file.as_file().sync_all().map_err(lost)?;
        Ok((file.into_temp_path(), ETag(hash)))
    }

    fn write(
        &self,
        key: &str,
        source: &mut dyn Read,
        local: Option<&Path>,
        condition: &Condition,
    ) -> Result<ETag> {
        let path = self.path(key)?;
        let lost = |error: io::Error| unavailable("put", key, &error);
        let (staged, etag) = self.stage(key, source, local)?;
        let _lock = self.lock(key)?;
        if let Condition::Match(expected) = condition {
            match etag_of(&path) {
                Ok(found) if found == *expected => {}
                Ok(_) => return Err(StoreError::Precondition { key: key.into() }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(StoreError::Precondition { key: key.into() });
                }
                Err(error) => return Err(lost(error)),
            }
        }
        let folder = path.parent().unwrap_or(&self.root);
        let mut vanished = 0;
        loop {
            make_folder(folder).map_err(lost)?;
            let placed = match condition {
                Condition::Create => fs::hard_link(&staged, &path),
                Condition::Any | Condition::Match(_) => fs::rename(&staged, &path),
            };
            match placed {
                Ok(()) => break,
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists && *condition == Condition::Create =>
                {
                    return Err(StoreError::AlreadyExists { key: key.into() });
                }
                // A delete removed the folder with its last object in between.
                Err(error) if error.kind() == io::ErrorKind::NotFound && vanished < VANISHED_MAX => {
                    vanished += 1
                }
                Err(error) => return Err(lost(error)),
            }
        }
        sync_folder(folder).map_err(lost)?;
        Ok(etag)
    }

    fn remove(&self, key: &str) -> Result<()> {
        let path = self.path(key)?;
        let lost = |error: io::Error| unavailable("delete", key, &error);
        if !self.root.exists() {
            return Ok(());
        }
        let _lock = self.lock(key)?;
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(());
            }
            Err(error) => return Err(lost(error)),
        }
        let mut folder = path.parent();
        if let Some(folder) = folder {
            sync_folder(folder).map_err(lost)?;
        }
        // Empty folders go too; a folder that is not empty refuses, which ends the walk.
        while let Some(empty) = folder.filter(|folder| **folder != *self.root) {
            if fs::remove_dir(empty).is_err() {
                break;
            }
            folder = empty.parent();
        }
        Ok(())
    }

    fn walk(&self, prefix: &str) -> Result<Vec<ObjectMeta>> {
        let lost = |error: io::Error| unavailable("list", prefix, &error);
        let mut found = vec![];
        // Only the folders that the prefix names are walked, not the whole store.
        let base = prefix.rfind('/').map_or("", |end| &prefix[..end]);
        if !base.is_empty() {
            check_key(base)?;
        }
        let mut folders = vec![base.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(self.root.join(&folder)) {
                Ok(entries) => entries,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                {
                    continue;
                }
                Err(error) => return Err(lost(error)),
            };
            for entry in entries {
                let entry = entry.map_err(lost)?;
                // A name that is not UTF-8 can't be a key, so no release of ours wrote it.
                let Ok(name) = entry.file_name().into_string() else { continue };
                if name.starts_with(RESERVED) {
                    continue;
                }
                let key = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                let meta = match entry.metadata() {
                    Ok(meta) => meta,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(lost(error)),
                };
                if meta.is_dir() {
                    if key.starts_with(prefix) || prefix.starts_with(&format!("{key}/")) {
                        folders.push(key);
                    }
                } else if key.starts_with(prefix) {
                    let modified = meta.modified().ok().and_then(|at| Timestamp::try_from(at).ok());
                    found.push(ObjectMeta { key, size: meta.len(), modified: modified.unwrap_or_default() });
                }
            }
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }
}

#[async_trait]
impl ObjectStore for DirectoryStore {
    async fn get(&self, key: &str) -> Result<Object> {
        let key = key.to_owned();
        self.blocking(move |this| {
            let file = open(&this.path(&key)?, "get", &key)?;
            let mut bytes = vec![];
            file.take(GET_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| unavailable("get", &key, &e))?;
            if bytes.len() as u64 > GET_MAX_BYTES {
                return Err(StoreError::TooLarge { key, limit: GET_MAX_BYTES });
            }
            let etag = ETag(hex::encode(Sha256::digest(&bytes)));
            Ok(Object { bytes: bytes.into(), etag })
        })
        .await
    }

    async fn download(&self, key: &str, file: &Path, max_bytes: u64) -> Result<Downloaded> {
        let (key, target) = (key.to_owned(), file.to_owned());
        self.blocking(move |this| {
            let mut source = open(&this.path(&key)?, "download", &key)?;
            let local = |source| StoreError::LocalFile { path: target.clone(), source };
            let mut out = File::create(&target).map_err(local)?;
            let copied = copy_hashed(&mut source, &mut out, max_bytes);
            copied.map(|(size, sha256)| Downloaded { size, sha256 }).map_err(|error| {
                // The half of a file must not be taken for a whole one; the caller gets the first error.
                let _ = fs::remove_file(&target);
                match error {
                    CopyError::Read(error) => unavailable("download", &key, &error),
                    CopyError::Write(error) => local(error),
                    CopyError::TooLarge => StoreError::TooLarge { key: key.clone(), limit: max_bytes },
                }
            })
        })
        .await
    }

    async fn put(&self, key: &str, bytes: Bytes, condition: Condition) -> Result<ETag> {
        let key = key.to_owned();
        self.blocking(move |this| this.write(&key, &mut bytes.as_ref(), None, &condition)).await
    }

    async fn upload(&self, key: &str, file: &Path, condition: Condition) -> Result<ETag> {
        let (key, path) = (key.to_owned(), file.to_owned());
        self.blocking(move |this| {
            let mut source =
                File::open(&path).map_err(|source| StoreError::LocalFile { path: path.clone(), source })?;
            this.write(&key, &mut source, Some(&path), &condition)
        })
        .await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let key = key.to_owned();
        self.blocking(move |this| this.remove(&key)).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>> {
        let prefix = prefix.to_owned();
        self.blocking(move |this| this.walk(&prefix)).await
    }

    async fn sweep(&self, _: &str, before: Timestamp) -> Result<usize> {
        // Temporary files carry no key: those of all agents go together.
        self.blocking(move |this| {
            let lost = |error: io::Error| unavailable("sweep", TEMPORARY, &error);
            let entries = match fs::read_dir(this.root.join(TEMPORARY)) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
                Err(error) => return Err(lost(error)),
            };
            let mut swept = 0;
            for entry in entries {
                let entry = entry.map_err(lost)?;
                let modified = entry.metadata().and_then(|meta| meta.modified()).ok();
                let began = modified.and_then(|at| Timestamp::try_from(at).ok());
                if began.is_some_and(|began| began < before) && fs::remove_file(entry.path()).is_ok() {
                    swept += 1;
                }
            }
            Ok(swept)
        })
        .await
    }

    async fn facts(&self) -> BucketFacts {
        BucketFacts::NONE
    }

    fn needs_probe(&self) -> bool {
        false
    }

    fn location(&self) -> String {
        format!("file://{}", self.root.display())
    }
}
