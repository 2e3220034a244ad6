//! What the agent proposes about itself, and what people decide about it.
//!
//! A charter is in force as long as the manifest's text is the one that it was based on: an edit of the
//! manifest always wins, also over an approval that comes later.

use cicada_contract::PlanConfig;
use cicada_contract::plan::{Approval, Decision};
use cicada_contract::report::CharterReport;
use cicada_contract::text::{cut, sha256_hex};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::cycle::notice;
use super::load::charter_in_force;
use super::schema::{meta, set_meta};
use crate::protocol::Fault;

/// Who changes a charter: the agent itself, where its manifest lets it.
pub(crate) const AGENT: &str = "agent";

/// The charter in force, for the report.
pub(crate) fn charter(c: &Connection, config: &PlanConfig) -> Result<CharterReport, Fault> {
    let (text, source) = charter_in_force(c, config)?;
    Ok(CharterReport { source, hash: sha256_hex(text), base: sha256_hex(&config.charter) })
}

/// An edit of the manifest's charter ends what was approved or applied over the old one, for good: the old text,
/// should it come back, does not bring the approval back.
fn drop_overridden(c: &Connection, config: &PlanConfig, cycle: &str, now: Timestamp) -> Result<(), Fault> {
    let base = meta(c, "charter_base")?;
    if base.is_none_or(|base| base == sha256_hex(&config.charter)) {
        return Ok(());
    }
    let old = meta(c, "charter")?;
    for key in ["charter", "charter_base", "charter_actor"] {
        set_meta(c, key, None)?;
    }
    record_change(c, "charter", (old.as_deref(), Some(&config.charter)), "manifest", (cycle, now))?;
    notice(
        c,
        "the charter was edited in the manifest: that text is in force, and no earlier change of it",
        now,
    )
}

/// Keeps a charter of the agent's for a person to decide. The newest proposal is the only open one.
pub(crate) fn propose_charter(
    c: &Connection,
    config: &PlanConfig,
    charter: &str,
    cycle: &str,
    now: Timestamp,
) -> Result<(), Fault> {
    let (base, hash) = (sha256_hex(&config.charter), sha256_hex(charter));
    // Of both, so that an old approval is not one of the same text over another manifest.
    let id = format!("charter-{}", &sha256_hex(format!("{base} {hash}"))[..8]);
    let now = now.to_string();
    let supersede = "UPDATE proposals SET state = 'superseded', decided_at = ?1 WHERE kind = 'charter' AND state = 'open'";
    c.execute(supersede, [&now])?;
    let summary = cut(&first_difference(&config.charter, charter), 80);
    c.execute(
        "INSERT INTO proposals (proposal_id, kind, base_hash, content, content_hash, summary, state, cycle, created_at) \
         VALUES (?1, 'charter', ?2, ?3, ?4, ?5, 'open', ?6, ?7) \
         ON CONFLICT (proposal_id) DO UPDATE SET state = 'open', base_hash = excluded.base_hash, decided_at = NULL, \
         content = excluded.content, content_hash = excluded.content_hash, summary = excluded.summary",
        params![id, base, charter, hash, summary, cycle, now],
    )?;
    Ok(())
}

/// The first line of the new text that the old one does not have.
fn first_difference(old: &str, new: &str) -> String {
    let line = new.lines().find(|line| !line.trim().is_empty() && !old.lines().any(|o| o == *line));
    line.map_or_else(|| "lines were removed".to_owned(), |line| line.trim().to_owned())
}

/// Applies people's decisions. One about a proposal that is not open, or about another content than the
/// one that is kept, changes nothing. Gives a line for each that counted; the agent reads the same lines.
pub(crate) fn decide(
    c: &Connection,
    approvals: &[Approval],
    config: &PlanConfig,
    cycle: &str,
    now: Timestamp,
) -> Result<Vec<String>, Fault> {
    drop_overridden(c, config, cycle, now)?;
    let mut lines = vec![];
    for approval in approvals {
        let open = c
            .prepare_cached(
                "SELECT kind, base_hash, content, content_hash FROM proposals WHERE proposal_id = ?1 AND state = 'open'",
            )?
            .query_row([&approval.id], |r| {
                Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?, r.get::<_, String>(2)?, r.get::<_, String>(3)?))
            })
            .optional()?;
        let Some((kind, base, content, hash)) = open else { continue };
        if !approval.is_about(&approval.id, &hash) {
            continue;
        }
        let by = if approval.by.is_empty() { "a person".into() } else { cut(&approval.by, 60) };
        let id = &approval.id;
        let is_charter = kind == "charter";
        let (state, line) = match approval.decision {
            Decision::Rejected => ("rejected", format!("proposal {id} was rejected by {by}")),
            Decision::Approved if is_charter && base == sha256_hex(&config.charter) => {
                put_in_force(c, config, &content, "person", cycle, now)?;
                (
                    "approved",
                    format!("proposal {id} was approved by {by}: the charter that you proposed is in force"),
                )
            }
            // The manifest may say by now what was proposed.
            Decision::Approved if is_charter && content == config.charter => {
                ("approved", format!("proposal {id} was approved by {by}: the manifest has it"))
            }
            Decision::Approved => (
                "superseded",
                format!(
                    "proposal {id} was approved by {by}, but the manifest was edited after it: the manifest's text stays, propose again"
                ),
            ),
        };
        c.prepare_cached("UPDATE proposals SET state = ?2, decided_at = ?3 WHERE proposal_id = ?1")?
            .execute(params![id, state, now.to_string()])?;
        notice(c, &line, now)?;
        lines.push(line);
    }
    Ok(lines)
}

/// Puts a charter in force over the manifest's.
pub(crate) fn put_in_force(
    c: &Connection,
    config: &PlanConfig,
    charter: &str,
    actor: &str,
    cycle: &str,
    now: Timestamp,
) -> Result<(), Fault> {
    let (old, _) = charter_in_force(c, config)?;
    set_meta(c, "charter", Some(charter))?;
    set_meta(c, "charter_actor", Some(actor))?;
    set_meta(c, "charter_base", Some(&sha256_hex(&config.charter)))?;
    record_change(c, "charter", (Some(&old), Some(charter)), actor, (cycle, now))
}

/// Records a change of the agent's configuration: old and new value, who made it, in which cycle and when.
pub(crate) fn record_change(
    c: &Connection,
    field: &str,
    (old, new): (Option<&str>, Option<&str>),
    actor: &str,
    (cycle, now): (&str, Timestamp),
) -> Result<(), Fault> {
    c.prepare_cached(
        "INSERT INTO config_changes (at, field, old_value, new_value, actor, cycle) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![now.to_string(), field, old, new, actor, cycle])?;
    Ok(())
}
