//! Looking into a memory.

use anyhow::bail;
use cicada_memory::{Check, MemoryWorker, Row, Rows, Value};
use cicada_store::{AgentStore, ArchiveRef, Head, Snapshot};
use serde_json::{Value as Json, json};

use super::restored::{Part, Restored, blocking, choose, head, unusable};
use crate::args::{Format, InspectArgs, LogArgs, QueryArgs, SnapshotsArgs};
use crate::exit::Missing;
use crate::output::{Grid, bytes, line, note, print_document};

/// `query`.
pub(super) async fn query(args: QueryArgs) -> anyhow::Result<()> {
    let store = args.target.open().await?;
    let head = head(&store).await?;
    let snapshot = choose(&head, args.snapshot.as_deref())?;
    let part = if args.ledger { Part::Ledger } else { Part::Memory };
    let restored = Restored::fetch(&store, snapshot, &[part]).await?;
    let rows = tokio::task::block_in_place(|| -> anyhow::Result<Rows> {
        Ok(match part {
            Part::Ledger => restored.ledger()?.query(&args.sql, args.rows)?,
            Part::Memory => restored.memory()?.query(&args.sql, args.rows)?,
        })
    })?;
    if rows.more {
        note(&format!("only the first {} rows; --rows gives more", args.rows));
    }
    grid(&rows).print(args.output)
}

pub(super) fn grid(rows: &Rows) -> Grid {
    let cells = |row: &Row| row.iter().map(cell).collect();
    Grid { columns: rows.columns.clone(), rows: rows.rows.iter().map(cells).collect() }
}

pub(super) fn cell(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Int(n) => json!(n),
        Value::Real(n) => json!(n),
        Value::Text(text) => json!(text),
        Value::Blob(_) => json!(value.display()),
    }
}

