//! What goes back with a snapshot or with HEAD, and what never does.

use cicada_contract::FailureClass;
use cicada_contract::plan::{AllowedHost, Limits, Mode, OnCorrupt, Provider};
use cicada_contract::report::{CycleResult, Outcome};

use serde_json::json;

use crate::agent::{Agent, until};
use crate::delivery::{Hook, message, with_hook};
use crate::model::{call, finish, server, sql, turn};
use crate::model_server::{Fault, Turn};

const GROW: &str = "CREATE TABLE IF NOT EXISTS t (n); INSERT INTO t VALUES (1)";

/// How a memory may get back to an earlier state.
#[derive(Debug, Clone, Copy)]
enum Way {
    Restore,
    FallBack,
    AcceptedLoss,
    AcceptedOldHead,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_today_has_spent_stays_spent_however_the_memory_goes_back() {
    for way in [Way::Restore, Way::FallBack, Way::AcceptedLoss, Way::AcceptedOldHead] {
        let (_hook, url) = Hook::start(&[200]).await;
        let refused = Turn { expect: vec!["messagesPerDay is reached".into()], ..turn(vec![finish("done")]) };
        let cycles = vec![
            vec![turn(vec![sql(GROW), finish("done")])],
            vec![turn(vec![sql(GROW), message()]), turn(vec![finish("done")])],
            vec![turn(vec![message()]), refused],
        ];
        let server = server(cycles).await;
        let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
        with_hook(&mut agent, url);
        agent.config.limits = Limits { messages_per_day: 1, ..Limits::default() };
        agent.cycle().await;
        let (target, first) =
            (agent.current().await, std::fs::read(agent.objects().join("HEAD.json")).unwrap());
        let report = agent.cycle().await;
        let spent = report.usage.input_tokens + report.usage.output_tokens;
        assert_eq!((report.outcome, report.usage.messages), (Outcome::Done, 1), "{report:?}");
        let newest = agent.current().await;
        match way {
            Way::Restore => {
                let report = agent.job(Mode::Restore { snapshot: target }).await;
                assert_eq!(report.result, CycleResult::Done, "{report:?}");
            }
            Way::FallBack => {
                agent.config.memory.on_corrupt = OnCorrupt::FallBack;
                agent.damage(agent.head().await.current().unwrap().ledger.as_ref().unwrap());
            }
            Way::AcceptedLoss => {
                agent.config.memory.accept_memory_loss = Some(newest);
                std::fs::remove_file(agent.objects().join("HEAD.json")).unwrap();
            }
            Way::AcceptedOldHead => {
                agent.config.memory.accept_memory_loss = Some(newest);
                std::fs::write(agent.objects().join("HEAD.json"), &first).unwrap();
            }
        }
        // More than the first cycle took, not more than both.
        agent.config.limits.tokens_per_day = spent;
        let calls = server.requests().len();
        let report = agent.cycle().await;
        assert_eq!(report.class, Some(FailureClass::BudgetExceeded), "{way:?}: {report:?}\n{}", agent.log());
        assert_eq!(server.requests().len(), calls, "{way:?}");
        agent.config.limits.tokens_per_day = 0;
        let report = agent.cycle().await;
        assert_eq!((report.outcome, report.usage.messages), (Outcome::Done, 0), "{way:?}: {report:?}");
    }
}

/// A HEAD of before the newest cycles, put back by hand where no status remembers better.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_head_stops_the_cycle_until_the_newer_one_is_back() {
    let mut agent = Agent::with_sql(GROW);
    let path = agent.objects().join("HEAD.json");
    agent.cycle().await;
    let old = std::fs::read(&path).unwrap();
    agent.cycle().await;
    let (newer, newest) = (std::fs::read(&path).unwrap(), agent.current().await);
    std::fs::write(&path, &old).unwrap();
    let objects = agent.list("").await;
    let report = agent.cycle().await;
    assert_eq!(report.class, Some(FailureClass::StoreRolledBack), "{report:?}");
    assert!(report.message.contains(&format!("accept-memory-loss: {newest}")), "{report:?}");
    assert_eq!((agent.list("").await, std::fs::read(&path).unwrap()), (objects, old));
    std::fs::write(&path, &newer).unwrap();
    assert_eq!(agent.cycle().await.result, CycleResult::Done, "{}", agent.log());
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["3"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_head_is_damage_and_not_another_version() {
    let mut agent = Agent::with_sql(GROW);
    let path = agent.objects().join("HEAD.json");
    agent.cycle().await;
    let sound = std::fs::read(&path).unwrap();
    for bytes in [&b""[..], &sound[..sound.len() / 2]] {
        std::fs::write(&path, bytes).unwrap();
        let run = agent.next_run();
        for report in [agent.run(&run).await, agent.report(&run).await] {
            assert_eq!(report.class, Some(FailureClass::HeadCorrupt), "{report:?}");
            assert!(report.message.contains("HEAD.json is damaged"), "{report:?}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "nothing is written over it");
    }
    std::fs::write(&path, &sound).unwrap();
    assert_eq!(agent.cycle().await.result, CycleResult::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_result_of_a_cycle_that_was_killed_goes_with_the_next() {
    let slow = Turn { faults: vec![Fault::Slow(60_000)], ..turn(vec![finish("done")]) };
    // More than the ledger keeps itself.
    let app = axum::Router::new().fallback(async || "large ".repeat(4000));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let large = call("http_request", json!({"method": "GET", "url": format!("http://127.0.0.1:{port}/")}));
    // In the same second the next cycle's prompt is the same, and the first conversation goes on.
    let again = vec![turn(vec![large.clone()]), turn(vec![finish("done")])];
    let server = server(vec![vec![turn(vec![large]), slow], again]).await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    agent.config.http.allowed_hosts =
        vec![AllowedHost { host: "127.0.0.1".into(), port: Some(port), private: true }];
    let run = agent.next_run();
    let mut child = agent.start(&run);
    until("the second call", || server.requests().len() == 2).await;
    let orphans = agent.list("blobs/").await;
    assert_eq!(orphans.len(), 1, "{}", agent.log());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(agent.cycle().await.outcome, Outcome::Done, "{}", agent.log());
    // The next cycle asked the same again, and its result stays.
    let left = agent.list("blobs/").await;
    assert!(left.len() == 1 && left != orphans, "{orphans:?} {left:?}");
}
