//! Resource limits of a worker: the only place that calls the C library directly.
#![expect(unsafe_code, reason = "setrlimit and signal have no safe wrapper among our dependencies")]

use std::io;

/// Limits that hold from the first byte a worker reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Virtual memory in bytes: the backstop behind SQLite's own heap limit. Linux only: macOS counts what a
    /// program maps before its main, and refuses to set less.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "see above"))]
    pub(crate) address_space: u64,
    /// Largest file in bytes.
    pub(crate) file_size: u64,
    /// Seconds of processor time in the worker's whole life.
    pub(crate) cpu_seconds: u64,
}

/// Sets them. A worker never needs more than its three files, its pipes and a few for loading.
pub(crate) fn apply(limits: Limits) -> io::Result<()> {
    let wanted = [
        #[cfg(target_os = "linux")]
        (libc::RLIMIT_AS, limits.address_space),
        (libc::RLIMIT_FSIZE, limits.file_size),
        (libc::RLIMIT_CPU, limits.cpu_seconds),
        (libc::RLIMIT_NOFILE, 32),
        (libc::RLIMIT_CORE, 0),
    ];
    for (resource, value) in wanted {
        let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
        // SAFETY: the pointer is to a live value of the right type, read during the call only.
        if unsafe { libc::setrlimit(resource, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // A write beyond RLIMIT_FSIZE shall be an error that SQLite rolls back, not the death of the process.
    // SAFETY: SIG_IGN is a valid disposition, and no other thread exists yet.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    Ok(())
}