/// `inspect`.
pub(super) async fn inspect(args: InspectArgs) -> anyhow::Result<()> {
    let store = args.target.open().await?;
    let head = head(&store).await?;
    let mut tables = vec![];
    if let Some(snapshot) = head.current() {
        let restored = Restored::fetch(&store, snapshot, &[Part::Memory]).await?;
        tables = tokio::task::block_in_place(|| count_tables(restored.memory()?))?;
    }
    if matches!(args.output, Format::Table | Format::Csv) {
        return people(&store, &head, &tables);
    }
    let current = head.current().map(snapshot_json);
    let tables: Vec<Json> = tables.iter().map(|(name, rows)| json!({"name": name, "rows": rows})).collect();
    let document = json!({
        "location": store.location(), "owner": head.owner.path(), "seededFrom": head.seeded_from, "epoch": head.epoch, "current": current,
        "snapshots": head.snapshots.len(), "holder": head.holder, "handledRequests": head.handled.len(), "tables": tables,
    });
    print_document(&document, args.output)
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

fn people(store: &AgentStore, head: &Head, tables: &[(String, i64)]) -> anyhow::Result<()> {
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
        line(&format!("snapshot   {} ({:?}), {}", current.id, current.kind, current.created_at))?;
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
    let mut grid = Grid::new(&["table", "rows"]);
    tables.iter().for_each(|(name, rows)| grid.push([json!(name), json!(rows)]));
    line("")?;
    grid.print(Format::Table)
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
    if matches!(args.output, Format::Json | Format::Yaml) {
        let all: Vec<Json> = head.snapshots.iter().rev().map(snapshot_json).collect();
        return print_document(&all.into(), args.output);
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
    grid.print(args.output)
}

/// `log`.
pub(super) async fn log(args: LogArgs) -> anyhow::Result<()> {
    let store = args.target.open().await?;
    let head = head(&store).await?;
    let restored = Restored::fetch(&store, choose(&head, None)?, &[Part::Ledger]).await?;
    let filter =
        args.cycle.as_ref().map(|c| format!("WHERE cycle = '{}'", c.replace('\'', "''"))).unwrap_or_default();
    let (cycles, steps) = tokio::task::block_in_place(|| -> anyhow::Result<(Rows, Rows)> {
        let mut ledger = restored.ledger()?;
        let chosen = format!(
            "SELECT cycle, attempt FROM cycles {filter} ORDER BY started_at DESC, attempt DESC LIMIT {}",
            args.last
        );
        let cycles = ledger.query(
            &format!(
                "SELECT * FROM cycles WHERE (cycle, attempt) IN ({chosen}) ORDER BY started_at, attempt"
            ),
            args.last as usize,
        )?;
        let steps = ledger.query(
            &format!("SELECT * FROM steps WHERE (cycle, attempt) IN ({chosen}) ORDER BY started_at, step"),
            100_000,
        )?;
        Ok((cycles, steps))
    })?;
    if cycles.rows.is_empty() {
        match &args.cycle {
            Some(cycle) => {
                let agent = &args.target.agent;
                bail!(Missing(format!(
                    "no such cycle as {cycle} in the ledger: cicadactl log {agent} shows the newest"
                )))
            }
            None => note("the ledger knows no cycle yet"),
        }
    }
    if args.output == Format::Csv {
        return grid(&cycles).print(Format::Csv);
    }
    let cycles = objects(&cycles);
    let steps = objects(&steps);
    if args.output != Format::Table {
        return print_document(&json!({"cycles": cycles, "steps": steps}), args.output);
    }
    for cycle in &cycles {
        show_cycle(cycle, &steps)?;
    }
    Ok(())
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
    let object = |row: &Row| Json::Object(rows.columns.iter().cloned().zip(row.iter().map(cell)).collect());
    rows.rows.iter().map(object).collect()
}

fn show_cycle(cycle: &Json, steps: &[Json]) -> anyhow::Result<()> {
    let text = |value: &Json, key: &str| match &value[key] {
        Json::String(s) => s.clone(),
        Json::Null => "-".into(),
        other => other.to_string(),
    };
    let triggers: Vec<Json> = serde_json::from_str(&text(cycle, "triggers_json")).unwrap_or_default();
    let triggers: Vec<String> = triggers.iter().map(|t| text(t, "type")).collect();
    line(&format!(
        "{} attempt {}  {}  {}  {}",
        text(cycle, "cycle"),
        text(cycle, "attempt"),
        text(cycle, "started_at"),
        triggers.join(", "),
        if cycle["class"].is_null() {
            text(cycle, "outcome")
        } else {
            format!("failed: {}", text(cycle, "class"))
        },
    ))?;
    line(&format!("  {}", cicada_contract::text::printable(&text(cycle, "summary"))))?;
    for step in steps.iter().filter(|s| s["cycle"] == cycle["cycle"] && s["attempt"] == cycle["attempt"]) {
        let calls: Vec<Json> = serde_json::from_str(&text(step, "calls_json")).unwrap_or_default();
        let tokens = step["input_tokens"].as_u64().unwrap_or(0) + step["output_tokens"].as_u64().unwrap_or(0);
        let tokens = if tokens > 0 { format!("  {tokens} tokens") } else { String::new() };
        line(&format!("  step {} {}{tokens}", text(step, "step"), text(step, "kind")))?;
        for call in &calls {
            let what = text(call, if call["sql"].is_null() { "arguments" } else { "sql" });
            let what = cicada_contract::text::cut(&cicada_contract::text::printable(&what), 100);
            let result = match (call["bytes"].as_u64(), call["changed"].as_u64()) {
                (Some(bytes), _) if call["ok"] == false => format!("{bytes} bytes, failed"),
                (Some(bytes), _) => format!("{bytes} bytes"),
                (None, Some(changed)) => format!("{changed} changed"),
                (None, None) => format!("{} rows", text(call, "rows")),
            };
            line(&format!("    {:<6} {:>6} ms  {result:<14} {what}", text(call, "tool"), text(call, "ms")))?;
        }
    }
    Ok(())
}
