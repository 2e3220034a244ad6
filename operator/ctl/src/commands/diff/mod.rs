//! `diff`: what lies between two snapshots. What a damaged one can't show any more is told from the ledger.

mod cycles;
mod rows;
mod schema;

use std::process::ExitCode;

use anyhow::bail;
use cicada_memory::MemoryWorker;
use cicada_store::{AgentStore, Snapshot};
use serde_json::{Value as Json, json};

use self::rows::{RowChanges, Wanted};
use self::schema::{Objects, SchemaChange};
use super::restored::{Part, Restored, choose, head};
use crate::args::DiffArgs;
use crate::exit;
use crate::exit::Missing;
use crate::output::{Grid, line, note, print_document};
use crate::target::did_you_mean;

/// One of the two memories.
struct Side {
    id: String,
    /// Holds the files of the workers.
    _files: Restored,
    /// What can be read of it, or why nothing can.
    open: Result<Open, String>,
}

struct Open {
    worker: MemoryWorker,
    objects: Objects,
    tables: Vec<String>,
}

/// What was found.
struct Difference {
    from: String,
    to: String,
    /// Why a side, or a table of it, can't be read.
    damage: Vec<String>,
    schema: Vec<SchemaChange>,
    tables: Vec<TableDifference>,
    cycles: Vec<Json>,
}

struct TableDifference {
    name: String,
    before: Option<u64>,
    after: Option<u64>,
    /// None where the rows could not be compared.
    changed: Option<RowChanges>,
}

/// Runs the command.
pub(super) async fn run(args: DiffArgs) -> anyhow::Result<ExitCode> {
    let store = args.target.open().await?;
    let head = head(&store).await?;
    let (from, to) = (choose(&head, Some(&args.from))?, choose(&head, args.to.as_deref())?);
    let wanted = args.table.as_ref().map(|table| Wanted { table: table.clone(), rows: args.rows });
    let found = compare(&store, from, to, wanted.as_ref()).await?;
    if let Some(table) = &args.table
        && !found.tables.iter().any(|t| t.name == *table)
    {
        let known: Vec<String> = found.tables.iter().map(|t| t.name.clone()).collect();
        if found.damage.is_empty() {
            bail!(Missing(format!("neither snapshot has a table {table}{}", did_you_mean(table, &known))));
        }
    }
    let differ = found.differ();
    show(&found, &args)?;
    Ok(if args.exit_code && differ { ExitCode::from(exit::FAILED) } else { ExitCode::SUCCESS })
}

async fn compare(
    store: &AgentStore,
    from: &Snapshot,
    to: &Snapshot,
    wanted: Option<&Wanted>,
) -> anyhow::Result<Difference> {
    let mut found = Difference {
        from: from.id.clone(),
        to: to.id.clone(),
        damage: vec![],
        schema: vec![],
        tables: vec![],
        cycles: vec![],
    };
    let same = from.memory.as_ref().map(|m| &m.file_sha256) == to.memory.as_ref().map(|m| &m.file_sha256);
    // The same bytes are the same memory, damaged or not.
    if !same {
        let (mut a, mut b) = (Side::open(store, from).await?, Side::open(store, to).await?);
        tokio::task::block_in_place(|| found.memories(&mut a, &mut b, wanted))?;
    }
    match cycles::between(store, from, to).await? {
        Ok(cycles) => found.cycles = cycles,
        Err(why) => found.damage.push(why),
    }
    Ok(found)
}

impl Side {
    async fn open(store: &AgentStore, snapshot: &Snapshot) -> anyhow::Result<Self> {
        let files = Restored::new()?;
        let id = snapshot.id.clone();
        if let Some(archive) = &snapshot.memory
            && let Err(error) = files.unpack(store, archive, Part::Memory).await
        {
            if !error.is_damage() {
                return Err(error.into());
            }
            let why =
                format!("the memory of {id} can't be read: {}", cicada_cycle_job::failure::chain(&error));
            return Ok(Self { id, _files: files, open: Err(why) });
        }
        let open = tokio::task::block_in_place(|| -> anyhow::Result<Open> {
            let mut worker = files.memory()?;
            let objects = schema::read(&mut worker)?;
            let mut tables = worker.tables()?;
            tables.sort();
            Ok(Open { worker, objects, tables })
        });
        let open = open.map_err(|error| {
            format!("the memory of {id} can't be read: {}", cicada_cycle_job::failure::chain(error.as_ref()))
        });
        Ok(Self { id, _files: files, open })
    }
}

impl Difference {
    fn differ(&self) -> bool {
        let rows = |t: &TableDifference| {
            t.before.is_none() || t.after.is_none() || t.changed.as_ref().is_none_or(RowChanges::any)
        };
        !self.damage.is_empty() || !self.schema.is_empty() || self.tables.iter().any(rows)
    }

