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
    /// When it came.
    signalled: watch::Receiver<Option<Instant>>,
    deadline: Instant,
}

impl Shutdown {
    /// Listens to SIGTERM and SIGINT; `timeout` counts from now.
    pub fn listen(timeout: Duration) -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let (raise, signalled) = watch::channel(None);
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::spawn(async move {
            tokio::select! { _ = term.recv() => {}, _ = interrupt.recv() => {} }
            tracing::info!("signal received, ending in order");
            raise.send_replace(Some(Instant::now()));
            // The sender stays alive with the task, so that waiting receivers never see it closed.
            std::future::pending::<()>().await;
        });
        Ok(Self { signalled, deadline: Instant::now() + timeout })
    }

    /// When the signal came.
    pub fn signalled_at(&self) -> Option<Instant> {
        *self.signalled.borrow()
    }

    /// Why work must stop now, if it must.
    pub fn requested(&self) -> Option<Stop> {
        if self.signalled_at().is_some() {
            return Some(Stop::Signal);
        }
        (Instant::now() >= self.deadline).then_some(Stop::Timeout)
    }

    /// Waits until work must stop.
    pub async fn wait(&self) -> Stop {
        let mut signalled = self.signalled.clone();
        tokio::select! {
            _ = signalled.wait_for(Option::is_some) => Stop::Signal,
            () = tokio::time::sleep_until(self.deadline) => Stop::Timeout,
        }
    }
}
