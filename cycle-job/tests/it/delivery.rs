//! Messages leave once, whatever pod dies where, and Delivery cycles need neither memory nor model.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use cicada_contract::plan::{Channel, Mode, PlanContact, PlanRun, Provider};
use cicada_contract::report::{CycleResult, Outcome};
use cicada_store::SnapshotKind;
use serde_json::json;

use crate::agent::{Agent, until};
use crate::model::{call, finish, server, sql, turn};
use crate::model_server::ModelServer;

/// A webhook's receiver: answers in turn, and the last one from then on; 0 never answers.
#[derive(Clone, Default)]
pub(crate) struct Hook {
    answers: Arc<Mutex<Vec<u16>>>,
    keys: Arc<Mutex<Vec<String>>>,
}

impl Hook {
    pub(crate) async fn start(answers: &[u16]) -> (Self, String) {
        let hook = Self { answers: Arc::new(Mutex::new(answers.to_vec())), ..Self::default() };
        let app = axum::Router::new().route("/hook", axum::routing::post(answer)).with_state(hook.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (hook, url)
    }

    /// Idempotency keys, in the order in which they came.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.keys.lock().unwrap().clone()
    }
}

async fn answer(State(hook): State<Hook>, headers: HeaderMap) -> StatusCode {
    hook.keys.lock().unwrap().push(headers["idempotency-key"].to_str().unwrap().to_owned());
    let status = {
        let mut answers = hook.answers.lock().unwrap();
        if answers.len() > 1 { answers.remove(0) } else { answers[0] }
    };
    if status == 0 {
        std::future::pending::<()>().await;
    }
    StatusCode::from_u16(status).unwrap()
}

pub(crate) fn message() -> crate::model_server::ScriptedCall {
    call("send_message", json!({"to": "sales@example.org", "subject": "Milk", "body": "fell by 12 %"}))
}

/// An agent whose first cycle makes a table and sends one message to a receiver with these answers.
async fn sender(answers: &[u16]) -> (Agent, Hook, ModelServer) {
    let (hook, url) = Hook::start(answers).await;
    let first = turn(vec![sql("CREATE TABLE t (n); INSERT INTO t VALUES (1)"), message()]);
    let server =
        server(vec![vec![first, turn(vec![finish("done")])], vec![turn(vec![finish("done")])]]).await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    with_hook(&mut agent, url);
    (agent, hook, server)
}

