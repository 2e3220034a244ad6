//! From facts to text: who comes first, and what fits.

use rusqlite::Connection;

use super::facts::{self, Facts, Table};
use super::{Cache, PromptOptions, name, quoted};
use crate::guard::schema::{Object, Schema};
use crate::mounts::{MOUNTS, Mount};
use crate::worker::durable_tables;

/// Tables used lately that come before the others.
const USED_FIRST: usize = 8;
/// Most bytes for the names of tables that are not described, so that they never crowd out the others.
const NAMES_MAX: usize = 4000;

/// Size of the file against its bound, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) used: u64,
    pub(crate) limit: u64,
}

/// The prompt.
pub(crate) fn text(
    c: &Connection,
    schemas: (&Schema, &Schema),
    options: &PromptOptions,
    room: Room,
    cache: &mut Cache,
) -> String {
    let order = order(c, schemas, options);
    let described = order.len().min(options.max_tables);
    let mut tables: Vec<(String, &Facts)> = vec![];
    for (schema, object) in &order[..described] {
        let key = ((*schema).to_owned(), object.name.clone());
        // A scratch table or mount can change without a trace in the change log.
        if *schema == "temp" || !cache.contains_key(&key) {
            let sql = object.sql.as_deref().unwrap_or_default();
            let table = Table { schema, name: &object.name, sql, view: object.kind == "view" };
            cache.insert(key, facts::of(c, &table));
        }
    }
    for (schema, object) in &order[..described] {
        if let Some(facts) = cache.get(&((*schema).to_owned(), object.name.clone())) {
            tables.push((note(schema, &object.name), facts));
        }
    }
    let mut out = head(options, room);
    let tail = tail(&order[described..], &hints(&order, &tables, options));
    let budget = options.max_bytes.saturating_sub(out.len() + tail.len());
    out.push_str(&body(&tables, budget));
    out.push_str(&tail);
    cicada_contract::text::cut(&out, options.max_bytes)
}

fn head(options: &PromptOptions, room: Room) -> String {
    let mut out = format!("Memory: {} of {} bytes used.\n", room.used, room.limit);
    if room.used > room.limit / 10 * 8 {
        out.push_str("It is nearly full: delete what is not needed.\n");
    }
    for notice in options.notices.iter().take(20) {
        out.push_str(&format!("Notice: {}\n", quoted(notice, 300)));
    }
    out
}

/// How long a table lives.
fn note(schema: &str, table: &str) -> String {
    match (schema, Mount::find(table)) {
        ("temp", Some(mount)) => mount.note.to_owned(),
        ("temp", None) => "scratch (gone after this cycle, or when a statement is killed)".to_owned(),
        _ => "durable".to_owned(),
    }
}

