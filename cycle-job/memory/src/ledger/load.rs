//! From ledger and manifest to the rows of the mounts. One loader for each, named in `MOUNTS`.

use std::collections::BTreeSet;

use cicada_contract::PlanConfig;
use cicada_contract::report::CharterSource;
use cicada_contract::text::{cut, sha256_hex};
use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, params};

use super::FileEntry;
use super::ingest::{contact_id, normalise};
use super::proposals::AGENT;
use super::schema::meta;
use crate::mounts::{MOUNTS, Mount, MountPolicy, Mounts, rules};
use crate::protocol::Fault;
use crate::value::{Row, Value};

/// How a mount is filled.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Loader {
    /// By rows that go through the parent.
    Rows(fn(&Source<'_>) -> Result<Vec<Row>, Fault>),
    /// By a table in the attached image.
    Image(fn(&Source<'_>) -> Result<(), Fault>),
}

impl Mount {
    /// Rows of a mount that is not filled by an image.
    pub(crate) fn rows(&self, source: &Source<'_>) -> Result<Vec<Row>, Fault> {
        match self.load {
            Loader::Rows(load) => load(source),
            Loader::Image(_) => Ok(vec![]),
        }
    }
}

/// True if one of the mounts named (of all, if none is) lies in an image.
pub(crate) fn needs_image(tables: &[String]) -> bool {
    wanted(tables).any(|m| matches!(m.load, Loader::Image(_)))
}

fn wanted(tables: &[String]) -> impl Iterator<Item = &'static Mount> + '_ {
    MOUNTS.iter().filter(|m| tables.is_empty() || tables.iter().any(|t| t == m.name))
}

/// What loaders read.
pub(crate) struct Source<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) config: &'a PlanConfig,
    pub(crate) files: &'a [FileEntry],
    pub(crate) now: Timestamp,
}

/// Schema under which the image is attached.
pub(crate) const IMAGE_SCHEMA: &str = "cicada_image";
/// Newest messages shown.
const MESSAGES_MAX: i64 = 10_000;
/// Bytes of bodies shown together, and of attachments and payloads; older ones are cut to nothing.
const BODIES_MAX: i64 = 5_000_000;
/// Newest files shown.
const FILES_MAX: usize = 5_000;
/// Contacts shown.
const CONTACTS_MAX: i64 = 10_000;
/// Newest tool results shown.
const RESULTS_MAX: i64 = 2_000;
/// Closed cards shown beside all open ones.
const CLOSED_CARDS_MAX: i64 = 500;

/// Rows of the mounts named, of all if none is.
pub(crate) fn mounts(
    connection: &Connection,
    config: &PlanConfig,
    files: &[FileEntry],
    now: Timestamp,
    tables: &[String],
) -> Result<Mounts, Fault> {
    remember_files(connection, files, now)?;
    let source = Source { connection, config, files, now };
    let mut mounts = Mounts { policy: policy(&source)?, ..Mounts::default() };
    for mount in wanted(tables) {
        match mount.load {
            Loader::Rows(load) => drop(mounts.tables.insert(mount.name.to_owned(), load(&source)?)),
            Loader::Image(fill) => {
                connection.execute_batch(&mount.create_sql(IMAGE_SCHEMA))?;
                fill(&source)?;
                mounts.image.tables.push(mount.name.to_owned());
            }
        }
    }
    Ok(mounts)
}

fn policy(source: &Source<'_>) -> Result<MountPolicy, Fault> {
    let mut rejected = vec![];
    let mut statement = source.connection.prepare_cached(
        "SELECT title, trigger_json, coalesce(reason, '') FROM cards WHERE status = 'rejected'",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let reason: String = row.get(2)?;
        rejected.push((rules::normalised_title(&row.get::<_, String>(0)?), reason.clone()));
        if let Some(trigger) = row.get::<_, Option<String>>(1)? {
            rejected.push((rules::normalised_trigger(&trigger), reason));
        }
    }
    Ok(MountPolicy {
        self_management: source.config.self_management.clone(),
        time_zone: source.config.limits.time_zone.clone(),
        now: Some(source.now),
        rejected_cards: rejected,
    })
}

/// All rows of a query.
pub(crate) fn query(c: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<Vec<Row>, Fault> {
    let mut statement = c.prepare_cached(sql)?;
    let width = statement.column_count();
    let rows =
        statement.query_map(params, |r| (0..width).map(|n| Ok(Value::from_sql(r.get_ref(n)?))).collect())?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Counts bytes from the newest row down, and finds the row that is too much.
#[derive(Default)]
struct Budget {
    bytes: i64,
    /// That row, and what was left for it.
    cut: Option<(i64, i64)>,
}

impl Budget {
    fn take(&mut self, rowid: i64, bytes: i64) {
        let left = BODIES_MAX - self.bytes;
        self.bytes += bytes;
        if self.bytes > BODIES_MAX && self.cut.is_none() {
            self.cut = Some((rowid, left));
        }
    }
}

/// The newest messages; of their bodies as much as may be shown together, the newest first, and as much of
/// what the channels put beside.
pub(crate) fn messages(source: &Source<'_>) -> Result<(), Fault> {
    let c = source.connection;
    // Rows are added in the order of `seq`, so the rowid's order is the same, and reading by it is a scan.
    let mut newest = c.prepare_cached(
        "SELECT rowid, octet_length(body), octet_length(attachments_json) + coalesce(octet_length(payload_json), 0) \
         FROM messages ORDER BY rowid DESC LIMIT ?1",
    )?;
    let mut rows = newest.query([MESSAGES_MAX])?;
    let (mut first, mut bodies, mut beside) = (i64::MAX, Budget::default(), Budget::default());
    while let Some(row) = rows.next()? {
        first = row.get(0)?;
        bodies.take(first, row.get(1)?);
        beside.take(first, row.get(2)?);
    }
    let (cut_at, part) = match bodies.cut {
        Some((rowid, left)) => {
            let sql = "SELECT body FROM messages WHERE rowid = ?1";
            let body: String = c.query_row(sql, [rowid], |r| r.get(0))?;
            (rowid, cut(&body, usize::try_from(left).unwrap_or(0)))
        }
        None => (i64::MIN, String::new()),
    };
    c.execute(
        &format!(
            "INSERT INTO {IMAGE_SCHEMA}.__messages SELECT message_id, seq, timestamp, channel, direction, direction = 'out', \
             from_address, to_address, conversation_id, peer_agent IS NOT NULL, peer_agent, substr(subject, 1, 1000), \
             CASE WHEN rowid > ?2 THEN body WHEN rowid = ?2 THEN ?3 ELSE '' END, body_bytes, \
             rowid <= ?2 OR body_bytes > octet_length(body), CASE WHEN rowid > ?4 THEN attachments_json ELSE '[]' END, status, \
             direction = 'in' AND NOT handled, CASE WHEN rowid > ?4 THEN payload_json END \
             FROM main.messages WHERE rowid >= ?1 ORDER BY rowid"
        ),
        params![first, cut_at, part, beside.cut.map_or(i64::MIN, |(rowid, _)| rowid)],
    )?;
    Ok(())
}

/// Remembers when each file was first seen and last changed.
fn remember_files(c: &Connection, files: &[FileEntry], now: Timestamp) -> Result<(), Fault> {
    let mut statement = c.prepare_cached(
        "INSERT INTO files (path, file_id, mime_type, size_bytes, sha256, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6) \
         ON CONFLICT (path) DO UPDATE SET mime_type = excluded.mime_type, size_bytes = excluded.size_bytes, \
         sha256 = excluded.sha256, updated_at = excluded.updated_at WHERE sha256 <> excluded.sha256",
    )?;
    for file in files {
        let id = format!("file-{}", &sha256_hex(&file.path)[..12]);
        let mime = file.mime_type.clone().unwrap_or_else(|| mime_of(&file.path).to_owned());
        let size = i64::try_from(file.size).unwrap_or(i64::MAX);
        statement.execute(params![file.path, id, mime, size, file.sha256, now.to_string()])?;
    }
    Ok(())
}

pub(crate) fn files(source: &Source<'_>) -> Result<Vec<Row>, Fault> {
    let here: BTreeSet<&str> = source.files.iter().map(|f| f.path.as_str()).collect();
    let mut rows = query(
        source.connection,
        "SELECT file_id, path, path, NULL, mime_type, size_bytes, sha256, created_at, updated_at FROM files ORDER BY updated_at DESC, path",
        [],
    )?;
    rows.retain(|row| row[1].as_str().is_some_and(|path| here.contains(path)));
    rows.truncate(FILES_MAX);
    for row in &mut rows {
        let path = row[1].as_str().unwrap_or_default().to_owned();
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", &path));
        row[2] = name.into();
        row[3] = parent.into();
    }
    Ok(rows)
}

fn mime_of(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, e)| e).to_ascii_lowercase().as_str() {
        "csv" => "text/csv",
        "tsv" => "text/tab-separated-values",
        "json" | "geojson" => "application/json",
        "jsonl" | "ndjson" => "application/x-ndjson",
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "html" | "htm" => "text/html",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "db" | "sqlite" | "sqlite3" => "application/vnd.sqlite3",
        _ => "application/octet-stream",
    }
}

/// The manifest's contacts and those that wrote; the manifest says what is allowed.
pub(crate) fn contacts(source: &Source<'_>) -> Result<Vec<Row>, Fault> {
    let mut rows = query(
        source.connection,
        "SELECT contact_id, channel, address, normalized_address, display_name, source, status, allow_inbound, allow_outbound, \
         may_instruct, requested_at, responded_at, last_conversed_at, updated_at FROM contacts \
         ORDER BY coalesce(last_conversed_at, updated_at) DESC LIMIT ?1",
        [CONTACTS_MAX],
    )?;
    for contact in &source.config.contacts {
        let normalised = normalise(&contact.address);
        let id = contact_id(&contact.channel, &normalised);
        let known = rows.iter().position(|r| r[0].as_str() == Some(&id)).map(|n| rows.remove(n));
        let last = |n: usize| known.as_ref().map_or(Value::Null, |r| r[n].clone());
        rows.push(vec![
            id.as_str().into(),
            contact.channel.as_str().into(),
            contact.address.as_str().into(),
            normalised.into(),
            contact.display_name.clone().into(),
            "manifest".into(),
            "allowed".into(),
            true.into(),
            contact.allow_outbound.into(),
            contact.may_instruct.into(),
            last(10),
            last(11),
            last(12),
            known.as_ref().map_or_else(|| source.now.to_string().into(), |r| r[13].clone()),
        ]);
    }
    Ok(rows)
}

/// The charter in force: an approved or applied text as long as the manifest's is the one that it was
/// based on; an edit of the manifest wins.
pub(crate) fn charter_in_force(
    c: &Connection,
    config: &PlanConfig,
) -> Result<(String, CharterSource), Fault> {
    let base = meta(c, "charter_base")?;
    if base.as_deref() == Some(sha256_hex(&config.charter).as_str())
        && let Some(text) = meta(c, "charter")?
    {
        let by_agent = meta(c, "charter_actor")?.as_deref() == Some(AGENT);
        return Ok((text, if by_agent { CharterSource::Agent } else { CharterSource::Person }));
    }
    Ok((config.charter.clone(), CharterSource::Manifest))
}

/// The agent holds its own schedules back until then: what its manifest allows, and no time that has passed.
pub(crate) fn paused_until(
    c: &Connection,
    config: &PlanConfig,
    now: Timestamp,
) -> Result<Option<Timestamp>, Fault> {
    let until = meta(c, "paused_until")?.as_deref().and_then(rules::parse_time);
    Ok(until.filter(|until| config.self_management.schedules && *until > now))
}

pub(crate) fn config(source: &Source<'_>) -> Result<Vec<Row>, Fault> {
    let c = source.connection;
    Ok(vec![vec![
        Value::Int(1),
        charter_in_force(c, source.config)?.0.into(),
        meta(c, "short_description")?.into(),
        meta(c, "paused_until")?.into(),
        meta(c, "config_updated_at")?.into(),
    ]])
}

pub(crate) fn schedules(source: &Source<'_>) -> Result<Vec<Row>, Fault> {
    let time = |t: Option<Timestamp>| Value::from(t.map(|t| t.to_string()));
    let mut rows: Vec<Row> = source
        .config
        .schedules
        .iter()
        .map(|s| {
            vec![
                s.name.as_str().into(),
                s.name.as_str().into(),
                if s.once { "once" } else { "recurring" }.into(),
                if s.once { Value::Null } else { s.schedule.as_str().into() },
                s.time_zone.clone().into(),
                if s.once { s.schedule.as_str().into() } else { Value::Null },
                s.instruction.clone().into(),
                true.into(),
                "manifest".into(),
                time(s.next),
                time(s.last),
            ]
        })
        .collect();
    for row in &mut rows {
        if row[9].is_null() {
            row[9] = next_run(row, source, source.now).map(|t| t.to_string()).into();
        }
    }
    // A slot at the end of the pause itself counts.
    let pause = paused_until(source.connection, source.config, source.now)?;
    let after = pause.map_or(source.now, |until| until - SignedDuration::from_secs(1));
    let own = query(
        source.connection,
        "SELECT schedule_key, name, kind, schedule, timezone, run_at, instruction, enabled, 'agent', NULL, last_fired_at \
         FROM schedules ORDER BY schedule_key",
        [],
    )?;
    for mut row in own {
        // The manifest wins a name that both have.
        if rows.iter().any(|r| r[0] == row[0]) {
            continue;
        }
        row[9] = next_run(&row, source, after).map(|t| t.to_string()).into();
        rows.push(row);
    }
    Ok(rows)
}

fn next_run(row: &Row, source: &Source<'_>, after: Timestamp) -> Option<Timestamp> {
    if row[7] != Value::Int(1) {
        return None;
    }
    match row[5].as_str() {
        Some(at) if row[2].as_str() == Some("once") => rules::parse_time(at).filter(|t| *t > after),
        _ => {
            let zone = row[4].as_str().unwrap_or(&source.config.limits.time_zone);
            rules::next_run(row[3].as_str()?, zone, after)
        }
    }
}

pub(crate) fn skills(source: &Source<'_>) -> Result<Vec<Row>, Fault> {
    let mut rows: Vec<Row> = source
        .config
        .skills
        .iter()
        .map(|s| {
            vec![
                format!("manifest-{}", s.name).into(),
                s.name.as_str().into(),
                s.description.as_str().into(),
                Value::Int(1),
                serde_json::to_string(&s.tools).unwrap_or_default().into(),
                s.instructions.as_str().into(),
                "manifest".into(),
                Value::Null,
                Value::Null,
            ]
        })
        .collect();
    rows.extend(query(
        source.connection,
        "SELECT skill_id, name, description, version, tools_json, instructions, 'agent', \
         (SELECT min(created_at) FROM skills f WHERE f.skill_id = s.skill_id), created_at FROM skills s \
         WHERE NOT removed AND version = (SELECT max(version) FROM skills l WHERE l.skill_id = s.skill_id) ORDER BY skill_id",
        [],
    )?);
    Ok(rows)
}

/// Newest results; contents kept as objects are put in by the caller, which can read the store.
pub(crate) fn tool_results(source: &Source<'_>) -> Result<Vec<Row>, Fault> {
    let mut rows = query(
        source.connection,
        "SELECT result_id, tool_name, step, 0, source_url, created_at, bytes, line_count, is_json, json_type, top_keys, is_binary, \
         is_truncated, CASE WHEN is_json THEN content END, CASE WHEN NOT is_json THEN content END, analysis_json \
         FROM tool_results ORDER BY created_at DESC, result_id DESC LIMIT ?1",
        [RESULTS_MAX],
    )?;
    rows.reverse();
    Ok(rows)
}

pub(crate) fn cards(source: &Source<'_>) -> Result<Vec<Row>, Fault> {
    query(
        source.connection,
        "SELECT card_id, title, description, status, priority, due_at, trigger_json, reason, created_at, completed_at FROM ( \
         SELECT * FROM cards WHERE status IN ('todo', 'doing') UNION ALL \
         SELECT * FROM (SELECT * FROM cards WHERE status IN ('done', 'rejected') ORDER BY updated_at DESC LIMIT ?1)) \
         ORDER BY created_at, card_id",
        [CLOSED_CARDS_MAX],
    )
}
