//! SIGTERM and the cycle's own time limit, as one thing that work can wait for.

use std::io::Read as _;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
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
    /// Listens to SIGTERM and SIGINT; `timeout` counts from now. With `input_too` the end of standard input is a
    /// signal as well: it ends when the process at its other end does, however that ends, on every system.
    pub fn listen(timeout: Duration, input_too: bool) -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let (raise, signalled) = watch::channel(None);
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let left = input_too.then(input_ended).transpose()?;
        let left = async move {
            match left {
                Some(left) => _ = left.await,
                None => std::future::pending().await,
            }
        };
        tokio::spawn(async move {
            tokio::select! { _ = term.recv() => {}, _ = interrupt.recv() => {}, () = left => {} }
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

/// Tells when standard input has ended. A thread of its own reads it: one of the runtime's would hold up the end of
/// the process.
fn input_ended() -> std::io::Result<oneshot::Receiver<()>> {
    let (tell, ended) = oneshot::channel();
    std::thread::Builder::new().name("input".into()).spawn(move || {
        let mut nothing = [0; 64];
        let mut input = std::io::stdin().lock();
        loop {
            match input.read(&mut nothing) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
        let _ = tell.send(());
    })?;
    Ok(ended)
}
