//! A stand-in for a language model's provider: it plays scripted conversations in both wire formats, with
//! the faults of real providers, and remembers what it was asked.
//!
//! A conversation is found by the agent's name in the system message; its cycle by the first user message
//! (the same bytes are the same cycle, tried again); its turn by the number of replies so far.

mod replies;
mod script;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};

use self::replies::{anthropic_reply, cut, openai_reply};
pub use self::script::{Conversation, Fault, ScriptedCall, Turn};

/// One request as it arrived.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// `/v1/chat/completions` or `/v1/messages`.
    pub path: &'static str,
    /// Its bytes.
    pub body: Bytes,
    /// `authorization` or `x-api-key`.
    pub key: String,
    /// Status of the answer.
    pub status: u16,
}

impl Recorded {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// System message.
    pub fn system(&self) -> String {
        let body = self.json();
        match &body["system"] {
            Value::Null => text_of(&body["messages"][0]["content"]),
            system => text_of(system),
        }
    }

    /// First message of the user.
    pub fn opening(&self) -> String {
        let body = self.json();
        messages(&body)
            .iter()
            .find(|m| m["role"] == "user")
            .map(|m| text_of(&m["content"]))
            .unwrap_or_default()
    }
}

#[derive(Default)]
struct Inner {
    conversations: HashMap<String, Conversation>,
    /// Cycle number by agent and opening.
    cycles: HashMap<(String, String), usize>,
    started: HashMap<String, usize>,
    /// Faults that were played, by agent, cycle and turn.
    played: HashMap<(String, usize, usize), usize>,
    requests: Vec<Recorded>,
}

/// The running server. It ends with the runtime.
#[derive(Clone)]
pub struct ModelServer {
    /// `http://127.0.0.1:PORT/v1`
    pub url: String,
    inner: Arc<Mutex<Inner>>,
}

impl ModelServer {
    /// Starts on a free port of loopback.
    pub async fn start(conversations: impl IntoIterator<Item = Conversation>) -> std::io::Result<Self> {
        Self::listen("127.0.0.1:0", conversations).await
    }

