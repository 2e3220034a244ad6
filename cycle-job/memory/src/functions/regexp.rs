//! Regular expressions by an engine whose time is linear in the text, whatever the pattern.

use std::cell::RefCell;
use std::collections::HashMap;

use regex::{Regex, RegexBuilder};
use rusqlite::Connection;

use super::{flags, text, wrong};
use crate::value::Value;

/// Longest pattern in bytes.
const PATTERN_MAX: usize = 1000;
/// Largest compiled pattern in bytes.
const COMPILED_MAX: usize = 1 << 20;
/// Compiled patterns that are kept.
const KEPT: usize = 64;
/// Longest result of a replacement in bytes.
const RESULT_MAX: usize = 16 << 20;

thread_local! {
    static COMPILED: RefCell<HashMap<String, Regex>> = RefCell::default();
}

fn compiled(pattern: &str) -> rusqlite::Result<Regex> {
    if pattern.len() > PATTERN_MAX {
        return Err(wrong(format!("a pattern may have at most {PATTERN_MAX} bytes")));
    }
    COMPILED.with_borrow_mut(|kept| {
        if let Some(found) = kept.get(pattern) {
            return Ok(found.clone());
        }
        let regex = RegexBuilder::new(pattern)
            .size_limit(COMPILED_MAX)
            .dfa_size_limit(COMPILED_MAX)
            .build()
            .map_err(|e| {
                wrong(format!("pattern {pattern:?} is not valid: {}", e.to_string().replace('\n', " ")))
            })?;
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(pattern.to_owned(), regex.clone());
        Ok(regex)
    })
}

type Answer = fn(&Regex, &str) -> Value;

/// `REGEXP` and the functions that other databases have.
pub(super) fn register(c: &Connection) -> rusqlite::Result<()> {
    let functions: [(&str, usize, Answer); 4] = [
        // `X REGEXP Y` calls regexp(Y, X).
        ("regexp", 1, |re, t| re.is_match(t).into()),
        ("regexp_like", 0, |re, t| re.is_match(t).into()),
        ("regexp_substr", 0, |re, t| re.find(t).map(|m| m.as_str()).into()),
        ("regexp_count", 0, |re, t| Value::Int(i64::try_from(re.find_iter(t).count()).unwrap_or(i64::MAX))),
    ];
    for (name, subject, answer) in functions {
        c.create_scalar_function(name, 2, flags(), move |c| {
            let (Some(subject), Some(pattern)) = (text(c, subject), text(c, 1 - subject)) else {
                return Ok(Value::Null);
            };
            Ok(answer(&compiled(&pattern)?, &subject))
        })?;
    }
    c.create_scalar_function("regexp_replace", 3, flags(), |c| {
        let (Some(subject), Some(pattern), Some(with)) = (text(c, 0), text(c, 1), text(c, 2)) else {
            return Ok(Value::Null);
        };
        let regex = compiled(&pattern)?;
        let matches = regex.find_iter(&subject).count();
        // Each `$` may bring the whole subject back, all matches together.
        let groups = 1 + with.matches('$').count();
        let longest = matches.saturating_mul(with.len()).saturating_add(subject.len().saturating_mul(groups));
        if longest > RESULT_MAX {
            return Err(wrong("the result of regexp_replace() would be too long".into()));
        }
        Ok(Value::Text(regex.replace_all(&subject, with.as_str()).into_owned()))
    })
}
