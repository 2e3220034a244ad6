//! The declarations of the eight tables.

use super::{Check, Edit, Mount};
use crate::ledger::load::{self, Loader};
use crate::ledger::{cards, write_back};

const fn check(event: &'static str, when: &'static str, message: &'static str) -> Check {
    Check { event, when, message }
}

const TEXT: &str = "TEXT";
const INT: &str = "INTEGER";
const BUILT_IN: &str = "built-in, ephemeral (dropped before persistence)";

/// The mounted tables, in the order in which the prompt shows them.
#[rustfmt::skip]
pub const MOUNTS: &[Mount] = &[
    Mount {
        name: "__messages",
        // seq is the alias of the rowid: ordered, and free.
        columns: &[
            ("message_id", TEXT), ("seq", "INTEGER PRIMARY KEY"), ("timestamp", TEXT), ("channel", TEXT),
            ("direction", TEXT), ("is_outbound", INT), ("from_address", TEXT), ("to_address", TEXT),
            ("conversation_id", TEXT), ("is_peer", INT), ("peer_agent", TEXT), ("subject", TEXT),
            ("body", TEXT), ("body_bytes", INT), ("body_is_truncated", INT), ("attachments_json", TEXT),
            ("status", TEXT), ("is_new", INT), ("payload_json", TEXT),
        ],
        key: "message_id",
        note: "built-in, ephemeral (recent messages snapshot for this cycle)",
        edit: Edit::ReadOnly,
        checks: &[],
        untrusted: &["from_address", "to_address", "subject", "body", "attachments_json", "payload_json"],
        load: Loader::Image(load::messages),
        write_back: None,
    },
    Mount {
        name: "__files",
        columns: &[
            ("file_id", TEXT), ("path", TEXT), ("name", TEXT), ("parent_path", TEXT), ("mime_type", TEXT),
            ("size_bytes", INT), ("sha256", TEXT), ("created_at", TEXT), ("updated_at", TEXT),
        ],
        key: "file_id",
        note: BUILT_IN,
        edit: Edit::ReadOnly,
        checks: &[],
        untrusted: &[],
        load: Loader::Rows(load::files),
        write_back: None,
    },
    Mount {
        name: "__contacts",
        columns: &[
            ("contact_id", TEXT), ("channel", TEXT), ("address", TEXT), ("normalized_address", TEXT),
            ("display_name", TEXT), ("source", TEXT), ("status", TEXT), ("allow_inbound", INT),
            ("allow_outbound", INT), ("may_instruct", INT), ("requested_at", TEXT), ("responded_at", TEXT),
            ("last_conversed_at", TEXT), ("updated_at", TEXT),
        ],
        key: "contact_id",
        note: BUILT_IN,
        edit: Edit::ReadOnly,
        checks: &[],
        untrusted: &["address", "normalized_address", "display_name"],
        load: Loader::Rows(load::contacts),
        write_back: None,
    },
    Mount {
        name: "__agent_config",
        columns: &[
            ("id", "INTEGER PRIMARY KEY CHECK (id = 1)"), ("charter", TEXT), ("short_description", TEXT),
            ("paused_until", TEXT), ("updated_at", TEXT),
        ],
        key: "id",
        note: "built-in, ephemeral (changes apply under the charter policy; until paused_until your own schedules rest)",
        edit: Edit::Editable { insert: false, update: &["charter", "short_description", "paused_until"], delete: false },
        checks: &[
            check("UPDATE", CONFIG_WRONG, CONFIG_PROBLEM),
        ],
        untrusted: &[],
        load: Loader::Rows(load::config),
        write_back: Some(write_back::config),
    },
    Mount {
        name: "__agent_schedules",
        columns: &[
            ("schedule_key", "TEXT PRIMARY KEY NOT NULL"), ("name", TEXT),
            ("kind", "TEXT NOT NULL DEFAULT 'recurring'"), ("schedule", TEXT), ("timezone", TEXT),
            ("run_at", TEXT), ("instruction", TEXT),
            ("enabled", "INTEGER NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1))"),
            ("source", "TEXT NOT NULL DEFAULT 'agent'"), ("next_run_at", TEXT), ("last_fired_at", TEXT),
        ],
        key: "schedule_key",
        note: "built-in, ephemeral (edits become schedules after the cycle)",
        edit: Edit::Editable { insert: true, update: &["schedule_key", "name", "kind", "schedule", "timezone", "run_at", "instruction", "enabled"], delete: true },
        checks: &[
            check("INSERT", "NEW.source IS NOT 'agent'", "'source must be ''agent'': schedules of the manifest are edited by people, there'"),
            check("UPDATE", "OLD.source IS NOT 'agent'", "'schedule ' || OLD.schedule_key || ' comes from the manifest and is read-only; people edit it there'"),
            check("DELETE", "OLD.source IS NOT 'agent'", "'schedule ' || OLD.schedule_key || ' comes from the manifest and is read-only; disable your own schedules instead'"),
            check("INSERT", SCHEDULE_OF_MANIFEST, "'schedule ' || NEW.schedule_key || ' comes from the manifest: choose another key'"),
            check("UPDATE", "NEW.schedule_key IS NOT OLD.schedule_key AND EXISTS (SELECT 1 FROM __agent_schedules WHERE schedule_key IS NEW.schedule_key)", "'a schedule with the key ' || NEW.schedule_key || ' exists'"),
            check("INSERT", SCHEDULE_WRONG, SCHEDULE_PROBLEM),
            check("UPDATE", SCHEDULE_WRONG, SCHEDULE_PROBLEM),
            check("DELETE", "NOT cicada_policy('schedules')", "'schedules of your own are not allowed by the manifest (selfManagement.schedules)'"),
            check("INSERT", "NEW.enabled AND (SELECT count(*) FROM __agent_schedules WHERE source = 'agent' AND enabled AND schedule_key IS NOT NEW.schedule_key) >= cicada_policy('max_active')", TOO_MANY_SCHEDULES),
            check("UPDATE", "NEW.enabled AND NOT OLD.enabled AND (SELECT count(*) FROM __agent_schedules WHERE source = 'agent' AND enabled) >= cicada_policy('max_active')", TOO_MANY_SCHEDULES),
        ],
        untrusted: &[],
        load: Loader::Rows(load::schedules),
        write_back: Some(write_back::schedules),
    },
    Mount {
        name: "__agent_skills",
        columns: &[
            ("skill_id", "TEXT PRIMARY KEY NOT NULL DEFAULT ('skill-' || lower(hex(randomblob(6))))"),
            ("name", "TEXT NOT NULL"), ("description", "TEXT NOT NULL DEFAULT ''"),
            ("version", "INTEGER NOT NULL DEFAULT 1"), ("tools_json", "TEXT NOT NULL DEFAULT '[]'"),
            ("instructions", "TEXT NOT NULL DEFAULT ''"), ("source", "TEXT NOT NULL DEFAULT 'agent'"),
            ("created_at", TEXT), ("updated_at", TEXT),
        ],
        key: "skill_id",
        note: "built-in, ephemeral (edits become new skill versions after the cycle)",
        edit: Edit::Editable { insert: true, update: &["name", "description", "tools_json", "instructions"], delete: true },
        checks: &[
            check("INSERT", "NEW.source IS NOT 'agent'", "'source must be ''agent'': skills of the manifest are edited by people, there'"),
            check("UPDATE", "OLD.source IS NOT 'agent'", "'skill ' || OLD.name || ' comes from the manifest and is read-only; insert one of your own under another name'"),
            check("DELETE", "OLD.source IS NOT 'agent' OR NOT cicada_policy('skills')", "'skill ' || OLD.name || ' can''t be removed: it comes from the manifest, or the manifest does not allow skills of your own'"),
            check("INSERT", "EXISTS (SELECT 1 FROM __agent_skills WHERE skill_id IS NEW.skill_id AND source IS NOT 'agent')", "'skill ' || NEW.skill_id || ' comes from the manifest: choose another id'"),
            check("INSERT", SKILL_WRONG, SKILL_PROBLEM),
            check("UPDATE", SKILL_WRONG, SKILL_PROBLEM),
            check("INSERT", "(SELECT count(*) FROM __agent_skills WHERE source = 'agent') >= 100", "'100 skills of your own are the most: delete one first'"),
            check("INSERT", "EXISTS (SELECT 1 FROM __agent_skills WHERE lower(name) = lower(NEW.name) AND skill_id IS NOT NEW.skill_id)", "'a skill named ' || NEW.name || ' exists: update it'"),
        ],
        untrusted: &[],
        load: Loader::Rows(load::skills),
        write_back: Some(write_back::skills),
    },
    Mount {
        name: "__tool_results",
        columns: &[
            ("result_id", TEXT), ("tool_name", TEXT), ("step", INT), ("is_current_step", INT),
            ("source_url", TEXT), ("created_at", TEXT), ("bytes", INT), ("line_count", INT),
            ("is_json", INT), ("json_type", TEXT), ("top_keys", TEXT), ("is_binary", INT),
            ("is_truncated", INT), ("result_json", TEXT), ("result_text", TEXT), ("analysis_json", TEXT),
        ],
        key: "result_id",
        note: "built-in, ephemeral (refreshed every model call)",
        edit: Edit::ReadOnly,
        checks: &[],
        untrusted: &["source_url", "top_keys", "result_json", "result_text", "analysis_json"],
        load: Loader::Rows(load::tool_results),
        write_back: None,
    },
    Mount {
        name: "__kanban_cards",
        columns: &[
            ("card_id", "TEXT PRIMARY KEY NOT NULL DEFAULT ('card-' || lower(hex(randomblob(6))))"),
            ("title", "TEXT NOT NULL"), ("description", "TEXT NOT NULL DEFAULT ''"),
            ("status", "TEXT NOT NULL DEFAULT 'todo'"), ("priority", "INTEGER NOT NULL DEFAULT 0"),
            ("due_at", TEXT), ("trigger_json", TEXT), ("reason", TEXT), ("created_at", TEXT),
            ("completed_at", TEXT),
        ],
        key: "card_id",
        note: "built-in, ephemeral (edits become cards after the cycle)",
        edit: Edit::Editable { insert: true, update: &["title", "description", "status", "priority", "due_at", "trigger_json", "reason"], delete: false },
        checks: &[
            check("UPDATE", "OLD.status = 'rejected'", "'card ' || OLD.card_id || ' was rejected, which is final: ' || coalesce(OLD.reason, 'no reason was given')"),
            check("INSERT", CARD_WRONG, CARD_PROBLEM),
            check("UPDATE", CARD_WRONG, CARD_PROBLEM),
            check("INSERT", "NEW.status = 'doing' AND EXISTS (SELECT 1 FROM __kanban_cards WHERE status = 'doing' AND card_id IS NOT NEW.card_id)", ONE_DOING),
            check("UPDATE", "NEW.status = 'doing' AND EXISTS (SELECT 1 FROM __kanban_cards WHERE status = 'doing' AND card_id IS NOT OLD.card_id)", ONE_DOING),
            check("INSERT", "NEW.status IN ('todo', 'doing') AND (SELECT count(*) FROM __kanban_cards WHERE status IN ('todo', 'doing')) >= 500", "'500 open cards are the most: finish or reject some first'"),
            check("INSERT", "EXISTS (SELECT 1 FROM __kanban_cards WHERE status = 'rejected' AND card_id IS NEW.card_id)", "'card ' || NEW.card_id || ' was rejected, which is final'"),
        ],
        untrusted: &[],
        load: Loader::Rows(load::cards),
        write_back: Some(cards::write),
    },
];

