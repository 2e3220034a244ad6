//! What a tool's result holds, without its text: the shape of JSON, the columns of CSV and HTML tables,
//! head and tail of a text; and a query that reads the rest.
//!
//! Results are foreign bytes: this runs in the ledger worker.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::ledger::ToolDigest;
use crate::prompt::{detect, quoted};

/// Paths of a JSON shape.
const PATHS_MAX: usize = 60;
/// Elements of an array that are looked at.
const ELEMENTS_MAX: usize = 200;
/// Depth of a JSON shape.
const DEPTH_MAX: usize = 8;
/// Columns of a table.
const COLUMNS_MAX: usize = 50;
/// Rows of a CSV that are looked at for types.
const ROWS_MAX: usize = 200;
/// Bytes of head and tail of a text.
const ENDS: usize = 600;

/// The digest of a text result. `id` names it in the query.
pub(crate) fn of(id: &str, content: &str) -> ToolDigest {
    let id = id.replace('\'', "''");
    let lines = content.lines().count() as u64;
    if let Ok(json) = serde_json::from_str::<Json>(content)
        && (json.is_object() || json.is_array())
    {
        return json_digest(&id, &json, lines);
    }
    let tables = html_tables(content);
    if !tables.is_empty() {
        return table_digest(&id, "html", &tables, lines);
    }
    if let Some(table) = csv_table(content) {
        return table_digest(&id, "csv", &[table], lines);
    }
    text_digest(&id, content, lines)
}

fn json_digest(id: &str, json: &Json, lines: u64) -> ToolDigest {
    let mut shape = BTreeMap::new();
    walk(json, "$", 0, &mut shape);
    let mut text = String::from("JSON with\n");
    for (path, seen) in shape.iter().take(PATHS_MAX) {
        let times = if seen.count > 1 { format!(" x{}", seen.count) } else { String::new() };
        let example = seen.example.as_ref().map(|e| format!(", e.g. {}", quoted(e, 60))).unwrap_or_default();
        text.push_str(&format!("  {} {}{times}{example}\n", quoted(path, 120), seen.kinds.join("|")));
    }
    if shape.len() > PATHS_MAX {
        text.push_str(&format!("  and {} more paths\n", shape.len() - PATHS_MAX));
    }
    let rows = rows_path(json);
    let query = match &rows {
        Some(path) => format!(
            "SELECT e.value FROM __tool_results r, json_each(r.result_json, '{path}') e WHERE r.result_id = '{id}' LIMIT 50"
        ),
        None => format!(
            "SELECT key, value FROM __tool_results r, json_each(r.result_json) WHERE r.result_id = '{id}'"
        ),
    };
    let analysis: Vec<Json> = shape
        .iter()
        .take(PATHS_MAX)
        .map(|(path, s)| serde_json::json!({"path": path, "types": s.kinds, "count": s.count}))
        .collect();
    ToolDigest {
        is_json: true,
        json_type: Some(kind(json).to_owned()),
        top_keys: json
            .as_object()
            .map(|o| cicada_contract::text::cut(&o.keys().cloned().collect::<Vec<_>>().join(", "), 500)),
        line_count: lines,
        analysis_json: Some(serde_json::json!({"kind": "json", "shape": analysis}).to_string()),
        text,
        query,
    }
}

#[derive(Default)]
struct Seen {
    kinds: Vec<&'static str>,
    count: usize,
    example: Option<String>,
}

