//! Deltas: what they hold, which archives stay because of them, and what a death leaves.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::{
    cycles::{Bench, agent, held, last, now, request},
    servers::VersityGw,
};
use crate::{
    Acquired, Acquisition, AgentStore, Archive, ArchiveRef, DeltaBase, DirectoryStore, ObjectStore,
    PackedArchive, PageHasher, PublishRequest, SnapshotKind, SnapshotRetention, Start,
    faulty::{Answer, Fault},
    head::tests::archive,
    pack, pack_delta,
};

const PAGE: usize = 512;

/// The bytes of a SQLite file as far as this crate looks at them: its page size, then pages of their own.
pub(super) fn file_of(pages: &[u64]) -> Vec<u8> {
    let mut file = vec![];
    for (n, seed) in pages.iter().enumerate() {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut page: Vec<u8> = (0..PAGE)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_be_bytes()[2]
            })
            .collect();
        page[..8].copy_from_slice(&seed.to_be_bytes());
        if n == 0 {
            page[16..18].copy_from_slice(&512_u16.to_be_bytes());
        }
        file.extend(page);
    }
    file
}

/// The numbers that [`file_of`] made a file of.
pub(super) fn pages_of(file: &[u8]) -> Vec<u64> {
    file.chunks(PAGE).map(|page| u64::from_be_bytes(page[..8].try_into().unwrap())).collect()
}

/// A reader of its own, from the format's description.
fn apply(parent: &[u8], delta: &[u8]) -> Vec<u8> {
    let number = |at: usize| u32::from_be_bytes(delta[at..at + 4].try_into().unwrap()) as usize;
    assert_eq!(&delta[..16], b"cicada delta v1\n");
    let (page, count) = (number(16), number(20));
    assert_eq!(hex::encode(&delta[24..56]), cicada_contract::text::sha256_hex(parent));
    let mut pages: BTreeMap<usize, &[u8]> =
        parent.chunks(page).enumerate().map(|(n, page)| (n + 1, page)).collect();
    let mut at = 56;
    while number(at) != 0 {
        pages.insert(number(at), &delta[at + 4..at + 4 + page]);
        at += 4 + page;
    }
    assert_eq!(at + 4, delta.len());
    (1..=count).flat_map(|n| pages[&n]).copied().collect()
}

/// The file of an archive, by whole archive and deltas; None if one of them can't be had.
pub(super) async fn read(agent: &AgentStore, archive: &ArchiveRef, scratch: &Path) -> Option<Vec<u8>> {
    let mut file: Vec<u8> = vec![];
    for link in archive.links().unwrap() {
        let down = scratch.join("link.zst");
        let got = match agent.store().download(&agent.key(&link.key), &down, u64::MAX).await {
            Ok(got) => got,
            Err(_) => return None,
        };
        assert_eq!((&got.sha256, got.size), (&link.archive_sha256, link.archive_size));
        let content = zstd::decode_all(std::fs::File::open(down).unwrap()).unwrap();
        file = if link.is_whole() { content } else { apply(&file, &content) };
        assert_eq!(cicada_contract::text::sha256_hex(&file), link.file_sha256);
        assert_eq!(file.len() as u64, link.file_size);
    }
    Some(file)
}

