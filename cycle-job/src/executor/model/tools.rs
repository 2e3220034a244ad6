//! The tools that a model is offered: their declarations, and what a call means.
//!
//! Nothing here executes anything. A call that can't be understood becomes an answer that says what is
//! wrong and what would be right; it is never guessed at where something could be changed by it.

use cicada_contract::PlanConfig;
use cicada_contract::report::Outcome;
use serde_json::{Map, Value};

use super::declarations as declare;
use super::fields::{Fields, example};
use super::transcript::{Arguments, Call};

/// Most characters of a summary.
pub const SUMMARY_CHARS: usize = 500;
/// Most characters of a question to a person.
pub const QUESTION_CHARS: usize = 500;
/// Most options of a question.
pub const OPTIONS: usize = 8;
/// Most bytes of an outgoing message.
pub const MESSAGE_BYTES: usize = 32 * 1024;

/// One tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Declaration {
    /// Name, `<server>.<tool>` for one of an MCP server.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON schema of its arguments.
    pub schema: Value,
}

impl Declaration {
    /// The name on the wire: providers allow letters, digits, `_` and `-` only, 64 at most.
    pub fn wire_name(&self) -> String {
        let plain: String = self
            .name
            .replace('.', "__")
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' })
            .collect();
        if plain.len() <= 64 {
            return plain;
        }
        let hash = cicada_contract::text::sha256_hex(&self.name);
        format!("{}_{}", &plain[..55], &hash[..8])
    }
}

/// `finish`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    /// `done`, `nothing_to_do` or `blocked`.
    pub outcome: Outcome,
    /// At most [`SUMMARY_CHARS`] characters.
    pub summary: String,
}

/// `http_request`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpCall {
    /// Upper case.
    pub method: String,
    /// As the model wrote it.
    pub url: String,
    /// Names and values, in order; `{{secret:NAME}}` in a value stands for a secret.
    pub headers: Vec<(String, String)>,
    /// Body, if there is one.
    pub body: Option<String>,
}

/// A call that was understood.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolCall {
    /// SQL on the memory.
    Sql {
        /// Statements.
        sql: String,
    },
    /// End of the cycle.
    Finish(Finish),
    /// An outgoing message.
    SendMessage {
        /// Name of the channel; may be empty if there is one only.
        channel: String,
        /// Address.
        to: String,
        /// Subject.
        subject: Option<String>,
        /// Text.
        body: String,
        /// Message that it answers.
        reply_to: Option<String>,
    },
    /// A message to another agent.
    MessagePeer {
        /// Its name.
        peer: String,
        /// Subject.
        subject: Option<String>,
        /// Text.
        body: String,
    },
    /// A question to a person.
    RequestHumanInput {
        /// The question.
        question: String,
        /// Answers to choose from; none = free text.
        options: Vec<String>,
    },
    /// Bytes of a file.
    ReadFile {
        /// Relative path.
        path: String,
        /// First byte.
        offset: u64,
        /// Most bytes.
        limit: u64,
    },
    /// A file of the agent's own.
    WriteFile {
        /// Relative path.
        path: String,
        /// Its text.
        content: String,
        /// Add to what is there.
        append: bool,
    },
    /// A file into a table.
    LoadTable {
        /// Relative path.
        path: String,
        /// Table to make or fill.
        table: String,
        /// A durable table rather than scratch.
        durable: bool,
    },
    /// A request to a host of the manifest.
    HttpRequest(HttpCall),
    /// An earlier tool result.
    RecallResult {
        /// Its id.
        result_id: String,
        /// First byte.
        offset: u64,
        /// Most bytes.
        limit: u64,
    },
    /// A tool of an MCP server.
    Mcp {
        /// `<server>.<tool>`.
        name: String,
        /// As the model wrote them.
        arguments: Map<String, Value>,
    },
}

/// The tools of one cycle.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offered {
    declarations: Vec<Declaration>,
    mcp: Vec<String>,
}

impl Offered {
    /// The tools that the manifest leaves something to do for, and those of MCP servers.
    pub fn new(config: &PlanConfig, mcp: Vec<Declaration>) -> Self {
        let mut declarations = declare::always();
        if !config.channels.is_empty() {
            let names: Vec<&str> = config.channels.keys().map(String::as_str).collect();
            declarations.push(declare::send_message(&names));
        }
        if !config.peers.is_empty() {
            let names: Vec<&str> = config.peers.iter().map(|p| p.name.as_str()).collect();
            declarations.push(declare::message_peer(&names));
        }
        if !config.http.allowed_hosts.is_empty() {
            declarations.push(declare::http_request(config));
        }
        let names = mcp.iter().map(|d| d.name.clone()).collect();
        declarations.extend(mcp);
        // One order, whatever the manifest's: the declarations are the first bytes of every request.
        declarations.sort_by(|a, b| a.name.cmp(&b.name));
        Self { declarations, mcp: names }
    }

    /// Declarations in the order in which they are sent.
    pub fn declarations(&self) -> &[Declaration] {
        &self.declarations
    }

