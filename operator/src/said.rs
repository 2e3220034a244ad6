//! Events that wait to be written. One after the other, and no look waits for them: at a full minute they would
//! take the API server's time from the Jobs that are to start.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, Recorder};
use tokio::{
    sync::{
        Mutex,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
    time::Instant,
};

/// More than so many are not kept: their memory is worth more than they are.
const MOST: usize = 10_000;
/// Time between two looks whether all are written.
const LOOK: Duration = Duration::from_millis(20);

/// What is to be written on what.
type Written = (Event, ObjectReference);

/// Events that wait to be written.
#[derive(Debug)]
pub struct Said {
    sender: UnboundedSender<Written>,
    receiver: Mutex<UnboundedReceiver<Written>>,
    waiting: AtomicUsize,
}

impl Default for Said {
    fn default() -> Self {
        let (sender, receiver) = unbounded_channel();
        Self { sender, receiver: Mutex::new(receiver), waiting: AtomicUsize::new(0) }
    }
}

impl Said {
    /// Writes what is said, as long as the process lives.
    pub async fn write(&self, recorder: &Recorder) {
        let mut receiver = self.receiver.lock().await;
        while let Some((event, about)) = receiver.recv().await {
            if let Err(error) = recorder.publish(&event, &about).await {
                let name = about.name.unwrap_or_default();
                tracing::warn!(object = name, reason = event.reason, error = %error, "an event could not be written");
            }
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Writes an event on an object as soon as those before it are written.
    pub fn say(&self, event: Event, about: ObjectReference) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= MOST || self.sender.send((event, about)).is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!("too many events wait to be written: one is left out");
        }
    }

    /// Waits until all are written, or until then.
    pub async fn all_written(&self, until: Instant) {
        while self.waiting.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
    }
}
