//! Unpacking an archive in a sandboxed child.

use std::path::Path;
use std::time::Duration;

use crate::child::{Child, Killer, Launcher, WorkerError};
use crate::protocol::{FaultKind, WorkerArgs};
use crate::worker::UnpackReply;

/// Bounds of one unpacking.
#[derive(Debug, Clone, Copy)]
pub struct UnpackLimits {
    /// Largest file in bytes.
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
    /// The disk failed or is full, or the child could not be started.
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
    let done = run(launcher, archive, out, limits);
    let done = done.and_then(|unpacked| {
        if unpacked.sha256 == expected_sha256 {
            return Ok(unpacked);
        }
        Err(UnpackError::Corrupt {
            reason: format!("its content has SHA-256 {}, expected {expected_sha256}", unpacked.sha256),
        })
    });
    if done.is_err() {
        // Nothing half unpacked is left to be opened.
        let _ = std::fs::remove_file(out);
    }
    done
}

fn run(
    launcher: &Launcher,
    archive: &Path,
    out: &Path,
    limits: UnpackLimits,
) -> Result<Unpacked, UnpackError> {
    let io = |e: std::io::Error| UnpackError::Io { reason: e.to_string() };
    let archive = archive.canonicalize().map_err(io)?;
    let name =
        out.file_name().ok_or_else(|| UnpackError::Io { reason: "the output has no file name".into() })?;
    let folder = out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().map_err(io)?;
    let args = WorkerArgs {
        directory: folder.clone(),
        read: archive.parent().map(Path::to_owned),
        foreign: false,
        heap: 1 << 20,
        address_space: limits.address_space,
        // One byte more, so that the worker itself counts what is too much.
        file_size: limits.max_bytes.saturating_add(1 << 20),
        size_limit: limits.max_bytes,
        sql_timeout: 0,
    };
    let failed = |error| match error {
        WorkerError::Timeout { after } => UnpackError::Timeout { after },
        WorkerError::Crashed { signal, .. } => UnpackError::Crashed { signal },
        WorkerError::Fault { kind: FaultKind::Corrupt, message } => UnpackError::Corrupt { reason: message },
        WorkerError::Fault { kind: FaultKind::Full, .. } => UnpackError::Bomb { max_bytes: limits.max_bytes },
        other => UnpackError::Io { reason: other.to_string() },
    };
    let mut child = Child::spawn(launcher, "unpack", &args, &folder, &Killer::default()).map_err(failed)?;
    let request = (archive, folder.join(name));
    let reply: UnpackReply = child.ask(&request, limits.timeout, |_| {}).map_err(failed)?;
    Ok(Unpacked { size: reply.size, sha256: reply.sha256 })
}
