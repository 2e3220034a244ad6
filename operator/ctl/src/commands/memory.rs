//! Looking into a memory.

use std::time::Duration;

use anyhow::anyhow;
use cicada_memory::{Check, FaultKind, LedgerWorker, MemoryWorker, Row, Rows, Value, WorkerError};
use cicada_store::{AgentStore, ArchiveRef, Head, Snapshot};
use serde_json::{Value as Json, json};

use super::restored::{Part, Restored, blocking, choose, head, unusable};
use crate::args::{Format, InspectArgs, QueryArgs, SnapshotsArgs};
use crate::output::{Grid, bytes, line, note, print_document};

/// `query`.
pub(super) async fn query(args: QueryArgs) -> anyhow::Result<()> {
    let store = args.target.open().await?;
    let head = head(&store).await?;
    let snapshot = choose(&head, args.snapshot.as_deref())?;
    let part = if args.ledger { Part::Ledger } else { Part::Memory };
    let restored = Restored::fetch(&store, snapshot, &[part]).await?;
    let patience = Duration::from_secs(args.timeout);
    let rows = tokio::task::block_in_place(|| -> anyhow::Result<Rows> {
        let rows = match part {
            Part::Ledger => restored.ledger_for(patience)?.query(&args.sql, args.rows),
            Part::Memory => restored.memory_for(patience)?.query(&args.sql, args.rows),
        };
        rows.map_err(|error| too_slow(error, args.timeout))
    })?;
    if rows.more {
        note(&format!("only the first {} rows; --rows gives more", args.rows));
    }
    grid(&rows).print(args.output.format)
}

/// The worker speaks to models; people have an option.
fn too_slow(error: WorkerError, timeout: u64) -> anyhow::Error {
    if error.fault() == Some(FaultKind::Timeout) || matches!(error, WorkerError::Timeout { .. }) {
        return anyhow!("the statement was stopped after {timeout} s; --timeout SECONDS gives it more time");
    }
    error.into()
}

pub(super) fn grid(rows: &Rows) -> Grid {
    let cells = |row: &Row| row.iter().map(cell).collect();
    Grid { columns: rows.columns.clone(), rows: rows.rows.iter().map(cells).collect() }
}

pub(super) fn cell(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Int(n) => json!(n),
        // No format has a number for it.
        Value::Real(n) if !n.is_finite() => json!(if *n > 0.0 { "Inf" } else { "-Inf" }),
        Value::Real(n) => json!(n),
        Value::Text(text) => json!(text),
        Value::Blob(_) => json!(value.display()),
    }
}

/// `inspect`.
pub(super) async fn inspect(args: InspectArgs) -> anyhow::Result<()> {
    let store = args.target.open().await?;
    let head = head(&store).await?;
    let (mut tables, mut own) = (vec![], OwnSchedules::default());
    if let Some(snapshot) = head.current() {
        let restored = Restored::fetch(&store, snapshot, &[Part::Memory, Part::Ledger]).await?;
        tables = tokio::task::block_in_place(|| count_tables(restored.memory()?))?;
        own = tokio::task::block_in_place(|| OwnSchedules::read(&mut restored.ledger()?))?;
    }
    match args.output.format {
        Format::Table => return people(&store, &head, &own, &tables),
        Format::Csv => return table_rows(&tables).print(Format::Csv),
        Format::Json | Format::Yaml => {}
    }
    let current = head.current().map(snapshot_json);
    let tables: Vec<Json> = tables.iter().map(|(name, rows)| json!({"name": name, "rows": rows})).collect();
    let document = json!({
        "location": store.location(), "owner": head.owner.path(), "seededFrom": head.seeded_from, "epoch": head.epoch, "current": current,
        "snapshots": head.snapshots.len(), "holder": head.holder, "handledRequests": head.handled.len(), "tables": tables,
        "agentSchedules": own.enabled, "agentPausedUntil": own.paused_until,
    });
    print_document(&document, args.output.format)
}

fn count_tables(mut memory: MemoryWorker) -> anyhow::Result<Vec<(String, i64)>> {
    memory.check(Check::Quick)?;
    let mut names = memory.tables()?;
    names.sort();
    let mut tables = vec![];
    for name in names {
        let rows = memory.query(&format!("SELECT count(*) FROM \"{}\"", name.replace('"', "\"\"")), 1)?;
        tables.push((name, rows.rows.first().and_then(|r| r.first()?.as_int()).unwrap_or(0)));
    }
    Ok(tables)
}

/// What the agent planned for itself. Whether its manifest lets it is not known here.
#[derive(Debug, Default)]
struct OwnSchedules {
    /// Enabled ones.
    enabled: u32,
    /// It holds them back until then.
    paused_until: Option<String>,
}

