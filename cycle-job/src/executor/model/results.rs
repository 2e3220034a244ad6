//! Tool results as the model reads them.

use std::collections::{BTreeMap, BTreeSet};

use cicada_contract::text::cut;
use cicada_memory::mounts::Mount;
use cicada_memory::{MOUNTS, Mounts, Value};

use super::desk::Kept;
use super::prompt::result_block;
use super::transcript::FRESH_ANSWER_BYTES;

/// Bytes of the beginning of a result that is too large to be shown whole.
const HEAD_BYTES: usize = 6000;
/// Bytes of its end.
const TAIL_BYTES: usize = 1500;

/// A fresh result: whole if it is small, else its shape, beginning and end and the query that reads the rest.
pub(super) fn show(source: &str, kept: &Kept) -> String {
    let id = &kept.id;
    let Some(content) = &kept.content else {
        return format!("result_id: {id}\nThe result is not text ({} bytes).", kept.bytes);
    };
    if content.len() <= FRESH_ANSWER_BYTES - 1000 {
        return format!("result_id: {id}\n{}", result_block(source, content));
    }
    let shape = if kept.digest.text.is_empty() {
        String::new()
    } else {
        format!("{}\n", result_block("shape of the result", &kept.digest.text))
    };
    let head = cut(content, HEAD_BYTES);
    let mut from = content.len() - TAIL_BYTES;
    while !content.is_char_boundary(from) {
        from += 1;
    }
    format!(
        "result_id: {id}\n{} bytes, {} lines{}. Read it by SQL: {}\n{shape}{}\n(...)\n{}",
        content.len(),
        kept.digest.line_count,
        kept.digest.json_type.as_ref().map(|t| format!(", JSON {t}")).unwrap_or_default(),
        kept.digest.query,
        result_block(&format!("beginning of {source}"), &head),
        result_block(&format!("end of {source}"), &content[from..]),
    )
}

/// Bytes `offset..offset + limit` of a text, at characters, with how to go on.
pub(super) fn slice(source: &str, content: &str, offset: u64, limit: u64) -> String {
    let clamp = |n: u64| {
        let mut at = usize::try_from(n).unwrap_or(usize::MAX).min(content.len());
        while !content.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let (from, to) = (clamp(offset), clamp(offset.saturating_add(limit)));
    let block = result_block(source, &content[from..to]);
    if to < content.len() {
        format!("{block}\n(bytes {from} to {to} of {}; go on with offset {to})", content.len())
    } else {
        block
    }
}

/// Puts contents that lie in the store into the rows of `__tool_results`, and marks the current step's.
pub(super) fn fill(mounts: &mut Mounts, contents: &BTreeMap<String, String>, fresh: &BTreeSet<String>) {
    let Some(mount) = MOUNTS.iter().find(|m| m.name == "__tool_results") else { return };
    let Some(rows) = mounts.tables.get_mut(mount.name) else { return };
    for row in rows {
        fill_row(mount, row, contents, fresh);
    }
}

fn fill_row(mount: &Mount, row: &mut [Value], contents: &BTreeMap<String, String>, fresh: &BTreeSet<String>) {
    let (Some(id), Some(is_json)) = (mount.column("result_id"), mount.column("is_json")) else { return };
    let id = row.get(id).map(Value::display).unwrap_or_default();
    if fresh.contains(&id)
        && let Some(cell) = mount.column("is_current_step").and_then(|n| row.get_mut(n))
    {
        *cell = Value::Int(1);
    }
    let Some(content) = contents.get(&id) else { return };
    let is_json = row.get(is_json).and_then(Value::as_int) == Some(1);
    let column = if is_json { "result_json" } else { "result_text" };
    if let Some(cell) = mount.column(column).and_then(|n| row.get_mut(n)).filter(|cell| cell.is_null()) {
        *cell = Value::Text(content.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(content: &str) -> Kept {
        Kept {
            id: "r-1".into(),
            content: Some(content.into()),
            bytes: content.len(),
            digest: cicada_memory::ledger::ToolDigest::default(),
        }
    }

    #[test]
    fn a_small_result_is_whole_and_a_large_one_says_how_to_read_it() {
        assert_eq!(
            show("x", &kept("hello")),
            "result_id: r-1\n<untrusted source=\"x\">\nhello\n</untrusted>"
        );
        let large = show("x", &kept(&"ü".repeat(60_000)));
        assert!(
            large.len() < 10_000 && large.contains("120000 bytes") && large.contains("end of x"),
            "{}",
            &large[..200]
        );
    }

    #[test]
    fn pages_join_to_the_whole() {
        let text = "äöü".repeat(100);
        let mut offset = 0;
        let mut joined = String::new();
        loop {
            let page = slice("x", &text, offset, 77);
            let body = page.split('\n').nth(1).unwrap();
            joined.push_str(body);
            offset += body.len() as u64;
            if !page.contains("go on with offset") {
                break;
            }
            assert!(page.ends_with(&format!("go on with offset {offset})")), "{page}");
        }
        assert_eq!(joined, text);
    }

    #[test]
    fn contents_of_the_store_reach_the_mount() {
        let mount = MOUNTS.iter().find(|m| m.name == "__tool_results").unwrap();
        let mut row = vec![Value::Null; mount.columns.len()];
        row[mount.column("result_id").unwrap()] = "r-1".into();
        row[mount.column("is_json").unwrap()] = Value::Int(1);
        let mut mounts = Mounts::default();
        mounts.tables.insert("__tool_results".into(), vec![row]);
        fill(
            &mut mounts,
            &BTreeMap::from([("r-1".to_owned(), "{}".to_owned())]),
            &BTreeSet::from(["r-1".to_owned()]),
        );
        let row = &mounts.rows("__tool_results")[0];
        assert_eq!(row[mount.column("result_json").unwrap()], "{}".into());
        assert_eq!(row[mount.column("is_current_step").unwrap()], Value::Int(1));
    }
}
