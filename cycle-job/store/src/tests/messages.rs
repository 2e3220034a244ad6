//! Inbox, outbox, files, blobs, spend: each write that dies before, after, or unheard.

use cicada_contract::{Attachment, plan::CycleIdentity, report::Usage};

use super::cycles::{Bench, now};
use crate::{
    AttemptUsage, Condition, DeliveryOutcome, INBOX_MAX_BYTES, INBOX_VERSION, InboxError, InboxMessage,
    Receipt, StoreError,
    faulty::{Answer, Fault},
};

fn message(channel: &str, id: &str) -> InboxMessage {
    InboxMessage {
        version: INBOX_VERSION,
        id: id.into(),
        channel: channel.into(),
        from: "ann@example.org".into(),
        to: None,
        subject: None,
        body: "hello".into(),
        conversation_id: None,
        peer: None,
        answers: None,
        attachments: vec![],
        payload: None,
        at: now(),
    }
}

#[tokio::test]
async fn a_repeated_message_is_one_message() {
    let bench = Bench::new();
    assert!(bench.agent.put_message(&message("mail", "1")).await.unwrap());
    let again = InboxMessage { body: "changed".into(), ..message("mail", "1") };
    assert!(!bench.agent.put_message(&again).await.unwrap());
    // The pair makes the name, with lengths: no two pairs meet.
    assert!(bench.agent.put_message(&message("mai", "l1")).await.unwrap());
    let inbox = bench.agent.list_inbox().await.unwrap();
    assert_eq!(inbox.len(), 2);
    let first = inbox.iter().find(|entry| entry.hash == message("mail", "1").hash()).unwrap();
    assert_eq!(bench.agent.get_inbox(first).await.unwrap(), message("mail", "1"));
    bench.agent.delete_inbox(&first.hash).await.unwrap();
    bench.agent.delete_inbox(&first.hash).await.unwrap();
    assert_eq!(bench.agent.list_inbox().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_message_whose_answer_was_lost_is_put_once_by_its_sender() {
    for fault in
        [Fault::Before(Answer::Timeout), Fault::After(Answer::Timeout), Fault::Late(Answer::Unavailable)]
    {
        let bench = Bench::new();
        bench.faulty.fail_next(fault);
        let error = bench.agent.put_message(&message("mail", "1")).await.unwrap_err();
        assert!(error.is_retryable());
        bench.agent.put_message(&message("mail", "1")).await.unwrap();
        bench.faulty.land().await;
        assert_eq!(bench.agent.list_inbox().await.unwrap().len(), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn poison_goes_to_quarantine_byte_for_byte() {
    let bench = Bench::new();
    let store = bench.agent.store();
    let good = message("mail", "1");
    let later = serde_json::to_vec(&InboxMessage { version: 2, ..message("mail", "2") }).unwrap();
    let moved = serde_json::to_vec(&message("mail", "3")).unwrap();
    let attachment = |name: String| Attachment { name, ..Attachment::default() };
    let attached = InboxMessage { attachments: vec![attachment("n".repeat(256))], ..message("mail", "4") };
    let attached_hash = attached.hash();
    let huge = vec![b'x'; usize::try_from(INBOX_MAX_BYTES).unwrap() + 1];
    let hash = message("mail", "2").hash();
    for (name, bytes) in [
        ("torn.json", b"{\"version\":1".to_vec()),
        ("binary.json", vec![0xff, 0, 7]),
        ("huge.json", huge),
        (&*format!("{hash}.json"), later),
        (&*format!("{attached_hash}.json"), serde_json::to_vec(&attached).unwrap()),
        ("other-name.json", moved),
    ] {
        store
            .put(&bench.agent.key(&format!("inbox/{name}")), bytes.clone().into(), Condition::Any)
            .await
            .unwrap();
        let entries = bench.agent.list_inbox().await.unwrap();
        let entry = &entries[0];
        let error = bench.agent.get_inbox(entry).await.unwrap_err();
        assert!(matches!(error, InboxError::Poison { .. }), "{name}: {error}");
        assert!(!error.is_retryable());
        let key = bench.agent.quarantine(&entry.hash).await.unwrap();
        assert_eq!(key, format!("quarantine/inbox/{name}"));
        assert_eq!(store.get(&bench.agent.key(&key)).await.unwrap().bytes, bytes);
        assert!(bench.agent.list_inbox().await.unwrap().is_empty());
    }
    bench.agent.put_message(&good).await.unwrap();
    let large = InboxMessage { body: "x".repeat(2 << 20), ..good };
    assert!(matches!(bench.agent.put_message(&large).await, Err(StoreError::TooLarge { .. })));
}

#[tokio::test]
async fn quarantine_that_dies_half_way_loses_no_byte() {
    for call in 1..=3 {
        for fault in [Fault::DieBefore, Fault::DieAfter] {
            let bench = Bench::new();
            let key = bench.agent.key("inbox/torn.json");
            bench.other().store().put(&key, "torn".into(), Condition::Any).await.unwrap();
            bench.faulty.fail(call, fault);
            assert!(bench.agent.quarantine("torn").await.is_err());
            let other = bench.other();
            if !other.list_inbox().await.unwrap().is_empty() {
                other.quarantine("torn").await.unwrap();
            }
            let kept = other.store().get(&other.key("quarantine/inbox/torn.json")).await.unwrap();
            assert_eq!(&kept.bytes[..], b"torn", "call {call}, {fault:?}");
        }
    }
}

fn cycle() -> CycleIdentity {
    CycleIdentity { name: "clerk-1".into(), uid: "c1".into() }
}

#[tokio::test]
async fn one_claim_has_one_sender_and_its_outcome_is_known_or_unknown() {
    let bench = Bench::new();
    let (a, b) = (bench.agent.clone(), bench.other());
    let first = a.claim("m1", 1, &cycle(), 1, now()).await.unwrap().unwrap();
    assert_eq!(first.number, 1);
    assert_eq!(a.list_outbox().await.unwrap()["m1"].open_claim(), Some(&first), "sent or not: unknown");
    let receipt = |number, outcome| Receipt { number, outcome, detail: None, at: now() };
    a.receipt("m1", &receipt(1, DeliveryOutcome::Deferred)).await.unwrap();
    // The first receipt stands, also against a retry that thinks otherwise.
    a.receipt("m1", &receipt(1, DeliveryOutcome::Sent)).await.unwrap();
    let known = b.list_outbox().await.unwrap().remove("m1").unwrap();
    assert_eq!((known.open_claim(), known.receipts[&1].outcome), (None, DeliveryOutcome::Deferred));
    assert_eq!(
        b.claim("m1", 1, &cycle(), 2, now()).await.unwrap(),
        None,
        "decided before the claim was seen"
    );
    assert_eq!(b.claim("m1", known.next_number(), &cycle(), 2, now()).await.unwrap().unwrap().number, 2);
    a.delete_outbox("m1").await.unwrap();
    assert!(a.list_outbox().await.unwrap().is_empty());
}

#[tokio::test]
async fn racing_claims_have_one_winner() {
    let bench = Bench::new();
    for round in 0..20 {
        let id = format!("m{round}");
        let (a, b) = (bench.agent.clone(), bench.other());
        let cycle = cycle();
        let (x, y) = tokio::join!(a.claim(&id, 1, &cycle, 1, now()), b.claim(&id, 1, &cycle, 2, now()));
        assert_eq!([x.unwrap(), y.unwrap()].into_iter().flatten().count(), 1);
    }
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_never_sent_by_two() {
    for fault in
        [Fault::Before(Answer::Timeout), Fault::After(Answer::Conflict), Fault::Late(Answer::Timeout)]
    {
        let bench = Bench::new();
        bench.faulty.fail_next(fault);
        bench.agent.claim("m", 1, &cycle(), 1, now()).await.unwrap_err();
        let next = bench.other().claim("m", 1, &cycle(), 2, now()).await.unwrap();
        bench.faulty.land().await;
        let known = bench.other().list_outbox().await.unwrap().remove("m").unwrap();
        // One that landed unheard is a claim without a receipt; else the sender's own is its own.
        assert_eq!(known.claims[&1].attempt, if next.is_some() { 2 } else { 1 }, "{fault:?}");
    }
}

#[tokio::test]
async fn files_and_blobs_come_back_and_bad_keys_are_refused() {
    let bench = Bench::new();
    let file = bench.dir.path().join("a.csv");
    std::fs::write(&file, "a,b\n1,2\n").unwrap();
    bench.agent.put_file("data/ä b.csv", &file).await.unwrap();
    let down = bench.dir.path().join("down");
    let got = bench.agent.fetch_file("data/ä b.csv", &down, 100).await.unwrap();
    assert_eq!((got.size, std::fs::read_to_string(&down).unwrap()), (8, "a,b\n1,2\n".into()));
    assert!(matches!(
        bench.agent.fetch_file("data/ä b.csv", &down, 7).await,
        Err(StoreError::TooLarge { .. })
    ));
    assert_eq!(bench.agent.list_files().await.unwrap()[0].key, "data/ä b.csv");
    for bad in ["../../other/HEAD.json", "/etc/passwd", "a//b", ""] {
        assert!(
            matches!(bench.agent.put_file(bad, &file).await, Err(StoreError::InvalidKey { .. })),
            "{bad}"
        );
        assert!(
            matches!(bench.agent.fetch_file(bad, &down, 9).await, Err(StoreError::InvalidKey { .. })),
            "{bad}"
        );
    }
    bench.agent.delete_file("data/ä b.csv").await.unwrap();
    assert!(bench.agent.list_files().await.unwrap().is_empty());

    let key = bench.agent.put_blob(7, "large".into()).await.unwrap();
    assert!(key.starts_with("blobs/7-"));
    assert_eq!(bench.agent.put_blob(7, "large".into()).await.unwrap(), key);
    assert_eq!(&bench.agent.get_blob(&key).await.unwrap()[..], b"large");
    bench.agent.store().put(&bench.agent.key(&key), "other".into(), Condition::Any).await.unwrap();
    assert!(matches!(bench.agent.get_blob(&key).await, Err(StoreError::Corrupt { .. })));
    assert!(matches!(bench.agent.get_blob("HEAD.json").await, Err(StoreError::InvalidKey { .. })));
}

#[tokio::test]
async fn the_spend_of_a_killed_attempt_is_found() {
    let bench = Bench::new();
    let usage = |epoch, tokens| AttemptUsage {
        cycle: "c1".into(),
        epoch,
        started_at: now(),
        usage: Usage { input_tokens: tokens, ..Usage::default() },
    };
    bench.agent.put_usage(&usage(1, 10)).await.unwrap();
    bench.agent.put_usage(&usage(1, 25)).await.unwrap();
    bench.agent.put_usage(&usage(2, 7)).await.unwrap();
    let found = bench.other().list_usage().await.unwrap();
    assert_eq!(
        found.iter().map(|entry| (entry.cycle.as_str(), entry.epoch)).collect::<Vec<_>>(),
        [("c1", 1), ("c1", 2)]
    );
    assert_eq!(bench.agent.get_usage(&found[0]).await.unwrap(), Some(usage(1, 25)));
    bench.agent.delete_usage(&found[0]).await.unwrap();
    assert_eq!(bench.agent.get_usage(&found[0]).await.unwrap(), None);
    assert_eq!(bench.agent.list_usage().await.unwrap(), found[1..]);
}
