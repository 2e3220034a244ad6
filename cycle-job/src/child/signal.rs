//! Signals to a group of processes.
#![expect(unsafe_code, reason = "kill has no safe wrapper among our dependencies")]

/// Sends `signal` to every process of `group`. One that is gone already needs none.
pub(super) fn send(group: i32, signal: i32) {
    // SAFETY: kill takes plain numbers and touches no memory; a group that is gone is an error that
    // nothing follows from. Numbers below 2 would mean this process's own group, or everybody.
    if group > 1 {
        let _ = unsafe { libc::kill(-group, signal) };
    }
}
