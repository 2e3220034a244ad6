//! Deltas: the pages of a file that differ from an earlier file's, in one zstd frame.
//!
//! ```text
//! offset  bytes
//! 0       16    "cicada delta v1\n"
//! 16      4     page size
//! 20      4     pages of the new file
//! 24      32    SHA-256 of the earlier file
//! 56      4+n   number of a page, from 1, and its content; in ascending order; as often as needed
//! end     4     0
//! ```
//! Numbers are big-endian. A page of the new file that is not in the delta is the earlier file's.
//!
//! ## Why
//! What has changed is found by hashes of pages that this process takes itself, of the earlier file before
//! any SQL ran on it and of the finished one. The write-ahead log would tell it for less, but it is written by
//! the process that runs the agent's SQL. Hashes have their full length: the agent chooses the pages, and a
//! change that collides with what was there would be lost.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
    sync::Arc,
};

use sha2::{Digest, Sha256};

use crate::{
    archive::{Hashing, LEVEL, PackError, PackedArchive},
    chain::DeltaBase,
};

/// Mark and version.
const MAGIC: &[u8; 16] = b"cicada delta v1\n";
/// Read at once; a multiple of every page size.
const BLOCK: usize = 1 << 20;

/// BLAKE3 of each page of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageHashes {
    page_size: usize,
    hashes: Vec<blake3::Hash>,
}

/// Takes the hashes of the pages of a SQLite file that is fed to it from its beginning. It reads bytes
/// and the page size in the header, nothing else.
#[derive(Debug, Default)]
pub struct PageHasher {
    page_size: Option<usize>,
    /// The last page so far, while it is not whole.
    rest: Vec<u8>,
    hashes: Vec<blake3::Hash>,
    unusable: bool,
}

impl PageHasher {
    /// The next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        if self.unusable {
            return;
        }
        let page_size = if let Some(known) = self.page_size {
            known
        } else {
            self.rest.extend_from_slice(bytes);
            if self.rest.len() < 18 {
                return;
            }
            let Some(found) = page_size(&self.rest) else {
                self.unusable = true;
                return;
            };
            self.page_size = Some(found);
            let all = std::mem::take(&mut self.rest);
            return self.update(&all);
        };
        if !self.rest.is_empty() {
            let (head, tail) = bytes.split_at(bytes.len().min(page_size - self.rest.len()));
            self.rest.extend_from_slice(head);
            bytes = tail;
            if self.rest.len() == page_size {
                self.hashes.push(blake3::hash(&self.rest));
                self.rest.clear();
            }
        }
        let pages = bytes.chunks_exact(page_size);
        self.rest.extend_from_slice(pages.remainder());
        self.hashes.extend(pages.map(blake3::hash));
    }

    /// The hashes; None if it was no file of whole pages.
    pub fn finish(self) -> Option<PageHashes> {
        let page_size = self.page_size.filter(|_| self.rest.is_empty() && !self.unusable)?;
        Some(PageHashes { page_size, hashes: self.hashes })
    }
}

/// The page size in the header of a SQLite file.
fn page_size(file: &[u8]) -> Option<usize> {
    let size = match u16::from_be_bytes(file.get(16..18)?.try_into().ok()?) {
        1 => 65_536,
        other => usize::from(other),
    };
    (size.is_power_of_two() && size >= 512).then_some(size)
}

/// Packs what differs between `file` and the file of `base`, whose pages are `pages`. None if a whole archive
/// is the better one: another page size, most pages changed, or a delta above the base's bound.
pub async fn pack_delta(
    file: &Path,
    archive: &Path,
    base: &DeltaBase,
    pages: Arc<PageHashes>,
) -> Result<Option<PackedArchive>, PackError> {
    let (from, to, base) = (file.to_owned(), archive.to_owned(), base.clone());
    let packed = tokio::task::spawn_blocking(move || pack_blocking(&from, &to, &base, &pages)).await;
    let failed = |source| PackError { file: file.into(), archive: archive.into(), source };
    packed.map_err(io::Error::other).and_then(|packed| packed).map_err(failed)
}

fn pack_blocking(
    file: &Path,
    archive: &Path,
    base: &DeltaBase,
    pages: &PageHashes,
) -> io::Result<Option<PackedArchive>> {
    // The hash of the whole file and those of its pages take as long as each other, so each has its thread.
    let (sha256, delta) = std::thread::scope(|scope| {
        let sha256 = scope.spawn(|| sha256(file));
        let delta = write_delta(file, archive, base, pages);
        (sha256.join(), delta)
    });
    let Some((out, file_size)) = delta? else { return Ok(None) };
    let sha256 = sha256.map_err(|_| io::Error::other("the thread that hashes has died"))??;
    Ok(Some(PackedArchive {
        path: archive.to_owned(),
        file_sha256: hex::encode(sha256),
        archive_sha256: hex::encode(out.hash.finalize()),
        file_size,
        archive_size: out.written,
        parent: Some(Arc::new(base.parent.clone())),
    }))
}

fn sha256(file: &Path) -> io::Result<[u8; 32]> {
    let mut hash = Sha256::new();
    let mut source = File::open(file)?;
    let mut block = vec![0; BLOCK];
    loop {
        match source.read(&mut block)? {
            0 => return Ok(hash.finalize().into()),
            n => hash.update(&block[..n]),
        }
    }
}

fn write_delta(
    file: &Path,
    archive: &Path,
    base: &DeltaBase,
    pages: &PageHashes,
) -> io::Result<Option<(Hashing, u64)>> {
    let mut source = File::open(file)?;
    let size = source.metadata()?.len();
    let page_bytes = pages.page_size as u64;
    let count = size / page_bytes;
    let (Ok(page_size_field), Ok(count_field)) = (u32::try_from(page_bytes), u32::try_from(count)) else {
        return Ok(None);
    };
    let mut parent = [0; 32];
    if size % page_bytes != 0 || hex::decode_to_slice(&base.parent.file_sha256, &mut parent).is_err() {
        return Ok(None);
    }
    let mut encoder = zstd::Encoder::new(Hashing::new(File::create(archive)?), LEVEL)?;
    encoder.include_checksum(true)?;
    encoder.write_all(MAGIC)?;
    encoder.write_all(&page_size_field.to_be_bytes())?;
    encoder.write_all(&count_field.to_be_bytes())?;
    encoder.write_all(&parent)?;
    let (mut number, mut changed) = (0_u32, 0_u32);
    let mut block = vec![0; BLOCK];
    loop {
        let read = fill(&mut source, &mut block)?;
        if number == 0 && page_size(&block[..read]) != Some(pages.page_size) {
            return Ok(None);
        }
        for page in block[..read].chunks_exact(pages.page_size) {
            number += 1;
            if pages.hashes.get(number as usize - 1) == Some(&blake3::hash(page)) {
                continue;
            }
            changed += 1;
            encoder.write_all(&number.to_be_bytes())?;
            encoder.write_all(page)?;
        }
        if changed > count_field / 2 || encoder.get_ref().written > base.max_bytes {
            return Ok(None);
        }
        if read < BLOCK {
            break;
        }
    }
    if number != count_field {
        return Err(io::Error::other("it changed while it was read"));
    }
    encoder.write_all(&0_u32.to_be_bytes())?;
    let mut out = encoder.finish()?;
    out.flush()?;
    Ok((out.written <= base.max_bytes).then_some((out, size)))
}

/// Reads until `block` is full or the file ends.
fn fill(source: &mut File, block: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match source.read(&mut block[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}
