//! A chat completion, read without giving up at the first oddity.

use serde_json::{Map, Value};

use super::tools::Offered;
use super::transcript::{Arguments, Call, Reply, Stop};
use super::usage::Tokens;

/// Arguments as they should be, or what is wrong with them.
pub(super) fn arguments(value: Value) -> Arguments {
    match value {
        Value::Object(map) => Arguments::Object(map),
        Value::Null => Arguments::Object(Map::new()),
        // Some servers send no arguments as an empty text, and some encode them twice.
        Value::String(text) if text.trim().is_empty() => Arguments::Object(Map::new()),
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(Value::Object(map)) => Arguments::Object(map),
            Ok(_) => Arguments::Malformed { text, problem: "it is JSON, but no object".into() },
            Err(error) => Arguments::Malformed { text, problem: error.to_string() },
        },
        other => {
            Arguments::Malformed { text: other.to_string(), problem: "it is JSON, but no object".into() }
        }
    }
}

/// Gives calls without an id, or with one that came before, an id of their own. True if one was changed.
pub(super) fn unique_ids(calls: &mut [Call]) -> bool {
    let mut seen = std::collections::HashSet::new();
    let mut changed = false;
    for (n, call) in calls.iter_mut().enumerate() {
        if call.id.is_empty() || seen.contains(&call.id) {
            call.id = format!("{}call_{n}", call.id);
            changed = true;
        }
        seen.insert(call.id.clone());
    }
    changed
}

/// Reads a chat completion without giving up at the first oddity. None if it is none.
pub(super) fn reply(body: &Value, tools: &Offered) -> Option<Reply> {
    let choice = body["choices"].as_array()?.first()?;
    let message = choice.get("message")?;
    let mut calls: Vec<Call> = message["tool_calls"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| Call {
            id: c["id"].as_str().unwrap_or_default().to_owned(),
            name: tools.own_name(c["function"]["name"].as_str().unwrap_or_default()).to_owned(),
            arguments: arguments(c["function"]["arguments"].clone()),
        })
        .collect();
    unique_ids(&mut calls);
    let stop = match choice["finish_reason"].as_str() {
        Some("length") => Stop::Cut,
        Some("content_filter") => Stop::Refused,
        _ => Stop::Normal,
    };
    let text = message["content"].as_str().unwrap_or_default().trim().to_owned();
    Some(Reply { text, calls, stop, tokens: tokens(body).unwrap_or_default(), raw: None })
}

pub(super) fn tokens(body: &Value) -> Option<Tokens> {
    let usage = body.get("usage").filter(|u| u.is_object())?;
    Some(Tokens {
        input: usage["prompt_tokens"].as_u64().unwrap_or(0),
        cached: usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0),
        output: usage["completion_tokens"].as_u64().unwrap_or(0),
    })
}
