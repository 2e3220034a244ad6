//! What the model is told about each tool.

use cicada_contract::PlanConfig;
use serde_json::{Value, json};

use super::tools::{Declaration, OPTIONS};

/// The tools that every agent has.
pub(super) fn always() -> Vec<Declaration> {
    vec![sql(), finish(), request_human_input(), read_file(), write_file(), load_table(), recall_result()]
}

fn declare(name: &str, description: &str, required: &[&str], properties: Value) -> Declaration {
    Declaration {
        name: name.into(),
        description: description.into(),
        schema: json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false}),
    }
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn sql() -> Declaration {
    declare(
        "sql",
        "Run one or more SQLite statements on your memory, as one transaction: an error rolls all of them back and says why. \
         CREATE TABLE and write whatever you want to remember; only tables last, this conversation does not. \
         The tables whose names begin with __ are the platform's (see the prompt). At most 100 rows come back.",
        &["sql"],
        json!({"sql": text("Statements, separated by ;")}),
    )
}

fn finish() -> Declaration {
    declare(
        "finish",
        "End this cycle. done: the work was done. nothing_to_do: there was none. blocked: you can't go on without help; say with what. \
         Call it alone, after everything worth remembering is in your tables.",
        &["outcome", "summary"],
        json!({
            "outcome": {"type": "string", "enum": ["done", "nothing_to_do", "blocked"]},
            "summary": text("What was done or is missing, at most 500 characters."),
        }),
    )
}

pub(super) fn send_message(channels: &[&str]) -> Declaration {
    declare(
        "send_message",
        "Write to a contact (see __contacts; allow_outbound must be 1). It leaves after this cycle has been saved. \
         Don't send the same thing twice.",
        &["to", "body"],
        json!({
            "channel": {"type": "string", "enum": channels, "description": "Channel; may be left out if there is one only."},
            "to": text("Address of the contact on this channel."),
            "subject": text("Subject, for mail."),
            "body": text("Plain text."),
            "reply_to": text("message_id that this answers."),
        }),
    )
}

pub(super) fn message_peer(peers: &[&str]) -> Declaration {
    declare(
        "message_peer",
        "Write to another agent. It leaves after this cycle has been saved, and wakes that agent; an answer comes in a later cycle \
         (see __messages where is_peer). Don't send the same thing twice, and don't answer what asks for no answer.",
        &["peer", "body"],
        json!({
            "peer": {"type": "string", "enum": peers, "description": "Name of the agent."},
            "subject": text("Subject."),
            "body": text("Plain text; everything that it must know: it has another memory than you."),
        }),
    )
}

fn request_human_input() -> Declaration {
    declare(
        "request_human_input",
        "Ask a person to decide. The answer comes in a later cycle (within 3 days, else it expires); \
         don't wait for it, finish as blocked if nothing else can be done.",
        &["question"],
        json!({
            "question": text("At most 500 characters; everything that the person must know."),
            "options": {"type": "array", "items": {"type": "string"}, "maxItems": OPTIONS, "description": "Answers to choose from; none = free text."},
        }),
    )
}

fn read_file() -> Declaration {
    declare(
        "read_file",
        "Read a text file of __files. For CSV or JSON use load_table: then SQL can work with it.",
        &["path"],
        json!({
            "path": text("path of __files."),
            "offset": {"type": "integer", "description": "First byte; default 0."},
            "limit": {"type": "integer", "description": "Most bytes; default 20000, at most 40000."},
        }),
    )
}

fn write_file() -> Declaration {
    declare(
        "write_file",
        "Write a text file that stays after this cycle and that people can read.",
        &["path", "content"],
        json!({
            "path": text("Relative path."),
            "content": text("Its text."),
            "append": {"type": "boolean", "description": "Add to what is there; default false = replace."},
        }),
    )
}

fn load_table() -> Declaration {
    declare(
        "load_table",
        "Load a file (CSV, JSON, JSON lines, or a SQLite file) into a table: a scratch table that is gone after this cycle, or with durable a \
         table that stays (made, or added to if its columns fit).",
        &["path", "table"],
        json!({
            "path": text("path of __files."),
            "table": text("Name of the table."),
            "durable": {"type": "boolean", "description": "Default false = scratch."},
        }),
    )
}

fn recall_result() -> Declaration {
    declare(
        "recall_result",
        "Read an earlier tool result again, whole or in part. Recent ones are in __tool_results for SQL too.",
        &["result_id"],
        json!({
            "result_id": text("result_id as shown with the result or in __tool_results."),
            "offset": {"type": "integer", "description": "First byte; default 0."},
            "limit": {"type": "integer", "description": "Most bytes; default 20000, at most 40000."},
        }),
    )
}

pub(super) fn http_request(config: &PlanConfig) -> Declaration {
    let hosts: Vec<String> = config
        .http
        .allowed_hosts
        .iter()
        .map(|h| h.port.map_or_else(|| h.host.clone(), |p| format!("{}:{p}", h.host)))
        .collect();
    let secrets: Vec<String> = config
        .secrets
        .iter()
        .map(|s| format!("{{{{secret:{}}}}} for {}", s.name, s.allowed_hosts.join(", ")))
        .collect();
    let secrets = if secrets.is_empty() {
        String::new()
    } else {
        format!(" In header values and body these stand for secrets (https only): {}.", secrets.join("; "))
    };
    declare(
        "http_request",
        &format!(
            "Make an HTTP request to one of: {}.{secrets} The whole response is kept in __tool_results.",
            hosts.join(", ")
        ),
        &["url"],
        json!({
            "method": {"type": "string", "enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"], "description": "Default GET."},
            "url": text("http or https URL."),
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "body": text("Body."),
        }),
    )
}
