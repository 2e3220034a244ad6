use super::super::client::call;
use super::super::model_server::{Conversation, Fault, ModelServer, ScriptedCall, Turn};
use super::super::prompt::{Part, Prompt};
use super::super::transcript::Answer;
use serde_json::Map;

use super::*;

fn config(provider: Provider, url: &str) -> ModelConfig {
    ModelConfig {
        provider,
        name: "qwen-max".into(),
        base_url: Some(url.to_owned()),
        api_key: None,
        temperature: Some(0.5),
        max_output_tokens: None,
        prices: None,
    }
}

fn key(value: &str) -> SecretText {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("s")).unwrap();
    std::fs::write(dir.path().join("s/k"), value).unwrap();
    Secrets::new(Some(dir.path().to_owned()), "shop")
        .get(&SecretRef { name: "s".into(), key: "k".into() })
        .unwrap()
}

fn transcript() -> Transcript {
    let part = Part { name: "task", required: true, text: "Do it.".into() };
    Transcript::new(Prompt { system: "You are shop/price-watch, an agent".into(), parts: vec![part] })
}

fn offered() -> Offered {
    Offered::new(&super::super::test_config(), vec![])
}

fn sql(text: &str) -> ScriptedCall {
    ScriptedCall { name: "sql".into(), arguments: json!({"sql": text}), raw: None }
}

async fn server(turns: Vec<Turn>, window: Option<usize>) -> ModelServer {
    ModelServer::start([Conversation { agent: "shop/price-watch".into(), cycles: vec![turns], window }])
        .await
        .unwrap()
}

fn model(provider: Provider, server: &ModelServer) -> ProviderModel {
    let key = key("sk-canary-key");
    ProviderModel::new(&config(provider, &server.url), Some(&key), Redactor::new([key.expose()])).unwrap()
}

const BOTH: [Provider; 2] = [Provider::OpenAICompatible, Provider::Anthropic];

#[tokio::test]
async fn both_formats_carry_parallel_calls_there_and_back() {
    for provider in BOTH {
        let turns = vec![
            Turn {
                text: "Looking.".into(),
                calls: vec![sql("SELECT 1"), sql("SELECT 2")],
                ..Turn::default()
            },
            Turn {
                expect: vec!["one row".into(), "two rows".into()],
                text: "Done.".into(),
                ..Turn::default()
            },
        ];
        let server = server(turns, None).await;
        let model = model(provider, &server);
        let mut transcript = transcript();
        let reply = model.call(&transcript, &offered()).await.unwrap();
        assert_eq!(
            reply.calls.iter().map(|c| c.arguments.text()).collect::<Vec<_>>(),
            ["{\"sql\":\"SELECT 1\"}", "{\"sql\":\"SELECT 2\"}"]
        );
        assert_eq!((reply.text.as_str(), reply.stop), ("Looking.", Stop::Normal));
        assert!(reply.tokens.input > 100 && reply.tokens.output > 0);
        let answers = reply.calls.iter().zip(["one row", "two rows"]).map(|(c, text)| Answer {
            call_id: c.id.clone(),
            name: c.name.clone(),
            text: text.into(),
            result_id: None,
        });
        let answers = answers.collect();
        transcript.push(Entry::Model(reply));
        transcript.push(Entry::Tools(answers));
        let last = model.call(&transcript, &offered()).await.unwrap();
        assert_eq!(last.text, "Done.");
        assert!(last.tokens.cached > 0, "the second request begins as the first");
        let requests = server.requests();
        assert_eq!(requests[0].json()["model"], "qwen-max", "the name is sent as it is");
        assert_eq!(requests[0].json().get("reasoning_effort"), None);
        assert!(requests[0].key.contains("sk-canary-key"));
    }
}

