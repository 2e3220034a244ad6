//! The conversation of one cycle: append-only for the provider's cache, compacted only when it must be.
//!
//! What people wrote (charter, instruction) and the open cards lie in parts that compaction never touches:
//! in every request of a cycle they have the same bytes.

use std::fmt::Write as _;

use cicada_contract::text::cut;
use serde_json::{Map, Value};

use super::prompt::{Part, Prompt};
use super::usage::Tokens;

/// Most bytes that an answer keeps once the model has had a reply to look at it; the whole result is one
/// `recall_result` away.
pub const AGED_ANSWER_BYTES: usize = 2048;
/// Most bytes of a fresh answer.
pub const FRESH_ANSWER_BYTES: usize = 40 * 1024;
/// Bytes that stay of an old answer after a compaction.
const STUB_BYTES: usize = 160;

/// One tool call as the model wrote it.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The provider's id of the call; never empty, unique in its reply.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// What the tool is to do.
    pub arguments: Arguments,
}

/// Arguments of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Arguments {
    /// An object, as it should be.
    Object(Map<String, Value>),
    /// Something else; the model is told what is wrong with it.
    Malformed {
        /// As it was written.
        text: String,
        /// What the parser said.
        problem: String,
    },
}

impl Arguments {
    /// One line of JSON, also for what is none.
    pub fn text(&self) -> String {
        match self {
            Self::Object(map) => Value::Object(map.clone()).to_string(),
            Self::Malformed { text, .. } => Value::String(text.clone()).to_string(),
        }
    }
}

/// Why the model stopped writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It was done.
    Normal,
    /// `maxOutputTokens`, or the provider's own bound.
    Cut,
    /// It, or a filter of the provider, refused.
    Refused,
}

/// One reply of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Its text; may be empty.
    pub text: String,
    /// Its tool calls, in order.
    pub calls: Vec<Call>,
    /// Why it ended.
    pub stop: Stop,
    /// What it cost.
    pub tokens: Tokens,
    /// The message in the client's own form, where a provider wants it back unchanged (reasoning blocks).
    pub raw: Option<Value>,
}

/// Answer to one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Id of the call.
    pub call_id: String,
    /// Name of the tool.
    pub name: String,
    /// What the model reads.
    pub text: String,
    /// Where the whole result is kept, if it is.
    pub result_id: Option<String>,
}

/// One entry after the opening.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// The model spoke.
    Model(Reply),
    /// The answers to the calls of the entry before.
    Tools(Vec<Answer>),
    /// The platform spoke.
    Platform(String),
}

impl Entry {
    fn bytes(&self) -> usize {
        match self {
            Self::Model(reply) => {
                reply.text.len()
                    + reply.calls.iter().map(|c| c.name.len() + c.arguments.text().len() + 40).sum::<usize>()
            }
            Self::Tools(answers) => answers.iter().map(|a| a.text.len() + 40).sum(),
            Self::Platform(text) => text.len(),
        }
    }
}

/// The context window can't even hold what must be in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the model's context window is too small: charter, instruction and open cards alone need {needed} bytes and about {available} are left; shorten them or use a model with a larger window"
)]
pub struct WindowTooSmall {
    /// Bytes of what must stay.
    pub needed: usize,
    /// Bytes that fit.
    pub available: usize,
}

/// The conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Transcript {
    prompt: Prompt,
    entries: Vec<Entry>,
    /// Steps that were folded into the digest, one line each.
    folded: Vec<String>,
}

impl Transcript {
    /// A conversation that starts with `prompt`.
    pub fn new(prompt: Prompt) -> Self {
        Self { prompt, entries: vec![], folded: vec![] }
    }

    /// The system message.
    pub fn system(&self) -> &str {
        &self.prompt.system
    }

    /// The first user message.
    pub fn opening(&self) -> String {
        let mut text = self.prompt.parts.iter().map(|p| p.text.as_str()).collect::<Vec<_>>().join("\n\n");
        if !self.folded.is_empty() {
            let _ = write!(
                text,
                "\n\nEarlier steps of this cycle, left out for space ({} steps; their results are in __tool_results):\n{}",
                self.folded.len(),
                self.folded.join("\n")
            );
        }
        text
    }

    /// What followed.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Appends an entry. Answers that the model has replied to are shortened from now on.
    pub fn push(&mut self, entry: Entry) {
        if matches!(entry, Entry::Tools(_)) {
            self.age();
        }
        self.entries.push(entry);
    }

    /// Adds a line to the newest answers (or as a message of the platform): it reaches the model with them.
    pub fn remark(&mut self, text: &str) {
        match self.entries.last_mut() {
            Some(Entry::Tools(answers)) => {
                if let Some(last) = answers.last_mut() {
                    last.text.push_str("\n\n[platform] ");
                    last.text.push_str(text);
                    return;
                }
                self.entries.push(Entry::Platform(text.to_owned()));
            }
            _ => self.entries.push(Entry::Platform(text.to_owned())),
        }
    }

