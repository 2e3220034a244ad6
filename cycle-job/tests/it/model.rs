//! The model executor over several cycles, with a scripted model in both wire formats.

use cicada_contract::FailureClass;
use cicada_contract::plan::{Limits, Mode, OWN_SCHEDULE, PlanMessage, Prices, Provider, TriggerKind};
use cicada_contract::report::{CharterSource, CycleResult, Outcome};
use serde_json::{Value, json};

use crate::agent::{Agent, until};
use crate::delivery::with_hook;
use crate::model_server::{Conversation, Fault, ModelServer, ScriptedCall, Turn};

pub(crate) fn call(name: &str, arguments: Value) -> ScriptedCall {
    ScriptedCall { name: name.into(), arguments, raw: None }
}

pub(crate) fn sql(text: &str) -> ScriptedCall {
    call("sql", json!({"sql": text}))
}

pub(crate) fn finish(outcome: &str) -> ScriptedCall {
    call("finish", json!({"outcome": outcome, "summary": "scripted"}))
}

pub(crate) fn turn(calls: Vec<ScriptedCall>) -> Turn {
    Turn { calls, ..Turn::default() }
}

pub(crate) async fn server(cycles: Vec<Vec<Turn>>) -> ModelServer {
    ModelServer::start([Conversation { agent: "shop/price-watch".into(), cycles, window: None }])
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_remembers_over_cycles_in_both_formats() {
    for provider in [Provider::OpenAICompatible, Provider::Anthropic] {
        let cycles = vec![
            vec![
                turn(vec![sql(
                    "CREATE TABLE prices (day TEXT, price REAL); INSERT INTO prices VALUES ('2026-12-01', 1.5)",
                )]),
                turn(vec![
                    call("write_file", json!({"path": "notes/today.md", "content": "milk 1.5"})),
                    sql("INSERT INTO __kanban_cards (card_id, title) VALUES ('c1', 'compare milk')"),
                ]),
                turn(vec![finish("done")]),
            ],
            vec![
                Turn {
                    expect: vec!["prices, 1 row".into(), "compare milk".into()],
                    ..turn(vec![
                        call("read_file", json!({"path": "notes/today.md"})),
                        sql("SELECT path FROM __files"),
                    ])
                },
                Turn {
                    expect: vec!["milk 1.5".into(), "notes/today.md".into()],
                    ..turn(vec![
                        sql(
                            "INSERT INTO prices VALUES ('2026-12-02', 1.6); UPDATE __kanban_cards SET status = 'done'",
                        ),
                        finish("done"),
                    ])
                },
            ],
        ];
        let server = server(cycles).await;
        let mut agent = Agent::with_model(provider, &server.url);
        let Some(model) = model_of(&mut agent) else { panic!() };
        model.prices = Some(Prices { input: 1.0, cached_input: 0.1, output: 2.0 });
        let first = agent.cycle().await;
        assert_eq!(
            (first.result, first.outcome),
            (CycleResult::Done, Outcome::Done),
            "{first:?}\n{}",
            agent.log()
        );
        assert_eq!((first.usage.model_calls, first.usage.tool_calls), (3, 3));
        assert!(
            first.usage.input_tokens > 1000 && first.usage.cached_input_tokens > 0 && first.usage.cost > 0.0,
            "{:?}",
            first.usage
        );
        let second = agent.cycle().await;
        assert_eq!(
            (second.result, second.outcome),
            (CycleResult::Done, Outcome::Done),
            "{second:?}\n{}",
            agent.log()
        );
        assert_eq!(
            agent.memory("SELECT day, price FROM prices ORDER BY day").await,
            [["2026-12-01", "1.5"], ["2026-12-02", "1.6"]]
        );
        assert_eq!(
            agent.memory("SELECT count(*) FROM sqlite_schema WHERE name LIKE '\\_\\_%' ESCAPE '\\'").await,
            [["0"]]
        );
        assert_eq!(agent.ledger("SELECT status FROM cards").await, [["done"]]);
        let steps = agent
            .ledger("SELECT cycle, step, json_array_length(calls_json) FROM steps ORDER BY cycle, step")
            .await;
        assert_eq!(
            steps,
            [
                ["price-watch-1", "1", "1"],
                ["price-watch-1", "2", "2"],
                ["price-watch-1", "3", "1"],
                ["price-watch-2", "1", "2"],
                ["price-watch-2", "2", "2"]
            ]
        );
    }
}

fn model_of(agent: &mut Agent) -> Option<&mut cicada_contract::plan::ModelConfig> {
    match &mut agent.config.executor {
        cicada_contract::plan::Executor::Model(model) => Some(model),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn providers_can_cache_most_of_each_request() {
    let mut turns: Vec<Turn> =
        (0..5).map(|n| turn(vec![sql(&format!("SELECT {n}, 'some result of a few bytes'"))])).collect();
    turns.push(turn(vec![finish("done")]));
    let server = server(vec![turns]).await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    assert_eq!(agent.cycle().await.outcome, Outcome::Done);
    let share = server.cached_share(1, 5);
    assert!(share >= 0.8, "{share}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_window_is_worked_with() {
    let long = "SELECT replace(hex(zeroblob(1000)), '0', 'x') AS text";
    let card = "INSERT INTO __kanban_cards (card_id, title) VALUES ('c1', 'an open card')";
    let first = vec![turn(vec![sql(card), finish("done")])];
    let mut turns: Vec<Turn> = (0..40).map(|_| turn(vec![sql(long)])).collect();
    turns.push(turn(vec![sql("CREATE TABLE done (n)"), finish("done")]));
    let conversation =
        Conversation { agent: "shop/price-watch".into(), cycles: vec![first, turns], window: Some(8000) };
    let server = ModelServer::start([conversation]).await.unwrap();
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    agent.config.charter = "Never forget this charter.".into();
    agent.config.limits = Limits { max_model_calls: 0, tokens_per_cycle: 0, ..Limits::default() };
    assert_eq!(agent.cycle().await.outcome, Outcome::Done, "{}", agent.log());
    let report = agent.cycle().await;
    assert_eq!(report.outcome, Outcome::Done, "{report:?}\n{}", agent.log());
    let requests: Vec<_> = server.requests().into_iter().filter(|r| r.status == 200).skip(1).collect();
    let (first, last) = (&requests[0], &requests[requests.len() - 1]);
    assert!(last.body.len() / 4 <= 8000);
    assert_eq!(first.system(), last.system());
    assert!(last.system().contains("Never forget this charter."));
    let task = |text: &str| {
        text.split("This cycle runs because of:")
            .nth(1)
            .unwrap()
            .split("Earlier steps")
            .next()
            .unwrap()
            .trim()
            .to_owned()
    };
    assert_eq!(task(&first.opening()), task(&last.opening()));
    let cards = |text: &str| {
        text.split("Open cards:").nth(1).unwrap().split("</untrusted>").next().unwrap().to_owned()
    };
    assert!(cards(&first.opening()).contains("an open card"));
    assert_eq!(cards(&first.opening()), cards(&last.opening()));
    assert_eq!(agent.memory("SELECT count(*) FROM done").await, [["0"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_fails_now_and_then_costs_no_second_effect() {
    let faults = vec![Fault::Status(429, Some(1)), Fault::Cut(150), Fault::Status(529, None)];
    let turns = vec![
        turn(vec![sql("CREATE TABLE t (n); INSERT INTO t VALUES (1)")]),
        Turn { faults, ..turn(vec![sql("INSERT INTO t VALUES (2)")]) },
        turn(vec![finish("done")]),
    ];
    let server = server(vec![turns]).await;
    let mut agent = Agent::with_model(Provider::Anthropic, &server.url);
    let report = agent.cycle().await;
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_eq!(agent.memory("SELECT n FROM t").await, [["1"], ["2"]]);
    assert_eq!(report.usage.model_calls, 4, "the cut reply was paid for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_only_talks_ends_as_unstated() {
    let talk = |text: &str| Turn { text: text.into(), ..Turn::default() };
    let server =
        server(vec![vec![talk("Hello."), Turn { expect: vec!["call finish now".into()], ..talk("Bye.") }]])
            .await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    let report = agent.cycle().await;
    assert_eq!((report.result, report.outcome), (CycleResult::Done, Outcome::Unstated));
    assert_eq!(report.message, "the model stopped without calling finish");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_end_the_work_and_the_memory_stays() {
    let turns = (0..10).map(|n| turn(vec![sql(&format!("CREATE TABLE t{n} (n)"))])).collect();
    let server = server(vec![turns]).await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    agent.config.limits = Limits { max_model_calls: 3, ..Limits::default() };
    let report = agent.cycle().await;
    assert_eq!((report.result, report.ended_by.as_deref()), (CycleResult::Done, Some("maxModelCalls")));
    assert_eq!(agent.memory("SELECT count(*) FROM sqlite_schema").await, [["3"]]);
    // The day's budget is spent by this cycle: the next one makes no call.
    agent.config.limits = Limits { tokens_per_day: 10, ..Limits::default() };
    let calls = server.requests().len();
    let report = agent.cycle().await;
    assert_eq!(report.class, Some(FailureClass::BudgetExceeded));
    assert_eq!(server.requests().len(), calls);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_reaches_its_contact_once_and_people_are_asked() {
    let hook = std::sync::Arc::new(std::sync::Mutex::new(Vec::<String>::new()));
    let log = hook.clone();
    let app = axum::Router::new().route(
        "/hook",
        axum::routing::post(move |body: String| async move { log.lock().unwrap().push(body) }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let send =
        call("send_message", json!({"to": "Sales@example.org", "subject": "Milk", "body": "fell by 12 %"}));
    let ask = call("request_human_input", json!({"question": "Buy milk?", "options": ["yes", "no"]}));
    let server = server(vec![vec![turn(vec![send.clone(), send, ask]), turn(vec![finish("blocked")])]]).await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    with_hook(&mut agent, url);
    let report = agent.cycle().await;
    assert_eq!(report.outcome, Outcome::Blocked, "{report:?}\n{}", agent.log());
    let sent = hook.lock().unwrap().clone();
    assert_eq!(sent.len(), 1, "the same text in one cycle is one message: {sent:?}");
    assert!(sent[0].contains("fell by 12 %"));
    assert_eq!(agent.ledger("SELECT question, state FROM human_requests").await, [["Buy milk?", "open"]]);
    assert_eq!((report.asks.len(), report.asks[0].kind.as_str()), (1, "human"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_keeps_committed_batches_and_the_next_attempt_goes_on() {
    let cycles = vec![
        vec![
            turn(vec![sql("CREATE TABLE t (n); INSERT INTO t VALUES (1)")]),
            Turn { faults: vec![Fault::Slow(60_000)], ..turn(vec![finish("done")]) },
        ],
        vec![Turn {
            expect: vec!["t, 1 row".into(), "hello from a stranger".into()],
            ..turn(vec![finish("done")])
        }],
    ];
    let server = server(cycles).await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    let mut run = agent.next_run();
    run.messages = vec![PlanMessage {
        id: "m1".into(),
        channel: "console".into(),
        from: "eve".into(),
        subject: None,
        body: "hello from a stranger".into(),
        attachments: vec![],
        at: "2026-12-01T00:00:00Z".parse().unwrap(),
    }];
    let child = agent.start(&run);
    until("the second call", || server.requests().len() == 2).await;
    std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
    let report = agent.end(child).await;
    assert_eq!(report.class, Some(FailureClass::Disrupted), "{report:?}");
    assert_eq!(agent.memory("SELECT n FROM t").await, [["1"]]);
    assert_eq!(agent.run(&run).await.outcome, Outcome::Done, "{}", agent.log());
    assert_eq!(
        agent.ledger("SELECT attempt, kind FROM cycles ORDER BY attempt").await,
        [["1", "interrupted"], ["2", "final"]]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lies_far_back_is_summarised_and_its_sources_stay() {
    let mut turns: Vec<Turn> = (0..105).map(|n| turn(vec![sql(&format!("SELECT {n}"))])).collect();
    turns.push(turn(vec![finish("done")]));
    let notes = Turn {
        expect: vec!["Summarise this".into(), "SELECT 7".into()],
        text: "Counted to 105.".into(),
        ..Turn::default()
    };
    let next = Turn { expect: vec!["Counted to 105.".into()], ..turn(vec![finish("done")]) };
    let server = server(vec![turns, vec![notes], vec![next]]).await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    agent.config.limits = Limits {
        max_model_calls: 0,
        max_tool_calls: 0,
        tokens_per_cycle: 0,
        tokens_per_day: 0,
        ..Limits::default()
    };
    let report = agent.cycle().await;
    assert_eq!((report.outcome, report.usage.model_calls), (Outcome::Done, 107), "{report:?}");
    assert_eq!(agent.ledger("SELECT count(*), sum(summarised) FROM steps").await, [["106", "96"]]);
    assert_eq!(agent.cycle().await.outcome, Outcome::Done, "{}", agent.log());
}

/// What an agent has planned for itself: it is told when the time has come, and no cycle that only delivers or
/// restores takes it away from the operator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_of_its_own_brings_its_instruction_and_stays() {
    let plan = "INSERT INTO __agent_schedules (schedule_key, schedule, instruction) VALUES ('weekly', '0 9 * * 1', 'Count the tea.'); \
                UPDATE __agent_config SET paused_until = strftime('%FT%TZ', 'now', '+2 days')";
    let told = Turn { expect: vec!["Count the tea.".into()], ..turn(vec![finish("done")]) };
    let may = Turn { expect: vec!["SET paused_until = ".into()], ..turn(vec![sql(plan)]) };
    let server = server(vec![vec![may, turn(vec![finish("done")])], vec![told]]).await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    let report = agent.cycle().await;
    assert_eq!(report.agent_schedules[0].key, "weekly", "{}", agent.log());
    assert!(report.agent_paused_until.is_some(), "{report:?}");
    let first = agent.current().await;
    let mut run = agent.next_run();
    run.triggers[0].kind = TriggerKind::Schedule;
    run.triggers[0].schedule = Some(format!("{OWN_SCHEDULE}weekly"));
    run.triggers[0].slot = Some("2026-12-07T09:00:00Z".parse().unwrap());
    assert_eq!(agent.run(&run).await.outcome, Outcome::Done, "{}", agent.log());
    assert_eq!(agent.ledger("SELECT last_fired_at FROM schedules").await, [["2026-12-07T09:00:00Z"]]);
    for mode in [Mode::Delivery, Mode::Restore { snapshot: first }] {
        let report = agent.job(mode).await;
        assert_eq!((report.result, report.agent_schedules.len()), (CycleResult::Done, 1), "{report:?}");
        assert!(report.agent_paused_until.is_some(), "{report:?}");
        assert_eq!(report.charter.unwrap().source, CharterSource::Manifest);
    }
}
