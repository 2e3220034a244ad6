//! A cycle on a real S3 server whose answers break on the wire.

use std::sync::Arc;

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

/// volsync's lesson (field notes: slow S3 with 5 % 503): parts are repeated, and nothing is half there.
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
                tokio::time::sleep(std::time::Duration::from_millis(3 * round)).await;
                tokio::task::block_in_place(|| server.kill_and_restart());
            }
        );
        published.push(publishing.unwrap().snapshot.id);
    }
    let head = agent.read_head().await.unwrap().unwrap().head;
    assert_eq!(head.snapshots.iter().map(|snapshot| snapshot.id.clone()).collect::<Vec<_>>(), published);
    assert!(agent.collect(&[], now()).await.unwrap().removed.is_empty());
}
