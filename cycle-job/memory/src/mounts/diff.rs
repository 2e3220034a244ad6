//! The difference of an editable mount: what left the worker is one [`MountEdit`] per changed row.

use std::collections::BTreeMap;

use super::{Mount, MountEdit};
use crate::value::Row;

/// Rows by key, as text.
pub(crate) type Keyed = BTreeMap<String, Row>;

/// Keys rows by the mount's key column.
pub(crate) fn keyed(mount: &Mount, rows: impl IntoIterator<Item = Row>) -> Keyed {
    let key = mount.key_index();
    rows.into_iter().map(|row| (row.get(key).map(crate::Value::display).unwrap_or_default(), row)).collect()
}

/// Edits that lead from `before` to `now`, in the order of their keys.
pub(crate) fn between(mount: &Mount, before: &Keyed, now: &Keyed) -> Vec<MountEdit> {
    let edit = |key: &String, before: Option<&Row>, after: Option<&Row>| MountEdit {
        table: mount.name.to_owned(),
        key: key.clone(),
        before: before.cloned(),
        after: after.cloned(),
    };
    let mut edits: Vec<MountEdit> = before
        .iter()
        .filter(|(key, row)| now.get(*key) != Some(row))
        .map(|(key, row)| edit(key, Some(row), now.get(key)))
        .collect();
    edits.extend(
        now.iter().filter(|(key, _)| !before.contains_key(*key)).map(|(key, row)| edit(key, None, Some(row))),
    );
    edits
}
