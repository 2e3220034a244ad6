//! A cycle on a real S3 server whose answers break on the wire.

use std::{sync::Arc, time::Duration};

use super::{
    cycles::{agent, held, last, now, request},
    proxy::{Proxy, Wire},
    servers::{BUCKET, VersityGw, config, credentials},
};
use crate::{
    AgentStore, Archive, Condition, PublishError, PublishRequest, S3Store, SnapshotKind, Start, StoreError,
    pack,
};

async fn through(proxy: &Proxy) -> AgentStore {
    agent(Arc::new(S3Store::new(&config(proxy.port, BUCKET, "p"), Some(credentials())).await.unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs versitygw"]
async fn each_broken_answer_to_a_head_write_is_cleared_up() {
    let server = VersityGw::start();
    let proxy = Proxy::before(server.port).await;
    let agent = through(&proxy).await;
    let direct = super::cycles::agent(Arc::new(server.store("p").await));
    let mut cycles = 0;
    for how in [
        Wire::Refuse(409),
        Wire::Refuse(500),
        Wire::Refuse(503),
        Wire::Mask(409),
        Wire::Mask(503),
        Wire::Mask(412),
        Wire::Cut,
        Wire::CutBefore,
        Wire::HalfBody,
        Wire::Late(503),
        Wire::Late(409),
    ] {
        cycles += 1;
        let name = format!("cycle-{cycles}");
        proxy.break_next("PUT", "/HEAD.json", how);
        let mut acquired = held(&agent, request(&name)).await;
        assert_eq!(acquired.writer.epoch(), cycles, "{how:?}: one epoch for one acquire");
        assert!(proxy.is_spent(), "{how:?}");
        assert!(proxy.land().await.iter().all(|status| *status == 412), "{how:?}");
        proxy.break_next("PUT", "/HEAD.json", how);
        let done = acquired.writer.publish(last(SnapshotKind::Final)).await.unwrap();
        assert!(done.retried, "{how:?}");
        assert!(
            proxy.land().await.iter().all(|status| *status == 412),
            "{how:?}: the late twin changes nothing"
        );
        let head = direct.read_head().await.unwrap().unwrap().head;
        assert_eq!((head.epoch, head.current()), (cycles, Some(&done.snapshot)), "{how:?}");
        assert_eq!(head.published, cycles, "{how:?}: published once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs versitygw"]
async fn a_head_write_that_lands_late_is_stopped_by_the_fence() {
    let server = VersityGw::start();
    let proxy = Proxy::before(server.port).await;
    let agent = through(&proxy).await;
    let direct = super::cycles::agent(Arc::new(server.store("p").await));
    let mut slow = held(&agent, request("slow")).await;
    proxy.break_next("PUT", "/HEAD.json", Wire::Late(503));
    for _ in 0..60 {
        proxy.break_next("GET", "/HEAD.json", Wire::Refuse(503));
        proxy.break_next("PUT", "/HEAD.json", Wire::Refuse(503));
    }
    let error = slow.writer.publish(last(SnapshotKind::Final)).await.unwrap_err();
    assert!(matches!(error, PublishError::Unclear(_)), "{error}");
    let mut next = held(&direct, request("next")).await;
    assert_eq!(proxy.land().await, [412]);
    next.writer.publish(last(SnapshotKind::Final)).await.unwrap();
    let head = direct.read_head().await.unwrap().unwrap().head;
    assert_eq!(head.snapshots.len(), 1);
    assert_eq!(head.current().unwrap().cycle.uid, "next");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs versitygw"]
async fn conditional_writes_are_sent_once_and_others_are_repeated() {
    let server = VersityGw::start();
    let proxy = Proxy::before(server.port).await;
    let store = through(&proxy).await.store().clone();
    for (key, condition, sent) in [("any", Condition::Any, 2), ("create", Condition::Create, 1)] {
        proxy.break_next("PUT", &format!("/{key}"), Wire::Mask(503));
        let result = store.put(key, "x".into(), condition).await;
        assert_eq!(result.is_ok(), sent == 2, "{result:?}");
        let puts = proxy
            .log()
            .iter()
            .filter(|line| line.starts_with("PUT") && line.contains(&format!("/{key}")))
            .count();
        assert_eq!(puts, sent, "{key}");
    }
}

/// volsync 5feea4cd, adampetrovic/home-ops#3296: one answer of a slow store that went wrong broke a whole backup.
/// Parts are repeated, and nothing is half there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs versitygw"]
async fn a_large_archive_goes_up_through_broken_answers() {
    let server = VersityGw::start();
    let proxy = Proxy::before(server.port).await;
    let agent = through(&proxy).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("memory.db");
    // Does not compress, so that the archive takes several parts.
    let bytes: Vec<u8> = (0..10_u64 << 20)
        .flat_map(|n| {
            (n.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_mul(n | 1)).to_be_bytes()[2..6]
                .to_vec()
        })
        .collect();
    std::fs::write(&file, &bytes).unwrap();
    let packed = pack(&file, &dir.path().join("memory.zst")).await.unwrap();
    assert!(packed.archive_size > 32 << 20, "{}", packed.archive_size);
    let mut acquired = held(&agent, request("c")).await;
    for how in [Wire::Refuse(503), Wire::Mask(500), Wire::Cut, Wire::HalfBody] {
        proxy.break_next("PUT", "/memory.db.zst", how);
    }
    proxy.break_next("POST", "/memory.db.zst", Wire::Refuse(503));
    let memory = Archive::New(packed.clone());
    let done = acquired.writer.publish(PublishRequest { memory, ..last(SnapshotKind::Final) }).await.unwrap();
    assert!(proxy.is_spent());
    let archive = done.snapshot.memory.unwrap();
    let down = dir.path().join("down");
    let got = agent.store().download(&agent.key(&archive.key), &down, u64::MAX).await.unwrap();
    assert_eq!((got.sha256, archive.archive_sha256), (packed.archive_sha256.clone(), packed.archive_sha256));
}

/// volsync 5feea4cd, adampetrovic/home-ops#3296: a mover gave a slow store up after a minute and left a lock behind.
/// Half a minute for each answer, and now and then a 503, is slow and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs versitygw"]
async fn a_store_that_takes_half_a_minute_for_each_answer_is_slow_and_nothing_else() {
    let server = VersityGw::start();
    let proxy = Proxy::before(server.port).await;
    let agent = through(&proxy).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("memory.db");
    std::fs::write(&file, "memory").unwrap();
    let packed = |name: &str| {
        let archive = dir.path().join(name);
        let file = &file;
        async move { Archive::New(pack(file, &archive).await.unwrap()) }
    };
    let (memory, ledger) = (packed("memory.zst").await, packed("ledger.zst").await);
    let mut acquired = held(&agent, request("slow")).await;
    let slow = Wire::Slow(Duration::from_secs(30));
    proxy.break_next("PUT", "/memory.db.zst", Wire::Refuse(503));
    for end in ["/memory.db.zst", "/ledger.db.zst", "/HEAD.json"] {
        proxy.break_next("PUT", end, slow);
    }
    let begin = std::time::Instant::now();
    let request = PublishRequest { memory, ledger, ..last(SnapshotKind::Final) };
    let done = acquired.writer.publish(request).await.unwrap();
    let took = begin.elapsed();
    assert!(took > Duration::from_secs(58) && took < Duration::from_secs(100), "{took:?}");
    let puts =
        proxy.log().iter().filter(|line| line.starts_with("PUT") && line.contains("HEAD.json")).count();
    assert_eq!(puts, 2, "nothing is repeated only because it is slow: {:?}", proxy.log());
    assert_eq!(agent.read_head().await.unwrap().unwrap().head.current, Some(done.snapshot.id));
    assert_eq!(agent.store().sweep(&agent.key(""), jiff::Timestamp::MAX).await.unwrap(), 0, "no residue");
    let objects = agent.store().list(&agent.key("")).await.unwrap();
    assert_eq!(objects.len(), 3, "HEAD and two archives: {objects:?}");
}

/// icechunk#2115, rqlite#2701, boto/s3transfer#327, minio#20845: checksums that newer SDKs send unasked are refused by
/// several servers. None goes to a custom endpoint, neither with small objects nor with parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs versitygw"]
async fn no_unasked_checksum_goes_to_a_custom_endpoint() {
    let server = VersityGw::start();
    let proxy = Proxy::before(server.port).await;
    let agent = through(&proxy).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("large");
    std::fs::write(&file, vec![7; 40 << 20]).unwrap();
    agent.store().put(&agent.key("small"), "x".into(), Condition::Create).await.unwrap();
    agent.store().upload(&agent.key("large"), &file, Condition::Any).await.unwrap();
    agent.store().download(&agent.key("large"), &dir.path().join("down"), u64::MAX).await.unwrap();
    let heads = proxy.heads();
    assert!(heads.iter().any(|head| head.contains("partnumber=2")), "it went up in parts");
    for head in heads {
        let asked = ["x-amz-checksum-", "x-amz-sdk-checksum-algorithm", "x-amz-trailer", "aws-chunked"];
        for word in asked {
            assert!(!head.contains(word), "{word} in {head}");
        }
    }
}

/// An upload whose answers never come: HEAD stays, nothing is visible, the sweep removes the parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs versitygw"]
async fn an_upload_that_fails_leaves_head_and_no_object() {
    let server = VersityGw::start();
    let proxy = Proxy::before(server.port).await;
    let agent = through(&proxy).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("memory.zst");
    std::fs::write(&file, vec![7; 40 << 20]).unwrap();
    for _ in 0..80 {
        proxy.break_next("PUT", "/large", Wire::Refuse(503));
    }
    let error = agent.store().upload(&agent.key("large"), &file, Condition::Any).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert!(agent.store().list(&agent.key("")).await.unwrap().is_empty());
    assert!(matches!(agent.store().get(&agent.key("large")).await, Err(StoreError::NotFound { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs versitygw"]
async fn a_server_killed_in_the_middle_loses_nothing_that_it_acknowledged() {
    let mut server = VersityGw::start();
    let agent = super::cycles::agent(Arc::new(server.store("p").await));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("memory.db");
    let mut published = vec![];
    for round in 0..4 {
        let mut acquired = held(&agent, request(&format!("c{round}"))).await;
        match (&acquired.start, published.last()) {
            (Start::Empty, None) => {}
            (Start::Current(snapshot), Some(id)) => assert_eq!(&snapshot.id, id),
            other => panic!("{other:?}"),
        }
        std::fs::write(&file, format!("round {round}").repeat(100_000)).unwrap();
        let packed = pack(&file, &dir.path().join("memory.zst")).await.unwrap();
        let (publishing, ()) = tokio::join!(
            acquired
                .writer
                .publish(PublishRequest { memory: Archive::New(packed), ..last(SnapshotKind::Final) }),
            async {
                tokio::time::sleep(Duration::from_millis(3 * round)).await;
                tokio::task::block_in_place(|| server.kill_and_restart());
            }
        );
        published.push(publishing.unwrap().snapshot.id);
    }
    let head = agent.read_head().await.unwrap().unwrap().head;
    assert_eq!(head.snapshots.iter().map(|snapshot| snapshot.id.clone()).collect::<Vec<_>>(), published);
    assert!(agent.collect(&[], now()).await.unwrap().removed.is_empty());
}
