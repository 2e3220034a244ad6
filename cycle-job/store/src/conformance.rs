//! What every store must do, as one suite that is run on each of them.
//!
//! [`run`] works below `prefix` (which should be empty and is left empty) and gives the names of the checks
//! that passed; the first that does not is an error that says what was expected. It is public so that a
//! store that was not made here can be tried before memories are put into it.

mod races;

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;

use self::races::{
    no_increment_is_lost, racing_creates_have_one_winner, racing_large_creates_have_one_winner,
    racing_matches_have_one_winner, readers_never_see_halves,
};
use crate::store::{Condition, ETag, ObjectStore, StoreError};

/// A check that did not pass.
#[derive(Debug, thiserror::Error)]
#[error("the store failed `{check}`: {what}")]
pub struct Nonconformance {
    /// Name of the check.
    pub check: &'static str,
    /// What was expected and what happened.
    pub what: String,
}

impl Nonconformance {
    /// A store that fails a check is not fit for memories, whatever is tried again.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

type Outcome = Result<(), String>;

/// Runs every check below `prefix` (no slash at its end).
pub async fn run(store: Arc<dyn ObjectStore>, prefix: &str) -> Result<Vec<&'static str>, Nonconformance> {
    run_without(store, prefix, &[]).await
}

/// As [`run`], without the checks named in `left_out`: for a server whose fault is known and recorded.
pub async fn run_without(
    store: Arc<dyn ObjectStore>,
    prefix: &str,
    left_out: &[&str],
) -> Result<Vec<&'static str>, Nonconformance> {
    let mut passed = vec![];
    macro_rules! check {
        ($name:ident) => {
            let check = stringify!($name);
            if !left_out.contains(&check) {
                let base = format!("{prefix}/{check}");
                let outcome = match $name(&store, &base).await {
                    Ok(()) => clean(&store, &base).await,
                    failed => failed,
                };
                outcome.map_err(|what| Nonconformance { check, what })?;
                passed.push(check);
            }
        };
    }
    check!(objects_are_read_as_written);
    check!(missing_objects_are_named_so);
    check!(create_succeeds_once);
    check!(match_needs_the_current_version);
    check!(match_on_a_missing_object_makes_nothing);
    check!(create_works_again_after_delete);
    check!(delete_of_nothing_is_no_error);
    check!(odd_names_come_back);
    check!(downloads_stop_at_their_limit);
    check!(racing_creates_have_one_winner);
    check!(racing_matches_have_one_winner);
    check!(no_increment_is_lost);
    check!(readers_never_see_halves);
    check!(listings_are_complete_and_sorted);
    check!(large_files_go_up_and_down_whole);
    check!(uploads_obey_conditions);
    check!(racing_large_creates_have_one_winner);
    Ok(passed)
}

type Store = Arc<dyn ObjectStore>;

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected { Ok(()) } else { Err(format!("{what}: expected {expected:?}, found {found:?}")) }
}

fn ok<T>(what: &str, result: Result<T, StoreError>) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {}", chain(&error)))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}

fn is<T: std::fmt::Debug>(
    what: &str,
    result: Result<T, StoreError>,
    expected: fn(&StoreError) -> bool,
) -> Outcome {
    match result {
        Err(error) if expected(&error) => Ok(()),
        other => Err(format!("{what}: {other:?}")),
    }
}

fn not_found(error: &StoreError) -> bool {
    matches!(error, StoreError::NotFound { .. })
}

fn exists(error: &StoreError) -> bool {
    matches!(error, StoreError::AlreadyExists { .. })
}

fn precondition(error: &StoreError) -> bool {
    matches!(error, StoreError::Precondition { .. })
}

async fn clean(store: &Store, base: &str) -> Outcome {
    for object in ok("list", store.list(base).await)? {
        ok("delete", store.delete(&object.key).await)?;
    }
    same("objects left", ok("list", store.list(base).await)?.len(), 0)
}

async fn objects_are_read_as_written(store: &Store, base: &str) -> Outcome {
    let key = format!("{base}/a");
    for bytes in [&b"one"[..], b"", b"\0\xff\r\n", &[b'x'; 100_000]] {
        let etag = ok("put", store.put(&key, Bytes::copy_from_slice(bytes), Condition::Any).await)?;
        let object = ok("get", store.get(&key).await)?;
        same("bytes", &object.bytes[..], bytes)?;
        same("version", object.etag, etag)?;
    }
    Ok(())
}

