//! SIGTERM and the cycle's own time limit, as one thing that work can wait for.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Why work must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// SIGTERM (or Ctrl-C in `local`).
    Signal,
    /// `limits.timeout` passed.
    Timeout,
}

/// A flag that a signal raises once, and a deadline.
#[derive(Debug, Clone)]
pub struct Shutdown {
    signalled: watch::Receiver<bool>,
    deadline: Instant,
}

impl Shutdown {
    /// Listens to SIGTERM and SIGINT; `timeout` counts from now.
    pub fn listen(timeout: Duration) -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let (raise, signalled) = watch::channel(false);
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::spawn(async move {
            tokio::select! { _ = term.recv() => {}, _ = interrupt.recv() => {} }
            tracing::info!("signal received, ending in order");
            raise.send_replace(true);
            // The sender stays alive with the task, so that waiting receivers never see it closed.
            std::future::pending::<()>().await;
        });
        Ok(Self { signalled, deadline: Instant::now() + timeout })
    }

    /// A shutdown that only time raises.
    pub fn after(timeout: Duration) -> Self {
        let (raise, signalled) = watch::channel(false);
        // Leaked on purpose in tests and one-shot tools: a dropped sender would look like a signal.
        std::mem::forget(raise);
        Self { signalled, deadline: Instant::now() + timeout }
    }

    /// Why work must stop now, if it must.
    pub fn requested(&self) -> Option<Stop> {
        if *self.signalled.borrow() {
            return Some(Stop::Signal);
        }
        (Instant::now() >= self.deadline).then_some(Stop::Timeout)
    }

    /// Waits until work must stop.
    pub async fn wait(&self) -> Stop {
        let mut signalled = self.signalled.clone();
        tokio::select! {
            _ = signalled.wait_for(|raised| *raised) => Stop::Signal,
            () = tokio::time::sleep_until(self.deadline) => Stop::Timeout,
        }
    }
}