    /// Bytes that the declarations take in each request.
    pub fn bytes(&self) -> usize {
        self.declarations
            .iter()
            .map(|d| d.name.len() + d.description.len() + d.schema.to_string().len() + 40)
            .sum()
    }

    /// The tool's own name for a name on the wire.
    pub fn own_name<'a>(&'a self, wire: &'a str) -> &'a str {
        self.declarations
            .iter()
            .find(|d| d.name == wire || d.wire_name() == wire)
            .map_or(wire, |d| d.name.as_str())
    }

    /// What `call` asks for; `Err` is the answer to the model.
    pub fn parse(&self, call: &Call) -> Result<ToolCall, String> {
        let Some(declaration) = self.declarations.iter().find(|d| d.name == call.name) else {
            return Err(self.unknown(&call.name));
        };
        let map = match &call.arguments {
            Arguments::Object(map) => map,
            Arguments::Malformed { text, problem } => {
                return Err(format!(
                    "not executed: the arguments of {} are not a JSON object ({problem}). They were: {}. Send the call again with arguments like {}",
                    call.name,
                    cicada_contract::text::cut(text, 200),
                    example(&declaration.schema)
                ));
            }
        };
        if self.mcp.contains(&call.name) {
            return Ok(ToolCall::Mcp { name: call.name.clone(), arguments: map.clone() });
        }
        parse_own(&call.name, &Fields::new(map, &call.name)).map_err(|problem| {
            format!("not executed: {problem}. {} takes {}", call.name, example(&declaration.schema))
        })
    }

    fn unknown(&self, name: &str) -> String {
        let names: Vec<&str> = self.declarations.iter().map(|d| d.name.as_str()).collect();
        let why = match name {
            "http_request" => " (the manifest allows no host in spec.http.allowedHosts)",
            "message_peer" => " (the manifest names no agent in spec.peers)",
            "send_message" => " (the manifest has no channel in spec.channels)",
            _ => "",
        };
        format!(
            "not executed: there is no tool {}{why}. The tools are: {}",
            cicada_contract::text::cut(name, 64),
            names.join(", ")
        )
    }
}

fn parse_own(name: &str, fields: &Fields<'_>) -> Result<ToolCall, String> {
    Ok(match name {
        "sql" => ToolCall::Sql { sql: fields.text("sql")? },
        "finish" => ToolCall::Finish(Finish {
            outcome: match fields.text("outcome")?.as_str() {
                "done" => Outcome::Done,
                "nothing_to_do" => Outcome::NothingToDo,
                "blocked" => Outcome::Blocked,
                other => return Err(format!("outcome {other:?} is not done, nothing_to_do or blocked")),
            },
            summary: fields
                .optional_text("summary")?
                .unwrap_or_default()
                .chars()
                .take(SUMMARY_CHARS)
                .collect(),
        }),
        "send_message" => ToolCall::SendMessage {
            channel: fields.optional_text("channel")?.unwrap_or_default(),
            to: fields.text("to")?,
            subject: fields.optional_text("subject")?,
            body: body(fields)?,
            reply_to: fields.optional_text("reply_to")?,
        },
        "message_peer" => ToolCall::MessagePeer {
            peer: fields.text("peer")?,
            subject: fields.optional_text("subject")?,
            body: body(fields)?,
        },
        "request_human_input" => {
            let question = fields.text("question")?;
            if question.chars().count() > QUESTION_CHARS {
                return Err(format!(
                    "question has {} characters, {QUESTION_CHARS} are the most",
                    question.chars().count()
                ));
            }
            let options = fields.texts("options")?;
            if options.len() > OPTIONS {
                return Err(format!("{} options, {OPTIONS} are the most", options.len()));
            }
            ToolCall::RequestHumanInput { question, options }
        }
        "read_file" => ToolCall::ReadFile {
            path: fields.text("path")?,
            offset: fields.number("offset", 0)?,
            limit: fields.number("limit", 20_000)?.clamp(1, 40_000),
        },
        "write_file" => ToolCall::WriteFile {
            path: fields.text("path")?,
            content: fields.any_text("content")?,
            append: fields.flag("append")?,
        },
        "load_table" => ToolCall::LoadTable {
            path: fields.text("path")?,
            table: fields.text("table")?,
            durable: fields.flag("durable")?,
        },
        "recall_result" => ToolCall::RecallResult {
            result_id: fields.text("result_id")?,
            offset: fields.number("offset", 0)?,
            limit: fields.number("limit", 20_000)?.clamp(1, 40_000),
        },
        "http_request" => ToolCall::HttpRequest(HttpCall {
            method: fields.optional_text("method")?.unwrap_or_else(|| "GET".into()).to_ascii_uppercase(),
            url: fields.text("url")?,
            headers: fields.pairs("headers")?,
            body: fields.body("body")?,
        }),
        other => return Err(format!("there is no tool {other}")),
    })
}

/// Text of an outgoing message.
fn body(fields: &Fields<'_>) -> Result<String, String> {
    let body = fields.text("body")?;
    if body.len() > MESSAGE_BYTES {
        return Err(format!("body has {} bytes, {MESSAGE_BYTES} are the most", body.len()));
    }
    Ok(body)
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