async fn missing_objects_are_named_so(store: &Store, base: &str) -> Outcome {
    is("get", store.get(&format!("{base}/none")).await, not_found)?;
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = dir.path().join("f");
    is("download", store.download(&format!("{base}/none"), &file, 10).await, not_found)?;
    same("file left behind", file.exists(), false)?;
    // A folder is no object.
    ok("put", store.put(&format!("{base}/folder/a"), Bytes::new(), Condition::Any).await)?;
    is("get of a folder", store.get(&format!("{base}/folder")).await, not_found)
}

async fn create_succeeds_once(store: &Store, base: &str) -> Outcome {
    let key = format!("{base}/a");
    ok("first", store.put(&key, "1".into(), Condition::Create).await)?;
    is("second", store.put(&key, "2".into(), Condition::Create).await, exists)?;
    is("the same bytes", store.put(&key, "1".into(), Condition::Create).await, exists)?;
    same("bytes", &ok("get", store.get(&key).await)?.bytes[..], b"1")
}

async fn match_needs_the_current_version(store: &Store, base: &str) -> Outcome {
    let key = format!("{base}/a");
    let first = ok("create", store.put(&key, "1".into(), Condition::Create).await)?;
    let second = ok("match", store.put(&key, "2".into(), Condition::Match(first.clone())).await)?;
    is("stale", store.put(&key, "3".into(), Condition::Match(first.clone())).await, precondition)?;
    is("invented", store.put(&key, "3".into(), Condition::Match(ETag("\"0\"".into()))).await, precondition)?;
    same("bytes", &ok("get", store.get(&key).await)?.bytes[..], b"2")?;
    ok("match again", store.put(&key, "4".into(), Condition::Match(second)).await)?;
    same("bytes", &ok("get", store.get(&key).await)?.bytes[..], b"4")
}

/// minio#21526: older servers made the object.
async fn match_on_a_missing_object_makes_nothing(store: &Store, base: &str) -> Outcome {
    let key = format!("{base}/a");
    let etag = ok("create", store.put(&key, "1".into(), Condition::Create).await)?;
    ok("delete", store.delete(&key).await)?;
    is("match", store.put(&key, "2".into(), Condition::Match(etag)).await, precondition)?;
    is("get", store.get(&key).await, not_found)
}

async fn create_works_again_after_delete(store: &Store, base: &str) -> Outcome {
    let key = format!("{base}/deep/er/a");
    for round in ["1", "2", "3"] {
        ok("create", store.put(&key, round.into(), Condition::Create).await)?;
        ok("delete", store.delete(&key).await)?;
    }
    Ok(())
}

async fn delete_of_nothing_is_no_error(store: &Store, base: &str) -> Outcome {
    ok("delete", store.delete(&format!("{base}/none")).await)?;
    ok("put", store.put(&format!("{base}/a"), "1".into(), Condition::Any).await)?;
    ok("delete", store.delete(&format!("{base}/a")).await)?;
    ok("delete again", store.delete(&format!("{base}/a")).await)
}

async fn listings_are_complete_and_sorted(store: &Store, base: &str) -> Outcome {
    let names = ["a", "a-b", "a/b", "a/b2/c", "ab/c", "b"];
    // `a` and `a/b` can't both be on a file system: that pair is left out here and in our layout.
    for name in &names[1..] {
        ok(
            "put",
            store
                .put(&format!("{base}/{name}"), Bytes::copy_from_slice(name.as_bytes()), Condition::Any)
                .await,
        )?;
    }
    for prefix in ["", "a", "a/", "a/b", "a/b2/", "b", "c", "a-"] {
        let found = ok("list", store.list(&format!("{base}/{prefix}")).await)?;
        let mut expected: Vec<_> = names[1..]
            .iter()
            .filter(|name| name.starts_with(prefix))
            .map(|name| format!("{base}/{name}"))
            .collect();
        expected.sort();
        same(
            &format!("keys of `{prefix}`"),
            found.iter().map(|object| object.key.clone()).collect(),
            expected,
        )?;
        for object in found {
            same("size", object.size, (object.key.len() - base.len() - 1) as u64)?;
            let age = jiff::Timestamp::now().duration_since(object.modified).abs();
            same("written within the hour", age < jiff::SignedDuration::from_hours(1), true)?;
        }
    }
    // More than one page of a listing.
    let many: Vec<_> = (0..1100).map(|n| format!("{base}/many/{n:05}")).collect();
    for chunk in many.chunks(32) {
        let puts = chunk.iter().map(|key| store.put(key, "x".into(), Condition::Any));
        for put in join_all(puts).await {
            ok("put", put)?;
        }
    }
    let found = ok("list", store.list(&format!("{base}/many/")).await)?;
    same("keys of a long listing", found.into_iter().map(|object| object.key).collect(), many)
}