    /// Starts on `address`.
    pub async fn listen(
        address: &str,
        conversations: impl IntoIterator<Item = Conversation>,
    ) -> std::io::Result<Self> {
        let listener = tokio::net::TcpListener::bind(address).await?;
        let url = format!("http://{}/v1", listener.local_addr()?);
        let inner = Inner {
            conversations: conversations.into_iter().map(|c| (c.agent.clone(), c)).collect(),
            ..Inner::default()
        };
        let server = Self { url, inner: Arc::new(Mutex::new(inner)) };
        let app = Router::new()
            .route("/v1/chat/completions", post(openai))
            .route("/v1/messages", post(anthropic))
            .layer(axum::extract::DefaultBodyLimit::max(64 << 20))
            .with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(server)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests so far.
    pub fn requests(&self) -> Vec<Recorded> {
        self.lock().requests.clone()
    }

    /// Panics if a request was not the one that the script expected.
    #[track_caller]
    pub fn must_have_gone_by_the_script(&self) {
        let refused = self.requests().into_iter().find(|request| request.status == 422);
        if let Some(request) = refused {
            panic!("the script did not expect this: {:#}", request.json()["messages"]);
        }
    }

    /// Share of request bytes that a provider's cache could have served: common prefix with the request
    /// before, over steps `from..to` of the answered requests of one conversation.
    pub fn cached_share(&self, from: usize, to: usize) -> f64 {
        let requests: Vec<Recorded> = self.requests().into_iter().filter(|r| r.status == 200).collect();
        let (mut common, mut all) = (0, 0);
        for pair in requests.windows(2).skip(from.saturating_sub(1)).take(to - from) {
            common += common_prefix(&pair[0].body, &pair[1].body);
            all += pair[1].body.len();
        }
        #[expect(clippy::cast_precision_loss, reason = "a test's byte counts")]
        let share = common as f64 / all.max(1) as f64;
        share
    }
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

fn messages(body: &Value) -> Vec<Value> {
    body["messages"].as_array().cloned().unwrap_or_default()
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|p| p["text"].as_str()).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

async fn openai(State(server): State<ModelServer>, headers: HeaderMap, body: Bytes) -> Response {
    answer(&server, "/v1/chat/completions", &headers, body).await
}

async fn anthropic(State(server): State<ModelServer>, headers: HeaderMap, body: Bytes) -> Response {
    answer(&server, "/v1/messages", &headers, body).await
}

async fn answer(server: &ModelServer, path: &'static str, headers: &HeaderMap, body: Bytes) -> Response {
    let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let key = header("authorization").or_else(|| header("x-api-key")).unwrap_or_default();
    let mut recorded = Recorded { path, body, key, status: 200 };
    let step = decide(server, &recorded);
    recorded.status = match &step {
        Step::Reply(..) | Step::Cut(..) | Step::Html | Step::ErrorObject => 200,
        Step::Error { status, .. } => *status,
    };
    let is_openai = path.ends_with("completions");
    let previous = {
        let mut inner = server.lock();
        let previous =
            inner.requests.iter().rev().find(|r| r.status == 200).map(|r| r.body.clone()).unwrap_or_default();
        inner.requests.push(recorded.clone());
        previous
    };
    let usage = (recorded.body.len() / 4, common_prefix(&previous, &recorded.body) / 4);
    let whole = |turn: &Turn| {
        if is_openai { openai_reply(turn, usage) } else { anthropic_reply(turn, usage) }.to_string()
    };
    match step {
        Step::Reply(turn, wait) => {
            tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
            ([(header::CONTENT_TYPE, "application/json")], whole(&turn)).into_response()
        }
        Step::Cut(turn, bytes) => cut(&whole(&turn), bytes),
        Step::Html => ([(header::CONTENT_TYPE, "text/html")], "<html>bad gateway</html>").into_response(),
        Step::ErrorObject => (
            [(header::CONTENT_TYPE, "application/json")],
            json!({"error": {"message": "upstream failed"}}).to_string(),
        )
            .into_response(),
        Step::Error { status, retry_after, code, message } => {
            let body = if is_openai {
                json!({"error": {"message": message, "type": "error", "code": code}})
            } else {
                json!({"type": "error", "error": {"type": code, "message": message}})
            };
            let mut response = (
                StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST),
                [(header::CONTENT_TYPE, "application/json")],
                body.to_string(),
            )
                .into_response();
            if let Some(seconds) = retry_after {
                response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
            }
            response
        }
    }
}

enum Step {
    Reply(Turn, u64),
    Cut(Turn, usize),
    Html,
    ErrorObject,
    Error { status: u16, retry_after: Option<u32>, code: &'static str, message: String },
}

fn decide(server: &ModelServer, request: &Recorded) -> Step {
    let refuse = |message: String| Step::Error { status: 422, retry_after: None, code: "script", message };
    let system = request.system();
    let body = request.json();
    let mut inner = server.lock();
    let Some(conversation) =
        inner.conversations.values().find(|c| system.starts_with(&format!("You are {},", c.agent))).cloned()
    else {
        return refuse(format!("no conversation for: {}", system.chars().take(60).collect::<String>()));
    };
    if let Some(window) = conversation.window
        && request.body.len() / 4 > window
    {
        let tokens = request.body.len() / 4;
        return Step::Error {
            status: 400,
            retry_after: None,
            code: "context_length_exceeded",
            message: format!(
                "This model's maximum context length is {window} tokens. However, your messages resulted in {tokens} tokens."
            ),
        };
    }
    let key = (conversation.agent.clone(), beginning(request));
    let cycle = match inner.cycles.get(&key) {
        Some(cycle) => *cycle,
        None => {
            let started = inner.started.entry(conversation.agent.clone()).or_default();
            let cycle = *started;
            *started += 1;
            inner.cycles.insert(key, cycle);
            cycle
        }
    };
    let Some(turns) = conversation.cycles.get(cycle).or(conversation.cycles.last()) else {
        return refuse("the conversation has no cycle".into());
    };
    let n = turn_number(&inner, &body, request);
    let Some(turn) = turns.get(n) else {
        return refuse(format!("cycle {cycle} has {} turns, turn {n} was asked for", turns.len()));
    };
    let place = (conversation.agent.clone(), cycle, n);
    let played = inner.played.entry(place).or_default();
    let fault = turn.faults.get(*played).cloned();
    *played += 1;
    let text = String::from_utf8_lossy(&request.body);
    if let Some(missing) = turn.expect.iter().find(|e| !contains(&text, e)) {
        return refuse(format!("cycle {cycle}, turn {n}: the request lacks {missing:?}"));
    }
    if let Some(found) = turn.reject.iter().find(|e| contains(&text, e)) {
        return refuse(format!("cycle {cycle}, turn {n}: the request has {found:?}"));
    }
    match fault {
        None => Step::Reply(turn.clone(), 0),
        Some(Fault::Slow(ms)) => Step::Reply(turn.clone(), ms),
        Some(Fault::Cut(bytes)) => Step::Cut(turn.clone(), bytes),
        Some(Fault::Html) => Step::Html,
        Some(Fault::ErrorObject) => Step::ErrorObject,
        Some(Fault::Status(status, retry_after)) => Step::Error {
            status,
            retry_after,
            code: "overloaded_error",
            message: format!("scripted {status}"),
        },
    }
}

/// What all requests of a cycle begin with.
fn beginning(request: &Recorded) -> String {
    request.opening().split("\n\nEarlier steps of this cycle").next().unwrap_or_default().to_owned()
}

/// Replies so far: those in the request, and those that a compaction has folded away.
fn turn_number(inner: &Inner, body: &Value, request: &Recorded) -> usize {
    let here = messages(body).iter().filter(|m| m["role"] == "assistant").count();
    let folded = request.opening();
    let folded = folded
        .split("left out for space (")
        .nth(1)
        .and_then(|t| t.split(' ').next()?.parse().ok())
        .unwrap_or(0usize);
    // A digest that was cut no longer counts its lines one by one; then the order of arrival decides.
    let own = |r: &&Recorded| {
        r.status == 200 && r.system() == request.system() && beginning(r) == beginning(request)
    };
    let before = inner.requests.iter().filter(own).count();
    if folded > 0 { before.max(here) } else { here }
}

/// Looks for `needle` as it stands and as JSON writes it.
fn contains(text: &str, needle: &str) -> bool {
    let escaped = Value::String(needle.to_owned()).to_string();
    text.contains(needle) || text.contains(escaped.trim_matches('"'))
}
