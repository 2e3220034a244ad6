//! The cycles between two snapshots, as the newer ledger knows them. They are all that is left to tell of a
//! memory that can't be read any more.

use cicada_store::{AgentStore, Snapshot};
use serde_json::{Value as Json, json};

use crate::commands::memory::objects;
use crate::commands::restored::{Part, Restored};
use crate::output::Grid;

/// More than any ledger keeps.
const CYCLES_MAX: usize = 1_000_000;

/// Cycles that began after the older snapshot and not after the newer; or why they can't be told.
pub(super) async fn between(
    store: &AgentStore,
    from: &Snapshot,
    to: &Snapshot,
) -> anyhow::Result<Result<Vec<Json>, String>> {
    let (older, newer) = if from.created_at <= to.created_at { (from, to) } else { (to, from) };
    let Some(archive) = &newer.ledger else { return Ok(Ok(vec![])) };
    let files = Restored::new()?;
    let failed = |text: String| format!("the ledger of {} can't be read: {text}", newer.id);
    if let Err(error) = files.unpack(store, archive, Part::Ledger).await {
        if !error.is_damage() {
            return Err(error.into());
        }
        return Ok(Err(failed(cicada_cycle_job::failure::chain(&error))));
    }
    let sql = format!(
        "SELECT cycle, attempt, started_at, ended_at, outcome, class, summary, report_json FROM cycles \
         WHERE started_at > '{}' AND started_at <= '{}' ORDER BY started_at, attempt",
        older.created_at, newer.created_at
    );
    let rows = tokio::task::block_in_place(|| anyhow::Ok(files.ledger()?.query(&sql, CYCLES_MAX)?));
    Ok(match rows {
        Ok(rows) => Ok(objects(&rows).into_iter().map(with_tables).collect()),
        Err(error) => Err(failed(cicada_cycle_job::failure::chain(error.as_ref()))),
    })
}

/// Of the report, the tables are of interest here.
fn with_tables(mut cycle: Json) -> Json {
    let report: Json =
        cycle["report_json"].as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    if let Some(fields) = cycle.as_object_mut() {
        fields.remove("report_json");
        fields.insert("tables".into(), report["tables"].clone());
    }
    cycle
}

/// For people.
pub(super) fn grid(cycles: &[Json]) -> Grid {
    let mut grid = Grid::new(&["cycle", "started", "ended as", "tables"]);
    for cycle in cycles {
        let ended = if cycle["class"].is_null() { &cycle["outcome"] } else { &cycle["class"] };
        let tables: Vec<String> = cycle["tables"].as_array().into_iter().flatten().map(table).collect();
        grid.push([
            cycle["cycle"].clone(),
            cycle["started_at"].clone(),
            ended.clone(),
            json!(tables.join(", ")),
        ]);
    }
    grid
}

fn table(change: &Json) -> String {
    let name = change["name"].as_str().unwrap_or_default();
    let parts: Vec<String> = [("inserted", '+'), ("updated", '~'), ("deleted", '-')]
        .iter()
        .filter_map(|(key, sign)| change[*key].as_u64().filter(|n| *n > 0).map(|n| format!("{sign}{n}")))
        .collect();
    format!("{name} {}", parts.join(" ")).trim_end().to_owned()
}
