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

/// Writers of each race, and races: s3mock 4.12.4, which compares and then writes, passed one race of four.
const RACERS: usize = 8;
const RACES: usize = 3;
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
        let mut current = second;
        for _ in 0..RACES {
            current = self.race(key, current).await?;
        }
        Ok(())
    }

    /// Lets writers race from one version; gives the version that is then there.
    async fn race(&self, key: &str, from: ETag) -> Result<ETag> {
        // Never the bytes that are there: with them the version would come back, and two could win rightly.
        let write = |n| {
            let text = format!("racer {n} after {}", from.0);
            self.store().put(key, Bytes::from(text), Condition::Match(from.clone()))
        };
        let (mut winner, mut outage) = (None, None);
        for result in join_all((0..RACERS).map(write)).await {
            match result {
                Ok(_) if winner.is_some() => return Err(self.broken("two racing writers both won")),
                Ok(etag) => winner = Some(etag),
                Err(StoreError::Precondition { .. } | StoreError::Conflict { .. }) => {}
                Err(error) => outage = Some(error),
            }
        }
        // Where each one got a 409, none has written.
        outage.map_or(Ok(winner.unwrap_or(from)), Err)
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