    fn memories(&mut self, a: &mut Side, b: &mut Side, wanted: Option<&Wanted>) -> anyhow::Result<()> {
        self.damage.extend([&*a, &*b].iter().filter_map(|side| side.open.as_ref().err().cloned()));
        let (Ok(before), Ok(after)) = (&mut a.open, &mut b.open) else {
            // One of them at least can be counted.
            for (side, is_before) in [(a, true), (b, false)] {
                let Ok(open) = &mut side.open else { continue };
                for name in open.tables.clone() {
                    let rows = self.counted(&mut open.worker, &name, &side.id);
                    let (before, after) = if is_before { (rows, None) } else { (None, rows) };
                    self.tables.push(TableDifference { name, before, after, changed: None });
                }
            }
            return Ok(());
        };
        self.schema = schema::changes(&before.objects, &after.objects);
        let mut names: Vec<String> = before.tables.iter().chain(&after.tables).cloned().collect();
        names.sort();
        names.dedup();
        for name in names {
            let count = |found: &mut Self, open: &mut Open, id: &str| {
                open.tables.contains(&name).then(|| found.counted(&mut open.worker, &name, id)).flatten()
            };
            let (rows_before, rows_after) = (count(self, before, &a.id), count(self, after, &b.id));
            let mut changed = None;
            if before.tables.contains(&name) && after.tables.contains(&name) {
                let wanted = wanted.filter(|w| w.table == name).map(|w| w.rows);
                match rows::compare(&name, &mut before.worker, &mut after.worker, wanted) {
                    Ok(found) => changed = Some(found),
                    Err(error) => {
                        self.damage.push(format!("the rows of {name} can't be compared: {error:#}"));
                    }
                }
            }
            self.tables.push(TableDifference { name, before: rows_before, after: rows_after, changed });
        }
        Ok(())
    }

    /// Rows of a table; what can't be counted is told as damage.
    fn counted(&mut self, worker: &mut MemoryWorker, table: &str, id: &str) -> Option<u64> {
        match worker.query(&format!("SELECT count(*) FROM {}", rows::quote(table)), 1) {
            Ok(rows) => rows.rows.first()?.first()?.as_int().map(i64::unsigned_abs),
            Err(error) => {
                self.damage.push(format!("table {table} of {id} can't be read: {error}"));
                None
            }
        }
    }
}

fn show(found: &Difference, args: &DiffArgs) -> anyhow::Result<()> {
    for damage in &found.damage {
        note(&format!("warning: {damage}"));
    }
    if args.output.format.is_document() {
        return print_document(&document(found), args.output.format);
    }
    if let Some(table) = &args.table {
        let changed = found.tables.iter().find(|t| t.name == *table).and_then(|t| t.changed.as_ref());
        let Some(changed) = changed else {
            note(&format!("the rows of {table} can't be shown: it is not in both snapshots"));
            return Ok(());
        };
        return changed.grid().print(args.output.format);
    }
    let mut grid = Grid::new(&["table", "before", "after", "added", "changed", "removed"]);
    for t in &found.tables {
        let count = |of: fn(&RowChanges) -> u64| json!(t.changed.as_ref().map(of));
        if t.changed.as_ref().is_some_and(|c| !c.any()) {
            continue;
        }
        grid.push([
            json!(t.name),
            json!(t.before),
            json!(t.after),
            count(|c| c.added),
            count(|c| c.changed),
            count(|c| c.removed),
        ]);
    }
    if !grid.rows.is_empty() || args.output.format == crate::args::Format::Csv {
        grid.print(args.output.format)?;
    }
    if args.output.format == crate::args::Format::Csv {
        return Ok(());
    }
    for change in &found.schema {
        line(&change.text())?;
    }
    if !found.cycles.is_empty() {
        line("")?;
        cycles::grid(&found.cycles).print(args.output.format)?;
    }
    if !found.differ() {
        note("no difference in the memory");
    }
    Ok(())
}

fn document(found: &Difference) -> Json {
    let tables: Vec<Json> = found
        .tables
        .iter()
        .map(|t| {
            let changed = t.changed.as_ref();
            json!({
                "name": t.name, "before": t.before, "after": t.after, "added": changed.map(|c| c.added),
                "changed": changed.map(|c| c.changed), "removed": changed.map(|c| c.removed),
                "rows": changed.map(RowChanges::samples).unwrap_or_default(),
            })
        })
        .collect();
    json!({
        "from": found.from, "to": found.to, "damage": found.damage, "tables": tables,
        "schema": found.schema.iter().map(SchemaChange::json).collect::<Vec<_>>(), "cycles": found.cycles,
    })
}
