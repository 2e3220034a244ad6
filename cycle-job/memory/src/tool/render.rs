//! A batch's result as text: compact, cut at rows, with the way to the rest.

use super::{BatchResult, StatementResult};
use crate::value::Value;

/// Everything that the model needs to go on.
pub(crate) fn text(result: &BatchResult) -> String {
    let mut out = String::new();
    for warning in &result.warnings {
        out.push_str(&format!("note: {}\n", line(warning)));
    }
    for (n, statement) in result.statements.iter().enumerate() {
        out.push_str(&format!("[{}] ", n + 1));
        one(&mut out, statement);
    }
    if let Some(error) = &result.error {
        match error.statement {
            Some(n) => out.push_str(&format!(
                "ERROR in statement {n} ({}): {}\n",
                line(&error.sql),
                line(&error.message)
            )),
            None => out.push_str(&format!("ERROR: {}\n", line(&error.message))),
        }
        out.push_str("The whole batch was rolled back; nothing of it was kept.\n");
    }
    if result.statements.is_empty() && result.error.is_none() {
        out.push_str("No statement was found.\n");
    }
    out
}

fn one(out: &mut String, statement: &StatementResult) {
    if let Some(note) = &statement.note {
        out.push_str(&format!("{note}\n"));
    } else if let Some(changed) = statement.changed {
        out.push_str(&format!("{changed} row{} changed\n", if changed == 1 { "" } else { "s" }));
    } else if statement.columns.is_empty() {
        out.push_str("ok\n");
    } else {
        rows(out, statement);
    }
    for warning in &statement.warnings {
        out.push_str(&format!("warning: {}\n", line(warning)));
    }
}

fn rows(out: &mut String, statement: &StatementResult) {
    let all = statement.rows.len() as u64 + statement.left_out;
    let more = if statement.more { "more than " } else { "" };
    out.push_str(&format!("{more}{all} row{}\n", if all == 1 { "" } else { "s" }));
    out.push_str(&statement.columns.iter().map(|c| cell(c)).collect::<Vec<_>>().join(" | "));
    out.push('\n');
    for row in &statement.rows {
        out.push_str(&row.iter().map(|v| cell(&v.display())).collect::<Vec<_>>().join(" | "));
        out.push('\n');
    }
    if statement.left_out > 0 {
        out.push_str(&format!(
            "({more}{} rows left out: add ORDER BY with LIMIT {} OFFSET {} to page, or aggregate)\n",
            statement.left_out,
            super::ROWS_MAX,
            statement.rows.len()
        ));
    }
}

/// A value; the separator of values can't be faked.
fn cell(text: &str) -> String {
    line(text).replace('|', "\\|")
}

/// One line whatever the text, so that it can't pass for another of ours.
fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || is_invisible(c) => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Marks that turn the reading direction or hide: text of strangers must not rearrange ours.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// The value shortened to `max` bytes.
pub(crate) fn shorten(value: Value, max: usize) -> Value {
    match value {
        Value::Text(text) if text.len() > max => {
            let cut = cicada_contract::text::cut(&text, max);
            Value::Text(format!("{cut} [{} bytes]", text.len()))
        }
        Value::Blob(bytes) if bytes.len() > max / 2 => {
            Value::Text(format!("x'{}…' [blob of {} bytes]", hex::encode(&bytes[..16]), bytes.len()))
        }
        value => value,
    }
}