fn kind(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

fn walk(json: &Json, path: &str, depth: usize, shape: &mut BTreeMap<String, Seen>) {
    let seen = shape.entry(path.to_owned()).or_default();
    if !seen.kinds.contains(&kind(json)) {
        seen.kinds.push(kind(json));
    }
    seen.count += 1;
    if depth >= DEPTH_MAX || shape.len() > PATHS_MAX * 4 {
        return;
    }
    match json {
        Json::Object(map) => map
            .iter()
            .for_each(|(key, value)| walk(value, &format!("{path}{}", member(key)), depth + 1, shape)),
        Json::Array(all) => all
            .iter()
            .take(ELEMENTS_MAX)
            .for_each(|value| walk(value, &format!("{path}[*]"), depth + 1, shape)),
        Json::Null => {}
        scalar => {
            let text = scalar.as_str().map_or_else(|| scalar.to_string(), str::to_owned);
            shape.entry(path.to_owned()).or_default().example.get_or_insert(text);
        }
    }
}

/// A key as SQLite's JSON paths write it.
fn member(key: &str) -> String {
    let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if plain { format!(".{key}") } else { format!(".\"{}\"", key.replace('"', "")) }
}

/// Where the rows are: the whole, or the one member that is an array.
fn rows_path(json: &Json) -> Option<String> {
    if json.is_array() {
        return Some("$".into());
    }
    let mut arrays = json.as_object()?.iter().filter(|(_, v)| v.as_array().is_some_and(|a| !a.is_empty()));
    match (arrays.next(), arrays.next()) {
        (Some((key, _)), None) => Some(format!("${}", member(key)).replace('\'', "''")),
        _ => None,
    }
}

/// Names, types and number of rows of a table.
struct Table {
    columns: Vec<(String, &'static str)>,
    rows: usize,
}

fn table_digest(id: &str, kind: &str, tables: &[Table], lines: u64) -> ToolDigest {
    let mut text = String::new();
    let mut analysis = vec![];
    for (n, table) in tables.iter().enumerate() {
        let columns: Vec<String> =
            table.columns.iter().map(|(name, kind)| format!("{} {kind}", quoted(name, 40))).collect();
        text.push_str(&format!(
            "{} table {}: {} rows, columns {}\n",
            kind.to_uppercase(),
            n + 1,
            table.rows,
            columns.join(", ")
        ));
        let columns: Vec<Json> = table
            .columns
            .iter()
            .map(|(name, kind)| serde_json::json!({"name": name, "type": kind}))
            .collect();
        analysis.push(serde_json::json!({"rows": table.rows, "columns": columns}));
    }
    ToolDigest {
        line_count: lines,
        analysis_json: Some(serde_json::json!({"kind": kind, "tables": analysis}).to_string()),
        text,
        query: page_query(id),
        ..ToolDigest::default()
    }
}

fn page_query(id: &str) -> String {
    format!(
        "SELECT substr(result_text, 1, 6000) FROM __tool_results WHERE result_id = '{id}' -- next: substr(result_text, 6001, 6000)"
    )
}

fn csv_table(content: &str) -> Option<Table> {
    let first = content.lines().next()?;
    let delimiter = [b',', b';', b'\t'].into_iter().max_by_key(|d| first.matches(char::from(*d)).count())?;
    if !first.contains(char::from(delimiter)) || content.lines().count() < 3 {
        return None;
    }
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(content.as_bytes());
    let header: Vec<String> = reader.headers().ok()?.iter().take(COLUMNS_MAX).map(str::to_owned).collect();
    let mut values: Vec<Vec<String>> = vec![vec![]; header.len()];
    let mut rows = 0;
    for record in reader.records() {
        // A line of another width: prose with commas, not a table.
        let record = record.ok()?;
        if rows < ROWS_MAX {
            record
                .iter()
                .zip(&mut values)
                .filter(|(v, _)| !v.is_empty())
                .for_each(|(v, all)| all.push(v.to_owned()));
        }
        rows += 1;
    }
    let columns = header.into_iter().zip(values).map(|(name, values)| (name, type_of(&values))).collect();
    Some(Table { columns, rows })
}

fn type_of(values: &[String]) -> &'static str {
    let all = |of: fn(&str) -> bool| !values.is_empty() && values.iter().all(|v| of(v));
    if all(|v| v.parse::<i64>().is_ok()) {
        return "integer";
    }
    if all(|v| v.parse::<f64>().is_ok()) {
        return "number";
    }
    detect::column(values).unwrap_or("text")
}

/// Tables of an HTML page: cells of the first row as names. No parser of all of HTML: only what is
/// between `<table` and `</table`, read once from left to right.
fn html_tables(content: &str) -> Vec<Table> {
    let lower = content.to_ascii_lowercase();
    let mut tables = vec![];
    let mut from = 0;
    while let Some(start) = lower[from..].find("<table").map(|n| from + n) {
        let end = lower[start..].find("</table").map_or(lower.len(), |n| start + n);
        let rows: Vec<&str> = split_tag(&content[start..end], &lower[start..end], "<tr");
        if let Some(first) = rows.first() {
            let first_lower = first.to_ascii_lowercase();
            let mut names = split_tag(first, &first_lower, "<th");
            if names.is_empty() {
                names = split_tag(first, &first_lower, "<td");
            }
            let columns = names.iter().take(COLUMNS_MAX).map(|cell| (plain(cell), "text")).collect();
            tables.push(Table { columns, rows: rows.len().saturating_sub(1) });
        }
        from = end.max(start + 6);
        if tables.len() == 20 {
            break;
        }
    }
    tables
}

/// The parts behind each opening `tag`.
fn split_tag<'a>(text: &'a str, lower: &str, tag: &str) -> Vec<&'a str> {
    let starts: Vec<usize> = lower
        .match_indices(tag)
        .map(|(n, _)| n)
        .filter(|n| !lower[n + tag.len()..].starts_with(|c: char| c.is_ascii_alphanumeric()))
        .collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    starts.iter().zip(ends).map(|(s, e)| &text[*s..e]).collect()
}

