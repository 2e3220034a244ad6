//! The one place that prints. Results go to standard output, everything else to standard error.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use anyhow::Context;
pub(crate) use cicada_contract::text::bytes;
use cicada_contract::text::{escaped, is_invisible};
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value};

use crate::args::Format;
use crate::progress;

/// Rows under named columns, printable in every [`Format`].
pub(crate) struct Grid {
    /// Column names.
    pub(crate) columns: Vec<String>,
    /// Cells as JSON values.
    pub(crate) rows: Vec<Vec<Value>>,
}

impl Grid {
    /// A grid with these columns.
    pub(crate) fn new(columns: &[&str]) -> Self {
        Self { columns: columns.iter().map(|c| (*c).to_owned()).collect(), rows: vec![] }
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = Value>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Rows as objects. A name that several columns have gets a number from the second on, as SQLite does it
    /// for subqueries: no value is lost.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let names = unique(&self.columns);
        let object = |row: &Vec<Value>| {
            Value::Object(names.iter().cloned().zip(row.iter().cloned()).collect::<Map<_, _>>())
        };
        self.rows.iter().map(object).collect()
    }

    /// Prints to standard output.
    pub(crate) fn print(&self, format: Format) -> anyhow::Result<()> {
        match format {
            Format::Json | Format::Yaml => print_document(&self.objects().into(), format),
            Format::Csv => self.csv(io::stdout().is_terminal()),
            Format::Table => line(&self.table()),
        }
    }

    /// Into a file or pipe the values go as they are; a terminal would obey them.
    fn csv(&self, to_terminal: bool) -> anyhow::Result<()> {
        let shown = |text: String| if to_terminal { escaped(&text) } else { text };
        let mut out = csv::Writer::from_writer(vec![]);
        out.write_record(self.columns.iter().map(|c| shown(c.clone())))?;
        for row in &self.rows {
            out.write_record(row.iter().map(|value| shown(text(value))))?;
        }
        put(&out.into_inner()?)
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(NOTHING).set_header(self.columns.iter().map(|c| escaped(&c.to_uppercase())));
        for row in &self.rows {
            table.add_row(row.iter().map(|value| escaped(&text(value))));
        }
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 3));
            if self.rows.iter().all(|r| r.get(index).is_some_and(|v| v.is_number() || v.is_null())) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }
}

/// The names, each once: `a`, `a:1`, `a:2`.
fn unique(names: &[String]) -> Vec<String> {
    let mut taken: BTreeSet<String> = names.iter().cloned().collect();
    let mut seen = BTreeSet::new();
    let mut number = |name: &String| {
        if seen.insert(name.clone()) {
            return name.clone();
        }
        let free = (1..=names.len()).map(|n| format!("{name}:{n}")).find(|free| taken.insert(free.clone()));
        free.unwrap_or_else(|| name.clone())
    };
    names.iter().map(&mut number).collect()
}

/// Prints one JSON or YAML document. Characters that a terminal would obey are escaped, which changes no value.
pub(crate) fn print_document(value: &Value, format: Format) -> anyhow::Result<()> {
    line(&document(value, format)?)
}

fn document(value: &Value, format: Format) -> anyhow::Result<String> {
    if format == Format::Yaml {
        return yaml(value);
    }
    Ok(tamed(&serde_json::to_string_pretty(value)?, json_escape))
}

