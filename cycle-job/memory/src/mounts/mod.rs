//! The eight mounted tables, declared once.
//!
//! Mounting, the prompt's notes, the guard's permissions, the drop and the assertion that nothing is
//! left all read [`MOUNTS`]; there is no second list. All eight are TEMP tables, which live in RAM
//! whatever a pragma says, so their bytes never enter the memory file.

pub(crate) mod diff;
pub(crate) mod rules;
mod tables;

use std::collections::BTreeMap;
use std::path::PathBuf;

use cicada_contract::plan::{CharterPolicy, SelfManagement};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::value::Row;
pub use tables::MOUNTS;

/// Prefix that no name of the agent's may have.
pub const RESERVED_PREFIX: &str = "__";

/// What the agent may do with the rows of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit {
    /// Nothing: it is a picture of the platform's state.
    ReadOnly,
    /// Some of it; the differences leave the worker with each batch.
    Editable {
        /// New rows.
        insert: bool,
        /// Columns that may be changed.
        update: &'static [&'static str],
        /// Rows may be removed.
        delete: bool,
    },
}

/// One mounted table.
#[derive(Debug)]
pub struct Mount {
    /// Name, with the reserved prefix.
    pub name: &'static str,
    /// Columns in order: name and declaration (type, default, checks).
    pub columns: &'static [(&'static str, &'static str)],
    /// Column that identifies a row.
    pub key: &'static str,
    /// How long it lives, for the prompt.
    pub note: &'static str,
    /// What the agent may do.
    pub edit: Edit,
    /// Bodies of the triggers that check edits: event, condition and message (an SQL expression).
    pub(crate) checks: &'static [Check],
    /// Columns fed by text of strangers: the prompt shows no sample of them.
    pub untrusted: &'static [&'static str],
    /// Fills it from ledger and manifest.
    pub(crate) load: crate::ledger::load::Loader,
    /// Takes the agent's edits over; None for a read-only mount.
    pub(crate) write_back: Option<crate::ledger::write_back::Writer>,
}

/// One check of an edit: before `event`, when `when` holds, the statement fails with `message`.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) event: &'static str,
    pub(crate) when: &'static str,
    /// An SQL expression: a literal or a call of one of the rule functions.
    pub(crate) message: &'static str,
}

impl Mount {
    /// The mount of this name, whatever its case.
    pub fn find(name: &str) -> Option<&'static Self> {
        MOUNTS.iter().find(|m| m.name.eq_ignore_ascii_case(name))
    }

    /// CREATE statement in the schema `temp`, or that of an [`Image`].
    pub(crate) fn create_sql(&self, schema: &str) -> String {
        let columns: Vec<String> = self.columns.iter().map(|(name, decl)| format!("{name} {decl}")).collect();
        format!("CREATE TABLE {schema}.{} ({}) STRICT", self.name, columns.join(", "))
    }

    /// CREATE statements of the checks. The names carry the reserved prefix, so the agent can't drop them.
    pub(crate) fn trigger_sql(&self) -> impl Iterator<Item = String> + '_ {
        self.checks.iter().enumerate().map(|(n, c)| {
            format!(
                "CREATE TEMP TRIGGER {}_check{n} BEFORE {} ON {} WHEN cicada_agent() AND ({}) BEGIN SELECT RAISE(ABORT, {}); END",
                self.name, c.event, self.name, c.when, c.message
            )
        })
    }

    /// Index of a column.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|(c, _)| c.eq_ignore_ascii_case(name))
    }

    /// Index of the key column.
    pub(crate) fn key_index(&self) -> usize {
        self.column(self.key).unwrap_or(0)
    }
}

/// What the agent may change about itself, as the checks need it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MountPolicy {
    /// From the manifest.
    pub self_management: SelfManagement,
    /// Zone of schedules that name none.
    pub time_zone: String,
    /// Time of the mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Timestamp>,
    /// Normalised titles and triggers of rejected cards, with the reason: they can't come back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected_cards: Vec<(String, String)>,
}

impl MountPolicy {
    pub(crate) fn charter_denied(&self) -> bool {
        self.self_management.charter == CharterPolicy::Deny
    }
}

