//! The look at the schema: after each statement that changed it, at restore and at seal.

use std::collections::BTreeMap;

use rusqlite::Connection;

use super::names;
use crate::mounts::{MOUNTS, Mount};
use crate::sql::tokens::{Kind, Token, unquote};

/// One object of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) table: String,
    pub(crate) sql: Option<String>,
}

/// Objects of `main` or `temp` by kind and name. Tables and views share one set of names.
pub(crate) type Schema = BTreeMap<(bool, String), Object>;

/// Reads a schema.
pub(crate) fn read(connection: &Connection, schema: &str) -> rusqlite::Result<Schema> {
    let table = if schema == "temp" { "temp.sqlite_temp_schema" } else { "main.sqlite_schema" };
    let mut statement =
        connection.prepare_cached(&format!("SELECT type, name, tbl_name, sql FROM {table}"))?;
    let rows = statement.query_map([], |r| {
        let text = |n: usize| crate::Value::from_sql(r.get_ref(n).unwrap_or(rusqlite::types::ValueRef::Null));
        Ok(Object {
            kind: text(0).display(),
            name: text(1).display(),
            table: text(2).display(),
            sql: text(3).as_str().map(str::to_owned),
        })
    })?;
    rows.map(|object| {
        object.map(|o| ((matches!(o.kind.as_str(), "table" | "view"), o.name.to_lowercase()), o))
    })
    .collect()
}

/// Judges what a statement of the agent's left behind: every object of `main` or `temp` that is new or
/// changed since `before`.
pub(crate) fn judge(
    connection: &Connection,
    before: (&Schema, &Schema),
    after: (&Schema, &Schema),
) -> Result<(), String> {
    let changed = |old: &Schema, new: &Schema| -> Vec<Object> {
        new.iter()
            .filter(|(key, object)| old.get(*key) != Some(object))
            .map(|(_, object)| object.clone())
            .collect()
    };
    for object in changed(before.0, after.0) {
        judge_name(&object)?;
        judge_main(&object)?;
        judge_columns(connection, "main", &object)?;
        shadows(&object, after.1)?;
    }
    for object in changed(before.1, after.1) {
        if Mount::find(&object.name).is_some() {
            continue;
        }
        judge_name(&object)?;
        if object.kind == "trigger" {
            return Err("temporary triggers are not allowed".into());
        }
        judge_columns(connection, "temp", &object)?;
        shadows(&object, after.0)?;
    }
    Ok(())
}

fn judge_name(object: &Object) -> Result<(), String> {
    if object.name.starts_with("sqlite_") {
        return Ok(());
    }
    names::check_new(&object.name)
}

/// A temporary object named as a durable one would take its place in every statement, and be taken for
/// it in the prompt; the reverse hides the durable one.
fn shadows(object: &Object, other: &Schema) -> Result<(), String> {
    let key = (true, object.name.to_lowercase());
    if matches!(object.kind.as_str(), "table" | "view")
        && other.contains_key(&key)
        && !object.name.starts_with("sqlite_")
    {
        return Err(format!(
            "{} exists both as a durable and as a temporary name: choose another",
            object.name
        ));
    }
    Ok(())
}