/// `text` with an escape in place of each character that a terminal would obey.
fn tamed(text: &str, escape: fn(char) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_obeyed(c) {
            out.push_str(&escape(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// As YAML, without characters that a terminal would obey: the library escapes control characters, marks of
/// direction it leaves. A text with such a mark is put in quoted, after all else is laid out.
pub(crate) fn yaml(value: &Value) -> anyhow::Result<String> {
    let mut quoted = vec![];
    // Random, so that no text of a model's can be taken for one of them.
    let mark = format!("q{}q", RandomState::new().build_hasher().finish());
    let value = without_marks(value, &mut |text| {
        quoted.push(serde_json::to_string(text).unwrap_or_default());
        format!("{mark}{}q", quoted.len() - 1)
    });
    let laid_out = serde_saphyr::to_string(&value)?;
    let mut parts = laid_out.trim_end().split(&mark);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (n, rest) = part.split_once('q').unwrap_or_default();
        let text = n.parse().ok().and_then(|n: usize| quoted.get(n)).map_or("", String::as_str);
        out.push_str(&tamed(text, yaml_escape));
        out.push_str(rest);
    }
    Ok(out)
}

fn without_marks(value: &Value, quote: &mut impl FnMut(&str) -> String) -> Value {
    let mut text = |text: &String| if text.chars().any(is_invisible) { quote(text) } else { text.clone() };
    match value {
        Value::String(s) => Value::String(text(s)),
        Value::Array(items) => items.iter().map(|item| without_marks(item, quote)).collect(),
        Value::Object(fields) => {
            let keys: Vec<String> = fields.keys().map(&mut text).collect();
            let values = fields.values().map(|value| without_marks(value, quote));
            Value::Object(keys.into_iter().zip(values).collect())
        }
        other => other.clone(),
    }
}

/// A character that changes how a terminal shows others, line breaks aside.
fn is_obeyed(c: char) -> bool {
    (c.is_control() && c != '\n') || is_invisible(c)
}

fn json_escape(c: char) -> String {
    c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

fn yaml_escape(c: char) -> String {
    format!("\\U{:08x}", u32::from(c))
}

/// Prints lines to standard output.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    put(format!("{}\n", visible(text)).as_bytes())
}

/// Writes to standard output. A closed pipe (`| head`) is no error.
fn put(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match progress::aside(|| out.write_all(bytes).and_then(|()| out.flush())) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("can't write to standard output"),
    }
}

/// What people call this program.
static PROGRAM: OnceLock<&str> = OnceLock::new();

/// Gives the program another name in all that it tells people.
pub(crate) fn call_program(name: &'static str) {
    // It is called once.
    let _ = PROGRAM.set(name);
}

/// Tells people something on standard error.
pub(crate) fn note(text: &str) {
    let text = match PROGRAM.get() {
        Some(name) => text.replace("cicadactl ", &format!("{name} ")),
        None => text.to_owned(),
    };
    // Nobody listens to standard error: then nobody misses it.
    let _ = progress::aside(|| writeln!(io::stderr().lock(), "{}", visible(&text)));
}

/// Tells people why the command failed.
pub(crate) fn problem(text: &str) {
    note(&format!("error: {text}"));
}

/// A number with its noun: `1 row`, `2 rows`.
pub(crate) fn count(number: impl Into<u64>, noun: &str) -> String {
    let number = number.into();
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The same of a length.
pub(crate) fn count_of(number: usize, noun: &str) -> String {
    count(u64::try_from(number).unwrap_or(u64::MAX), noun)
}

/// Texts come from models and strangers: a terminal must not obey them. Line breaks and tabs stay.
pub(crate) fn visible(text: &str) -> String {
    text.split('\n')
        .map(|line| line.split('\t').map(escaped).collect::<Vec<_>>().join("\t"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(s) => s.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NASTY: &str = "\u{1b}[31mred\u{7}\u{9b}\u{202e}txt.exe\u{e0041}\n\t\"end\\";

    fn grid() -> Grid {
        let mut grid = Grid::new(&["a", "a", "\u{202e}b", "a:1"]);
        grid.push([json!(1), json!(NASTY), json!([NASTY]), json!(null)]);
        grid
    }

    #[test]
    fn a_terminal_obeys_nothing_that_is_shown() {
        let grid = grid();
        let json = document(&grid.objects().into(), Format::Json).unwrap();
        let yaml = document(&grid.objects().into(), Format::Yaml).unwrap();
        for text in [grid.table(), json, yaml, visible(NASTY)] {
            assert!(!text.replace('\t', "").chars().any(is_obeyed), "{text:?}");
        }
        assert_eq!(visible("a\n\tb \u{1b}"), "a\n\tb \\u{1b}");
    }

    #[test]
    fn a_document_holds_every_value_as_it_is() {
        let rows = Value::from(grid().objects());
        let wanted = json!([{"a": 1, "a:2": NASTY, "\u{202e}b": [NASTY], "a:1": null}]);
        assert_eq!(rows, wanted);
        let json = document(&rows, Format::Json).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), wanted, "{json}");
        let yaml = document(&rows, Format::Yaml).unwrap();
        assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), wanted, "{yaml}");
    }
}
