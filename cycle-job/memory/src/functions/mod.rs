//! Functions that agents miss in SQLite: regular expressions, text distance, URLs, mail addresses, SHA-256.
//!
//! All are pure, give NULL for NULL, and end in time linear in their input.

mod regexp;

use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};
use sha2::{Digest, Sha256};

use crate::sql::nearest::distance;
use crate::value::Value;

/// Longest text of a distance, in characters: its time grows with the product of both.
const DISTANCE_MAX: usize = 1000;

/// Registers them all.
pub(crate) fn register(connection: &Connection) -> rusqlite::Result<()> {
    regexp::register(connection)?;
    one(connection, "sha256", |v| Ok(Some(Value::Text(hex::encode(Sha256::digest(bytes(v)))))))?;
    one(connection, "url_scheme", |v| Ok(url(&v.display()).map(|u| u.scheme.into())))?;
    one(connection, "url_host", |v| Ok(url(&v.display()).map(|u| u.host.into())))?;
    one(connection, "url_path", |v| Ok(url(&v.display()).map(|u| u.path.into())))?;
    one(connection, "url_query", |v| Ok(url(&v.display()).map(|u| u.query.into())))?;
    one(connection, "email_local", |v| Ok(email(&v.display()).map(|(local, _)| local.into())))?;
    one(connection, "email_domain", |v| Ok(email(&v.display()).map(|(_, domain)| domain.into())))?;
    connection.create_scalar_function("levenshtein", 2, flags(), |c| {
        let (Some(a), Some(b)) = (text(c, 0), text(c, 1)) else { return Ok(Value::Null) };
        if a.chars().count() > DISTANCE_MAX || b.chars().count() > DISTANCE_MAX {
            return Err(wrong(format!("levenshtein() takes texts of at most {DISTANCE_MAX} characters")));
        }
        Ok(Value::Int(i64::try_from(distance(&a, &b)).unwrap_or(i64::MAX)))
    })
}

fn flags() -> FunctionFlags {
    FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS
}

/// A function of one argument; NULL for NULL.
fn one(
    connection: &Connection,
    name: &str,
    of: impl Fn(&Value) -> Result<Option<Value>, rusqlite::Error> + Send + 'static,
) -> rusqlite::Result<()> {
    connection.create_scalar_function(name, 1, flags(), move |c| match Value::from_sql(c.get_raw(0)) {
        Value::Null => Ok(Value::Null),
        value => Ok(of(&value)?.unwrap_or(Value::Null)),
    })
}

fn text(context: &Context<'_>, index: usize) -> Option<String> {
    let value = Value::from_sql(context.get_raw(index));
    (!value.is_null()).then(|| value.display())
}

fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::Blob(bytes) => bytes.clone(),
        other => other.display().into_bytes(),
    }
}

fn wrong(message: String) -> rusqlite::Error {
    rusqlite::Error::UserFunctionError(message.into())
}

/// Parts of a URL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: String,
}

/// Reads `scheme://[user@]host[:port]/path[?query][#fragment]`; None for anything else.
pub(crate) fn url(text: &str) -> Option<Url> {
    let (scheme, rest) = text.split_once("://")?;
    let named = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    if !named || !scheme.as_bytes().first()?.is_ascii_alphabetic() || text.chars().any(char::is_whitespace) {
        return None;
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, h)| h);
    let host = if host.starts_with('[') {
        &host[..=host.find(']')?]
    } else {
        host.split_once(':').map_or(host, |(h, _)| h)
    };
    if host.is_empty() {
        return None;
    }
    let rest = rest.split_once('#').map_or(rest, |(r, _)| r);
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    Some(Url {
        scheme: scheme.to_lowercase(),
        host: host.to_lowercase(),
        path: path.to_owned(),
        query: query.to_owned(),
    })
}

/// Local part and domain (lower case) of a mail address; None for anything else.
pub(crate) fn email(text: &str) -> Option<(String, String)> {
    let (local, domain) = text.trim().rsplit_once('@')?;
    let local_ok = (1..=64).contains(&local.len())
        && local.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+/=?^_`{|}~.-".contains(&b))
        && !local.starts_with('.')
        && !local.ends_with('.')
        && !local.contains("..");
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    let labels: Vec<&str> = domain.split('.').collect();
    let last = labels.last()?;
    let domain_ok = labels.len() >= 2
        && labels.iter().all(|l| label(l))
        && last.len() >= 2
        && !last.bytes().all(|b| b.is_ascii_digit());
    (local_ok && domain_ok).then(|| (local.to_owned(), domain.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_answer_in_sql() {
        let c = Connection::open_in_memory().unwrap();
        register(&c).unwrap();
        for (sql, wanted) in [
            ("'price 12' REGEXP '[0-9]+$'", "1"),
            ("regexp_substr('a12b34', '[0-9]+')", "12"),
            ("regexp_replace('a1b2', '[0-9]', '#')", "a#b#"),
            ("regexp_count('a1b2', '[0-9]')", "2"),
            ("regexp_like(NULL, 'x')", "NULL"),
            ("levenshtein('kitten', 'sitting')", "3"),
            ("url_host('https://u:p@Example.com:8080/a/b?x=1#f')", "example.com"),
            ("url_path('https://example.com/a/b?x=1#f')", "/a/b"),
            ("url_query('https://example.com/a/b?x=1#f')", "x=1"),
            ("url_host('no url')", "NULL"),
            ("email_domain('Ann.Lee@Example.COM')", "example.com"),
            ("email_local('a@b')", "NULL"),
            ("sha256('abc')", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            ("median(value) FROM json_each('[1, 2, 9]')", "2.0"),
            ("sqrt(16)", "4.0"),
        ] {
            let found =
                c.query_row(&format!("SELECT {sql}"), [], |r| Ok(Value::from_sql(r.get_ref(0)?))).unwrap();
            assert_eq!(found.display(), wanted, "{sql}");
        }
        for sql in [
            "regexp_like('a', '(')",
            "regexp_like('a', '(a{1000}){1000}')",
            "levenshtein(hex(zeroblob(9999)), 'x')",
        ] {
            assert!(c.query_row(&format!("SELECT {sql}"), [], |_| Ok(())).is_err(), "{sql}");
        }
    }
}
