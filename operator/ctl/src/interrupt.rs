//! SIGINT and SIGTERM. A command that has to end in order says so; every other one ends at once, and nothing of
//! it stays on this machine.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::{exit, output, progress, scratch};

/// How many want to end in order.
static IN_ORDER: AtomicUsize = AtomicUsize::new(0);
/// A signal has come.
static REQUESTED: AtomicBool = AtomicBool::new(false);
/// Wakes those who wait for one.
static WAITING: Notify = Notify::const_new();

/// As long as it lives, a signal does not end the process: its owner waits for [`stopped`].
pub(crate) struct InOrder(());

impl InOrder {
    /// From now on.
    pub(crate) fn begin() -> Self {
        IN_ORDER.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for InOrder {
    fn drop(&mut self) {
        IN_ORDER.fetch_sub(1, Ordering::SeqCst);
    }
}

/// True if somebody has asked this process to end.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// Waits for SIGINT or SIGTERM. One that came before, while nobody waited, is not lost.
pub(crate) async fn stopped() {
    loop {
        let mut next = std::pin::pin!(WAITING.notified());
        next.as_mut().enable();
        if requested() {
            return;
        }
        next.await;
    }
}

/// The next signal.
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// Ends the process at a signal, unless somebody wants to end in order. Runs beside the command.
pub(crate) async fn watch() {
    loop {
        signal().await;
        // Asked before anybody is woken: who ends in order may be through with it before this goes on.
        let in_order = IN_ORDER.load(Ordering::SeqCst) > 0;
        REQUESTED.store(true, Ordering::SeqCst);
        WAITING.notify_waiters();
        if in_order {
            continue;
        }
        progress::clear();
        // Workers end with their pipes.
        scratch::remove_all();
        output::problem("interrupted");
        std::process::exit(i32::from(exit::INTERRUPTED));
    }
}
