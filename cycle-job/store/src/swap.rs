//! Compare-and-swap of HEAD, with the rule for answers that say neither yes nor no.
//!
//! After a timeout, a reset, a 5xx, a 409, or a 412, HEAD is read again. Written by this process with this
//! counter: done. Still the old version: try again with the same bytes, so that the first try, should it
//! land late, changes nothing. Anything else: another writer was faster.

use std::time::Duration;

use serde::Deserialize;

use crate::{
    agent_store::{AgentStore, HEAD_KEY},
    head::Head,
    store::{Condition, ETag, Result, StoreError},
};

/// Calls (writes and reads) of one swap. With doubled pauses from 200 ms to 5 s that is half a minute:
/// longer outages are for the Job's next attempt.
const CALLS: u32 = 10;
/// Longest pause between calls.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How a swap ended.
#[derive(Debug)]
pub(crate) enum Swapped {
    /// HEAD is now what was to be written.
    Done {
        /// Its version.
        etag: ETag,
        /// Calls that had to be repeated.
        retries: u32,
    },
    /// HEAD is another's, or gone.
    Lost,
}

/// Why it is not known, or can't be known, how a swap ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SwapError {
    /// It did not take effect and will not.
    #[error("could not write HEAD")]
    Refused(#[source] StoreError),
    /// It may have taken effect, or may yet do so.
    #[error("it is not known whether HEAD was written")]
    Unclear(#[source] StoreError),
}

#[derive(Deserialize)]
struct Mark {
    writer: String,
    write: u64,
}

/// What HEAD turned out to be when it was read again.
enum Seen {
    Ours(ETag),
    Old,
    Others,
}

impl AgentStore {
    /// Replaces the HEAD of version `old` (None = there is none) by `head`.
    pub(crate) async fn swap(&self, head: &Head, old: Option<&ETag>) -> Result<Swapped, SwapError> {
        let key = self.key(HEAD_KEY);
        let bytes = bytes::Bytes::from(head.render());
        let condition = old.map_or(Condition::Create, |etag| Condition::Match(etag.clone()));
        let mut pause = self.pause;
        let mut writes_next = true;
        // Once a write has gone out unclear, giving up is unclear too.
        let mut unclear = false;
        let mut call = 0;
        loop {
            let failed = if writes_next {
                match self.store().put(&key, bytes.clone(), condition.clone()).await {
                    Ok(etag) => return Ok(Swapped::Done { etag, retries: call }),
                    Err(error) if error.is_unclear() => {
                        unclear = true;
                        error
                    }
                    Err(error @ (StoreError::Precondition { .. } | StoreError::AlreadyExists { .. })) => {
                        error
                    }
                    Err(error) if unclear => return Err(SwapError::Unclear(error)),
                    Err(error) => return Err(SwapError::Refused(error)),
                }
            } else {
                match self.look(&key, head, old).await {
                    Ok(Seen::Ours(etag)) => return Ok(Swapped::Done { etag, retries: call }),
                    Ok(Seen::Others) => return Ok(Swapped::Lost),
                    Ok(Seen::Old) => StoreError::Conflict { key: key.clone() },
                    Err(error) if error.is_retryable() => error,
                    Err(error) if unclear => return Err(SwapError::Unclear(error)),
                    Err(error) => return Err(SwapError::Refused(error)),
                }
            };
            call += 1;
            if call >= CALLS {
                let gave_up = if unclear { SwapError::Unclear } else { SwapError::Refused };
                return Err(gave_up(failed));
            }
            // A write is followed by a look; a look that saw the old version by a write; a look that
            // failed by another look.
            let looked = !writes_next;
            writes_next = looked && matches!(failed, StoreError::Conflict { .. });
            if looked {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }

    async fn look(&self, key: &str, ours: &Head, old: Option<&ETag>) -> Result<Seen> {
        match self.store().get(key).await {
            Ok(object) => {
                let mark = serde_json::from_slice::<Mark>(&object.bytes).ok();
                if mark.is_some_and(|mark| mark.writer == ours.writer && mark.write == ours.write) {
                    Ok(Seen::Ours(object.etag))
                } else if Some(&object.etag) == old {
                    Ok(Seen::Old)
                } else {
                    Ok(Seen::Others)
                }
            }
            Err(StoreError::NotFound { .. }) if old.is_none() => Ok(Seen::Old),
            Err(StoreError::NotFound { .. }) => Ok(Seen::Others),
            Err(error) => Err(error),
        }
    }
}
