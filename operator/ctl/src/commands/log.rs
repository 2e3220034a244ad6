//! `log`: what an agent did.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::bail;
use cicada_memory::Rows;
use cicada_store::{AgentStore, Head};
use serde_json::{Value as Json, json};

use super::memory::{grid, objects};
use super::restored::{Part, Restored, blocking, choose, head, unusable};
use crate::args::{Format, LogArgs};
use crate::exit::{Missing, UsageError};
use crate::interrupt::{InOrder, stopped};
use crate::output::{line, note, print_document};

/// How often `--follow` looks for a newer snapshot.
const LOOK: Duration = Duration::from_secs(2);
/// Most steps that are read at once.
const STEPS_MAX: usize = 100_000;
/// Cycles that may end between two looks.
const NEWS_MAX: u32 = 100;

/// Cycles and their steps, oldest first.
struct Done {
    cycles: Rows,
    steps: Rows,
}

/// Runs the command.
pub(super) async fn run(args: LogArgs) -> anyhow::Result<()> {
    let format = args.output.format;
    if args.follow && format != Format::Table {
        bail!(UsageError("--follow prints for people: leave -o out".into()));
    }
    let store = args.target.open().await?;
    let head = head(&store).await?;
    let done = read(&store, &head, args.cycle.as_deref(), args.last).await?;
    if done.cycles.rows.is_empty() && !args.follow {
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
    match format {
        Format::Csv => grid(&done.cycles).print(Format::Csv),
        Format::Json | Format::Yaml => {
            print_document(&json!({"cycles": objects(&done.cycles), "steps": objects(&done.steps)}), format)
        }
        Format::Table => {
            let mut shown = BTreeSet::new();
            show(&done, &mut shown)?;
            if args.follow { follow(&store, &head, args.cycle.as_deref(), shown).await } else { Ok(()) }
        }
    }
}

/// Shows what ends, until Ctrl-C.
async fn follow(
    store: &AgentStore,
    seen: &Head,
    cycle: Option<&str>,
    mut shown: BTreeSet<String>,
) -> anyhow::Result<()> {
    let _in_order = InOrder::begin();
    let mut current = seen.current.clone();
    loop {
        tokio::select! {
            () = stopped() => return Ok(()),
            () = tokio::time::sleep(LOOK) => {}
        }
        let head = head(store).await?;
        if head.current != current {
            show(&read(store, &head, cycle, NEWS_MAX).await?, &mut shown)?;
            current = head.current;
        }
    }
}

async fn read(store: &AgentStore, head: &Head, cycle: Option<&str>, last: u32) -> anyhow::Result<Done> {
    let snapshot = choose(head, None)?;
    let restored = Restored::fetch(store, snapshot, &[Part::Ledger]).await?;
    let filter = cycle.map(|c| format!("WHERE cycle = '{}'", c.replace('\'', "''"))).unwrap_or_default();
    let chosen = format!(
        "SELECT cycle, attempt FROM cycles {filter} ORDER BY started_at DESC, attempt DESC LIMIT {last}"
    );
    let cycles =
        format!("SELECT * FROM cycles WHERE (cycle, attempt) IN ({chosen}) ORDER BY started_at, attempt");
    let steps = format!("SELECT * FROM steps WHERE (cycle, attempt) IN ({chosen}) ORDER BY started_at, step");
    let read = || {
        let mut ledger = restored.ledger()?;
        Ok(Done { cycles: ledger.query(&cycles, last as usize)?, steps: ledger.query(&steps, STEPS_MAX)? })
    };
    blocking(read, || unusable(Part::Ledger, snapshot))
}

/// Shows cycles that were not shown before.
fn show(done: &Done, shown: &mut BTreeSet<String>) -> anyhow::Result<()> {
    let steps = objects(&done.steps);
    for cycle in objects(&done.cycles) {
        if shown.insert(format!("{} {}", cycle["cycle"], cycle["attempt"])) {
            show_cycle(&cycle, &steps)?;
        }
    }
    Ok(())
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
