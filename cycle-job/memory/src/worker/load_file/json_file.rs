//! JSON: an array of objects, an object that holds one, or one object a line.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{COLUMNS_MAX, Source, Type, json_value, type_of};
use crate::protocol::{Fault, FaultKind};
use crate::value::Value;

type Fields = Vec<(String, Box<RawValue>)>;
type Each<'a> = &'a mut dyn FnMut(Fields) -> Result<(), Fault>;

pub(super) struct JsonFile {
    path: PathBuf,
}

impl JsonFile {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Hands over each object of the file.
    fn objects(&self, each: Each<'_>) -> Result<(), Fault> {
        let mut fault = None;
        let mut keep = |fields: Fields| {
            each(fields).map_err(|f| {
                fault = Some(f);
            })
        };
        let by_line = self.has_an_object_a_line()?;
        let input = BufReader::with_capacity(1 << 16, File::open(&self.path)?);
        let mut parser = serde_json::Deserializer::from_reader(input);
        let read = if by_line {
            loop {
                match Item(&mut keep).deserialize(&mut parser) {
                    Err(e) if e.is_eof() && parser.end().is_ok() => break Ok(()),
                    Err(e) => break Err(e),
                    Ok(()) if parser.end().is_ok() => break Ok(()),
                    Ok(()) => {}
                }
            }
        } else {
            Top(&mut keep).deserialize(&mut parser).and_then(|()| parser.end())
        };
        match (fault, read) {
            (Some(fault), _) => Err(fault),
            (None, Ok(())) => Ok(()),
            (None, Err(error)) => {
                Err(Fault::new(FaultKind::Sql, format!("the file can't be loaded as JSON rows: {error}")))
            }
        }
    }

    /// True if the first line is a whole object and another follows.
    fn has_an_object_a_line(&self) -> Result<bool, Fault> {
        let mut lines = BufReader::new(File::open(&self.path)?).lines();
        let whole = |line: Option<std::io::Result<String>>| {
            line.and_then(Result::ok).is_some_and(|l| {
                l.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(&l).is_ok()
            })
        };
        Ok(whole(lines.next())
            && lines
                .next()
                .and_then(Result::ok)
                .is_some_and(|l| l.trim().is_empty() || l.trim_start().starts_with('{')))
    }
}

impl Source for JsonFile {
    fn columns(&mut self) -> Result<Vec<(String, Type)>, Fault> {
        let mut columns: Vec<(String, Type)> = vec![];
        let mut at = std::collections::HashMap::<String, usize>::new();
        self.objects(&mut |fields| {
            for (name, raw) in fields {
                let kind = type_of(&json_value(&raw));
                if let Some(n) = at.get(&name) {
                    columns[*n].1 = columns[*n].1.max(kind);
                } else if columns.len() > COLUMNS_MAX {
                    return Err(Fault::new(
                        FaultKind::Sql,
                        format!("the objects have more than {COLUMNS_MAX} different keys"),
                    ));
                } else {
                    at.insert(name.clone(), columns.len());
                    columns.push((name, kind));
                }
            }
            Ok(())
        })?;
        Ok(columns)
    }

    fn rows(
        &mut self,
        columns: &[(String, Type)],
        each: &mut dyn FnMut(Vec<Value>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let at: std::collections::HashMap<&str, usize> =
            columns.iter().enumerate().map(|(n, (name, _))| (name.as_str(), n)).collect();
        self.objects(&mut |fields| {
            let mut row = vec![Value::Null; columns.len()];
            for (name, raw) in fields {
                if let Some(n) = at.get(name.as_str()) {
                    row[*n] = json_value(&raw);
                }
            }
            each(row)
        })
    }
}

type Keep<'a> = &'a mut dyn FnMut(Fields) -> Result<(), ()>;

/// The whole file: an array of rows, or an object of which one member is an array of rows.
struct Top<'a>(Keep<'a>);

impl<'de> DeserializeSeed<'de> for Top<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array of objects, or an object with one such array")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Item(self.0))?.is_some() {}
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut fields: Fields = vec![];
        while let Some((name, raw)) = map.next_entry::<String, Box<RawValue>>()? {
            fields.push((name, raw));
        }
        let mut arrays = fields.iter().filter(|(_, raw)| raw.get().starts_with('['));
        if let (Some((_, rows)), None) = (arrays.next(), arrays.next()) {
            let mut inner = serde_json::Deserializer::from_str(rows.get());
            return Top(self.0).deserialize(&mut inner).map_err(serde::de::Error::custom);
        }
        (self.0)(fields).map_err(|()| serde::de::Error::custom("stopped"))
    }
}

/// One row.
struct Item<'a>(Keep<'a>);

impl<'de> DeserializeSeed<'de> for Item<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Item<'_> {
    type Value = ();
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object as a row")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut fields: Fields = vec![];
        while let Some((name, raw)) = map.next_entry::<String, Box<RawValue>>()? {
            fields.push((name, raw));
        }
        (self.0)(fields).map_err(|()| serde::de::Error::custom("stopped"))
    }
}
