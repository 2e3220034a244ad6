//! Signals to a group of processes.
#![expect(unsafe_code, reason = "kill and prctl have no safe wrapper among our dependencies")]

use tokio::process::Command;

/// Lets the kernel end the command with this process, which SIGKILL leaves no time to do so itself. Linux only.
/// The thread that starts the command must last as long as this process.
#[cfg(target_os = "linux")]
pub(super) fn end_with_us(command: &mut Command) {
    // SAFETY: between fork and exec only prctl is called, which takes plain numbers and touches no memory.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

/// Elsewhere what it left running is seen by whoever killed this process.
#[cfg(not(target_os = "linux"))]
pub(super) fn end_with_us(_: &mut Command) {}

/// Sends `signal` to every process of `group`. One that is gone already needs none.
pub(super) fn send(group: i32, signal: i32) {
    // SAFETY: kill takes plain numbers and touches no memory; a group that is gone is an error that
    // nothing follows from. Numbers below 2 would mean this process's own group, or everybody.
    if group > 1 {
        let _ = unsafe { libc::kill(-group, signal) };
    }
}
