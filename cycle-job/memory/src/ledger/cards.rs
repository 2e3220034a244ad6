//! Cards, with an event for each change: what changed, from and to which status, by whom, in which cycle.
//!
//! The agent's edits come by the write-back, the platform's own are those that keep the board's rules. A
//! change that came another way (a person wrote the ledger itself) is found when the next cycle begins.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Connection, params};
use serde_json::{Map, Value as Json};

use super::WriteBackReport;
use super::write_back::{Judged, Target, seen_columns};
use crate::protocol::Fault;
use crate::value::Row;

/// Who changed a card.
#[derive(Clone, Copy)]
enum Actor {
    Agent,
    Person,
    Platform,
}

impl Actor {
    /// As the ledger writes it.
    fn label(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Person => "person",
            Self::Platform => "platform",
        }
    }
}

struct Event<'a> {
    card: &'a str,
    from: Option<&'a str>,
    to: &'a str,
    change: &'a Map<String, Json>,
    actor: Actor,
    cycle: &'a str,
}

fn record(c: &Connection, event: &Event<'_>, now: Timestamp) -> Result<(), Fault> {
    c.prepare_cached(
        "INSERT INTO card_events (card_id, at, from_status, to_status, change_json, actor, cycle) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        event.card,
        now.to_string(),
        event.from,
        event.to,
        serde_json::to_string(event.change).unwrap_or_default(),
        event.actor.label(),
        event.cycle
    ])?;
    Ok(())
}

/// Writes the agent's edits of cards back.
pub(crate) fn write(
    target: &Target<'_>,
    edits: &[Judged],
    report: &mut WriteBackReport,
) -> Result<(), Fault> {
    for judged in edits {
        let Some(row) = &judged.edit.after else { continue };
        let from = judged.current.as_ref().and_then(|r| target.text(r, "status"));
        if from.as_deref() == Some("rejected") {
            report.refused.push(format!("card {} was rejected, which is final", judged.edit.key));
            continue;
        }
        put(target, &judged.edit.key, row)?;
        let event = Event {
            card: &judged.edit.key,
            from: from.as_deref(),
            to: &target.text(row, "status").unwrap_or_default(),
            change: &changed_columns(target, judged.current.as_ref(), row),
            actor: Actor::Agent,
            cycle: target.cycle,
        };
        record(target.connection, &event, target.now)?;
        report.applied += 1;
    }
    keep_one_doing(target, edits, report)
}

fn put(target: &Target<'_>, card: &str, row: &Row) -> Result<(), Fault> {
    let now = target.now.to_string();
    let text = |column| target.text(row, column);
    let status = text("status").unwrap_or_default();
    let closed = matches!(status.as_str(), "done" | "rejected");
    target.connection.prepare_cached(
        "INSERT INTO cards (card_id, title, description, status, priority, due_at, trigger_json, reason, created_at, completed_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?9) ON CONFLICT (card_id) DO UPDATE SET title = excluded.title, \
         description = excluded.description, status = excluded.status, priority = excluded.priority, due_at = excluded.due_at, \
         trigger_json = excluded.trigger_json, reason = excluded.reason, updated_at = excluded.updated_at, \
         completed_at = CASE WHEN excluded.completed_at IS NULL THEN NULL ELSE coalesce(completed_at, excluded.completed_at) END",
    )?
    .execute(params![
        card,
        text("title").unwrap_or_default(),
        text("description").unwrap_or_default(),
        status,
        target.int(row, "priority"),
        text("due_at"),
        text("trigger_json"),
        text("reason"),
        now,
        closed.then_some(&now),
    ])?;
    Ok(())
}

/// The new values of the columns that changed.
fn changed_columns(target: &Target<'_>, before: Option<&Row>, after: &Row) -> Map<String, Json> {
    seen_columns(target.mount)
        .filter(|n| before.and_then(|b| b.get(*n)) != after.get(*n))
        .filter_map(|n| {
            Some((target.mount.columns[n].0.to_owned(), serde_json::to_value(after.get(n)?).ok()?))
        })
        .collect()
}

/// The checks of the mount let the agent have one `doing` card. A person may have begun another
/// meanwhile: then the person's stays, and the agent's waits.
fn keep_one_doing(target: &Target<'_>, edits: &[Judged], report: &mut WriteBackReport) -> Result<(), Fault> {
    let c = target.connection;
    let doing: Vec<String> = c
        .prepare_cached("SELECT card_id FROM cards WHERE status = 'doing' ORDER BY card_id")?
        .query_map([], |r| r.get(0))?
        .collect::<Result<_, _>>()?;
    let of_agent = |card: &&String| edits.iter().any(|e| e.edit.key == **card);
    let (own, others): (Vec<_>, Vec<_>) = doing.iter().partition(of_agent);
    let (Some(other), false) = (others.first(), own.is_empty()) else { return Ok(()) };
    for card in own {
        c.execute("UPDATE cards SET status = 'todo' WHERE card_id = ?1", [card])?;
        let change = Map::from_iter([("status".to_owned(), "todo".into())]);
        let event = Event {
            card,
            from: Some("doing"),
            to: "todo",
            change: &change,
            actor: Actor::Platform,
            cycle: target.cycle,
        };
        record(c, &event, target.now)?;
        report
            .refused
            .push(format!("card {card} was put back to todo: card {other} is doing, and only one may be"));
    }
    Ok(())
}

