//! Checks with several writers and readers at once.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::future::join_all;

use super::{Outcome, Store, chain, exists, ok, precondition, same, sample};
use crate::store::{Condition, ETag, StoreError};

/// Writers of the races.
const WRITERS: usize = 8;
/// Rounds of each race, and increments of each writer.
const ROUNDS: usize = 10;

pub(super) async fn racing_creates_have_one_winner(store: &Store, base: &str) -> Outcome {
    for round in 0..ROUNDS {
        let key = format!("{base}/{round}");
        let puts = (0..WRITERS).map(|n| store.put(&key, format!("{n}").into(), Condition::Create));
        one_winner(store, &key, join_all(puts).await, exists).await?;
    }
    Ok(())
}

pub(super) async fn racing_matches_have_one_winner(store: &Store, base: &str) -> Outcome {
    let key = format!("{base}/a");
    for round in 0..ROUNDS {
        let etag = ok("put", store.put(&key, format!("round {round}").into(), Condition::Any).await)?;
        let puts =
            (0..WRITERS).map(|n| store.put(&key, format!("{n}").into(), Condition::Match(etag.clone())));
        one_winner(store, &key, join_all(puts).await, precondition).await?;
    }
    Ok(())
}

pub(super) async fn racing_large_creates_have_one_winner(store: &Store, base: &str) -> Outcome {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (path, sha256) = sample(&dir, 33 << 20)?;
    let key = format!("{base}/a");
    let puts = (0..3).map(|_| store.upload(&key, &path, Condition::Create));
    let winners = join_all(puts).await.into_iter().filter(Result::is_ok).count();
    same("winners", winners, 1)?;
    let down = ok("download", store.download(&key, &dir.path().join("back"), u64::MAX).await)?;
    same("SHA-256", down.sha256, sha256)
}

/// Exactly one write took effect, it is the one that was told so, and the losers know that they lost
/// (a 409 is no decision: then they know nothing, but never that they won).
async fn one_winner(
    store: &Store,
    key: &str,
    results: Vec<Result<ETag, StoreError>>,
    loser: fn(&StoreError) -> bool,
) -> Outcome {
    let mut winner = None;
    for (n, result) in results.into_iter().enumerate() {
        match result {
            Ok(_) if winner.is_none() => winner = Some(format!("{n}")),
            Ok(_) => return Err(format!("a second winner of `{key}`")),
            Err(error) if loser(&error) || matches!(error, StoreError::Conflict { .. }) => {}
            Err(error) => return Err(chain(&error)),
        }
    }
    let winner = winner.ok_or_else(|| format!("no winner of `{key}`"))?;
    same("bytes of the winner", &ok("get", store.get(key).await)?.bytes[..], winner.as_bytes())
}

pub(super) async fn no_increment_is_lost(store: &Store, base: &str) -> Outcome {
    let key = format!("{base}/counter");
    ok("create", store.put(&key, "0 start".into(), Condition::Create).await)?;
    let writers = (0..WRITERS).map(|writer| {
        let (store, key) = (store.clone(), key.clone());
        async move {
            for n in 0..ROUNDS {
                // The mark makes no two states equal, as HEAD does.
                while !increment(&store, &key, &format!("{writer}.{n}")).await? {}
            }
            Ok::<(), String>(())
        }
    });
    for done in join_all(writers).await {
        done?;
    }
    let bytes = ok("get", store.get(&key).await)?.bytes;
    same("count", count_in(&bytes)?, WRITERS * ROUNDS)
}

async fn increment(store: &Store, key: &str, mark: &str) -> Result<bool, String> {
    let object = ok("get", store.get(key).await)?;
    let next = format!("{} {mark}", count_in(&object.bytes)? + 1);
    match store.put(key, next.into(), Condition::Match(object.etag)).await {
        Ok(_) => Ok(true),
        Err(StoreError::Precondition { .. } | StoreError::Conflict { .. }) => Ok(false),
        Err(error) => Err(chain(&error)),
    }
}

fn count_in(bytes: &[u8]) -> Result<usize, String> {
    let text = String::from_utf8_lossy(bytes);
    let number = text.split(' ').next().and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("a torn counter: {text:?}"))
}

pub(super) async fn readers_never_see_halves(store: &Store, base: &str) -> Outcome {
    let key = format!("{base}/a");
    let body = |n: u8| Bytes::from(vec![n; 300_000]);
    ok("put", store.put(&key, body(0), Condition::Any).await)?;
    let writing = async {
        for n in 1..=30 {
            ok("put", store.put(&key, body(n), Condition::Any).await)?;
        }
        Ok::<(), String>(())
    };
    let reading = async {
        for _ in 0..60 {
            let bytes = ok("get", store.get(&key).await)?.bytes;
            same("length", bytes.len(), 300_000)?;
            same("states in one read", bytes.iter().collect::<BTreeSet<_>>().len(), 1)?;
        }
        Ok::<(), String>(())
    };
    let (written, read) = futures::join!(writing, reading);
    written.and(read)
}
