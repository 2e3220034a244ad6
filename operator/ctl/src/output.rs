//! The one place that prints. Results go to standard output, everything else to standard error.

use std::io::{self, Write};

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

    fn objects(&self) -> Value {
        let object = |row: &Vec<Value>| {
            Value::Object(self.columns.iter().cloned().zip(row.iter().cloned()).collect::<Map<_, _>>())
        };
        Value::Array(self.rows.iter().map(object).collect())
    }

    /// Prints to standard output.
    pub(crate) fn print(&self, format: Format) -> anyhow::Result<()> {
        match format {
            Format::Json | Format::Yaml => print_document(&self.objects(), format),
            Format::Csv => {
                let mut out = csv::Writer::from_writer(io::stdout().lock());
                out.write_record(&self.columns)?;
                for row in &self.rows {
                    out.write_record(row.iter().map(text))?;
                }
                Ok(out.flush()?)
            }
            Format::Table => {
                let mut table = Table::new();
                table.load_style(NOTHING).set_header(self.columns.iter().map(|c| c.to_uppercase()));
                for row in &self.rows {
                    table.add_row(row.iter().map(|v| printable(&text(v))));
                }
                for (index, column) in table.column_iter_mut().enumerate() {
                    column.set_padding((0, 3));
                    if self.rows.iter().all(|r| r.get(index).is_some_and(|v| v.is_number() || v.is_null())) {
                        column.set_cell_alignment(CellAlignment::Right);
                    }
                }
                line(table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n").as_str())
            }
        }
    }
}

/// Prints one JSON or YAML document.
pub(crate) fn print_document(value: &Value, format: Format) -> anyhow::Result<()> {
    if format == Format::Yaml {
        return line(serde_saphyr::to_string(value)?.trim_end());
    }
    line(&serde_json::to_string_pretty(value)?)
}

/// Prints a line to standard output. A closed pipe (`| head`) is no error.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    match progress::aside(|| writeln!(io::stdout().lock(), "{text}")) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Tells people something on standard error.
pub(crate) fn note(text: &str) {
    // Nobody listens to standard error: then nobody misses it.
    let _ = progress::aside(|| writeln!(io::stderr().lock(), "{text}"));
}

/// Tells people why the command failed.
pub(crate) fn problem(text: &str) {
    note(&format!("error: {text}"));
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(s) => s.clone(),
        other => other.to_string(),
    }
}

/// Cells come from a model's database: a terminal must not obey them.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// `1.5 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_like_people_write_them() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
    }

    #[test]
    fn a_terminal_does_not_obey_a_cell() {
        assert_eq!(printable("\u{1b}[31mred\u{7}"), " [31mred ");
    }
}
