//! The agent's edits of mounts become ledger rows: by difference, compared with what the row is now. What
//! a person (or the manifest) changed meanwhile stays, and the agent is told.

use cicada_contract::PlanConfig;
use cicada_contract::plan::CharterPolicy;
use cicada_contract::text::cut;
use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::load::{self, Source};
use super::schema::set_meta;
use super::{WriteBackReport, cycle, proposals};
use crate::mounts::diff::{self, Keyed};
use crate::mounts::{Edit, MOUNTS, Mount, MountEdit, MountPolicy, rules};
use crate::protocol::Fault;
use crate::value::{Row, Value};

/// Writes the edits of one mount back.
pub(crate) type Writer = fn(&Target<'_>, &[Judged], &mut WriteBackReport) -> Result<(), Fault>;

/// Where edits go.
pub(crate) struct Target<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) config: &'a PlanConfig,
    pub(crate) cycle: &'a str,
    pub(crate) now: Timestamp,
    pub(crate) mount: &'static Mount,
}

/// An edit without conflict, and the row as it is now.
pub(crate) struct Judged {
    pub(crate) edit: MountEdit,
    pub(crate) current: Option<Row>,
}

impl Target<'_> {
    pub(crate) fn text(&self, row: &Row, column: &str) -> Option<String> {
        let value = row.get(self.mount.column(column)?)?;
        (!value.is_null()).then(|| value.display())
    }

    /// The rules that the edits were made under, to check them once more: they come from a process that runs what
    /// the agent writes.
    fn policy(&self) -> MountPolicy {
        MountPolicy {
            self_management: self.config.self_management.clone(),
            time_zone: self.config.limits.time_zone.clone(),
            now: Some(self.now),
            rejected_cards: vec![],
        }
    }

    pub(crate) fn int(&self, row: &Row, column: &str) -> i64 {
        self.mount.column(column).and_then(|n| row.get(n)).and_then(Value::as_int).unwrap_or(0)
    }
}

/// Applies all edits.
pub(crate) fn apply(
    connection: &Connection,
    edits: &[MountEdit],
    config: &PlanConfig,
    cycle: &str,
    now: Timestamp,
) -> Result<WriteBackReport, Fault> {
    let mut report = WriteBackReport::default();
    for mount in MOUNTS {
        let own: Vec<&MountEdit> = edits.iter().filter(|e| e.table == mount.name).collect();
        let (Some(writer), false) = (mount.write_back, own.is_empty()) else { continue };
        let current = diff::keyed(mount, mount.rows(&Source { connection, config, files: &[], now })?);
        let before = report.conflicts.len();
        let judged: Vec<Judged> =
            own.into_iter().filter_map(|edit| judge(mount, edit, &current, &mut report)).collect();
        if mount.name == "__agent_schedules" && report.conflicts.len() > before {
            // Half a plan would be another plan.
            report
                .refused
                .push(format!("{}: nothing was changed, since a person changed one of them", mount.name));
            continue;
        }
        writer(&Target { connection, config, cycle, now, mount }, &judged, &mut report)?;
    }
    for line in report.conflicts.iter().chain(&report.refused) {
        cycle::notice(connection, line, now)?;
    }
    let overview = cycle::overview(connection, now, &config.limits.time_zone)?;
    report.schedules = overview.schedules;
    report.paused_until = load::paused_until(connection, config, now)?;
    report.asks = overview.asks;
    report.charter = Some(proposals::charter(connection, config)?);
    Ok(report)
}

/// None if the row is not what the agent saw: then the other's value stays.
fn judge(mount: &Mount, edit: &MountEdit, current: &Keyed, report: &mut WriteBackReport) -> Option<Judged> {
    let now = current.get(&edit.key);
    let same = match (&edit.before, now) {
        (None, None) => true,
        (Some(before), Some(now)) => seen_columns(mount).all(|n| before.get(n) == now.get(n)),
        _ => false,
    };
    // Applied before, and asked for again after an answer was lost.
    let done = match (now, &edit.after) {
        (Some(now), Some(after)) => seen_columns(mount).all(|n| now.get(n) == after.get(n)),
        (now, after) => now.is_none() && after.is_none(),
    };
    if done {
        return None;
    }
    if same {
        return Some(Judged { edit: edit.clone(), current: now.cloned() });
    }
    let differs = |n: &usize| now.and_then(|r| r.get(*n)) != edit.after.as_ref().and_then(|r| r.get(*n));
    let told = |row: Option<&Row>| {
        let Some(row) = row else { return "that it is removed".to_owned() };
        let columns = seen_columns(mount).filter(differs);
        let parts: Vec<String> =
            columns.map(|n| format!("{}={}", mount.columns[n].0, cut(&row[n].display(), 60))).collect();
        cut(&parts.join(", "), 300)
    };
    report.conflicts.push(format!(
        "{} {}: changed by a person meanwhile; kept {}; yours was {}",
        mount.name,
        edit.key,
        told(now),
        told(edit.after.as_ref())
    ));
    None
}

/// Columns that the agent may write: the others are the platform's own and move by themselves.
pub(crate) fn seen_columns(mount: &Mount) -> impl Iterator<Item = usize> + '_ {
    let columns = match mount.edit {
        Edit::Editable { update, .. } => update,
        Edit::ReadOnly => &[],
    };
    columns.iter().filter_map(|c| mount.column(c))
}

