//! Packing one SQLite file into one zstd frame, which `zstd -d` unpacks.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use crate::{head::ArchiveRef, store::is_no_room};

/// Level 3: higher ones cost more processor time than they save in upload time on SQLite files.
pub(crate) const LEVEL: i32 = 3;
/// From this file size on two workers compress, bytes; below it starting them costs more than it saves.
const WORKERS_FROM: u64 = 20 << 20;
/// Base-2 logarithm of the largest window that a restore accepts.
pub const WINDOW_LOG_MAX: u32 = 24;

/// An archive on this machine that waits for its upload. Sizes in bytes, hashes lower-case hexadecimal.
#[derive(Debug, Clone, PartialEq)]
pub struct PackedArchive {
    /// The archive.
    pub path: PathBuf,
    /// SHA-256 of the file inside.
    pub file_sha256: String,
    /// SHA-256 of the archive.
    pub archive_sha256: String,
    /// Of the file inside.
    pub file_size: u64,
    /// Of the archive.
    pub archive_size: u64,
    /// The archive that it holds the changes against; None = a whole file.
    pub parent: Option<Arc<ArchiveRef>>,
}

impl PackedArchive {
    /// As HEAD names it once it lies under `key`, made at `now`.
    pub fn to_ref(&self, key: String, now: Timestamp) -> ArchiveRef {
        ArchiveRef {
            key,
            file_sha256: self.file_sha256.clone(),
            archive_sha256: self.archive_sha256.clone(),
            file_size: self.file_size,
            archive_size: self.archive_size,
            parent: self.parent.as_ref().map(|parent| parent.key.clone()),
            base: self.parent.clone(),
            made_at: Some(now),
            unknown: std::collections::BTreeMap::new(),
        }
    }
}

/// Why a file could not be packed: local disk or reading. Never the store's fault.
#[derive(Debug, thiserror::Error)]
#[error("could not pack {} into {}", file.display(), archive.display())]
pub struct PackError {
    pub(crate) file: PathBuf,
    pub(crate) archive: PathBuf,
    /// Why.
    #[source]
    pub(crate) source: io::Error,
}

impl PackError {
    /// True if the local disk is full.
    pub fn is_disk_full(&self) -> bool {
        is_no_room(&self.source)
    }

    /// Packing fails for reasons of this machine; the same call would fail again.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// Packs `file` into a new file `archive`, reading it once, with constant memory.
pub async fn pack(file: &Path, archive: &Path) -> Result<PackedArchive, PackError> {
    let (from, to) = (file.to_owned(), archive.to_owned());
    let packed = tokio::task::spawn_blocking(move || pack_blocking(&from, &to)).await;
    let failed = |source| PackError { file: file.into(), archive: archive.into(), source };
    packed.map_err(io::Error::other).and_then(|packed| packed).map_err(failed)
}

fn pack_blocking(file: &Path, archive: &Path) -> io::Result<PackedArchive> {
    let mut source = File::open(file)?;
    let size = source.metadata()?.len();
    let mut encoder = zstd::Encoder::new(Hashing::new(File::create(archive)?), LEVEL)?;
    encoder.include_checksum(true)?;
    // The size in the frame's head lets a restore refuse a bomb before it unpacks a byte.
    encoder.set_pledged_src_size(Some(size))?;
    if size >= WORKERS_FROM {
        encoder.multithread(2)?;
    }
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    let mut read = 0;
    loop {
        let n = source.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
        encoder.write_all(&buffer[..n])?;
        read += n as u64;
    }
    if read != size {
        return Err(io::Error::other(format!("it changed while it was read: {size} bytes, then {read}")));
    }
    let mut out = encoder.finish()?;
    out.flush()?;
    Ok(PackedArchive {
        path: archive.to_owned(),
        file_sha256: hex::encode(hash.finalize()),
        archive_sha256: hex::encode(out.hash.finalize()),
        file_size: size,
        archive_size: out.written,
        parent: None,
    })
}

/// Hashes and counts what goes through to a file.
#[derive(Debug)]
pub(crate) struct Hashing {
    inner: File,
    pub(crate) hash: Sha256,
    pub(crate) written: u64,
}

impl Hashing {
    pub(crate) fn new(inner: File) -> Self {
        Self { inner, hash: Sha256::new(), written: 0 }
    }
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.hash.update(&bytes[..n]);
        self.written += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_archive_is_one_frame_with_size_and_checksum() {
        let dir = tempfile::tempdir().unwrap();
        let (file, archive) = (dir.path().join("memory.db"), dir.path().join("memory.db.zst"));
        // Above the size from which workers compress, and not compressible to nothing.
        let data: Vec<u8> =
            (0..24_u32 << 18).flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 12).to_le_bytes()).collect();
        for size in [0, 1, 4096, data.len()] {
            std::fs::write(&file, &data[..size]).unwrap();
            let packed = pack(&file, &archive).await.unwrap();
            let bytes = std::fs::read(&archive).unwrap();
            assert_eq!(packed.archive_size, bytes.len() as u64);
            assert_eq!(packed.archive_sha256, hex::encode(Sha256::digest(&bytes)));
            assert_eq!(packed.file_sha256, hex::encode(Sha256::digest(&data[..size])));
            assert_eq!(zstd::zstd_safe::get_frame_content_size(&bytes).unwrap(), Some(size as u64));
            assert_eq!(
                zstd::zstd_safe::find_frame_compressed_size(&bytes).unwrap(),
                bytes.len(),
                "one frame"
            );
            let mut decoder = zstd::Decoder::new(bytes.as_slice()).unwrap();
            decoder.window_log_max(WINDOW_LOG_MAX).unwrap();
            let mut back = vec![];
            decoder.read_to_end(&mut back).unwrap();
            assert!(back == data[..size]);
        }
    }

    #[tokio::test]
    async fn a_missing_file_is_an_error_with_both_names() {
        let dir = tempfile::tempdir().unwrap();
        let error = pack(&dir.path().join("a.db"), &dir.path().join("a.zst")).await.unwrap_err();
        assert!(error.to_string().starts_with("could not pack "), "{error}");
        assert!(!error.is_disk_full() && !error.is_retryable());
    }
}