async fn odd_names_come_back(store: &Store, base: &str) -> Outcome {
    for name in ["Grüße/ü 1.csv", "a+b&c=d", "per%20cent", "q?x#y", "~.env", "quote\"'", "(1)*!"] {
        let key = format!("{base}/{name}");
        ok(name, store.put(&key, Bytes::copy_from_slice(name.as_bytes()), Condition::Create).await)?;
        same(name, &ok(name, store.get(&key).await)?.bytes[..], name.as_bytes())?;
        same(name, ok(name, store.list(&key).await)?.len(), 1)?;
        ok(name, store.delete(&key).await)?;
        is(name, store.get(&key).await, not_found)?;
    }
    is("a key outside", store.put("../x", "1".into(), Condition::Any).await, |error| {
        matches!(error, StoreError::InvalidKey { .. })
    })
}

/// A file of `size` bytes that do not repeat with any part's size, and its SHA-256.
fn sample(dir: &tempfile::TempDir, size: usize) -> Result<(std::path::PathBuf, String), String> {
    // Blocks of an odd length, so that no two parts of an upload are equal.
    let block: Vec<u8> = (0_u32..25_013).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let mut bytes = block.repeat(size / block.len() + 1);
    bytes.truncate(size);
    let path = dir.path().join(format!("sample-{size}"));
    std::fs::write(&path, &bytes).map_err(|error| error.to_string())?;
    Ok((path, cicada_contract::text::sha256_hex(&bytes)))
}

async fn large_files_go_up_and_down_whole(store: &Store, base: &str) -> Outcome {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let back = dir.path().join("back");
    for size in [0, 1, 5 << 20, (32 << 20) - 1, (32 << 20) + 17] {
        let (path, sha256) = sample(&dir, size)?;
        let key = format!("{base}/large");
        ok("upload", store.upload(&key, &path, Condition::Any).await)?;
        let down = ok("download", store.download(&key, &back, u64::MAX).await)?;
        same("size", down.size, size as u64)?;
        same("SHA-256 as told", &down.sha256, &sha256)?;
        let bytes = std::fs::read(&back).map_err(|error| error.to_string())?;
        same("SHA-256 of the file", cicada_contract::text::sha256_hex(bytes), sha256)?;
    }
    Ok(())
}

async fn uploads_obey_conditions(store: &Store, base: &str) -> Outcome {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    for size in [1000, 33 << 20] {
        let (path, _) = sample(&dir, size)?;
        let key = format!("{base}/{size}");
        let first = ok("create", store.upload(&key, &path, Condition::Create).await)?;
        is("create again", store.upload(&key, &path, Condition::Create).await, exists)?;
        ok("put", store.put(&key, "other".into(), Condition::Match(first.clone())).await)?;
        is("stale", store.upload(&key, &path, Condition::Match(first)).await, precondition)?;
        same("bytes", &ok("get", store.get(&key).await)?.bytes[..], b"other")?;
    }
    Ok(())
}

async fn downloads_stop_at_their_limit(store: &Store, base: &str) -> Outcome {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = dir.path().join("f");
    let key = format!("{base}/a");
    ok("put", store.put(&key, vec![7; 100_000].into(), Condition::Any).await)?;
    is("limit", store.download(&key, &file, 99_999).await, |error| {
        matches!(error, StoreError::TooLarge { .. })
    })?;
    same("file left behind", file.exists(), false)?;
    same("size", ok("download", store.download(&key, &file, 100_000).await)?.size, 100_000)
}