    /// Bytes of everything that is sent, without the tools' declarations.
    pub fn bytes(&self) -> usize {
        self.prompt.system.len() + self.opening().len() + self.entries.iter().map(Entry::bytes).sum::<usize>()
    }

    fn age(&mut self) {
        for entry in &mut self.entries {
            if let Entry::Tools(answers) = entry {
                answers.iter_mut().for_each(|a| shorten(a, AGED_ANSWER_BYTES));
            }
        }
    }

    /// Makes the conversation at most `target` bytes long. From the least to the most painful: old answers
    /// become stubs, old steps become one line each, the parts of the opening that SQL can read again go,
    /// at last the newest answers are cut.
    pub fn compact(&mut self, target: usize) -> Result<(), WindowTooSmall> {
        self.stub_old_answers(target);
        while self.bytes() > target && self.fold_oldest_step() {}
        while self.bytes() > target && self.drop_largest_optional() {}
        if self.bytes() > target && self.folded.len() > 1 {
            self.folded = vec![format!("- {} steps", self.folded.len())];
        }
        if self.bytes() > target {
            for entry in &mut self.entries {
                if let Entry::Tools(answers) = entry {
                    answers.iter_mut().for_each(|a| shorten(a, STUB_BYTES));
                }
            }
        }
        let needed = self.bytes();
        if needed > target { Err(WindowTooSmall { needed, available: target }) } else { Ok(()) }
    }

    fn stub_old_answers(&mut self, target: usize) {
        // The newest two steps keep their answers: the model is still working with them.
        let keep_from = self.nth_last_model(2);
        for at in 0..keep_from {
            if self.bytes() <= target {
                return;
            }
            if let Entry::Tools(answers) = &mut self.entries[at] {
                answers.iter_mut().for_each(|a| shorten(a, STUB_BYTES));
            }
        }
    }

    /// Index of the n-th model entry from the end; 0 if there are fewer.
    fn nth_last_model(&self, n: usize) -> usize {
        let models = self.entries.iter().enumerate().filter(|(_, e)| matches!(e, Entry::Model(_)));
        models.rev().nth(n - 1).map_or(0, |(at, _)| at)
    }

    /// Folds the oldest model entry and what answers it. Keeps the newest step whole: a call without its
    /// answer, or the reverse, is an error at every provider.
    fn fold_oldest_step(&mut self) -> bool {
        let newest = self.nth_last_model(1);
        if newest == 0 {
            return false;
        }
        let end = (1..=newest).find(|&at| matches!(self.entries[at], Entry::Model(_))).unwrap_or(newest);
        for entry in self.entries.drain(..end) {
            match entry {
                Entry::Model(reply) => {
                    let calls: Vec<String> = reply
                        .calls
                        .iter()
                        .map(|c| format!("{} {}", c.name, cut(&c.arguments.text(), 100)))
                        .collect();
                    self.folded.push(format!(
                        "- {}",
                        if calls.is_empty() { "a reply without a call".into() } else { calls.join("; ") }
                    ));
                }
                Entry::Tools(answers) => {
                    if let Some(line) = self.folded.last_mut() {
                        let first: Vec<String> =
                            answers.iter().map(|a| cut(a.text.lines().next().unwrap_or(""), 60)).collect();
                        let _ = write!(line, " -> {}", first.join("; "));
                    }
                }
                Entry::Platform(_) => {}
            }
        }
        // A long cycle must not fill the window with its own digest.
        if self.folded.len() > 60 {
            let rest = self.folded.split_off(self.folded.len() - 40);
            self.folded = std::iter::once("- (older steps)".to_owned()).chain(rest).collect();
        }
        true
    }

    fn drop_largest_optional(&mut self) -> bool {
        let largest = self
            .prompt
            .parts
            .iter_mut()
            .filter(|p| !p.required && p.text.len() > 400)
            .max_by_key(|p| p.text.len());
        let Some(part) = largest else { return false };
        *part =
            Part { text: format!("[{} was left out for space: read it by SQL]", part.name), ..part.clone() };
        true
    }
}

fn shorten(answer: &mut Answer, max: usize) {
    if answer.text.len() <= max {
        return;
    }
    let pointer = match &answer.result_id {
        Some(id) => format!(
            "\n[shortened from {} bytes; whole: recall_result {id}, or __tool_results]",
            answer.text.len()
        ),
        None => format!("\n[shortened from {} bytes; ask again if you need it]", answer.text.len()),
    };
    answer.text = format!("{}{pointer}", cut(&answer.text, max.saturating_sub(pointer.len())));
}

#[cfg(test)]
#[path = "transcript_tests.rs"]
mod tests;