#[tokio::test]
async fn arguments_that_are_no_json_reach_the_loop_as_such() {
    for provider in BOTH {
        let broken = ScriptedCall {
            name: "sql".into(),
            arguments: Value::Null,
            raw: Some("{\"sql\": \"SELECT".into()),
        };
        let turns = vec![
            Turn { calls: vec![broken, sql("SELECT 2")], ..Turn::default() },
            Turn { expect: vec!["answered".into()], text: "ok".into(), ..Turn::default() },
        ];
        let server = server(turns, None).await;
        let model = model(provider, &server);
        let mut transcript = transcript();
        let reply = model.call(&transcript, &offered()).await.unwrap();
        assert_eq!(reply.calls.len(), 2);
        assert!(
            matches!(&reply.calls[0].arguments, Arguments::Malformed { text, .. } if text == "{\"sql\": \"SELECT"),
            "{reply:?}"
        );
        assert!(matches!(&reply.calls[1].arguments, Arguments::Object(_)));
        assert!(reply.tokens.input > 0, "it was paid for");
        let answers = reply.calls.iter().map(|c| Answer {
            call_id: c.id.clone(),
            name: c.name.clone(),
            text: "answered".into(),
            result_id: None,
        });
        let answers = answers.collect();
        transcript.push(Entry::Model(reply));
        transcript.push(Entry::Tools(answers));
        assert_eq!(model.call(&transcript, &offered()).await.unwrap().text, "ok", "the conversation goes on");
    }
}

#[tokio::test(start_paused = true)]
async fn faults_of_a_provider_cost_a_retry_and_nothing_else() {
    for provider in BOTH {
        for cut in [0, 1, 100, 200] {
            let faults =
                vec![Fault::Status(429, Some(2)), Fault::Status(529, None), Fault::Cut(cut), Fault::Html];
            let server = server(vec![Turn { text: "fine".into(), faults, ..Turn::default() }], None).await;
            let called = call(&model(provider, &server), &transcript(), &offered(), false).await;
            assert_eq!(called.result.unwrap().text, "fine");
            assert_eq!((called.tries, called.lost.len()), (5, 2), "the cut reply and the page were paid for");
        }
    }
}

#[tokio::test]
async fn what_the_provider_refuses_is_told_without_the_key() {
    for provider in BOTH {
        let faults = vec![Fault::Status(401, None)];
        let server = server(vec![Turn { faults, ..Turn::default() }], None).await;
        let error = model(provider, &server).call(&transcript(), &offered()).await.unwrap_err();
        assert_eq!(error, CallError::Refused { status: 401, message: "scripted 401".into() });
    }
    let nobody = ProviderModel::new(
        &config(Provider::OpenAICompatible, "http://127.0.0.1:9/v1"),
        None,
        Redactor::default(),
    )
    .unwrap();
    let error = nobody.call(&transcript(), &offered()).await.unwrap_err();
    assert!(
        matches!(&error, CallError::Unreachable { message, refused: true } if message == "nothing listens at http://127.0.0.1:9/v1/"),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_overflow_is_told_apart() {
    for provider in BOTH {
        let server = server(vec![Turn::default()], Some(10)).await;
        let error = model(provider, &server).call(&transcript(), &offered()).await.unwrap_err();
        assert!(
            matches!(&error, CallError::Overflow { message } if message.contains("maximum context length is 10 tokens")),
            "{error:?}"
        );
    }
}

#[test]
fn a_base_url_may_leave_out_the_version() {
    for (given, expected) in [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1/"),
        ("https://gateway.example.com/openai/v1", "https://gateway.example.com/openai/v1/"),
    ] {
        assert_eq!(base_url(&config(Provider::OpenAI, given)).unwrap(), expected);
    }
    assert!(base_url(&config(Provider::OpenAI, "https://user:pw@example.com/")).is_err());
    assert!(base_url(&config(Provider::OpenAI, "example.com")).is_err());
}

#[test]
fn calls_without_ids_get_some() {
    let call =
        |id: &str| Call { id: id.into(), name: "sql".into(), arguments: Arguments::Object(Map::new()) };
    let mut calls = vec![call(""), call("a"), call("a"), call("")];
    assert!(unique_ids(&mut calls));
    let ids: std::collections::HashSet<_> = calls.iter().map(|c| c.id.as_str()).collect();
    assert_eq!(ids.len(), 4);
}