/// `new` packed, as a delta on `base` and its file where that is given and better.
pub(super) async fn packed(new: &[u8], base: Option<(DeltaBase, &[u8])>, scratch: &Path) -> PackedArchive {
    let (file, out) = (scratch.join("new.db"), scratch.join("new.zst"));
    std::fs::write(&file, new).unwrap();
    if let Some((base, old)) = base {
        let mut hasher = PageHasher::default();
        // Blocks of odd sizes, as they come from a pipe.
        old.chunks(700).for_each(|block| hasher.update(block));
        let pages = Arc::new(hasher.finish().unwrap());
        if let Some(delta) = pack_delta(&file, &out, &base, pages).await.unwrap() {
            return delta;
        }
    }
    pack(&file, &out).await.unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Random edits, files that grow and shrink: the last file comes back byte for byte.
    #[test]
    fn a_chain_makes_what_a_whole_archive_holds(
        start in proptest::collection::vec(any::<u64>(), 1..40),
        edits in proptest::collection::vec((1..60_usize, proptest::collection::vec((any::<usize>(), any::<u64>()), 0..8)), 1..16),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let (mut pages, mut file) = (start.clone(), file_of(&start));
            let whole = packed(&file, None, dir.path()).await;
            let mut content = zstd::decode_all(std::fs::File::open(&whole.path).unwrap()).unwrap();
            for (length, changes) in edits {
                pages.resize(length, 7);
                for (at, value) in changes {
                    let at = at % pages.len();
                    pages[at] = value;
                }
                let new = file_of(&pages);
                let base = DeltaBase {
                    parent: ArchiveRef { file_sha256: cicada_contract::text::sha256_hex(&file), ..archive("parent") },
                    max_bytes: u64::MAX,
                };
                let next = packed(&new, Some((base, &file)), dir.path()).await;
                let unpacked = zstd::decode_all(std::fs::File::open(&next.path).unwrap()).unwrap();
                content = if next.parent.is_some() { apply(&content, &unpacked) } else { unpacked };
                prop_assert!(content == new);
                prop_assert_eq!(next.file_sha256, cicada_contract::text::sha256_hex(&new));
                file = new;
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn a_delta_that_would_not_pay_is_a_whole_archive() {
    let dir = tempfile::tempdir().unwrap();
    let old = file_of(&(0..100).collect::<Vec<_>>());
    let base = |max_bytes| DeltaBase {
        parent: ArchiveRef {
            file_sha256: cicada_contract::text::sha256_hex(&old),
            ..archive("snapshots/1-1-a/memory.db.zst")
        },
        max_bytes,
    };
    let mut pages: Vec<u64> = (0..100).collect();
    pages[50] = 1000;
    let one = packed(&file_of(&pages), Some((base(4096), &old)), dir.path()).await;
    assert!(one.parent.is_some() && one.archive_size < 800, "{one:?}");
    let above = packed(&file_of(&pages), Some((base(400), &old)), dir.path()).await;
    assert_eq!(above.parent, None, "larger than what is left of half the whole archive");
    let most: Vec<u64> = (40..140).collect();
    assert_eq!(packed(&file_of(&most), Some((base(u64::MAX), &old)), dir.path()).await.parent, None);
    let mut other_size = file_of(&pages);
    other_size[16..18].copy_from_slice(&1024_u16.to_be_bytes());
    assert_eq!(packed(&other_size, Some((base(u64::MAX), &old)), dir.path()).await.parent, None);
    for no_database in [&b""[..], &[0; 17], &[3; 600], &file_of(&[1, 2])[..700]] {
        let mut hasher = PageHasher::default();
        hasher.update(no_database);
        assert_eq!(hasher.finish(), None);
    }
}

fn changed(n: u64) -> Vec<u64> {
    (0..120).map(|page| if page == 1 + n % 119 { 1000 + n } else { page }).collect()
}

/// A cycle that changes one page; gives its snapshot, or None if it failed.
async fn cycle(
    agent: &AgentStore,
    name: &str,
    n: u64,
    scratch: &Path,
    now: Timestamp,
    keep: u32,
) -> Option<ArchiveRef> {
    let acquired = agent.acquire(crate::AcquireRequest { now, ..request(name) }).await.ok()?;
    let Acquisition::Held(acquired) = acquired else { panic!("already handled") };
    let Acquired { mut writer, start, .. } = *acquired;
    if let Start::Recovered(current) = start {
        writer.release(now).await.ok()?;
        return current.memory;
    }
    let old = match writer.head().current().and_then(|s| s.memory.clone()) {
        Some(memory) => Some(read(agent, &memory, scratch).await?),
        None => None,
    };
    let base = old.as_ref().and_then(|old| Some((writer.head().delta_base(0, now)?, old.as_slice())));
    let memory = Archive::New(packed(&file_of(&changed(n)), base, scratch).await);
    let retention = SnapshotRetention { count: keep, max_age: 0 };
    let end = PublishRequest { memory, retention, now, ..last(SnapshotKind::Final) };
    let published = writer.publish(end).await.ok()?;
    let _ = writer.collect(&[], now).await;
    published.snapshot.memory
}

/// Every file that HEAD lists can be made from what is in the store.
async fn whole(agent: &AgentStore) {
    let scratch = tempfile::tempdir().unwrap();
    let head = agent.read_head().await.unwrap().unwrap().head;
    for memory in head.snapshots.iter().filter_map(|s| s.memory.as_ref()) {
        assert!(read(agent, memory, scratch.path()).await.is_some(), "{} can't be made", memory.key);
    }
}

fn memories(listing: Vec<crate::ObjectMeta>) -> Vec<String> {
    listing.into_iter().map(|o| o.key).filter(|key| key.contains("/memory.")).collect()
}

/// Thirty cycles a quarter of an hour apart, of which three snapshots are listed.
async fn a_life_with_deltas(store: Arc<dyn ObjectStore>) {
    let (agent, scratch) = (agent(store), tempfile::tempdir().unwrap());
    let (mut time, mut wholes) = (now(), 0);
    for n in 0..30 {
        time += SignedDuration::from_mins(15);
        let memory = cycle(&agent, &format!("c{n}"), n, scratch.path(), time, 3).await.unwrap();
        wholes += u32::from(memory.is_whole());
        assert!(memory.links().unwrap().len() <= 17);
        let file = read(&agent, &memory, scratch.path()).await.unwrap();
        assert_eq!(pages_of(&file)[1..], changed(n)[1..]);
        whole(&agent).await;
    }
    assert_eq!(wholes, 2, "one in seventeen; together the deltas stay below half of it");
    // An hour after the last chain was left behind, nothing of it is there.
    time += SignedDuration::from_hours(2);
    agent.collect(&[], time).await.unwrap();
    let head = agent.read_head().await.unwrap().unwrap().head;
    let mut named: Vec<String> =
        head.archives().filter(|a| a.key.contains("memory")).map(|a| agent.key(&a.key)).collect();
    named.sort();
    assert_eq!(memories(agent.store().list(&agent.key("snapshots/")).await.unwrap()), named);
    let size = head.render().len();
    assert!(size < 24_000, "HEAD has {size} bytes");
    whole(&agent).await;
}

#[tokio::test]
async fn chains_are_kept_whole_and_collected_whole() {
    let dir = tempfile::tempdir().unwrap();
    a_life_with_deltas(Arc::new(DirectoryStore::new(dir.path()))).await;
}

#[tokio::test]
#[ignore = "needs versitygw"]
async fn chains_are_kept_whole_and_collected_whole_on_a_real_s3_server() {
    let server = VersityGw::start();
    a_life_with_deltas(Arc::new(server.store("deltas").await)).await;
}

#[tokio::test]
async fn a_death_or_an_outage_at_any_call_breaks_no_chain() {
    let life = async |bench: &Bench, fault: Option<(u64, Fault)>| {
        let scratch = bench.dir.path();
        for n in 0..2 {
            cycle(&bench.other(), &format!("before{n}"), n, scratch, now(), 1).await.unwrap();
        }
        if let Some((call, fault)) = fault {
            bench.faulty.fail(call, fault);
        }
        cycle(&bench.agent, "c", 5, scratch, now() + SignedDuration::from_hours(3), 1).await
    };
    let bench = Bench::new();
    assert!(!life(&bench, None).await.unwrap().is_whole());
    let calls = bench.faulty.calls();
    assert!(calls >= 6, "{calls}");
    let answer = Answer::Timeout;
    let faults =
        [Fault::DieBefore, Fault::DieAfter, Fault::Before(answer), Fault::After(answer), Fault::Late(answer)];
    for call in 1..=calls {
        for fault in faults {
            let bench = Bench::new();
            let done = life(&bench, Some((call, fault))).await;
            whole(&bench.other()).await;
            let late = now() + SignedDuration::from_hours(5);
            if done.is_none() {
                let again = cycle(&bench.other(), "c", 5, bench.dir.path(), late, 1).await.unwrap();
                assert!(!again.is_whole(), "call {call}, {fault:?}");
            }
            bench.faulty.land().await;
            bench.other().collect(&[], late + SignedDuration::from_hours(5)).await.unwrap();
            whole(&bench.other()).await;
            let head = bench.other().read_head().await.unwrap().unwrap().head;
            let memory = head.current().unwrap().memory.clone().unwrap();
            let file = read(&bench.other(), &memory, bench.dir.path()).await.unwrap();
            assert_eq!(pages_of(&file)[1..], changed(5)[1..], "call {call}, {fault:?}");
        }
    }
}

#[tokio::test]
async fn after_a_fall_back_and_a_copy_the_next_archive_is_whole() {
    let bench = Bench::new();
    let scratch = bench.dir.path();
    let end = |n: usize| cycle(&bench.agent, ["a", "b", "c", "d", "e"][n], n as u64, scratch, now(), 9);
    assert!(end(0).await.unwrap().is_whole());
    let delta = end(1).await.unwrap();
    assert!(!delta.is_whole() && !end(2).await.unwrap().is_whole());
    let mut acquired = held(&bench.agent, request("back")).await;
    let sound = acquired.writer.head().snapshots[1].clone();
    let back = PublishRequest {
        memory: Archive::Existing(sound.memory.clone()),
        ledger: Archive::Existing(sound.ledger.clone()),
        restored_from: Some(sound.id.clone()),
        ..PublishRequest::new(SnapshotKind::Checkpoint, now())
    };
    acquired.writer.publish(back).await.unwrap();
    let kept = acquired.writer.publish(last(SnapshotKind::Final)).await.unwrap().snapshot.memory.unwrap();
    assert_eq!(kept, delta, "with all that it builds on");
    assert!(end(3).await.unwrap().is_whole(), "nothing builds on what a person chose");
    assert!(!end(4).await.unwrap().is_whole());

    let elsewhere = tempfile::tempdir().unwrap();
    let target = agent(Arc::new(DirectoryStore::new(elsewhere.path())));
    let mut acquired = held(&bench.agent, request("copy")).await;
    acquired.writer.copy_to(&target, None, scratch, now(), |_| ()).await.unwrap();
    whole(&target).await;
    assert!(cycle(&target, "there", 7, scratch, now(), 9).await.unwrap().is_whole());
    assert!(!cycle(&target, "there2", 8, scratch, now(), 9).await.unwrap().is_whole());
}

#[tokio::test]
async fn a_delta_on_what_head_does_not_name_is_not_published() {
    let bench = Bench::new();
    cycle(&bench.agent, "a", 0, bench.dir.path(), now(), 9).await.unwrap();
    let mut acquired = held(&bench.agent, request("b")).await;
    let mut base = acquired.writer.head().delta_base(0, now()).unwrap();
    base.parent.key = "snapshots/0-0-00/memory.db.zst".into();
    let delta = packed(&file_of(&changed(1)), Some((base, &file_of(&changed(0)))), bench.dir.path()).await;
    let request = PublishRequest { memory: Archive::New(delta), ..last(SnapshotKind::Final) };
    let error = acquired.writer.publish(request).await.unwrap_err();
    assert!(
        matches!(&error, crate::PublishError::BaseGone { parent } if parent.contains("0-0-00")),
        "{error}"
    );
    assert!(!error.is_retryable());
}