fn judge_main(object: &Object) -> Result<(), String> {
    let Some(sql) = &object.sql else { return Ok(()) };
    let code = crate::sql::split::code(sql);
    if let Some(mount) = mount_in(&code, &object.kind) {
        return Err(format!(
            "{} {} refers to {mount}, which is gone after this cycle: copy the value into a table of your own",
            object.kind, object.name
        ));
    }
    let called =
        |pair: &[Token<'_>]| pair[0].name().filter(|name| pair[1].text == "(" && names::is_reserved(name));
    if let Some(function) = code.windows(2).find_map(called) {
        return Err(format!(
            "{} {} calls {function}(), which only the platform has",
            object.kind, object.name
        ));
    }
    module_of(&code).map_or(Ok(()), |module| judge_virtual(&module, &code))
}

/// Module of a virtual table.
pub(crate) fn module_of(code: &[Token<'_>]) -> Option<String> {
    if !code.get(1).is_some_and(|t| t.is("VIRTUAL")) {
        return None;
    }
    let using = code.iter().position(|t| t.is("USING"))?;
    code.get(using + 1).and_then(|t| t.name().or_else(|| (t.kind == Kind::Literal).then(|| unquote(t.text))))
}

fn judge_virtual(module: &str, code: &[Token<'_>]) -> Result<(), String> {
    if !module.eq_ignore_ascii_case("fts5") {
        return Err(format!("virtual tables of the kind {module} are not available"));
    }
    let option = |pair: &[Token<'_>]| {
        pair[1].text == "=" && pair[0].name().is_some_and(|n| n.eq_ignore_ascii_case("content"))
    };
    if code.windows(2).any(option) {
        return Err(
            "fts5 with content= can't be erased reliably: leave it out, the table then keeps its own text"
                .into(),
        );
    }
    Ok(())
}

/// The first mount that a statement names as a table. SQLite takes a string for a name where only a
/// name can stand, so those places count too.
fn mount_in(code: &[Token<'_>], kind: &str) -> Option<&'static str> {
    let of = |name: &str| MOUNTS.iter().find(|m| m.name.eq_ignore_ascii_case(name)).map(|m| m.name);
    for (n, token) in code.iter().enumerate() {
        let named = match token.kind {
            Kind::Word | Kind::Quoted => token.name(),
            Kind::Literal => {
                let before = n.checked_sub(1).map(|b| &code[b]);
                let place = before.is_some_and(|b| {
                    b.is("REFERENCES")
                        || (kind != "table"
                            && (["FROM", "JOIN", "INTO", "UPDATE", "IN", "ON"].iter().any(|w| b.is(w))
                                || matches!(b.text, "," | "." | "(")))
                });
                place.then(|| unquote(token.text))
            }
            _ => None,
        };
        if let Some(mount) = named.as_deref().and_then(of) {
            return Some(mount);
        }
    }
    None
}

fn judge_columns(connection: &Connection, schema: &str, object: &Object) -> Result<(), String> {
    if !matches!(object.kind.as_str(), "table" | "view") || object.name.starts_with("sqlite_") {
        return Ok(());
    }
    // A view over a table that was dropped has no columns that could be read; that is its author's matter.
    let Ok(mut statement) =
        connection.prepare_cached("SELECT name FROM pragma_table_xinfo(?1, ?2) WHERE hidden <> 1")
    else {
        return Ok(());
    };
    let columns: Vec<String> = statement
        .query_map([&object.name, schema], |r| r.get(0))
        .and_then(Iterator::collect)
        .unwrap_or_default();
    // A view's columns may be expressions; only a table's names are stored.
    if object.kind == "table" {
        columns.iter().try_for_each(|c| names::check_plain(c))?;
    }
    Ok(())
}

/// Judges a whole durable schema, at restore and at seal. Names of imported databases may be of any
/// shape; the platform's own, foreign kinds and foreign modules may not be there.
pub(crate) fn allowed(schema: &Schema) -> Result<(), String> {
    for object in schema.values() {
        if !["table", "index", "view", "trigger"].contains(&object.kind.as_str()) {
            return Err(format!("schema object of unknown kind {:?}", object.kind));
        }
        if names::is_reserved(&object.name) {
            return Err(format!("{} {} has a name of the platform's", object.kind, object.name));
        }
        let code = object.sql.as_deref().map(crate::sql::split::code).unwrap_or_default();
        if let Some(module) = module_of(&code).filter(|m| !m.eq_ignore_ascii_case("fts5")) {
            return Err(format!(
                "virtual table {} has the module {module}, only fts5 is allowed",
                object.name
            ));
        }
    }
    Ok(())
}
