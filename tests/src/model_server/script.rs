//! What the server is told to say.

use serde::Deserialize;
use serde_json::Value;

/// What one agent's model says, cycle by cycle. Further cycles repeat the last one.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Conversation {
    /// `namespace/name`, as the system message has it.
    pub agent: String,
    /// Turns of each cycle.
    pub cycles: Vec<Vec<Turn>>,
    /// Context window in tokens of four bytes; larger requests are refused as the provider would.
    #[serde(default)]
    pub window: Option<usize>,
}

/// One reply.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Turn {
    /// Its text.
    #[serde(default)]
    pub text: String,
    /// Its tool calls.
    #[serde(default)]
    pub calls: Vec<ScriptedCall>,
    /// What happens to the first tries of this turn, one fault each.
    #[serde(default)]
    pub faults: Vec<Fault>,
    /// Texts that the request must contain; one that is missing makes the server answer 422 with its name.
    #[serde(default)]
    pub expect: Vec<String>,
    /// Texts that the request must not contain.
    #[serde(default)]
    pub reject: Vec<String>,
    /// Reason in place of the usual one, e.g. `length`.
    #[serde(default)]
    pub stop: Option<String>,
}

/// One tool call.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScriptedCall {
    /// Tool.
    pub name: String,
    /// Arguments as an object.
    #[serde(default)]
    pub arguments: Value,
    /// Arguments as raw text, for what is no JSON.
    #[serde(default)]
    pub raw: Option<String>,
}

/// What goes wrong.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fault {
    /// An error status, with `Retry-After` in seconds.
    Status(u16, #[serde(default)] Option<u32>),
    /// The connection breaks after so many bytes of the reply's body.
    Cut(usize),
    /// A page of a proxy in place of the reply.
    Html,
    /// Status 200 and an error object.
    ErrorObject,
    /// Nothing for so many milliseconds, then the reply.
    Slow(u64),
}
