//! Files and folders of the directory: what fails is put into the words of a store.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};

use sha2::{Digest, Sha256};

use crate::store::{ETag, Result, StoreError, is_no_room};

pub(super) fn unavailable(operation: &'static str, key: &str, error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            StoreError::NotPermitted { operation, key: key.into(), what: error.kind().to_string() }
        }
        _ if is_no_room(error) => StoreError::NoRoom { key: key.into(), source: copy_of(error) },
        _ => StoreError::Unavailable {
            operation,
            key: key.into(),
            what: error.kind().to_string(),
            source: Some(copy_of(error).into()),
        },
    }
}

/// `io::Error` can't be cloned; kind and text are what a chain shows.
fn copy_of(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

pub(super) fn open(path: &Path, operation: &'static str, key: &str) -> Result<File> {
    let missing = || StoreError::NotFound { key: key.into() };
    match File::open(path) {
        Ok(file) if file.metadata().is_ok_and(|meta| meta.is_dir()) => Err(missing()),
        Ok(file) => Ok(file),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Err(missing())
        }
        Err(error) => Err(unavailable(operation, key, &error)),
    }
}

pub(super) fn etag_of(path: &Path) -> io::Result<ETag> {
    let mut hash = Sha256::new();
    io::copy(&mut File::open(path)?, &mut hash)?;
    Ok(ETag(hex::encode(hash.finalize())))
}

/// Makes a folder and those above it, each one durable before something is put into it.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_folder(parent)?;
        match fs::create_dir(folder) {
            Ok(()) => return sync_folder(parent),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => return Ok(()),
            // The parent went with its last object in between; the caller's own loop makes it again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    fs::create_dir_all(folder)
}

pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder) {
        Ok(handle) => handle.sync_all(),
        // Removed with its last object since: the name that it held is gone as well.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

pub(super) enum CopyError {
    Read(io::Error),
    Write(io::Error),
    TooLarge,
}

/// Copies at most `max` bytes and hashes them on the way.
pub(super) fn copy_hashed(
    source: &mut dyn Read,
    target: &mut dyn Write,
    max: u64,
) -> Result<(u64, String), CopyError> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    let mut size = 0_u64;
    loop {
        let n = match source.read(&mut buffer) {
            Ok(0) => return Ok((size, hex::encode(hash.finalize()))),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CopyError::Read(error)),
        };
        size += n as u64;
        if size > max {
            return Err(CopyError::TooLarge);
        }
        hash.update(&buffer[..n]);
        target.write_all(&buffer[..n]).map_err(CopyError::Write)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_no_matter_of_credentials() {
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem] {
            let error = unavailable("put", "shop/clerk/HEAD.json", &kind.into());
            let text = error.to_string();
            assert!(text.starts_with("no permission to put `shop/clerk/HEAD.json`"), "{text}");
            assert!(text.contains(&kind.to_string()) && !error.is_retryable(), "{text}");
        }
    }
}