/// Columns whose values events carry.
const COLUMNS: [&str; 7] = ["title", "description", "status", "priority", "due_at", "trigger_json", "reason"];

/// Records as a person's what changed in the store since the last event of a card.
pub(crate) fn find_changes_of_people(c: &Connection, cycle: &str, now: Timestamp) -> Result<(), Fault> {
    let known = known(c)?;
    let columns: Vec<String> = COLUMNS.iter().map(|name| format!("'{name}', {name}")).collect();
    let sql = format!("SELECT card_id, json_object({}) FROM cards ORDER BY card_id", columns.join(", "));
    let mut statement = c.prepare_cached(&sql)?;
    let rows = statement.query_map([], |r| Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?)))?;
    for row in rows {
        let (card, now_is) = row?;
        let now_is: Map<String, Json> = serde_json::from_str(&now_is).unwrap_or_default();
        let before = known.get(&card);
        let changed = |(name, value): &(&String, &Json)| {
            before.is_none_or(|b| b.get(*name).is_some_and(|old| old != *value))
        };
        let change: Map<String, Json> =
            now_is.iter().filter(changed).map(|(name, value)| (name.clone(), value.clone())).collect();
        if change.is_empty() {
            continue;
        }
        let event = Event {
            card: &card,
            from: before.and_then(|b| b.get("status")).and_then(Json::as_str),
            to: now_is.get("status").and_then(Json::as_str).unwrap_or_default(),
            change: &change,
            actor: Actor::Person,
            cycle,
        };
        record(c, &event, now)?;
    }
    Ok(())
}

/// Makes one event of all those of a card before `before`: what is known of a card is what its events add up to,
/// so none may go whose values the later ones do not repeat.
pub(crate) fn fold_events(c: &Connection, before: &str) -> Result<(), Fault> {
    let mut old: BTreeMap<String, (Vec<i64>, Map<String, Json>)> = BTreeMap::new();
    let mut statement = c.prepare_cached(
        "SELECT event_id, card_id, change_json FROM card_events WHERE at < ?1 ORDER BY event_id",
    )?;
    let mut rows = statement.query([before])?;
    while let Some(row) = rows.next()? {
        let (ids, values) = old.entry(row.get(1)?).or_default();
        ids.push(row.get(0)?);
        values.extend(change(&row.get::<_, String>(2)?));
    }
    let mut update = c.prepare_cached("UPDATE card_events SET change_json = ?2 WHERE event_id = ?1")?;
    let mut delete = c.prepare_cached("DELETE FROM card_events WHERE event_id = ?1")?;
    for (mut ids, values) in old.into_values() {
        let Some(last) = ids.pop().filter(|_| !ids.is_empty()) else { continue };
        update.execute(params![last, serde_json::to_string(&values).unwrap_or_default()])?;
        for id in ids {
            delete.execute([id])?;
        }
    }
    Ok(())
}

fn change(json: &str) -> Map<String, Json> {
    serde_json::from_str(json).unwrap_or_default()
}

/// Each card as its events leave it.
fn known(c: &Connection) -> Result<BTreeMap<String, Map<String, Json>>, Fault> {
    let mut known: BTreeMap<String, Map<String, Json>> = BTreeMap::new();
    let mut statement = c.prepare_cached("SELECT card_id, change_json FROM card_events ORDER BY event_id")?;
    let rows = statement.query_map([], |r| Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?)))?;
    for row in rows {
        let (card, change) = row?;
        known.entry(card).or_default().extend(self::change(&change));
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event that went for its age alone would make an old card look as if a person had just written it.
    #[test]
    fn what_is_known_of_a_card_outlives_its_old_events() {
        let c = Connection::open_in_memory().unwrap();
        super::super::schema::migrate(&c).unwrap();
        c.execute(
            "INSERT INTO cards VALUES ('k', 'write', '', 'done', 0, NULL, NULL, NULL, '2025', '2026', '2026')",
            [],
        )
        .unwrap();
        let now = |year: u16| format!("{year}-12-01T00:00:00Z").parse::<Timestamp>().unwrap();
        find_changes_of_people(&c, "c1", now(2024)).unwrap();
        for (year, status) in [(2025, "doing"), (2026, "done")] {
            c.execute("UPDATE cards SET status = ?1", [status]).unwrap();
            find_changes_of_people(&c, "c2", now(year)).unwrap();
        }
        let events = || -> Vec<(String, String)> {
            let mut all = c.prepare("SELECT at, change_json FROM card_events ORDER BY event_id").unwrap();
            all.query_map([], |r| Ok((r.get(0)?, r.get(1)?))).unwrap().map(Result::unwrap).collect()
        };
        assert_eq!(events().len(), 3);
        let before = known(&c).unwrap();
        for _ in 0..2 {
            fold_events(&c, &now(2026).to_string()).unwrap();
            assert_eq!(events().len(), 2, "those of 2024 and 2025 are one");
            assert_eq!(known(&c).unwrap(), before);
        }
        assert!(events()[0].0.starts_with("2025") && events()[1].1.contains("done"));
        find_changes_of_people(&c, "c3", now(2026)).unwrap();
        assert_eq!(events().len(), 2, "nobody has changed anything");
    }
}