/// Rows for the mounts. A table that is not named is left as it is (empty, when it is mounted first).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Mounts {
    /// Rows by table name, in the column order of [`MOUNTS`].
    pub tables: BTreeMap<String, Vec<Row>>,
    /// The large tables, which no parent reads.
    pub image: Image,
    /// What the agent may change.
    pub policy: MountPolicy,
}

/// Tables on their way from the ledger worker to the memory worker: a SQLite file with nothing else in
/// it, because ten thousand rows are copied in it several times faster than as text. The parent never
/// opens it. The next load replaces it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Image {
    /// Their names.
    pub tables: Vec<String>,
    /// The file.
    #[serde(skip)]
    pub(crate) path: PathBuf,
}

/// Name of the file in the folder of a worker.
pub(crate) const IMAGE: &str = "mounts.db";
/// Name while it is written.
pub(crate) const IMAGE_NEW: &str = "mounts.new";

impl Mounts {
    /// Rows of one table, if it is not in the image.
    pub fn rows(&self, table: &str) -> &[Row] {
        self.tables.get(table).map_or(&[], Vec::as_slice)
    }
}

/// Bytes of one tool result in its mount.
const RESULT_MAX: usize = 5_000_000;
/// Bytes of all of them together.
const RESULTS_MAX: usize = 50_000_000;

impl Mounts {
    /// Puts the content of a tool result that is kept as an object into its row, cut at 5 MB. False if
    /// there is no such row, or all contents together would exceed 50 MB: call it for the newest first.
    pub fn set_result(&mut self, result_id: &str, content: &str) -> bool {
        let Some(mount) = Mount::find("__tool_results") else { return false };
        let column = |name| mount.column(name).unwrap_or(0);
        let (json, text, is_json, truncated) =
            (column("result_json"), column("result_text"), column("is_json"), column("is_truncated"));
        let Some(rows) = self.tables.get_mut(mount.name) else { return false };
        let held: usize = rows
            .iter()
            .map(|r| [json, text].iter().map(|n| r[*n].as_str().map_or(0, str::len)).sum::<usize>())
            .sum();
        let cut = cicada_contract::text::cut(content, RESULT_MAX);
        if held + cut.len() > RESULTS_MAX {
            return false;
        }
        let Some(row) = rows.iter_mut().find(|r| r[0].as_str() == Some(result_id)) else { return false };
        if cut.len() < content.len() {
            row[truncated] = true.into();
        }
        // Half a document is no JSON any more.
        let place = if row[is_json].as_int() == Some(1) && cut.len() == content.len() { json } else { text };
        row[place] = cut.into();
        true
    }

    /// Marks the results of this step in their mount.
    pub fn mark_step(&mut self, step: u32) {
        let Some(mount) = Mount::find("__tool_results") else { return };
        let (Some(of), Some(mark)) = (mount.column("step"), mount.column("is_current_step")) else { return };
        for row in self.tables.get_mut(mount.name).into_iter().flatten() {
            row[mark] = (row[of].as_int() == Some(i64::from(step))).into();
        }
    }
}

/// One row that the agent made, changed or removed in an editable mount, compared with the row as it was mounted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MountEdit {
    /// Name of the mount.
    pub table: String,
    /// Value of the key column, as text.
    pub key: String,
    /// As mounted; None for a new row.
    pub before: Option<Row>,
    /// As it is now; None for a removed row.
    pub after: Option<Row>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eight_tables_are_declared_once_and_consistently() {
        let names: Vec<_> = MOUNTS.iter().map(|m| m.name).collect();
        assert_eq!(
            names,
            [
                "__messages",
                "__files",
                "__contacts",
                "__agent_config",
                "__agent_schedules",
                "__agent_skills",
                "__tool_results",
                "__kanban_cards"
            ]
        );
        for mount in MOUNTS {
            assert!(mount.column(mount.key).is_some(), "{}", mount.name);
            assert_eq!(mount.write_back.is_some(), mount.edit != Edit::ReadOnly, "{}", mount.name);
            if let Edit::Editable { update, .. } = mount.edit {
                assert!(update.iter().all(|c| mount.column(c).is_some()), "{}", mount.name);
            }
            assert!(mount.untrusted.iter().all(|c| mount.column(c).is_some()), "{}", mount.name);
        }
    }
}
