//! How a cycle ends, and what stays of memory, ledger, inbox and outbox: one test for each row of the table
//! in `docs/store.md`.

use std::time::Duration;

use cicada_contract::FailureClass;
use cicada_contract::plan::{
    AllowedHost, Executor, FileSource, Limits, PlanFile, ProvidedFile, Provider, SqlSource,
};
use cicada_contract::report::{CycleResult, Outcome};
use cicada_store::{INBOX_MAX_BYTES, INBOX_VERSION, InboxMessage, SnapshotKind};

use serde_json::json;

use crate::agent::{Agent, until};
use crate::delivery::{Hook, message, with_hook};
use crate::model::{call, finish, server, sql, turn};
use crate::model_server::{Fault, Turn};
use crate::processes::workers;

const GROW: &str = "CREATE TABLE IF NOT EXISTS t (n); INSERT INTO t VALUES (1)";
/// Never ends.
const FOREVER: &str = "INSERT INTO t WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c WHERE x < 0";

fn statement(agent: &mut Agent, sql: &str) {
    agent.config.executor = Executor::Sql(SqlSource::Inline(sql.to_owned()));
}

async fn put(agent: &Agent, id: &str) -> String {
    let message = InboxMessage {
        version: INBOX_VERSION,
        id: id.into(),
        channel: "hook".into(),
        from: "sales@example.org".into(),
        to: None,
        subject: None,
        body: format!("this is {id}"),
        conversation_id: None,
        peer: None,
        answers: None,
        attachments: vec![],
        payload: None,
        at: jiff::Timestamp::now(),
    };
    assert!(agent.store().await.put_message(&message).await.unwrap());
    format!("inbox/{}.json", message.hash())
}

/// One cycle that went well, then a message in the inbox.
async fn grown() -> (Agent, String) {
    let mut agent = Agent::with_sql(GROW);
    assert_eq!(agent.cycle().await.result, CycleResult::Done, "{}", agent.log());
    let key = put(&agent, "m1").await;
    (agent, key)
}

