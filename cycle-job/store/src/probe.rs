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

/// Writers of each race, and races of each kind: s3mock 4.12.4, which compares and then writes, passed one race
/// of four, and its creates are as loose as its replacements.
const RACERS: usize = 8;
const RACES: usize = 3;
/// Folder of the probe's objects, each removed again.
pub(crate) const PROBE: &str = "probe/";

impl AgentStore {
    /// Tries conditional writes below `probe/` and asks what else the bucket keeps. Leaves nothing behind.
    /// [`StoreError::NoConditionalWrites`] if two writers could overwrite each other.
    pub async fn probe(&self) -> Result<BucketFacts> {
        let key = self.key(&format!("{PROBE}{:032x}", rand::rng().random::<u128>()));
        let absent: Vec<_> = (0..RACES).map(|n| format!("{key}-{n}")).collect();
        let tried = self.try_all(&key, &absent).await;
        let removed = join_all(absent.iter().chain([&key]).map(|key| self.store().delete(key))).await;
        tried.and(removed.into_iter().collect::<Result<()>>())?;
        Ok(self.store().facts().await)
    }

    async fn try_all(&self, key: &str, absent: &[String]) -> Result<()> {
        let mut current = self.try_conditions(key).await?;
        for _ in 0..RACES {
            // Where each one got a 409, none has written, and the version is still there.
            current = self.race(key, Condition::Match(current.clone())).await?.unwrap_or(current);
        }
        // Keys that nobody has used: what a server makes of a create after a delete is not the question.
        for key in absent {
            self.race(key, Condition::Create).await?;
        }
        Ok(())
    }

    /// One writer after the other; gives the version that is then there.
    async fn try_conditions(&self, key: &str) -> Result<ETag> {
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
        Ok(second)
    }

    /// Lets writers race under one condition that holds for the first of them: at most one wins, and its bytes
    /// are those that stay. Gives the winner's version; None if each one got a 409.
    async fn race(&self, key: &str, condition: Condition) -> Result<Option<ETag>> {
        // Never bytes that were there: with them the version would come back, and two could win rightly.
        let mark = rand::rng().random::<u64>();
        let text = |n: usize| Bytes::from(format!("racer {n} of {mark:016x}"));
        let writes = (0..RACERS).map(|n| self.store().put(key, text(n), condition.clone()));
        let (mut winner, mut conflict, mut outage) = (None, false, None);
        for (n, result) in join_all(writes).await.into_iter().enumerate() {
            match result {
                Ok(_) if winner.is_some() => return Err(self.broken("two racing writers both won")),
                Ok(etag) => winner = Some((n, etag)),
                Err(StoreError::Precondition { .. } | StoreError::AlreadyExists { .. }) => {}
                Err(StoreError::Conflict { .. }) => conflict = true,
                Err(error) => outage = Some(error),
            }
        }
        if let Some(outage) = outage {
            return Err(outage);
        }
        let Some((n, etag)) = winner else {
            let what = "each of several racing writers was told that another had won";
            return if conflict { Ok(None) } else { Err(self.broken(what)) };
        };
        if self.store().get(key).await?.bytes != text(n) {
            return Err(self.broken("a racing writer that was refused has written"));
        }
        Ok(Some(etag))
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
