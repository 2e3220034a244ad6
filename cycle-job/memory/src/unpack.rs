//! Unpacking archives in a sandboxed child. The parent hashes the file itself while it grows: what the child
//! says of it does not count, and the two share the time between two processors.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::child::{Child, Killer, Launcher, WorkerError, is_no_room};
use crate::protocol::{FaultKind, WorkerArgs};
use crate::worker::{Link, PAGES, UnpackRequest};

/// Bounds of one unpacking.
#[derive(Debug, Clone, Copy)]
pub struct UnpackLimits {
    /// Largest file in bytes; of a chain, its links say it.
    pub max_bytes: u64,
    /// Longest time.
    pub timeout: Duration,
    /// RLIMIT_AS of the child in bytes.
    pub address_space: u64,
}

impl Default for UnpackLimits {
    fn default() -> Self {
        Self { max_bytes: 256 << 20, timeout: Duration::from_secs(120), address_space: 256 << 20 }
    }
}

/// An unpacked file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    /// Its bytes.
    pub size: u64,
    /// Lower-case hexadecimal SHA-256 of it.
    pub sha256: String,
}

/// Why an archive was not unpacked. The output file is removed in every case.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// It unpacks to more than allowed, or asks for more memory than a frame of ours does.
    #[error("the archive unpacks to more than {max_bytes} bytes, or wants a larger window than 16 MiB")]
    Bomb {
        /// The bound.
        max_bytes: u64,
    },
    /// Its bytes are damaged, or not those that were expected.
    #[error("the archive is damaged: {reason}")]
    Corrupt {
        /// What is wrong.
        reason: String,
    },
    /// A delta of a form that this release does not know.
    #[error("{found}: use the release that wrote the archive")]
    Version {
        /// What was found.
        found: String,
    },
    /// It took too long.
    #[error("unpacking took longer than {} s", after.as_secs())]
    Timeout {
        /// The bound.
        after: Duration,
    },
    /// The child died.
    #[error("the unpacking worker died (signal {signal:?})")]
    Crashed {
        /// Signal that ended it.
        signal: Option<i32>,
    },
    /// There is no room for the file.
    #[error("could not unpack the archive: {reason}")]
    DiskFull {
        /// What the system said.
        reason: String,
    },
    /// The disk failed, or the child could not be started.
    #[error("could not unpack the archive: {reason}")]
    Io {
        /// What the system said.
        reason: String,
    },
}

impl UnpackError {
    /// True if another try with the same archive may work.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Crashed { .. } | Self::Io { .. })
    }
}

/// Unpacks `archive` (one zstd frame, no trailing bytes) to `out` and checks its SHA-256.
pub fn unpack(
    launcher: &Launcher,
    archive: &Path,
    out: &Path,
    limits: UnpackLimits,
    expected_sha256: &str,
) -> Result<Unpacked, UnpackError> {
    let whole = Link {
        archive: archive.to_owned(),
        file_size: limits.max_bytes,
        file_sha256: expected_sha256.to_owned(),
    };
    unpack_chain(launcher, &[whole], out, limits, |_| {})
}

/// Unpacks a whole archive and the deltas on it to `out`, and checks the SHA-256 of the result. `tap` sees all
/// bytes of the result in order, before they are known to be right.
pub fn unpack_chain(
    launcher: &Launcher,
    links: &[Link],
    out: &Path,
    limits: UnpackLimits,
    tap: impl FnMut(&[u8]) + Send,
) -> Result<Unpacked, UnpackError> {
    let done = run(launcher, links, out, limits, tap);
    let expected = links.last().map(|link| link.file_sha256.as_str()).unwrap_or_default();
    let done = done.and_then(|unpacked| {
        if unpacked.sha256 == expected {
            return Ok(unpacked);
        }
        Err(UnpackError::Corrupt {
            reason: format!("its content has SHA-256 {}, expected {expected}", unpacked.sha256),
        })
    });
    if done.is_err() {
        // Nothing half unpacked is left to be opened, nor the pages that a child which died leaves.
        let _ = std::fs::remove_file(out);
        let _ = std::fs::remove_file(out.with_extension(PAGES));
    }
    done
}

fn run(
    launcher: &Launcher,
    links: &[Link],
    out: &Path,
    limits: UnpackLimits,
    tap: impl FnMut(&[u8]) + Send,
) -> Result<Unpacked, UnpackError> {
    let io = |e: std::io::Error| match is_no_room(&e) {
        true => UnpackError::DiskFull { reason: e.to_string() },
        false => UnpackError::Io { reason: e.to_string() },
    };
    let mut request = UnpackRequest { links: links.to_vec(), out: out.to_owned() };
    for link in &mut request.links {
        link.archive = link.archive.canonicalize().map_err(io)?;
    }
    let name =
        out.file_name().ok_or_else(|| UnpackError::Io { reason: "the output has no file name".into() })?;
    let folder = out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().map_err(io)?;
    request.out = folder.join(name);
    let max_bytes = links.iter().map(|link| link.file_size).max().unwrap_or(0);
    let args = WorkerArgs {
        directory: folder.clone(),
        read: request.links.first().and_then(|link| link.archive.parent()).map(Path::to_owned),
        foreign: false,
        heap: 1 << 20,
        address_space: limits.address_space,
        // A little more, so that the worker itself counts what is too much.
        file_size: max_bytes.saturating_add(1 << 20),
        size_limit: max_bytes,
        sql_timeout: 0,
    };
    let failed = |error| match error {
        WorkerError::Timeout { after } => UnpackError::Timeout { after },
        WorkerError::Crashed { signal, .. } => UnpackError::Crashed { signal },
        WorkerError::Fault { kind: FaultKind::Corrupt, message } => UnpackError::Corrupt { reason: message },
        WorkerError::Fault { kind: FaultKind::Full, .. } => UnpackError::Bomb { max_bytes },
        WorkerError::Fault { kind: FaultKind::DiskFull, message } => {
            UnpackError::DiskFull { reason: message }
        }
        WorkerError::Fault { kind: FaultKind::Schema, message } => UnpackError::Version { found: message },
        other => UnpackError::Io { reason: other.to_string() },
    };
    let grown = File::create(&request.out).and_then(|_| File::open(&request.out)).map_err(io)?;
    let mut child = Child::spawn(launcher, "unpack", &args, &folder, &Killer::default()).map_err(failed)?;
    let ended = AtomicBool::new(false);
    let (answer, hashed) = std::thread::scope(|scope| {
        let hashing = scope.spawn(|| follow(grown, &ended, tap));
        let answer = child.ask::<u64>(&request, limits.timeout, |_| {});
        ended.store(true, Ordering::Release);
        (answer, hashing.join())
    });
    answer.map_err(failed)?;
    hashed.map_err(|_| UnpackError::Io { reason: "the thread that hashes has died".into() })?.map_err(io)
}

/// Reads a file while another process appends to it, until `ended` says that it is whole.
fn follow(mut file: File, ended: &AtomicBool, mut tap: impl FnMut(&[u8])) -> std::io::Result<Unpacked> {
    let mut hash = Sha256::new();
    let mut size = 0;
    let mut block = vec![0; 1 << 18];
    loop {
        // Asked before the read: what was written before the end is then seen.
        let is_whole = ended.load(Ordering::Acquire);
        match file.read(&mut block)? {
            0 if is_whole => return Ok(Unpacked { size, sha256: hex::encode(hash.finalize()) }),
            0 => std::thread::sleep(Duration::from_micros(200)),
            n => {
                size += n as u64;
                hash.update(&block[..n]);
                tap(&block[..n]);
            }
        }
    }
}