pub(crate) fn with_hook(agent: &mut Agent, url: String) {
    agent.config.channels = [("hook".to_owned(), Channel::Webhook { url, signing_key: None })].into();
    agent.config.contacts = vec![PlanContact {
        channel: "hook".into(),
        address: "sales@example.org".into(),
        display_name: None,
        allow_outbound: true,
        may_instruct: false,
    }];
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_leave_leaves_by_a_delivery_without_memory_or_model() {
    let (mut agent, hook, server) = sender(&[503, 503, 200]).await;
    let report = agent.cycle().await;
    assert_eq!((report.outcome, report.pending.outbox), (Outcome::Done, 1), "{report:?}\n{}", agent.log());
    let next = report.pending.next_delivery.unwrap() - now();
    assert!((50..=60).contains(&next), "{next}");
    let (first, calls) = (agent.head().await, server.requests().len());

    // Not due: nothing is sent, and what settled nothing publishes nothing.
    let report = agent.job(Mode::Delivery).await;
    assert_eq!((report.result, report.pending.outbox), (CycleResult::Done, 1), "{report:?}");
    assert_eq!((hook.keys().len(), agent.head().await.current), (1, first.current.clone()));

    agent.age_deliveries(2).await;
    let report = agent.job(Mode::Delivery).await;
    let next = report.pending.next_delivery.unwrap() - now();
    assert!(report.pending.outbox == 1 && (290..=300).contains(&next), "{report:?}");
    assert_eq!(agent.head().await.current, first.current, "a try that settles nothing publishes nothing");

    agent.age_deliveries(6).await;
    let report = agent.job(Mode::Delivery).await;
    assert_eq!((report.pending.outbox, report.pending.failed), (0, 0), "{report:?}\n{}", agent.log());
    let keys = hook.keys();
    assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    assert_eq!(server.requests().len(), calls, "no model is asked");
    let head = agent.head().await;
    let (current, before) = (head.current().unwrap(), first.current().unwrap());
    assert_eq!((current.kind, &current.memory), (SnapshotKind::Checkpoint, &before.memory));
    assert_eq!(head.holder, None);
    assert_eq!(agent.ledger("SELECT state, attempts FROM outbox").await, [["sent", "3"]]);
    assert_eq!(agent.ledger("SELECT status FROM messages").await, [["sent"]]);
    assert!(!agent.dir.path().join("work/memory/memory.db").exists(), "no memory is fetched");

    // Claims and receipts stay until a later cycle has restored the snapshot that knows their outcome.
    assert_eq!(agent.list("outbox/").await.len(), 6);
    assert_eq!(agent.cycle().await.outcome, Outcome::Done, "{}", agent.log());
    assert_eq!(agent.list("outbox/").await, [""; 0]);
    let kinds: Vec<_> = agent.head().await.snapshots.iter().map(|s| s.kind).collect();
    assert_eq!(
        kinds,
        [SnapshotKind::Final, SnapshotKind::Final],
        "deliveries take no place of the retention"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_refused_is_given_up_and_told() {
    let (mut agent, _, _server) = sender(&[503, 400]).await;
    agent.cycle().await;
    agent.age_deliveries(2).await;
    let report = agent.job(Mode::Delivery).await;
    assert_eq!((report.pending.outbox, report.pending.failed), (0, 1), "{report:?}");
    assert_eq!(agent.ledger("SELECT state, error FROM outbox").await, [["failed", "status 400"]]);
    let notices = agent.ledger("SELECT text FROM notices").await;
    assert!(notices[0][0].ends_with("is failed: status 400"), "{notices:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_leaves_new_messages_new() {
    let (mut agent, _, _server) = sender(&[503, 200]).await;
    let mut run = agent.next_run();
    run.messages = vec![cicada_contract::plan::PlanMessage {
        id: "m1".into(),
        channel: "hook".into(),
        from: "sales@example.org".into(),
        subject: None,
        body: "hello".into(),
        attachments: vec![],
        at: jiff::Timestamp::now(),
    }];
    // A cycle that failed takes nothing in; one that was interrupted leaves what it took in new.
    agent.run(&run).await;
    assert_eq!(agent.ledger("SELECT handled FROM messages WHERE direction = 'in'").await, [["1"]]);
    agent.age_deliveries(2).await;
    let before = agent.ledger("SELECT count(*) FROM ingested").await;
    assert_eq!(agent.job(Mode::Delivery).await.pending.outbox, 0);
    assert_eq!(agent.ledger("SELECT count(*) FROM ingested").await, before);
    assert_eq!(agent.ledger("SELECT kind FROM cycles ORDER BY started_at").await, [["final"], ["delivered"]]);
}

/// Starts the first cycle and kills it once its receiver has the message.
async fn killed_while_sending(agent: &mut Agent, hook: &Hook) -> PlanRun {
    let run = agent.next_run();
    let mut child = agent.start(&run);
    until("the message arrives", || hook.keys().len() == 1).await;
    child.kill().unwrap();
    child.wait().unwrap();
    run
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_between_claim_and_receipt_is_unknown_and_sent_again_by_its_key() {
    let (mut agent, hook, _server) = sender(&[0, 200]).await;
    let run = killed_while_sending(&mut agent, &hook).await;
    assert_eq!(agent.list("outbox/").await.len(), 1, "a claim without a receipt");
    // Young: another pod may still be at it.
    let report = agent.run(&run).await;
    assert!(report.recovered && report.pending.outbox == 1, "{report:?}\n{}", agent.log());
    let next = report.pending.next_delivery.unwrap() - now();
    assert!((500..=600).contains(&next), "{next}");
    assert_eq!(hook.keys().len(), 1);
    agent.age_deliveries(11).await;
    assert_eq!(agent.job(Mode::Delivery).await.pending.outbox, 0);
    let keys = hook.keys();
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_between_receipt_and_report_is_not_sent_again() {
    let (mut agent, hook, _server) = sender(&[200]).await;
    let run = agent.next_run();
    assert_eq!(agent.run(&run).await.pending.outbox, 0);
    assert_eq!(agent.ledger("SELECT state FROM outbox").await, [["pending"]], "the receipt is in the store");
    // The pod's report got lost: the Job starts another one.
    let again = agent.run(&run).await;
    assert!(again.recovered && again.pending.outbox == 0, "{again:?}");
    assert_eq!(again.tables.len(), 1, "what the first pod had to tell is told");
    assert_eq!(agent.job(Mode::Delivery).await.pending.outbox, 0);
    assert_eq!(hook.keys().len(), 1);
    assert_eq!(agent.ledger("SELECT state FROM outbox").await, [["sent"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_leaves_the_outbox_to_a_delivery() {
    let (mut agent, hook, _server) = sender(&[0, 200]).await;
    let run = agent.next_run();
    let child = agent.start(&run);
    until("the message arrives", || hook.keys().len() == 1).await;
    std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
    // The snapshot is current and the receiver has 30 s to answer: that is waited for.
    let report = tokio::time::timeout(Duration::from_secs(90), agent.end(child)).await.unwrap();
    assert_eq!((report.result, report.pending.outbox), (CycleResult::Done, 1), "{report:?}");
}
