//! The compile-time settings that the design rests on, checked at the start of every worker.
//!
//! They come from `.cargo/config.toml`, which cargo reads only below the workspace: a build from
//! elsewhere would silently lack them, and with them the promise that temporary tables never reach a
//! file or that SQL can't load code.

use rusqlite::Connection;

/// Options that must be in.
const REQUIRED: &[&str] = &[
    "DQS=0",
    "SECURE_DELETE",
    "ENABLE_PREUPDATE_HOOK",
    "ENABLE_MATH_FUNCTIONS",
    "ENABLE_PERCENTILE",
    "ENABLE_FTS5",
    "OMIT_LOAD_EXTENSION",
    "TEMP_STORE=3",
];

/// Options that must be out: the old full-text engine has a tokenizer that takes a pointer from SQL,
/// and URI names would let a file name carry open flags.
const FORBIDDEN: &[&str] = &["ENABLE_FTS3", "USE_URI"];

/// Oldest SQLite with all fixes that we rely on: 3.53.2.
const OLDEST: i32 = 3_053_002;

/// What is wrong with this build, None if nothing is.
pub(crate) fn problem(connection: &Connection) -> Option<String> {
    if rusqlite::version_number() < OLDEST {
        return Some(format!("sqlite {} is older than 3.53.2", rusqlite::version()));
    }
    let options: Vec<String> = connection
        .prepare("SELECT compile_options FROM pragma_compile_options")
        .and_then(|mut s| s.query_map([], |r| r.get(0))?.collect())
        .unwrap_or_default();
    let has = |wanted: &str| {
        options.iter().any(|o| o == wanted || o.strip_prefix(wanted).is_some_and(|r| r == "=1"))
    };
    if let Some(missing) = REQUIRED.iter().find(|o| !has(o)) {
        return Some(format!(
            "sqlite was built without {missing}: build inside the workspace, so that .cargo/config.toml is read"
        ));
    }
    FORBIDDEN
        .iter()
        .find(|o| has(o))
        .map(|o| format!("sqlite was built with {o}: build inside the workspace"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_build_has_the_compile_options() {
        assert_eq!(problem(&Connection::open_in_memory().unwrap()), None);
    }
}
