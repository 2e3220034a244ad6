//! Does the store keep its promise about conditional writes? Tried before the first memory is put there.
//!
//! Some servers ignore the headers, some honour them except on a missing object (minio#21526), some only
//! when nobody races. A store that fails here would lose a memory in silence, so it is refused.

use bytes::Bytes;
use futures::future::join_all;
use rand::Rng;

use crate::{
    agent_store::AgentStore,
    store::{BucketFacts, Condition, ETag, Result, StoreError},
};

/// Writers of the race.
const RACERS: usize = 4;
/// Folder of the probe's objects, each removed again.
pub(crate) const PROBE: &str = "probe/";

impl AgentStore {
    /// Tries conditional writes below `probe/` and asks what else the bucket keeps. Leaves nothing behind.
    /// [`StoreError::NoConditionalWrites`] if two writers could overwrite each other.
    pub async fn probe(&self) -> Result<BucketFacts> {
        let key = self.key(&format!("{PROBE}{:032x}", rand::rng().random::<u128>()));
        let tried = self.try_conditions(&key).await;
        let removed = self.store().delete(&key).await;
        tried.and(removed)?;
        Ok(self.store().facts().await)
    }

    async fn try_conditions(&self, key: &str) -> Result<()> {
        let put = |text: String, condition| self.store().put(key, Bytes::from(text), condition);
        let absent = ETag("\"00000000000000000000000000000000\"".into());
        self.refused(
            "If-Match on a missing object made one",
            put("a".into(), Condition::Match(absent)).await,
        )?;
        let first = retried(|| put("b".into(), Condition::Create)).await?;
        self.refused("a second create replaced the object", put("c".into(), Condition::Create).await)?;
        let second = retried(|| put("d".into(), Condition::Match(first.clone()))).await?;
        self.refused("a stale If-Match replaced the object", put("e".into(), Condition::Match(first)).await)?;
        let race = (0..RACERS).map(|n| put(format!("race {n}"), Condition::Match(second.clone())));
        let results = join_all(race).await;
        if results.iter().filter(|result| result.is_ok()).count() > 1 {
            return Err(self.broken("two racing writers both won"));
        }
        let outage = results.into_iter().find_map(|result| match result {
            Err(StoreError::Precondition { .. } | StoreError::Conflict { .. }) | Ok(_) => None,
            Err(error) => Some(error),
        });
        outage.map_or(Ok(()), Err)
    }

    /// A write that must not take effect. A 409 is as good as a 412 here: nothing was written.
    fn refused(&self, what: &str, result: Result<ETag>) -> Result<()> {
        match result {
            Err(
                StoreError::Precondition { .. }
                | StoreError::AlreadyExists { .. }
                | StoreError::Conflict { .. },
            ) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(self.broken(what)),
        }
    }

    fn broken(&self, what: &str) -> StoreError {
        StoreError::NoConditionalWrites { location: self.store().location(), what: what.into() }
    }
}

/// The probe's key is its own, so a write whose answer was lost may be the reason of a refusal; one such
/// outage ends the probe as an outage, and only a 409 is tried again.
async fn retried<F: Future<Output = Result<ETag>>>(write: impl Fn() -> F) -> Result<ETag> {
    match write().await {
        Err(StoreError::Conflict { .. }) => write().await,
        other => other,
    }
}
