//! What a model should know about a statement that did run.

use crate::guard::schema::{self, Schema};
use crate::sql::nearest::distance;
use crate::sql::tokens::{Kind, Token, unquote};
use crate::tool::StatementResult;

/// Rows read without an index from which a statement is worth a word.
const SCAN_LARGE: i32 = 50_000;

/// Warnings of one statement.
pub(super) fn of(code: &[Token<'_>], result: &StatementResult, scanned: i32) -> Vec<String> {
    let mut all = vec![];
    let verb = main_verb(code);
    let filtered = code.iter().any(|t| t.is("WHERE"));
    match (verb, result.changed) {
        (Some("UPDATE" | "DELETE"), Some(0)) => {
            all.push(
                "0 rows matched: nothing was changed. Read the rows first and check the WHERE".to_owned(),
            );
        }
        (Some(verb @ ("UPDATE" | "DELETE")), Some(n)) if !filtered => {
            all.push(format!("no WHERE: {verb} took all {n} rows of the table"));
        }
        (Some("INSERT" | "REPLACE"), Some(0)) => {
            all.push("0 rows were added: they were there already, or the SELECT gave none".to_owned());
        }
        _ => {}
    }
    if cartesian(code) {
        all.push("tables are joined without a condition: every row meets every row".to_owned());
    }
    if scanned > SCAN_LARGE {
        let what = format!("{scanned} rows were read without an index");
        all.push(format!("{what}: if you ask this often, CREATE INDEX on the column of the WHERE"));
    }
    all
}

/// INSERT, UPDATE, ... also behind WITH.
fn main_verb<'a>(code: &[Token<'a>]) -> Option<&'static str> {
    let mut depth = 0;
    for token in code {
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ if depth == 0 && token.kind == Kind::Word => {
                let found =
                    ["INSERT", "UPDATE", "DELETE", "REPLACE", "SELECT"].into_iter().find(|w| token.is(w));
                if found.is_some() {
                    return found;
                }
            }
            _ => {}
        }
    }
    None
}

/// A FROM with several tables, and neither WHERE nor ON nor USING.
fn cartesian(code: &[Token<'_>]) -> bool {
    if main_verb(code) != Some("SELECT") || code[0].is("EXPLAIN") {
        return false;
    }
    let mut depth = 0;
    let (mut from, mut tables, mut bound) = (false, 0, false);
    for (n, token) in code.iter().enumerate() {
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        if depth > 0 {
            continue;
        }
        if token.is("FROM") {
            (from, tables) = (true, 1);
        } else if from && (token.is("JOIN") || token.text == ",") {
            tables += 1;
            // A table-valued function depends on its arguments, and CROSS says what is meant.
            let call = code.get(n + 2).is_some_and(|t| t.text == "(")
                || code.get(n + 1).is_some_and(|t| t.text == "(");
            let meant = n > 0 && (code[n - 1].is("CROSS") || code[n - 1].is("NATURAL"));
            bound |= call || meant;
        } else if ["WHERE", "ON", "USING"].iter().any(|w| token.is(w)) {
            bound = true;
        } else if ["GROUP", "ORDER", "LIMIT", "UNION", "WINDOW", "HAVING"].iter().any(|w| token.is(w)) {
            from = false;
        }
    }
    tables > 1 && !bound
}

/// A new table that looks like one that exists: agents forget what they made and make it again.
pub(super) fn duplicates(before: &Schema, after: &Schema) -> Vec<String> {
    let table = |o: &&schema::Object| o.kind == "table" && !o.name.starts_with("sqlite_");
    let old: Vec<_> = before.values().filter(table).collect();
    let new = after.iter().filter(|(key, o)| table(o) && !before.contains_key(*key)).map(|(_, o)| o);
    new.filter_map(|made| {
        let like = old
            .iter()
            .find(|o| similar(&o.name, &made.name) || same_columns(o.sql.as_deref(), made.sql.as_deref()))?;
        // A rebuild under another name, dropped afterwards, is no duplicate.
        after.contains_key(&(true, like.name.to_lowercase())).then(|| {
            format!(
                "{} is much like the existing table {}: use that one, or drop one of them",
                made.name, like.name
            )
        })
    })
    .collect()
}

pub(crate) fn similar(a: &str, b: &str) -> bool {
    let plain = |t: &str| t.to_lowercase().replace('_', "").trim_end_matches('s').to_owned();
    let (a, b) = (plain(a), plain(b));
    a == b || (a.len() >= 6 && b.len() >= 6 && distance(&a, &b) <= 1 && !differ_by_digit(&a, &b))
}

/// `sales2023` and `sales2024` are two tables on purpose.
fn differ_by_digit(a: &str, b: &str) -> bool {
    let letters = |t: &str| t.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    letters(a) == letters(b)
}

/// Three or more columns, the same on both sides.
fn same_columns(a: Option<&str>, b: Option<&str>) -> bool {
    let (Some(a), Some(b)) = (a.map(columns), b.map(columns)) else { return false };
    a.len() >= 3 && a == b
}

/// Names of the columns in a CREATE TABLE, in order of the alphabet.
fn columns(sql: &str) -> Vec<String> {
    let code = crate::sql::split::code(sql);
    let mut depth = 0;
    let mut names = vec![];
    for (n, token) in code.iter().enumerate() {
        let opens = token.text == "(";
        if opens {
            depth += 1;
        } else if token.text == ")" {
            depth -= 1;
        }
        if depth == 1 && (token.text == "," || (opens && names.is_empty())) {
            let next = code.get(n + 1).map(|t| unquote(t.text).to_lowercase()).unwrap_or_default();
            if !["primary", "unique", "check", "foreign", "constraint"].contains(&next.as_str()) {
                names.push(next);
            }
        }
    }
    names.sort_unstable();
    names
}
