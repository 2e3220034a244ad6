//! Replies in both wire formats, whole and cut.

use std::collections::BTreeMap;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::Response;
use serde_json::{Value, json};

use super::Turn;

pub(super) fn cut(body: &str, bytes: usize) -> Response {
    let sent = Bytes::copy_from_slice(&body.as_bytes()[..bytes.min(body.len())]);
    let chunks = [Ok(sent), Err(std::io::Error::other("scripted cut"))];
    let mut response = Response::new(Body::from_stream(futures::stream::iter(chunks)));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn wire_name(name: &str) -> String {
    name.replace('.', "__")
}

pub(super) fn openai_reply(turn: &Turn, (input, cached): (usize, usize)) -> Value {
    let calls: Vec<Value> = turn
        .calls
        .iter()
        .enumerate()
        .map(|(n, call)| {
            let arguments = call.raw.clone().unwrap_or_else(|| call.arguments.to_string());
            json!({"id": format!("call_{n}"), "type": "function", "function": {"name": wire_name(&call.name), "arguments": arguments}})
        })
        .collect();
    let mut message = BTreeMap::from([("role", json!("assistant")), ("content", json!(turn.text))]);
    if !calls.is_empty() {
        message.insert("tool_calls", json!(calls));
    }
    let stop = turn
        .stop
        .clone()
        .unwrap_or_else(|| if calls.is_empty() { "stop".into() } else { "tool_calls".into() });
    let output = turn.text.len() / 4 + calls.len() * 20 + 1;
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": stop}],
        "usage": {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
            "prompt_tokens_details": {"cached_tokens": cached}},
    })
}

pub(super) fn anthropic_reply(turn: &Turn, (input, cached): (usize, usize)) -> Value {
    let mut content = vec![];
    if !turn.text.is_empty() {
        content.push(json!({"type": "text", "text": turn.text}));
    }
    for (n, call) in turn.calls.iter().enumerate() {
        let input =
            call.raw.as_ref().map_or_else(|| call.arguments.clone(), |raw| Value::String(raw.clone()));
        content.push(json!({"type": "tool_use", "id": format!("toolu_{n}"), "name": wire_name(&call.name), "input": input}));
    }
    let stop = turn
        .stop
        .clone()
        .unwrap_or_else(|| if turn.calls.is_empty() { "end_turn".into() } else { "tool_use".into() });
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": content, "stop_reason": stop,
        "usage": {"input_tokens": input - cached, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0,
            "output_tokens": turn.text.len() / 4 + turn.calls.len() * 20 + 1},
    })
}