/// Charter, description and pause.
pub(crate) fn config(
    target: &Target<'_>,
    edits: &[Judged],
    report: &mut WriteBackReport,
) -> Result<(), Fault> {
    let c = target.connection;
    for judged in edits {
        let (Some(before), Some(after)) = (&judged.edit.before, &judged.edit.after) else { continue };
        let row = |of: &Row| rules::ConfigRow {
            charter: target.text(of, "charter"),
            description: target.text(of, "short_description"),
            paused_until: target.text(of, "paused_until"),
        };
        if let Some(problem) = rules::config_problem(&row(before), &row(after), &target.policy(), target.now)
        {
            report.refused.push(format!("__agent_config: nothing was changed: {problem}"));
            continue;
        }
        for field in ["short_description", "paused_until"] {
            let (old, new) = (target.text(before, field), target.text(after, field));
            if old != new {
                set_meta(c, field, new.as_deref())?;
                let values = (old.as_deref(), new.as_deref());
                proposals::record_change(c, field, values, proposals::AGENT, (target.cycle, target.now))?;
                report.applied += 1;
            }
        }
        let charter = target.text(after, "charter").unwrap_or_default();
        if target.text(before, "charter").as_deref() != Some(&charter) {
            change_charter(target, &charter, report)?;
        }
        set_meta(c, "config_updated_at", Some(&target.now.to_string()))?;
    }
    Ok(())
}

fn change_charter(target: &Target<'_>, charter: &str, report: &mut WriteBackReport) -> Result<(), Fault> {
    let c = target.connection;
    match target.config.self_management.charter {
        // Refused above.
        CharterPolicy::Deny => {}
        CharterPolicy::Apply => {
            proposals::put_in_force(c, target.config, charter, proposals::AGENT, target.cycle, target.now)?;
            report.applied += 1;
        }
        CharterPolicy::Propose => {
            proposals::propose_charter(c, target.config, charter, target.cycle, target.now)?;
            report.applied += 1;
        }
    }
    Ok(())
}

/// Schedules go in all or not at all: half a plan would be another plan.
pub(crate) fn schedules(
    target: &Target<'_>,
    edits: &[Judged],
    report: &mut WriteBackReport,
) -> Result<(), Fault> {
    let c = target.connection;
    if let Some(reason) = schedules_problem(target, edits)? {
        report.refused.push(format!("__agent_schedules: nothing was changed: {reason}"));
        return Ok(());
    }
    for judged in edits {
        let Some(row) = &judged.edit.after else {
            c.execute("DELETE FROM schedules WHERE schedule_key = ?1", [&judged.edit.key])?;
            report.applied += 1;
            continue;
        };
        let text = |column| target.text(row, column);
        c.execute(
            "INSERT INTO schedules (schedule_key, name, kind, schedule, timezone, run_at, instruction, enabled, updated_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (schedule_key) DO UPDATE SET name = excluded.name, \
             kind = excluded.kind, schedule = excluded.schedule, timezone = excluded.timezone, run_at = excluded.run_at, \
             instruction = excluded.instruction, enabled = excluded.enabled, updated_at = excluded.updated_at",
            params![
                judged.edit.key,
                text("name"),
                text("kind").unwrap_or_default(),
                text("schedule"),
                text("timezone"),
                text("run_at"),
                text("instruction"),
                target.int(row, "enabled"),
                target.now.to_string()
            ],
        )?;
        report.applied += 1;
    }
    Ok(())
}

fn schedules_problem(target: &Target<'_>, edits: &[Judged]) -> Result<Option<String>, Fault> {
    let policy = target.policy();
    let mut enabled: std::collections::BTreeSet<String> = target
        .connection
        .prepare("SELECT schedule_key FROM schedules WHERE enabled")?
        .query_map([], |r| r.get(0))?
        .collect::<Result<_, _>>()?;
    for judged in edits {
        let from_manifest = |row: &Row| target.text(row, "source").as_deref() != Some("agent");
        if judged.current.as_ref().is_some_and(from_manifest) {
            return Ok(Some(format!("{} comes from the manifest", judged.edit.key)));
        }
        enabled.remove(&judged.edit.key);
        let Some(row) = &judged.edit.after else { continue };
        let text = |column| target.text(row, column);
        let schedule = rules::ScheduleRow {
            key: judged.edit.key.clone(),
            kind: text("kind").unwrap_or_default(),
            schedule: text("schedule"),
            time_zone: text("timezone"),
            run_at: text("run_at"),
            instruction: text("instruction"),
            name: text("name"),
        };
        if let Some(problem) = rules::schedule_problem(&schedule, &policy, target.now) {
            return Ok(Some(format!("{}: {problem}", judged.edit.key)));
        }
        if target.int(row, "enabled") == 1 {
            enabled.insert(judged.edit.key.clone());
        }
    }
    let most = policy.self_management.max_active_schedules as usize;
    Ok((enabled.len() > most).then(|| format!("{} would be enabled, at most {most} may be", enabled.len())))
}

/// A changed skill is a new version; the old one stays as it was.
pub(crate) fn skills(
    target: &Target<'_>,
    edits: &[Judged],
    report: &mut WriteBackReport,
) -> Result<(), Fault> {
    if !target.config.self_management.skills {
        report.refused.push("__agent_skills: the manifest does not allow skills of the agent's own".into());
        return Ok(());
    }
    for judged in edits {
        let Some(row) = judged.edit.after.as_ref().or(judged.edit.before.as_ref()) else { continue };
        let text = |column| target.text(row, column).unwrap_or_default();
        target.connection.execute(
            "INSERT INTO skills (skill_id, version, name, description, tools_json, instructions, removed, cycle, created_at) \
             VALUES (?1, (SELECT coalesce(max(version), 0) + 1 FROM skills WHERE skill_id = ?1), ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                judged.edit.key,
                text("name"),
                text("description"),
                text("tools_json"),
                text("instructions"),
                judged.edit.after.is_none(),
                target.cycle,
                target.now.to_string()
            ],
        )?;
        report.applied += 1;
    }
    Ok(())
}
