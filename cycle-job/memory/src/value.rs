//! One SQL value and one row, as they cross the pipe between a worker and its parent.

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A value of SQLite's five storage classes.
///
/// In JSON it is null, a number, a string, or for what JSON can't say an object of one key:
/// `{"blob": "<hex>"}` and `{"real": "inf"}`.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    /// NULL.
    #[default]
    Null,
    /// A 64-bit integer.
    Int(i64),
    /// A double; never NaN, which SQLite stores as NULL.
    Real(f64),
    /// Text. Bytes that are not UTF-8 were replaced by U+FFFD when they left SQLite.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl std::hash::Hash for Value {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Self::Null => {}
            Self::Int(n) => n.hash(state),
            Self::Real(x) => x.to_bits().hash(state),
            Self::Text(text) => text.hash(state),
            Self::Blob(bytes) => bytes.hash(state),
        }
    }
}

/// Values by position; the columns are named beside it.
pub type Row = Vec<Value>;

impl Value {
    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// True for NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// As a person reads it: text bare, NULL as `NULL`, bytes as `x'..'`.
    pub fn display(&self) -> String {
        match self {
            Self::Null => "NULL".into(),
            Self::Int(n) => n.to_string(),
            Self::Real(x) => real_text(*x),
            Self::Text(text) => text.clone(),
            Self::Blob(bytes) => format!("x'{}'", hex::encode(bytes)),
        }
    }

    pub(crate) fn from_sql(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(n) => Self::Int(n),
            ValueRef::Real(x) => Self::Real(x),
            ValueRef::Text(bytes) => Self::Text(String::from_utf8_lossy(bytes).into_owned()),
            ValueRef::Blob(bytes) => Self::Blob(bytes.to_vec()),
        }
    }
}

/// SQLite prints a whole double with `.0`, so that it is told from an integer.
pub(crate) fn real_text(x: f64) -> String {
    if x.is_finite() && x.fract() == 0.0 && x.abs() < 1e15 { format!("{x:.1}") } else { format!("{x}") }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(n) => ValueRef::Integer(*n),
            Self::Real(x) => ValueRef::Real(*x),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}
impl From<i64> for Value {
    fn from(n: i64) -> Self {
        Self::Int(n)
    }
}
impl From<bool> for Value {
    fn from(b: bool) -> Self {
        Self::Int(i64::from(b))
    }
}
impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        match self {
            Self::Null => s.serialize_unit(),
            Self::Int(n) => s.serialize_i64(*n),
            Self::Real(x) if x.is_finite() => s.serialize_f64(*x),
            Self::Real(x) => {
                let mut map = s.serialize_map(Some(1))?;
                map.serialize_entry("real", if *x > 0.0 { "inf" } else { "-inf" })?;
                map.end()
            }
            Self::Text(text) => s.serialize_str(text),
            Self::Blob(bytes) => {
                let mut map = s.serialize_map(Some(1))?;
                map.serialize_entry("blob", &hex::encode(bytes))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> de::Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("null, a number, a string, {\"blob\": hex} or {\"real\": \"inf\"}")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_i64<E>(self, n: i64) -> Result<Value, E> {
        Ok(Value::Int(n))
    }
    fn visit_u64<E: de::Error>(self, n: u64) -> Result<Value, E> {
        i64::try_from(n).map(Value::Int).map_err(|_| E::custom("integer above 64 bits"))
    }
    fn visit_f64<E>(self, x: f64) -> Result<Value, E> {
        Ok(Value::Real(x))
    }
    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }
    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }
    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let Some((kind, text)) = map.next_entry::<String, String>()? else {
            return Err(de::Error::custom("empty object"));
        };
        match (kind.as_str(), text.as_str()) {
            ("blob", _) => hex::decode(&text).map(Value::Blob).map_err(de::Error::custom),
            ("real", "inf") => Ok(Value::Real(f64::INFINITY)),
            ("real", "-inf") => Ok(Value::Real(f64::NEG_INFINITY)),
            _ => Err(de::Error::custom("unknown kind of value")),
        }
    }
}

/// The answer to a query.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Rows {
    /// Column names, as the statement gives them.
    pub columns: Vec<String>,
    /// Rows, at most as many as were asked for.
    pub rows: Vec<Row>,
    /// True if there were more.
    pub more: bool,
}

impl Rows {
    /// Column `name` of row `row`.
    pub fn get(&self, row: usize, name: &str) -> Option<&Value> {
        let at = self.columns.iter().position(|c| c == name)?;
        self.rows.get(row)?.get(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_survives_the_pipe() {
        let row = vec![
            Value::Null,
            Value::Int(i64::MIN),
            Value::Real(0.1),
            Value::Real(f64::INFINITY),
            Value::Real(3.0),
            "ü'\"\n\u{0}".into(),
            Value::Blob(vec![0, 255]),
        ];
        let json = serde_json::to_string(&row).unwrap();
        assert_eq!(serde_json::from_str::<Row>(&json).unwrap(), row, "{json}");
    }
}
