//! The schema prompt: what a model must know of the database to write SQL, within an exact budget.
//!
//! The same database gives the same bytes. Nothing is scanned: counts above ten thousand are estimates
//! from the b-tree's ends, facts come from fixed samples by primary key.

mod build;
pub(crate) mod detect;
mod facts;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use build::{Room, text};
pub(crate) use facts::Facts;

/// What the prompt should hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptOptions {
    /// Most bytes; never exceeded.
    pub max_bytes: usize,
    /// Most tables that are described; all others are named.
    pub max_tables: usize,
    /// Tables by last use, newest first: the first 8 come early.
    pub used: Vec<String>,
    /// Lines about what happened: restored, killed, repaired, changed by people.
    pub notices: Vec<String>,
}

impl Default for PromptOptions {
    fn default() -> Self {
        Self { max_bytes: 30_000, max_tables: 25, used: vec![], notices: vec![] }
    }
}

/// Facts by schema and table, kept while the table does not change.
pub(crate) type Cache = BTreeMap<(String, String), Facts>;

/// A value or name on one line, in double quotes, without anything that a reader could take for our own
/// marks: control and invisible characters, angle brackets and back quotes are written as escapes.
pub(crate) fn quoted(text: &str, max: usize) -> String {
    let short = cicada_contract::text::cut(text, max);
    let json = serde_json::to_string(&short).unwrap_or_default();
    escape(&json)
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '<' | '>' | '`') || c.is_control() || cicada_contract::text::is_invisible(c) {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

/// A name as it must be written in SQL.
pub(crate) fn name(text: &str) -> String {
    if crate::guard::names::is_plain(text) {
        return text.to_owned();
    }
    quoted(text, 100)
}
