//! A batch's result as text: compact, cut at rows, with the way to the rest.

use cicada_contract::text::escaped;

use super::{BatchResult, StatementResult};
use crate::value::Value;

/// Everything that the model needs to go on.
pub(crate) fn text(result: &BatchResult) -> String {
    let mut out = String::new();
    for warning in &result.warnings {
        out.push_str(&format!("note: {}\n", escaped(warning)));
    }
    for (n, statement) in result.statements.iter().enumerate() {
        out.push_str(&format!("[{}] ", n + 1));
        one(&mut out, statement);
    }
    if let Some(error) = &result.error {
        match error.statement {
            Some(n) => out.push_str(&format!(
                "ERROR in statement {n} ({}): {}\n",
                escaped(&error.sql),
                escaped(&error.message)
            )),
            None => out.push_str(&format!("ERROR: {}\n", escaped(&error.message))),
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
        out.push_str(&format!("warning: {}\n", escaped(warning)));
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
    escaped(text).replace('|', "\\|")
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
