//! The allow-list. Each refusal says what to do instead.

use rusqlite::hooks::{AuthAction as A, AuthContext, TransactionOperation};

use super::{Seen, names};
use crate::mounts::{Edit, Mount};

/// What kind of statement asks.
#[derive(Clone, Copy)]
pub(super) struct Rights {
    /// Only SELECT.
    pub(super) read_only: bool,
    /// INSERT, UPDATE, DELETE: SQLite's own tables are then out of reach. Schema statements touch them
    /// by their own nature.
    pub(super) data_statement: bool,
}

type Ruling = Result<(), String>;

/// Pragmas that only tell something, with their argument allowed.
const PRAGMAS_WITH_NAME: &[&str] = &[
    "table_info",
    "table_xinfo",
    "table_list",
    "index_list",
    "index_info",
    "index_xinfo",
    "foreign_key_list",
    "foreign_key_check",
    "integrity_check",
    "quick_check",
];
/// Pragmas that only tell something as long as no value is given. The full-text engine asks for the
/// data version itself.
const PRAGMAS_BARE: &[&str] = &["data_version", "page_size", "page_count", "freelist_count", "encoding"];

/// Functions that reach outside the database or take pointers. Most are not compiled in; a build that
/// had them would still refuse.
const FUNCTIONS_DENIED: &[&str] = &[
    "load_extension",
    "readfile",
    "writefile",
    "edit",
    "fsdir",
    "lsmode",
    "zipfile",
    "fts3_tokenizer",
    "sqlite_log",
    "sqlite_dbpage",
];

pub(super) fn rule(context: &AuthContext<'_>, rights: Rights, seen: &mut Seen) -> Ruling {
    let temp = context.database_name == Some("temp");
    if rights.read_only && writes(&context.action) {
        return Err("only SELECT is allowed here".into());
    }
    match context.action {
        A::Select | A::Recursive | A::Reindex { .. } | A::Analyze { .. } => Ok(()),
        A::Function { function_name } => {
            let denied = FUNCTIONS_DENIED.iter().any(|f| function_name.eq_ignore_ascii_case(f));
            if denied {
                Err(format!(
                    "{function_name}() is not available: files and code outside the database are out of reach"
                ))
            } else {
                Ok(())
            }
        }
        A::Read { table_name, .. } => read(table_name, seen),
        A::Insert { table_name } => write(table_name, Write::Insert, temp, rights, seen),
        A::Delete { table_name } => write(table_name, Write::Delete, temp, rights, seen),
        A::Update { table_name, column_name } => {
            write(table_name, Write::Update(column_name), temp, rights, seen)
        }
        A::CreateTable { table_name: name }
        | A::CreateView { view_name: name }
        | A::CreateTempTable { table_name: name }
        | A::CreateTempView { view_name: name } => {
            seen.schema = true;
            // SQLite's own tables (sequence, statistics, shadow tables' sequences) come this way too.
            if name.starts_with("sqlite_") { Ok(()) } else { names::check_new(name) }
        }
        A::CreateIndex { index_name: name, table_name }
        | A::CreateTempIndex { index_name: name, table_name } => {
            seen.schema = true;
            not_reserved(table_name)?;
            if name.starts_with("sqlite_autoindex_") { Ok(()) } else { names::check_new(name) }
        }
        A::CreateTrigger { trigger_name, table_name } => {
            seen.schema = true;
            not_reserved(table_name)?;
            names::check_new(trigger_name)
        }
        A::CreateTempTrigger { .. } => {
            Err("temporary triggers are not allowed: create the trigger on a table of your own, without TEMP"
                .into())
        }
        A::DropTable { table_name } => {
            seen.schema = true;
            seen.dropped.push((table_name.to_owned(), 0));
            not_reserved(table_name)
        }
        A::DropTempTable { table_name: name }
        | A::DropView { view_name: name }
        | A::DropTempView { view_name: name } => {
            seen.schema = true;
            not_reserved(name)
        }
        A::DropIndex { index_name, table_name } | A::DropTempIndex { index_name, table_name } => {
            seen.schema = true;
            not_reserved(index_name).and_then(|()| not_reserved(table_name))
        }
        A::DropTrigger { trigger_name, table_name } | A::DropTempTrigger { trigger_name, table_name } => {
            seen.schema = true;
            not_reserved(trigger_name).and_then(|()| not_reserved(table_name))
        }
        A::AlterTable { table_name, .. } => {
            seen.schema = true;
            not_reserved(table_name)
        }
        A::CreateVtable { table_name, module_name } => {
            seen.schema = true;
            if !module_name.eq_ignore_ascii_case("fts5") {
                return Err(format!(
                    "virtual tables of the kind {module_name} are not available; fts5 is, and json_each/json_tree in FROM"
                ));
            }
            names::check_new(table_name)
        }
        A::DropVtable { table_name, .. } => {
            seen.schema = true;
            seen.dropped.push((table_name.to_owned(), 0));
            not_reserved(table_name)
        }
        A::Pragma { pragma_name, pragma_value } => pragma(pragma_name, pragma_value),
        // An expression for a file name comes without its text.
        A::Attach { .. } | A::Unknown { code: rusqlite::ffi::SQLITE_ATTACH, .. } => {
            Err("other database files are out of reach (ATTACH, VACUUM): everything is in this one".into())
        }
        A::Detach { .. } => Err("DETACH is not available: there is one database".into()),
        A::Transaction { .. }
        | A::Savepoint { operation: TransactionOperation::Unknown, .. }
        | A::Savepoint { .. } => {
            Err("each batch is one transaction already: leave out BEGIN, COMMIT, ROLLBACK and SAVEPOINT"
                .into())
        }
        _ => Err("this kind of statement is not available".into()),
    }
}