const CONFIG_WRONG: &str = "cicada_config_problem(OLD.charter, OLD.paused_until, NEW.charter, NEW.short_description, NEW.paused_until) IS NOT NULL";
const CONFIG_PROBLEM: &str = "cicada_config_problem(OLD.charter, OLD.paused_until, NEW.charter, NEW.short_description, NEW.paused_until)";
// REPLACE removes the old row without asking the DELETE check.
const SCHEDULE_OF_MANIFEST: &str = "EXISTS (SELECT 1 FROM __agent_schedules WHERE schedule_key IS NEW.schedule_key AND source IS NOT 'agent')";
const SCHEDULE_WRONG: &str = "cicada_schedule_problem(NEW.schedule_key, NEW.kind, NEW.schedule, NEW.timezone, NEW.run_at, NEW.instruction, NEW.name) IS NOT NULL";
const SCHEDULE_PROBLEM: &str = "cicada_schedule_problem(NEW.schedule_key, NEW.kind, NEW.schedule, NEW.timezone, NEW.run_at, NEW.instruction, NEW.name)";
const TOO_MANY_SCHEDULES: &str = "'at most ' || cicada_policy('max_active') || ' schedules of your own may be enabled: disable or delete one first'";
const SKILL_WRONG: &str =
    "cicada_skill_problem(NEW.name, NEW.description, NEW.tools_json, NEW.instructions) IS NOT NULL";
const SKILL_PROBLEM: &str =
    "cicada_skill_problem(NEW.name, NEW.description, NEW.tools_json, NEW.instructions)";
const CARD_WRONG: &str = "cicada_card_problem(NEW.card_id, NEW.title, NEW.description, NEW.status, NEW.due_at, NEW.trigger_json, NEW.reason) IS NOT NULL";
const CARD_PROBLEM: &str = "cicada_card_problem(NEW.card_id, NEW.title, NEW.description, NEW.status, NEW.due_at, NEW.trigger_json, NEW.reason)";
const ONE_DOING: &str = "'only one card may be doing: set card ' || (SELECT card_id FROM __kanban_cards WHERE status = 'doing' LIMIT 1) || ' to todo or done first'";
