//! From archives in the store to one file in the working directory.
//!
//! The archives of a chain are downloaded a few at a time; a sandboxed child makes the file, and this process
//! takes its hashes while it grows.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cicada_memory::{Link, UnpackLimits, unpack_chain};
use cicada_store::{ArchiveRef, PageHasher, PageHashes, StoreError};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::task::{block_in_place, spawn_blocking};

use crate::context::Context;
use crate::download::measure;
use crate::phase::restore::{Origin, RestoreError};

/// Longest time to unpack one file: a gigabyte takes two seconds here.
const UNPACK_TIMEOUT: Duration = Duration::from_secs(120);
/// Downloads at once: most archives of a chain are small, so that the store's answer takes longer than the
/// bytes.
const DOWNLOADS: usize = 4;

/// Makes the file of `archive` at `target`.
pub(crate) async fn fetch(
    cx: &Context,
    origin: Origin<'_>,
    archive: &ArchiveRef,
    target: &Path,
) -> Result<(), RestoreError> {
    make(cx, origin, archive, target, None).await.map(|_| ())
}

/// As [`fetch`]; gives the hashes of the file's pages, unless it is no file of pages.
pub(crate) async fn fetch_hashed(
    cx: &Context,
    origin: Origin<'_>,
    archive: &ArchiveRef,
    target: &Path,
) -> Result<Option<PageHashes>, RestoreError> {
    let hasher = make(cx, origin, archive, target, Some(PageHasher::default())).await?;
    Ok(hasher.and_then(PageHasher::finish))
}

async fn make(
    cx: &Context,
    origin: Origin<'_>,
    archive: &ArchiveRef,
    target: &Path,
    mut hasher: Option<PageHasher>,
) -> Result<Option<PageHasher>, RestoreError> {
    let links = archive.links()?;
    let packed = links.iter().fold(0, |sum: u64, link| sum.saturating_add(link.archive_size));
    let (needed, budget) = (archive.file_size.saturating_add(packed), cx.resources.disk);
    if needed > budget {
        return Err(RestoreError::Disk { key: archive.key.clone(), needed, budget });
    }
    let downloads = links.into_iter().map(|link| download_link(cx, origin, link));
    let links: Vec<Link> = stream::iter(downloads).buffered(DOWNLOADS).try_collect().await?;
    let limits = UnpackLimits {
        // HEAD's own numbers: an archive that unpacks to more is not the one that was published.
        max_bytes: archive.file_size,
        timeout: UNPACK_TIMEOUT,
        address_space: cx.resources.ledger_address_space,
    };
    tracing::debug!(key = archive.key, archives = links.len(), bytes = archive.file_size, "unpacking");
    let (launcher, target) = (cx.launcher.clone(), target.to_owned());
    let unpacked = spawn_blocking(move || {
        let done = unpack_chain(&launcher, &links, &target, limits, |bytes| {
            if let Some(hasher) = &mut hasher {
                hasher.update(bytes);
            }
        });
        done.map(|_| hasher)
    });
    unpacked.await?.map_err(|source| RestoreError::Unpack { key: archive.key.clone(), source })
}

/// One archive of a chain, on this machine. One that was downloaded before is not downloaded again.
async fn download_link(cx: &Context, origin: Origin<'_>, link: &ArchiveRef) -> Result<Link, RestoreError> {
    let path: PathBuf = cx.archive(&link.key.replace('/', "-"));
    if !is_here(link, &path) {
        download(origin, link, &path).await?;
    }
    Ok(Link { archive: path, file_size: link.file_size, file_sha256: link.file_sha256.clone() })
}

fn is_here(archive: &ArchiveRef, path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.len() == archive.archive_size)
        && block_in_place(|| measure(path)).is_ok_and(|(_, sha256)| sha256 == archive.archive_sha256)
}

/// Downloads with a second try for a missing object or wrong bytes; in between HEAD is read again, because
/// a later cycle may have replaced and collected what this one is looking for.
async fn download(origin: Origin<'_>, archive: &ArchiveRef, to: &Path) -> Result<(), RestoreError> {
    let key = origin.store.key(&archive.key);
    let mut second = false;
    loop {
        let error = match origin.store.store().download(&key, to, archive.archive_size).await {
            Ok(found) if found.sha256 == archive.archive_sha256 => return Ok(()),
            Ok(found) => RestoreError::WrongHash {
                key: archive.key.clone(),
                found: found.sha256,
                expected: archive.archive_sha256.clone(),
            },
            // More bytes than HEAD says can't have HEAD's hash.
            Err(StoreError::TooLarge { .. }) => RestoreError::WrongHash {
                key: archive.key.clone(),
                found: format!("of more than {} bytes", archive.archive_size),
                expected: archive.archive_sha256.clone(),
            },
            Err(source) => RestoreError::Download { key: archive.key.clone(), source },
        };
        if let Ok(Some(at)) = origin.store.read_head().await
            && at.head.epoch != origin.epoch
        {
            return Err(RestoreError::Fenced { epoch: at.head.epoch });
        }
        if second {
            return Err(error);
        }
        second = true;
    }
}
