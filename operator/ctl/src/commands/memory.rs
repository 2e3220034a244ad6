//! Looking into a memory: its snapshot is restored into a folder of its own and read by sandboxed workers.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use cicada_contract::resources::MIB;
use cicada_memory::{
    Check, Launcher, LedgerOptions, LedgerWorker, Link, MemoryOptions, MemoryWorker, Row, Rows, UnpackLimits,
    Value,
};
use cicada_store::{AgentStore, ArchiveRef, Head, Snapshot};
use serde_json::{Value as Json, json};

use crate::args::{Format, InspectArgs, LogArgs, QueryArgs, SnapshotsArgs};
use crate::output::{Grid, bytes, line, print_document};

/// A snapshot on this machine, removed with the value.
struct Restored {
    folder: tempfile::TempDir,
    launcher: Launcher,
}

impl Restored {
    /// Fetches what `parts` names of a snapshot.
    async fn fetch(
        store: &AgentStore,
        snapshot: &Snapshot,
        memory: bool,
        ledger: bool,
    ) -> anyhow::Result<Self> {
        let restored = Self { folder: tempfile::tempdir()?, launcher: Launcher::current_exe()? };
        for (wanted, archive, part) in
            [(memory, &snapshot.memory, "memory"), (ledger, &snapshot.ledger, "ledger")]
        {
            std::fs::create_dir_all(restored.dir(part))?;
            if let (true, Some(archive)) = (wanted, archive) {
                restored.unpack(store, archive, part).await?;
            }
        }
        Ok(restored)
    }

    fn dir(&self, part: &str) -> PathBuf {
        self.folder.path().join(part)
    }

    async fn unpack(&self, store: &AgentStore, archive: &ArchiveRef, part: &str) -> anyhow::Result<()> {
        let mut links = vec![];
        for (n, link) in archive.links()?.into_iter().enumerate() {
            let packed = self.folder.path().join(format!("{part}-{n}.zst"));
            let found = store.store().download(&store.key(&link.key), &packed, link.archive_size).await?;
            if found.sha256 != link.archive_sha256 {
                bail!("{} has SHA-256 {}, HEAD says {}", link.key, found.sha256, link.archive_sha256);
            }
            links.push(Link {
                archive: packed,
                file_size: link.file_size,
                file_sha256: link.file_sha256.clone(),
            });
        }
        let limits = UnpackLimits {
            max_bytes: archive.file_size,
            timeout: Duration::from_secs(600),
            address_space: 256 * MIB,
        };
        let out = self.dir(part).join(format!("{part}.db"));
        tokio::task::block_in_place(|| {
            cicada_memory::unpack_chain(&self.launcher, &links, &out, limits, |_| {})
        })
        .with_context(|| format!("can't unpack {}", archive.key))?;
        links.iter().try_for_each(|link| Ok(std::fs::remove_file(&link.archive)?))
    }

    fn memory(&self, size: u64) -> anyhow::Result<MemoryWorker> {
        let size = size.max(256 * MIB);
        let options = MemoryOptions::new(size, 256 * MIB, Duration::from_secs(300));
        Ok(MemoryWorker::spawn(&self.launcher, &self.dir("memory"), options)?)
    }

    fn ledger(&self) -> anyhow::Result<LedgerWorker> {
        Ok(LedgerWorker::spawn(
            &self.launcher,
            &self.dir("ledger"),
            LedgerOptions::new(256 * MIB, 1024 * MIB),
        )?)
    }
}

async fn head(store: &AgentStore) -> anyhow::Result<Head> {
    let at = store.read_head().await?;
    at.map(|at| at.head).with_context(|| {
        format!("no memory at {}: the agent has not run yet, or it is another store", store.location())
    })
}

fn choose<'h>(head: &'h Head, id: Option<&str>) -> anyhow::Result<&'h Snapshot> {
    match id {
        None => head.current().context("the memory has no snapshot yet"),
        Some(id) => {
            head.snapshot(id).with_context(|| format!("no snapshot {id}; cicadactl snapshots lists them"))
        }
    }
}

/// `query`.
pub(super) async fn query(args: QueryArgs) -> anyhow::Result<()> {
    let store = args.target.open().await?;
    let head = head(&store).await?;
    let snapshot = choose(&head, args.snapshot.as_deref())?;
    let restored = Restored::fetch(&store, snapshot, !args.ledger, args.ledger).await?;
    let rows = tokio::task::block_in_place(|| -> anyhow::Result<Rows> {
        if args.ledger {
            return Ok(restored.ledger()?.query(&args.sql, args.rows)?);
        }
        let size = snapshot.memory.as_ref().map_or(0, |m| m.file_size);
        Ok(restored.memory(size)?.query(&args.sql, args.rows)?)
    })?;
    grid(&rows).print(args.output)
}

fn grid(rows: &Rows) -> Grid {
    let cells = |row: &Row| row.iter().map(cell).collect();
    Grid { columns: rows.columns.clone(), rows: rows.rows.iter().map(cells).collect() }
}

fn cell(value: &Value) -> Json {
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
        let restored = Restored::fetch(&store, snapshot, true, false).await?;
        let size = snapshot.memory.as_ref().map_or(0, |m| m.file_size);
        tables = tokio::task::block_in_place(|| count_tables(restored.memory(size)?))?;
    }
    if matches!(args.output, Format::Table | Format::Csv) {
        return people(&store, &head, &tables);
    }
    let current = head.current().map(snapshot_json);
    let tables: Vec<Json> = tables.iter().map(|(name, rows)| json!({"name": name, "rows": rows})).collect();
    let document = json!({
        "location": store.location(), "owner": head.owner.path(), "epoch": head.epoch, "current": current,
        "snapshots": head.snapshots.len(), "holder": head.holder, "handledRequests": head.handled.len(), "tables": tables,
    });
    print_document(&document, args.output)
}

fn count_tables(mut memory: MemoryWorker) -> anyhow::Result<Vec<(String, i64)>> {
    memory.check(Check::Quick)?;
    let names = memory.query("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name", 10_000)?;
    let names: Vec<String> =
        names.rows.iter().filter_map(|r| r.first()?.as_str().map(str::to_owned)).collect();
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

fn snapshot_json(snapshot: &Snapshot) -> Json {
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
    let restored = Restored::fetch(&store, choose(&head, None)?, false, true).await?;
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
        bail!("no such cycle in the ledger: cicadactl log {} shows the newest", args.target.agent);
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

fn objects(rows: &Rows) -> Vec<Json> {
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