/// Text without tags.
fn plain(html: &str) -> String {
    let mut out = String::new();
    let mut tag = false;
    for c in html.chars().take(500) {
        match c {
            '<' => tag = true,
            '>' => tag = false,
            c if !tag => out.push(c),
            _ => {}
        }
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn text_digest(id: &str, content: &str, lines: u64) -> ToolDigest {
    let head = cicada_contract::text::cut(content, ENDS);
    let tail_start = content.len().saturating_sub(ENDS);
    let tail_start =
        (tail_start..content.len()).find(|n| content.is_char_boundary(*n)).unwrap_or(content.len());
    let mut text = format!("text of {} bytes, {lines} lines; begins {}", content.len(), quoted(&head, ENDS));
    if content.len() > 2 * ENDS {
        text.push_str(&format!("; ends {}", quoted(&content[tail_start..], ENDS)));
    }
    text.push('\n');
    ToolDigest {
        line_count: lines,
        analysis_json: Some("{\"kind\":\"text\"}".into()),
        text,
        query: page_query(id),
        ..ToolDigest::default()
    }
}

/// What the model sees of a result: all of it while it is new and small, else the digest.
///
/// `fresh` results up to 40 KB are shown once, older ones up to 2 KB.
pub fn preview(digest: &ToolDigest, content: Option<&str>, fresh: bool) -> String {
    let most = if fresh { 40_000 } else { 2_000 };
    match content {
        Some(content) if content.len() <= most => content.to_owned(),
        Some(_) => format!("{}Read it by: {}\n", digest.text, digest.query),
        None => "a binary result; it is not shown\n".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_told_by_its_shape() {
        let d = of("r'1", r#"{"items": [{"id": 1, "tag": "a"}, {"id": 2, "tag": null}], "next page": "x"}"#);
        assert_eq!(
            (d.json_type.as_deref(), d.top_keys.as_deref()),
            (Some("object"), Some("items, next page"))
        );
        assert!(d.text.contains("\"$.items[*].id\" number x2, e.g. \"1\""), "{}", d.text);
        assert!(d.text.contains("\"$.items[*].tag\" string|null x2"), "{}", d.text);
        assert!(
            d.query.contains("json_each(r.result_json, '$.items')") && d.query.contains("'r''1'"),
            "{}",
            d.query
        );
    }

    #[test]
    fn tables_are_told_by_their_columns() {
        let d = of("r", "day,price,name\n2024-01-01,1.5,a\n2024-01-02,2,b\n2024-01-03,3,c\n");
        assert!(
            d.text.starts_with(
                "CSV table 1: 3 rows, columns \"day\" ISO date, \"price\" number, \"name\" text"
            ),
            "{}",
            d.text
        );
        let d = of(
            "r",
            "<html><TABLE><tr><th>Day</th><th><b>Price</b></th></tr><tr><td>1</td><td>2</td></tr></TABLE></html>",
        );
        assert!(
            d.text.starts_with("HTML table 1: 1 rows, columns \"Day\" text, \"Price\" text"),
            "{}",
            d.text
        );
        assert!(of("r", "Dear Ann, thanks,\nsee you, bye,\nBob").text.starts_with("text of"));
    }

    #[test]
    fn previews_show_small_and_digest_large_results() {
        let long = "line of text\n".repeat(4000);
        let d = of("r", &long);
        assert!(preview(&d, Some(&long), true).len() < 3000);
        let middle = "x".repeat(10_000);
        assert_eq!(preview(&d, Some(&middle), true), middle);
        assert!(preview(&of("r", &middle), Some(&middle), false).len() < 2_000);
        assert!(preview(&d, None, true).contains("binary"));
    }

    #[test]
    fn hostile_content_is_bounded() {
        for content in [
            "[".repeat(100_000),
            "{\"a\":".repeat(50_000),
            "<table".repeat(50_000),
            "<table><tr".repeat(20_000),
            ",\n".repeat(100_000),
        ] {
            let d = of("r", &content);
            assert!(d.text.len() < 20_000, "{}", d.text.len());
        }
        let wide: String =
            format!("{{{}}}", (0..5000).map(|n| format!("\"k{n}\": {n}")).collect::<Vec<_>>().join(","));
        assert!(of("r", &wide).text.contains("more paths"));
    }
}
