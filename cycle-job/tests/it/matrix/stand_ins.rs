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
}

impl StandIns {
    pub(super) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let this = Self { address: Some(listener.local_addr().unwrap()), ..Self::default() };
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

async fn receive(State(world): State<StandIns>, headers: HeaderMap, Json(body): Json<Value>) -> StatusCode {
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    world.received.lock().unwrap().push(Received { body: body["body"].as_str().unwrap().to_owned(), key });
    StatusCode::OK
}

/// A model that decides by the number of its own replies in the request. Each message that it sends has a
/// text of its own, so that the same text twice at the receiver is the platform's doing.
async fn model(State(world): State<StandIns>, Json(request): Json<Value>) -> Json<Value> {
    let replies = request["messages"].as_array().unwrap().iter().filter(|m| m["role"] == "assistant").count();
    let (name, arguments) = match replies {
        0 => ("sql", json!({"sql": RESUMABLE})),
        1 => ("http_request", json!({"method": "POST", "url": world.url("/order"), "body": "one"})),
        2 => {
            let mut sent = world.sent.lock().unwrap();
            *sent += 1;
            (
                "send_message",
                json!({"to": "sales@example.org", "channel": "hook", "body": format!("reply {sent}")}),
            )
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
