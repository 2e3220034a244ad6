//! What a worker may do: read and write one directory, and talk over its three pipes.
//!
//! Order matters: resource limits, SQLite's random seed, Landlock, seccomp, and only then the first
//! byte from outside. What the kernel lacks is left out and reported, never hidden.

#[cfg(target_os = "linux")]
mod linux;

use std::path::Path;

use serde::{Deserialize, Serialize};

/// What holds a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sandbox {
    /// One directory, no network, and an allow-list of system calls.
    #[serde(rename = "landlock+seccomp")]
    LandlockSeccomp,
    /// The allow-list of system calls alone.
    #[serde(rename = "seccomp")]
    Seccomp,
    /// Resource limits and an empty environment only.
    #[serde(rename = "rlimits")]
    Rlimits,
}

impl Sandbox {
    /// As the report names it.
    pub fn label(self) -> &'static str {
        match self {
            Self::LandlockSeccomp => "landlock+seccomp",
            Self::Seccomp => "seccomp",
            Self::Rlimits => "rlimits",
        }
    }
}

/// Closes the calling thread's process in. Must run before any other thread exists: both mechanisms
/// hold for the calling thread and those it starts.
#[cfg(target_os = "linux")]
pub(crate) fn enter(directory: &Path, read: Option<&Path>) -> Sandbox {
    let landlock = linux::restrict_files(directory, read).unwrap_or(false);
    let seccomp = linux::restrict_calls().is_some();
    match (landlock, seccomp) {
        (true, true) => Sandbox::LandlockSeccomp,
        (_, true) => Sandbox::Seccomp,
        _ => Sandbox::Rlimits,
    }
}

/// Other systems have resource limits only, which hold already.
#[cfg(not(target_os = "linux"))]
pub(crate) fn enter(_: &Path, _: Option<&Path>) -> Sandbox {
    Sandbox::Rlimits
}