fn writes(action: &A<'_>) -> bool {
    !matches!(
        action,
        A::Select
            | A::Recursive
            | A::Read { .. }
            | A::Function { .. }
            | A::Pragma { .. }
            | A::Attach { .. }
            | A::Detach { .. }
    )
}

fn pragma(name: &str, value: Option<&str>) -> Ruling {
    let is = |list: &[&str]| list.iter().any(|p| name.eq_ignore_ascii_case(p));
    if is(PRAGMAS_WITH_NAME) || (is(PRAGMAS_BARE) && value.is_none()) {
        return Ok(());
    }
    Err(format!("PRAGMA {name} is not available; allowed are {}", PRAGMAS_WITH_NAME.join(", ")))
}

fn read(table: &str, seen: &mut Seen) -> Ruling {
    if ["sqlite_dbpage", "dbstat", "sqlite_stmt", "bytecode", "tables_used"]
        .iter()
        .any(|t| table.eq_ignore_ascii_case(t))
    {
        return Err(format!("{table} is not available"));
    }
    note(table, seen);
    Ok(())
}

fn note(table: &str, seen: &mut Seen) {
    if !table.is_empty() && !seen.used.iter().any(|t| t == table) {
        seen.used.push(table.to_owned());
    }
}

enum Write<'a> {
    Insert,
    Delete,
    Update(&'a str),
}

fn write(table: &str, kind: Write<'_>, temp: bool, rights: Rights, seen: &mut Seen) -> Ruling {
    if table.len() >= 7 && table.is_char_boundary(7) && table[..7].eq_ignore_ascii_case("sqlite_") {
        if rights.data_statement {
            return Err(format!("{table} belongs to SQLite: change the schema by CREATE, ALTER and DROP"));
        }
        return Ok(());
    }
    let Some(mount) = Mount::find(table) else {
        note(table, seen);
        return not_reserved(table);
    };
    if !temp {
        return not_reserved(table);
    }
    let Edit::Editable { insert, update, delete } = mount.edit else {
        return Err(format!(
            "{} is a snapshot of this cycle; copy what you need into a table of your own",
            mount.name
        ));
    };
    seen.mounts = true;
    let allowed = match kind {
        Write::Insert => insert,
        Write::Delete => delete,
        Write::Update(column) => update.iter().any(|c| c.eq_ignore_ascii_case(column)),
    };
    if allowed {
        return Ok(());
    }
    Err(match kind {
        Write::Insert => format!("{} takes no new rows: UPDATE its one row", mount.name),
        Write::Delete => format!("rows of {} can't be removed: UPDATE them", mount.name),
        Write::Update(column) => {
            format!("{}.{column} is kept by the platform; you may set {}", mount.name, update.join(", "))
        }
    })
}

fn not_reserved(name: &str) -> Ruling {
    if names::is_reserved(name) {
        return Err(format!("{name} belongs to the platform; use a name of your own"));
    }
    Ok(())
}