/// Mounts, what was used lately, then newest and oldest by turns.
fn order<'a>(
    c: &Connection,
    (main, temp): (&'a Schema, &'a Schema),
    options: &PromptOptions,
) -> Vec<(&'static str, &'a Object)> {
    let mut order: Vec<(&'static str, &Object)> =
        MOUNTS.iter().filter_map(|m| temp.get(&(true, m.name.to_owned()))).map(|o| ("temp", o)).collect();
    let durable = durable_tables(main);
    let shown = |o: &&Object| o.kind == "view" || durable.contains(&o.name);
    let mut rest: Vec<(&'static str, &Object)> = main.values().filter(shown).map(|o| ("main", o)).collect();
    let scratch = temp
        .values()
        .filter(|o| Mount::find(&o.name).is_none() && matches!(o.kind.as_str(), "table" | "view"));
    rest.extend(scratch.filter(|o| !o.name.starts_with("sqlite_")).map(|o| ("temp", o)));
    for used in options.used.iter().take(USED_FIRST) {
        if let Some(at) = rest.iter().position(|(_, o)| o.name.eq_ignore_ascii_case(used)) {
            order.push(rest.remove(at));
        }
    }
    let age = ages(c);
    rest.sort_by_key(|(schema, o)| {
        (*schema == "temp", age.get(&o.name.to_lowercase()).copied().unwrap_or(i64::MAX), o.name.clone())
    });
    let mut rest: std::collections::VecDeque<_> = rest.into();
    while let Some(newest) = rest.pop_back() {
        order.push(newest);
        order.extend(rest.pop_front());
    }
    order
}

/// Place of each durable object in the order of creation.
fn ages(c: &Connection) -> std::collections::BTreeMap<String, i64> {
    let read = || -> rusqlite::Result<_> {
        let mut statement = c.prepare_cached(
            "SELECT lower(name), rowid FROM main.sqlite_schema WHERE type IN ('table', 'view')",
        )?;
        statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect()
    };
    read().unwrap_or_default()
}

/// First a line for every table; then, in their order, as much more of each as fits.
fn body(tables: &[(String, &Facts)], budget: usize) -> String {
    let line = |(note, facts): &(String, &Facts)| format!("\n{} [{note}]\n", facts.head);
    let mut left = budget;
    let mut parts: Vec<[String; 4]> = vec![];
    for table in tables {
        let head = line(table);
        if head.len() > left {
            break;
        }
        left -= head.len();
        parts.push([head, String::new(), String::new(), String::new()]);
    }
    for level in 1..4 {
        for (part, (_, facts)) in parts.iter_mut().zip(tables) {
            let more = match level {
                1 => format!("  {}\n", facts.create),
                2 => facts.samples.clone(),
                _ => facts.columns.clone(),
            };
            // A level is never shown without the one before it.
            let whole = level == 1 || !part[level - 1].is_empty() || facts.samples.is_empty();
            if whole && more.len() <= left && !more.trim().is_empty() {
                left -= more.len();
                part[level] = more;
            }
        }
    }
    parts.iter().map(|p| p.concat()).collect()
}

/// The tables that are not described, and what looks wrong.
fn tail(hidden: &[(&str, &Object)], hints: &[String]) -> String {
    let mut out = String::new();
    if !hidden.is_empty() {
        let mut names = String::new();
        let mut unnamed = hidden.len();
        for (_, object) in hidden {
            let next = name(&object.name);
            if names.len() + next.len() + 2 > NAMES_MAX {
                break;
            }
            names.push_str(if names.is_empty() { "" } else { ", " });
            names.push_str(&next);
            unnamed -= 1;
        }
        let rest = if unnamed > 0 {
            format!(" and {unnamed} more: SELECT name FROM sqlite_schema")
        } else {
            String::new()
        };
        out.push_str(&format!("\n({} more tables: {names}{rest})\n", hidden.len()));
    }
    for hint in hints.iter().take(10) {
        out.push_str(&format!("Hint: {hint}\n"));
    }
    out
}

/// Drift: near-duplicates, tables long unused, columns always NULL.
fn hints(order: &[(&str, &Object)], tables: &[(String, &Facts)], options: &PromptOptions) -> Vec<String> {
    let mut hints = vec![];
    let own: Vec<&str> = order
        .iter()
        .filter(|(s, o)| *s == "main" && o.kind == "table")
        .map(|(_, o)| o.name.as_str())
        .take(300)
        .collect();
    let mut sorted = own.clone();
    sorted.sort_unstable();
    for (n, a) in sorted.iter().enumerate() {
        if let Some(b) = sorted[n + 1..].iter().find(|b| crate::worker::similar(a, b)) {
            hints.push(format!("{} and {} look like one table made twice", name(a), name(b)));
        }
    }
    if options.used.len() >= USED_FIRST {
        let unused: Vec<String> = sorted
            .iter()
            .filter(|t| !options.used.iter().any(|u| u.eq_ignore_ascii_case(t)))
            .take(10)
            .map(|t| name(t))
            .collect();
        if !unused.is_empty() {
            hints.push(format!("no cycle on record used {}", unused.join(", ")));
        }
    }
    for (_, facts) in tables.iter().filter(|(note, f)| note == "durable" && !f.always_null.is_empty()) {
        let columns: Vec<String> = facts.always_null.iter().take(8).map(|c| name(c)).collect();
        hints.push(format!("{}: {} always NULL", facts.head, columns.join(", ")));
    }
    hints
}
