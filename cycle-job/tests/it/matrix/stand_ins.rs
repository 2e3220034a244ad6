//! The world around an agent: a model without a memory of its own, and a receiver of its messages.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

/// What the agent does in each cycle: every new message is noted once. Noting one twice is an error.
pub(super) const SQL: &str =
    "CREATE TABLE IF NOT EXISTS noted (n INTEGER PRIMARY KEY, body TEXT NOT NULL UNIQUE);
    INSERT INTO noted (body) SELECT body FROM __messages WHERE is_new AND NOT is_outbound ORDER BY seq;";
/// The same for an agent that resumes: what an interrupted attempt has noted is still new.
const RESUMABLE: &str = "CREATE TABLE IF NOT EXISTS noted (n INTEGER PRIMARY KEY, body TEXT NOT NULL UNIQUE);
    INSERT OR IGNORE INTO noted (body) SELECT body FROM __messages WHERE is_new AND NOT is_outbound ORDER BY seq;";

/// A message that the receiver got.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Received {
    pub(super) body: String,
    pub(super) key: String,
}

#[derive(Debug, Clone, Default)]
pub(super) struct StandIns {
    received: Arc<Mutex<Vec<Received>>>,
    sent: Arc<Mutex<u64>>,
    address: Option<SocketAddr>,
    /// The agent that the model belongs to, and the one that it writes to.
    peers: Option<(String, String)>,
}

impl StandIns {
    pub(super) async fn start(peers: Option<(String, String)>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let this = Self { address: Some(listener.local_addr().unwrap()), peers, ..Self::default() };
        let app = Router::new()
            .route("/v1/chat/completions", post(model))
            .route("/hook", post(receive))
            .route("/order", post(async || "ordered"))
            .with_state(this.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        this
    }

    pub(super) fn port(&self) -> u16 {
        self.address.unwrap().port()
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address.unwrap())
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

/// What an agent says to its peer: its name, a number of its own, and the numbers of what it answers.
pub(super) fn word(from: &str, number: u64, answers: &[u64]) -> String {
    let answers: Vec<String> = answers.iter().map(u64::to_string).collect();
    format!("{from} {number} answers {}", answers.join(" "))
}

/// Number and answers of such a word.
pub(super) fn parts(word: &str) -> (u64, Vec<u64>) {
    let (said, answers) = word.split_once(" answers ").unwrap();
    let number = |text: &str| text.parse().unwrap();
    (number(said.rsplit_once(' ').unwrap().1), answers.split_whitespace().map(number).collect())
}

/// Numbers of the peer's words among the new messages of a prompt.
fn heard(request: &Value) -> Vec<u64> {
    let content = &request["messages"][1]["content"];
    let parts = content.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
    let prompt: String = content.as_str().into_iter().chain(parts).collect();
    let Some((_, rest)) = prompt.split_once("New messages (") else { return vec![] };
    let block = rest.split("</untrusted>").next().unwrap_or_default();
    let messages = block.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.filter(|m| m["is_peer"] == true).map(|m| self::parts(m["body"].as_str().unwrap()).0).collect()
}

async fn receive(State(world): State<StandIns>, headers: HeaderMap, Json(body): Json<Value>) -> StatusCode {
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    world.received.lock().unwrap().push(Received { body: body["body"].as_str().unwrap().to_owned(), key });
    StatusCode::OK
}

/// A model that decides by the number of its own replies in the request. Each message that it sends has a
/// text of its own, so that the same text twice at the receiver is the platform's doing.
async fn model(State(world): State<StandIns>, Json(request): Json<Value>) -> Json<Value> {
    let replies = request["messages"].as_array().unwrap().iter().filter(|m| m["role"] == "assistant").count();
    let next = || {
        let mut sent = world.sent.lock().unwrap();
        *sent += 1;
        *sent
    };
    let (name, arguments) = match (replies, &world.peers) {
        (0, _) => ("sql", json!({"sql": RESUMABLE})),
        (1, _) => ("http_request", json!({"method": "POST", "url": world.url("/order"), "body": "one"})),
        (2, _) => (
            "send_message",
            json!({"to": "sales@example.org", "channel": "hook", "body": format!("reply {}", next())}),
        ),
        (3, Some((own, peer))) => {
            ("message_peer", json!({"peer": peer, "body": word(own, next(), &heard(&request))}))
        }
        _ => ("finish", json!({"outcome": "done", "summary": "noted"})),
    };
    let call = json!({"id": format!("call_{replies}"), "type": "function",
        "function": {"name": name, "arguments": arguments.to_string()}});
    Json(json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "scripted",
        "choices": [{"index": 0, "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": "", "tool_calls": [call]}}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11},
    }))
}