/// What stays of a cycle that failed: all as at its start, and a ledger that tells of it.
async fn nothing_but_the_failure(agent: &Agent, key: &str, class: FailureClass) {
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["1"]]);
    assert_eq!(agent.list("inbox/").await, [key]);
    assert_eq!(agent.ledger("SELECT count(*) FROM messages").await, [["0"]]);
    assert_eq!(agent.ledger("SELECT count(*) FROM ingested").await, [["0"]]);
    let told = agent.ledger("SELECT kind, class FROM cycles ORDER BY started_at").await;
    assert_eq!(told, [vec!["final", "NULL"], vec!["failed", class.label()]]);
    let head = agent.head().await;
    assert_eq!((head.current().unwrap().kind, head.holder), (SnapshotKind::Failed, None));
    assert_eq!(agent.list("snapshots/").await.len(), 3, "one memory, two ledgers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_failed_executor_stays_the_failure() {
    let (mut agent, key) = grown().await;
    statement(&mut agent, "INSERT INTO t VALUES (2); INSERT INTO nowhere VALUES (1)");
    let report = agent.cycle().await;
    assert_eq!(report.class, Some(FailureClass::ExecutorFailed), "{report:?}");
    nothing_but_the_failure(&agent, &key, FailureClass::ExecutorFailed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_batch_that_ran_out_of_time_stays_nothing() {
    let (mut agent, key) = grown().await;
    statement(&mut agent, FOREVER);
    agent.config.limits = Limits { timeout: 2, ..Limits::default() };
    let report = agent.cycle().await;
    assert_eq!(report.class, Some(FailureClass::Timeout), "{report:?}");
    nothing_but_the_failure(&agent, &key, FailureClass::Timeout).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_batch_that_was_told_to_stop_stays_nothing() {
    let (mut agent, key) = grown().await;
    statement(&mut agent, FOREVER);
    let run = agent.next_run();
    let child = agent.start(&run);
    until("the statement runs", || agent.log().matches("\"phase\":\"execute\"").count() > 2).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
    let report = agent.end(child).await;
    assert_eq!(report.class, Some(FailureClass::Disrupted), "{report:?}");
    nothing_but_the_failure(&agent, &key, FailureClass::Disrupted).await;
    // The next attempt does the work, and takes in what waited.
    statement(&mut agent, GROW);
    let report = agent.run(&run).await;
    assert_eq!((report.result, report.attempt), (CycleResult::Done, 2));
    assert_eq!(agent.ledger("SELECT body, handled FROM messages").await, [["this is m1", "1"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_mount_that_failed_stays_the_failure() {
    let (mut agent, key) = grown().await;
    agent.config.files = vec![PlanFile {
        path: "a.csv".into(),
        from: FileSource::Provided(ProvidedFile {
            path: "/nonexistent/a.csv".into(),
            origin: "ConfigMap shop/prices, key a.csv".into(),
        }),
    }];
    let report = agent.cycle().await;
    assert_eq!(report.class, Some(FailureClass::ConfigMissing));
    assert!(report.message.contains("ConfigMap shop/prices, key a.csv"), "{report:?}");
    nothing_but_the_failure(&agent, &key, FailureClass::ConfigMissing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_worker_that_hung_at_the_end_stays_the_failure() {
    let slow = Turn { faults: vec![Fault::Slow(3_000)], ..turn(vec![finish("done")]) };
    let server = server(vec![vec![turn(vec![sql("INSERT INTO t VALUES (2)")]), slow]]).await;
    let (mut agent, key) = grown().await;
    agent.config.executor = Agent::with_model(Provider::OpenAICompatible, &server.url).config.executor;
    agent.secret("model", "key", "sk-canary-model-key");
    agent.config.limits = Limits { sql_timeout: 1, ..Limits::default() };
    let run = agent.next_run();
    let child = agent.start(&run);
    until("the model thinks again", || server.requests().len() == 2).await;
    // It hangs when the mounts are to be dropped, and is killed in the end.
    let worker = workers(child.id())["memory"];
    std::process::Command::new("kill").args(["-STOP", &worker.to_string()]).status().unwrap();
    let report = agent.end(child).await;
    assert_eq!(report.class, Some(FailureClass::WorkerCrashed), "{report:?}\n{}", agent.log());
    nothing_but_the_failure(&agent, &key, FailureClass::WorkerCrashed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_memory_fails_the_batch_and_loses_nothing() {
    let (mut agent, key) = grown().await;
    agent.config.memory.size_limit = 1 << 20;
    statement(&mut agent, "INSERT INTO t SELECT randomblob(2000000)");
    let report = agent.cycle().await;
    assert_eq!(report.class, Some(FailureClass::ExecutorFailed), "{report:?}");
    nothing_but_the_failure(&agent, &key, FailureClass::ExecutorFailed).await;
    // A limit below what is there deletes nothing either: it can be read, and what makes room is done.
    statement(&mut agent, "INSERT INTO t SELECT randomblob(700000)");
    assert_eq!(agent.cycle().await.result, CycleResult::Done, "{}", agent.log());
    agent.config.memory.size_limit = 64 << 10;
    statement(&mut agent, "SELECT count(*) FROM t");
    assert_eq!(agent.cycle().await.result, CycleResult::Done, "{}", agent.log());
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["2"]]);
    statement(&mut agent, "INSERT INTO t SELECT randomblob(100000)");
    assert_eq!(agent.cycle().await.class, Some(FailureClass::ExecutorFailed));
    statement(&mut agent, "DELETE FROM t WHERE length(n) > 1000");
    assert_eq!(agent.cycle().await.result, CycleResult::Done, "{}", agent.log());
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["1"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_ran_out_of_time_keeps_its_batches_and_its_messages_leave() {
    let (hook, url) = Hook::start(&[200]).await;
    let slow = Turn { faults: vec![Fault::Slow(60_000)], ..turn(vec![finish("done")]) };
    let cycles = vec![
        vec![turn(vec![sql(GROW), message()]), slow],
        vec![Turn { expect: vec!["this is m1".into()], ..turn(vec![finish("done")]) }],
    ];
    let server = server(cycles).await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    with_hook(&mut agent, url);
    let key = put(&agent, "m1").await;
    agent.config.limits = Limits { timeout: 4, ..Limits::default() };
    let report = agent.cycle().await;
    assert_eq!(
        (report.class, report.pending.outbox),
        (Some(FailureClass::Timeout), 0),
        "{report:?}\n{}",
        agent.log()
    );
    assert_eq!(hook.keys().len(), 1);
    assert_eq!(agent.memory("SELECT n FROM t").await, [["1"]]);
    assert_eq!(agent.head().await.current().unwrap().kind, SnapshotKind::Interrupted);
    assert_eq!(agent.ledger("SELECT handled FROM messages WHERE direction = 'in'").await, [["0"]]);
    assert_eq!(agent.list("inbox/").await, [key], "it goes once a later cycle has restored this snapshot");
    agent.config.limits = Limits::default();
    assert_eq!(agent.cycle().await.outcome, Outcome::Done, "{}", agent.log());
    assert_eq!(agent.ledger("SELECT handled FROM messages WHERE direction = 'in'").await, [["1"]]);
    assert_eq!(agent.list("inbox/").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_day_whose_budget_is_spent_stays_the_usage() {
    let server = server(vec![vec![turn(vec![sql(GROW), finish("done")])]]).await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    agent.cycle().await;
    let key = put(&agent, "m1").await;
    agent.config.limits = Limits { tokens_per_day: 10, ..Limits::default() };
    let calls = server.requests().len();
    assert_eq!(agent.cycle().await.class, Some(FailureClass::BudgetExceeded));
    assert_eq!(server.requests().len(), calls);
    nothing_but_the_failure(&agent, &key, FailureClass::BudgetExceeded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_grace_head_stays_as_it_was() {
    let slow = Turn { faults: vec![Fault::Slow(60_000)], ..turn(vec![finish("done")]) };
    let server =
        server(vec![vec![turn(vec![sql(GROW), finish("done")])], vec![turn(vec![sql(GROW)]), slow]]).await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    agent.cycle().await;
    agent.config.grace_seconds = Some(1);
    let run = agent.next_run();
    let calls = server.requests().len();
    let child = agent.start(&run);
    until("the second call", || server.requests().len() == calls + 2).await;
    let before = agent.head().await;
    std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
    let report = agent.end(child).await;
    assert_eq!(report.class, Some(FailureClass::GraceTooShort), "{report:?}\n{}", agent.log());
    assert!(report.message.contains("terminationGracePeriodSeconds"), "{report:?}");
    assert_eq!(agent.head().await, before);
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["1"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_less_time_than_the_last_persist_took_nothing_is_begun() {
    // For both: what HEAD does not know, the next cycle begins again in the same words.
    let slow = Turn { faults: vec![Fault::Slow(60_000); 2], ..turn(vec![finish("done")]) };
    let interrupted = vec![turn(vec![sql("INSERT INTO t VALUES (2)")]), slow];
    let cycles = vec![vec![turn(vec![sql(GROW), finish("done")])], interrupted];
    let server = server(cycles).await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    agent.cycle().await;
    let took = agent.head().await.persist_ms.unwrap();
    assert!((1..60_000).contains(&took), "{took}");
    agent.config.grace_seconds = Some(20);
    for (last_took, class, rows) in
        [(60_000, FailureClass::GraceTooShort, "1"), (took, FailureClass::Disrupted, "2")]
    {
        let path = agent.objects().join("HEAD.json");
        let mut head: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        head["persistMs"] = last_took.into();
        std::fs::write(&path, head.to_string()).unwrap();
        let run = agent.next_run();
        let calls = server.requests().len();
        let child = agent.start(&run);
        until("the second call", || server.requests().len() == calls + 2).await;
        let (before, objects) = (agent.head().await, agent.list("snapshots/").await);
        std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
        let report = agent.end(child).await;
        assert_eq!(report.class, Some(class), "{report:?}\n{}", agent.log());
        if class == FailureClass::GraceTooShort {
            assert!(report.message.contains("the last persist took 60000 ms"), "{report:?}");
            assert_eq!(agent.head().await, before);
            assert_eq!(agent.list("snapshots/").await, objects, "no upload was begun");
        }
        assert_eq!(agent.memory("SELECT count(*) FROM t").await, [[rows]]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_success_query_that_cannot_be_run_blocks_and_loses_nothing() {
    let mut agent = Agent::with_sql(GROW);
    agent.cycle().await;
    for (query, message) in [
        ("SELECT 1 FROM prices", "no such table: prices"),
        ("SELECT nonsense FROM t", "no such column"),
        ("DELETE FROM t", ""),
        ("SELECT 1 FROM t WHERE n > 5", "returned no row"),
    ] {
        let before = agent.head().await.published;
        agent.config.success = Some(query.into());
        let report = agent.cycle().await;
        assert_eq!((report.result, report.outcome), (CycleResult::Done, Outcome::Blocked), "{report:?}");
        assert_eq!(report.ended_by.as_deref(), Some("success"), "{report:?}");
        assert!(
            report.message.starts_with("spec.success ") && report.message.contains(message),
            "{report:?}"
        );
        let head = agent.head().await;
        assert_eq!((head.published, head.current().unwrap().kind), (before + 1, SnapshotKind::Final));
    }
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["5"]], "what the cycles did is kept");
    agent.config.success = Some("SELECT 1 FROM t".into());
    assert_eq!(agent.cycle().await.outcome, Outcome::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_message_goes_to_quarantine_and_fails_nothing() {
    let (mut agent, key) = grown().await;
    let inbox = agent.objects().join("inbox");
    let large = format!(
        "{{\"version\": 1, \"body\": \"{}\"}}",
        "x".repeat(usize::try_from(INBOX_MAX_BYTES).unwrap())
    );
    let poison = [
        ("a".repeat(64), "not json".to_owned()),
        ("b".repeat(64), "{\"version\": 99}".to_owned()),
        ("c".repeat(64), large),
        ("no-hash".to_owned(), std::fs::read_to_string(agent.objects().join(&key)).unwrap()),
    ];
    for (name, text) in &poison {
        std::fs::write(inbox.join(format!("{name}.json")), text).unwrap();
    }
    let report = agent.cycle().await;
    assert_eq!((report.result, report.warnings.len()), (CycleResult::Done, 4), "{report:?}\n{}", agent.log());
    assert_eq!(agent.list("inbox/").await, [key]);
    let moved: Vec<String> = poison.iter().map(|(name, _)| format!("quarantine/inbox/{name}.json")).collect();
    assert_eq!(agent.list("quarantine/").await, moved);
    for ((_, text), key) in poison.iter().zip(&moved) {
        assert_eq!(&std::fs::read_to_string(agent.objects().join(key)).unwrap(), text, "byte for byte");
    }
    assert_eq!(agent.ledger("SELECT body FROM messages").await, [["this is m1"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_taken_in_once_and_its_object_goes_after_the_next_restore() {
    let (mut agent, key) = grown().await;
    let run = agent.next_run();
    assert_eq!(agent.run(&run).await.result, CycleResult::Done);
    assert_eq!(agent.list("inbox/").await, std::slice::from_ref(&key));
    // An attempt that comes late executes nothing and removes nothing.
    assert!(agent.run(&run).await.recovered);
    assert_eq!(agent.list("inbox/").await, [key]);
    agent.cycle().await;
    assert_eq!(agent.list("inbox/").await, [""; 0]);
    // The sender repeats itself much later: known by its id, and removed again.
    put(&agent, "m1").await;
    agent.cycle().await;
    assert_eq!(agent.ledger("SELECT count(*) FROM messages").await, [["1"]]);
    assert_eq!(agent.list("inbox/").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_handled_is_not_executed_again() {
    let mut agent = Agent::with_sql(GROW);
    let mut first = agent.next_run();
    first.triggers[0].handled_key = Some("token/a".into());
    assert_eq!(agent.run(&first).await.result, CycleResult::Done);
    // The same manifest on an empty cluster: another object, the same request.
    let mut again = agent.next_run();
    again.triggers.clone_from(&first.triggers);
    let report = agent.run(&again).await;
    assert_eq!((report.result, report.exit_code()), (CycleResult::AlreadyHandled, 0));
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["1"]]);
    // A cycle that failed has handled nothing.
    let mut failing = agent.next_run();
    failing.triggers[0].handled_key = Some("token/b".into());
    statement(&mut agent, "nonsense");
    assert_eq!(agent.run(&failing).await.class, Some(FailureClass::ExecutorFailed));
    statement(&mut agent, GROW);
    let mut second = agent.next_run();
    second.triggers.clone_from(&failing.triggers);
    assert_eq!(agent.run(&second).await.result, CycleResult::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_job_tells_what_became_of_a_pod() {
    let (mut agent, _) = grown().await;
    let done = agent.next_run();
    let told = agent.run(&done).await;
    statement(&mut agent, "nonsense");
    let failed = agent.next_run();
    agent.run(&failed).await;
    let never = agent.next_run();
    let report = agent.report(&done).await;
    assert_eq!((report.result, &report.tables, report.recovered), (CycleResult::Done, &told.tables, true));
    let report = agent.report(&failed).await;
    assert_eq!(report.class, Some(FailureClass::ExecutorFailed), "{report:?}");
    assert!(report.message.contains("nonsense"), "{report:?}");
    assert_eq!(agent.report(&never).await.class, Some(FailureClass::Disrupted));
    let epoch = agent.head().await.epoch;
    assert_eq!(agent.report(&done).await.memory.unwrap().epoch, epoch, "nothing is acquired");
}

/// kubernetes#109164 and others: a Job can end as failed although its pod had done the work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_after_the_work_was_published_tells_of_its_own_cycle() {
    let mut agent = Agent::with_sql(GROW);
    let run = agent.next_run();
    let first = agent.run(&run).await;
    // A later cycle's snapshot is current, and another object had this one's name before.
    statement(&mut agent, "CREATE TABLE u (n)");
    agent.cycle().await;
    let mut twin = run.clone();
    twin.cycle.uid = "another".into();
    assert_eq!(agent.run(&twin).await.class, Some(FailureClass::ExecutorFailed), "the table is there");
    let again = agent.run(&run).await;
    assert!(again.recovered && again.tables == first.tables, "{again:?}");
    assert_eq!(again.message, first.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_attempt_had_spent_counts() {
    let slow = Turn { faults: vec![Fault::Slow(60_000)], ..turn(vec![finish("done")]) };
    let server = server(vec![vec![turn(vec![sql(GROW)]), slow]]).await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    let run = agent.next_run();
    let mut child = agent.start(&run);
    until("the second call", || server.requests().len() == 2).await;
    child.kill().unwrap();
    child.wait().unwrap();
    let usage = agent.list("usage/").await;
    assert_eq!(usage.len(), 1, "written before the first call: {usage:?}");
    // As it would be half a minute later.
    let path = agent.objects().join(&usage[0]);
    let mut spent: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    spent["usage"]["inputTokens"] = 5000.into();
    std::fs::write(&path, spent.to_string()).unwrap();
    agent.config.limits = Limits { tokens_per_day: 4000, ..Limits::default() };
    let calls = server.requests().len();
    let report = agent.run(&run).await;
    assert_eq!((report.class, report.attempt), (Some(FailureClass::BudgetExceeded), 2), "{report:?}");
    assert_eq!(server.requests().len(), calls);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_result_goes_when_no_snapshot_knows_it_any_more() {
    let app = axum::Router::new().fallback(async || "large ".repeat(4000));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let get = call("http_request", json!({"method": "GET", "url": format!("http://127.0.0.1:{port}/")}));
    let large = turn(vec![get, finish("done")]);
    for (snapshots, stays) in [(1, false), (30, true)] {
        let server = server(vec![vec![large.clone()], vec![turn(vec![finish("done")])]]).await;
        let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
        agent.config.http.allowed_hosts =
            vec![AllowedHost { host: "127.0.0.1".into(), port: Some(port), private: true }];
        agent.cycle().await;
        let blobs = agent.list("blobs/").await;
        assert_eq!(blobs.len(), 1, "{}", agent.log());
        let retention = &mut agent.config.memory.retention;
        (retention.tool_results, retention.snapshots) = (0, snapshots);
        agent.cycle().await;
        let dropped = agent.ledger("SELECT blob_key FROM dropped_blobs").await;
        assert!(dropped.iter().any(|row| row[0] == blobs[0]), "{dropped:?}");
        assert!(agent.list("blobs/").await.contains(&blobs[0]), "the snapshot before still names it");
        for _ in 0..2 {
            assert_eq!(agent.cycle().await.outcome, Outcome::Done, "{}", agent.log());
        }
        assert_eq!(agent.list("blobs/").await.contains(&blobs[0]), stays, "with {snapshots} snapshots");
    }
}