impl OwnSchedules {
    fn read(ledger: &mut LedgerWorker) -> anyhow::Result<Self> {
        let sql = "SELECT (SELECT count(*) FROM schedules WHERE enabled) AS enabled, \
                   (SELECT value FROM meta WHERE key = 'paused_until' AND datetime(value) > datetime('now')) AS until";
        let rows = ledger.query(sql, 1)?;
        let enabled = rows.get(0, "enabled").and_then(Value::as_int).and_then(|n| u32::try_from(n).ok());
        let paused_until = rows.get(0, "until").and_then(Value::as_str).map(str::to_owned);
        Ok(Self { enabled: enabled.unwrap_or(0), paused_until })
    }

    fn text(&self) -> String {
        let pause = self.paused_until.as_ref().map(|until| format!(", paused until {until}"));
        format!("{} of its own{}", self.enabled, pause.unwrap_or_default())
    }
}

fn people(
    store: &AgentStore,
    head: &Head,
    own: &OwnSchedules,
    tables: &[(String, i64)],
) -> anyhow::Result<()> {
    line(&format!("location   {}", store.location()))?;
    line(&format!("owner      {}", head.owner.path()))?;
    if let Some(seed) = &head.seeded_from {
        line(&format!(
            "seed       snapshot {} of {}/{}, {}",
            seed.snapshot, seed.namespace, seed.name, seed.at
        ))?;
    }
    line(&format!("epoch      {}", head.epoch))?;
    if let Some(holder) = &head.holder {
        line(&format!(
            "at work    cycle {}, attempt {}, until {}",
            holder.cycle.name, holder.attempt, holder.deadline
        ))?;
    }
    if let Some(current) = head.current() {
        let kind = serde_json::to_value(current.kind)?;
        let kind = kind.as_str().unwrap_or_default();
        line(&format!("snapshot   {} ({kind}), {}", current.id, current.created_at))?;
        for (name, archive) in [("memory", &current.memory), ("ledger", &current.ledger)] {
            if let Some(archive) = archive {
                line(&format!(
                    "{name:<10} {}, {} as archive",
                    bytes(archive.file_size),
                    bytes(archive.archive_size)
                ))?;
            }
        }
    }
    line(&format!("snapshots  {}", head.snapshots.len()))?;
    if own.enabled > 0 || own.paused_until.is_some() {
        line(&format!("schedules  {}", own.text()))?;
    }
    line("")?;
    table_rows(tables).print(Format::Table)
}

fn table_rows(tables: &[(String, i64)]) -> Grid {
    let mut grid = Grid::new(&["table", "rows"]);
    tables.iter().for_each(|(name, rows)| grid.push([json!(name), json!(rows)]));
    grid
}

pub(super) fn snapshot_json(snapshot: &Snapshot) -> Json {
    let archive = |a: &Option<ArchiveRef>| {
        a.as_ref().map(|a| json!({"key": a.key, "bytes": a.file_size, "archiveBytes": a.archive_size, "sha256": a.file_sha256}))
    };
    json!({
        "id": snapshot.id, "kind": snapshot.kind, "cycle": snapshot.cycle.name, "attempt": snapshot.attempt,
        "createdAt": snapshot.created_at.to_string(), "memory": archive(&snapshot.memory), "ledger": archive(&snapshot.ledger),
        "pinned": snapshot.pinned,
    })
}

/// `snapshots`.
pub(super) async fn snapshots(args: SnapshotsArgs) -> anyhow::Result<()> {
    let store = args.target.open().await?;
    let head = head(&store).await?;
    if matches!(args.output.format, Format::Json | Format::Yaml) {
        let all: Vec<Json> = head.snapshots.iter().rev().map(snapshot_json).collect();
        return print_document(&all.into(), args.output.format);
    }
    let mut grid = Grid::new(&["snapshot", "kind", "cycle", "created", "memory", "ledger", "current"]);
    let size = |a: &Option<ArchiveRef>| json!(a.as_ref().map(|a| bytes(a.file_size)).unwrap_or_default());
    for s in head.snapshots.iter().rev() {
        let current = head.current.as_deref() == Some(s.id.as_str());
        let kind = serde_json::to_value(s.kind)?;
        let created = s.created_at.strftime("%Y-%m-%d %H:%M:%S").to_string();
        grid.push([
            json!(s.id),
            kind,
            json!(s.cycle.name),
            json!(created),
            size(&s.memory),
            size(&s.ledger),
            json!(if current { "yes" } else { "" }),
        ]);
    }
    grid.print(args.output.format)
}

/// At most `max` rows of the ledger of the current snapshot, as objects.
pub(super) async fn ledger_rows(store: &AgentStore, sql: &str, max: usize) -> anyhow::Result<Vec<Json>> {
    let head = head(store).await?;
    let snapshot = choose(&head, None)?;
    let restored = Restored::fetch(store, snapshot, &[Part::Ledger]).await?;
    let rows = blocking(|| Ok(restored.ledger()?.query(sql, max)?), || unusable(Part::Ledger, snapshot))?;
    Ok(objects(&rows))
}

pub(super) fn objects(rows: &Rows) -> Vec<Json> {
    grid(rows).objects()
}
