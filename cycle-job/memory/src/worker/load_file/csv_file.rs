//! CSV and TSV.

use std::path::{Path, PathBuf};

use super::{Source, Type};
use crate::protocol::{Fault, FaultKind};
use crate::value::Value;

pub(super) struct CsvFile {
    path: PathBuf,
    delimiter: u8,
}

impl CsvFile {
    pub(super) fn new(path: &Path, delimiter: u8) -> Self {
        Self { path: path.to_owned(), delimiter }
    }

    fn reader(&self) -> Result<csv::Reader<std::fs::File>, Fault> {
        csv::ReaderBuilder::new()
            .delimiter(self.delimiter)
            .flexible(true)
            .from_path(&self.path)
            .map_err(wrong)
    }
}

fn wrong(error: csv::Error) -> Fault {
    let message = format!("the file is not readable as CSV: {error}");
    Fault::new(if error.is_io_error() { FaultKind::Io } else { FaultKind::Sql }, message)
}

/// Text of a cell; bytes that are not UTF-8 are replaced.
fn cell(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

impl Source for CsvFile {
    fn columns(&mut self) -> Result<Vec<(String, Type)>, Fault> {
        let mut reader = self.reader()?;
        let header = reader.byte_headers().map_err(wrong)?.clone();
        let mut columns: Vec<(String, Type)> =
            header.iter().map(|h| (cell(h).trim_start_matches('\u{feff}').to_owned(), Type::Empty)).collect();
        let mut record = csv::ByteRecord::new();
        while reader.read_byte_record(&mut record).map_err(wrong)? {
            let line = record.position().map_or(0, csv::Position::line);
            if record.len() > columns.len() {
                return Err(Fault::new(
                    FaultKind::Sql,
                    format!("line {line} has {} cells, the header {}", record.len(), columns.len()),
                ));
            }
            for (field, (_, kind)) in record.iter().zip(&mut columns) {
                *kind = (*kind).max(type_of(&cell(field)));
            }
        }
        Ok(columns)
    }

    fn rows(
        &mut self,
        columns: &[(String, Type)],
        each: &mut dyn FnMut(Vec<Value>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut reader = self.reader()?;
        let mut record = csv::ByteRecord::new();
        while reader.read_byte_record(&mut record).map_err(wrong)? {
            let row = columns
                .iter()
                .enumerate()
                .map(|(n, (_, kind))| value(&cell(record.get(n).unwrap_or(b"")), *kind));
            each(row.collect())?;
        }
        Ok(())
    }
}

/// Type of one cell. A number with leading zeros or a plus sign is a code, not a quantity.
fn type_of(text: &str) -> Type {
    if text.is_empty() {
        return Type::Empty;
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'-' | b'+'))
        && digits.as_bytes()[0].is_ascii_digit();
    let coded = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
    if !plain || coded {
        return Type::Text;
    }
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        // Beyond 64 bits it would lose digits as a double.
        return if text.parse::<i64>().is_ok() { Type::Integer } else { Type::Text };
    }
    if text.parse::<f64>().is_ok_and(f64::is_finite) { Type::Real } else { Type::Text }
}

fn value(text: &str, kind: Type) -> Value {
    if text.is_empty() {
        return Value::Null;
    }
    match kind {
        Type::Integer => text.parse().map_or(Value::Null, Value::Int),
        Type::Real => text.parse().map_or(Value::Null, Value::Real),
        Type::Empty | Type::Text => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_stay_text_and_numbers_become_numbers() {
        for (text, kind) in [
            ("", Type::Empty),
            ("0", Type::Integer),
            ("-12", Type::Integer),
            ("0.5", Type::Real),
            ("1e3", Type::Real),
            ("00501", Type::Text),
            ("+491234", Type::Text),
            ("1-2", Type::Text),
            ("99999999999999999999", Type::Text),
            ("nan", Type::Text),
            ("Jan 1 2000", Type::Text),
        ] {
            assert_eq!(type_of(text), kind, "{text}");
        }
    }
}
