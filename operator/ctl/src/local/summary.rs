//! What people see of a local cycle: one block.

use cicada_contract::CycleReport;
use cicada_contract::report::{CycleResult, Outcome, TableChange};
use cicada_contract::text::printable;

use jiff::Timestamp;
use serde_json::json;

use crate::args::Format;
use crate::local::child::Ended;
use crate::output::{self, Grid, bytes, count};

/// Prints the block of one cycle.
pub(super) fn print(agent: &str, trigger: &str, ended: &Ended, next: Option<&str>) -> anyhow::Result<()> {
    for line in block(agent, trigger, ended, next) {
        output::line(&line)?;
    }
    Ok(())
}

/// Prints all cycles as one document; for people each had its block.
pub(super) fn print_all(all: &[(String, Ended)], format: Format) -> anyhow::Result<()> {
    let milliseconds = |ended: &Ended| u64::try_from(ended.took.as_millis()).unwrap_or(u64::MAX);
    match format {
        Format::Table => Ok(()),
        Format::Json | Format::Yaml => {
            let report = |(agent, ended): &(String, Ended)| json!({"agent": agent, "milliseconds": milliseconds(ended), "report": ended.report});
            output::print_document(&all.iter().map(report).collect::<Vec<_>>().into(), format)
        }
        Format::Csv => {
            let mut grid = Grid::new(&[
                "agent",
                "result",
                "milliseconds",
                "message",
                "tables changed",
                "tokens",
                "cost",
                "memory bytes",
                "snapshot",
            ]);
            for (agent, ended) in all {
                let report = &ended.report;
                grid.push([
                    json!(agent),
                    json!(verdict(report)),
                    json!(milliseconds(ended)),
                    json!(report.message),
                    json!(report.tables.len()),
                    json!(report.usage.input_tokens + report.usage.output_tokens),
                    json!(report.usage.cost),
                    json!(report.memory.as_ref().map(|m| m.size)),
                    json!(report.memory.as_ref().and_then(|m| m.snapshot.clone())),
                ]);
            }
            grid.print(format)
        }
    }
}

fn block(agent: &str, trigger: &str, ended: &Ended, next: Option<&str>) -> Vec<String> {
    let report = &ended.report;
    let mut lines = vec![format!("{agent}: {} in {:.1} s", verdict(report), ended.took.as_secs_f64())];
    let mut row = |label: &str, text: String| lines.push(format!("  {label:<9} {text}"));
    row("trigger", trigger.to_owned());
    if !report.message.is_empty() {
        row(if report.class.is_some() { "reason" } else { "message" }, printable(&report.message));
    }
    for (index, table) in report.tables.iter().enumerate() {
        row(if index == 0 { "tables" } else { "" }, change(table));
    }
    if report.tables.is_empty() && report.result == CycleResult::Done {
        row("tables", "no changes".into());
    }
    for (index, message) in ended.console.iter().enumerate() {
        row(if index == 0 { "sent" } else { "" }, printable(message));
    }
    let usage = &report.usage;
    if usage.model_calls > 0 {
        let tokens = usage.input_tokens + usage.output_tokens;
        let cost = if usage.cost > 0.0 { format!(", cost {:.4}", usage.cost) } else { String::new() };
        row(
            "usage",
            format!(
                "{}, {}, {}{cost}",
                count(usage.model_calls, "model call"),
                count(usage.tool_calls, "tool call"),
                count(tokens, "token")
            ),
        );
    }
    if report.pending.inbox + report.pending.outbox > 0 {
        row(
            "waiting",
            format!("{} in, {} out", count(report.pending.inbox, "message"), report.pending.outbox),
        );
    }
    if let Some(memory) = &report.memory
        && let Some(snapshot) = &memory.snapshot
    {
        let (size, archive) = (bytes(memory.size), bytes(memory.archive_size));
        let tables = memory.tables.map(|t| count(t, "table") + ", ").unwrap_or_default();
        row("memory", format!("{tables}{size}, {archive} as archive, snapshot {snapshot}"));
    }
    for (index, warning) in report.warnings.iter().enumerate() {
        row(if index == 0 { "warnings" } else { "" }, printable(warning));
    }
    if let Some(until) = report.agent_paused_until.and_then(|second| Timestamp::from_second(second).ok()) {
        row("rests", format!("schedules of its own start nothing until {until}"));
    }
    row("next", next.unwrap_or("no schedule").to_owned());
    lines
}

fn verdict(report: &CycleReport) -> String {
    match (report.result, report.class) {
        (CycleResult::Done, _) => match report.outcome {
            Outcome::Done => "done".into(),
            Outcome::NothingToDo => "nothing to do".into(),
            Outcome::Blocked => "blocked".into(),
            Outcome::Unstated => "ended without a statement".into(),
        },
        (CycleResult::AlreadyHandled, _) => "handled before, not executed again".into(),
        (CycleResult::Failed, Some(class)) => format!("failed ({class})"),
        (CycleResult::Failed, None) => "failed".into(),
    }
}

fn change(table: &TableChange) -> String {
    let name = printable(&table.name);
    let Some(rows) = table.rows else {
        return format!("{name} dropped ({})", count(table.before.unwrap_or(0), "row"));
    };
    let Some(before) = table.before else { return format!("{name} {} (new)", count(rows, "row")) };
    let parts: Vec<String> = [(table.inserted, '+'), (table.updated, '~'), (table.deleted, '-')]
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, sign)| format!("{sign}{count}"))
        .collect();
    format!("{name} {} ({before} before, {})", count(rows, "row"), parts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shows_its_rows_and_the_rows_before() {
        let t = |rows, before, inserted, updated, deleted| TableChange {
            name: "prices".into(),
            rows,
            before,
            inserted,
            updated,
            deleted,
        };
        assert_eq!(change(&t(Some(18), None, 18, 0, 0)), "prices 18 rows (new)");
        assert_eq!(change(&t(Some(19), Some(18), 2, 3, 1)), "prices 19 rows (18 before, +2 ~3 -1)");
        assert_eq!(change(&t(None, Some(4), 0, 0, 4)), "prices dropped (4 rows)");
        assert_eq!(change(&t(Some(1), None, 1, 0, 0)), "prices 1 row (new)");
        assert_eq!(change(&t(None, Some(1), 0, 0, 1)), "prices dropped (1 row)");
    }
}
