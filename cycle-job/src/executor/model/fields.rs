//! The arguments of a tool call, read with care for how models write them.

use serde_json::{Map, Value};

/// Typed access to arguments. Numbers and flags written as text are understood: weak models do that.
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    tool: &'a str,
}

impl<'a> Fields<'a> {
    pub(super) fn new(map: &'a Map<String, Value>, tool: &'a str) -> Self {
        Self { map, tool }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    pub(super) fn text(&self, key: &str) -> Result<String, String> {
        match self.optional_text(key)? {
            Some(text) if !text.trim().is_empty() => Ok(text),
            Some(_) => Err(format!("{key} is empty")),
            None => Err(format!("{key} is missing from the arguments of {}", self.tool)),
        }
    }

    /// Like [`Self::text`], but may be empty.
    pub(super) fn any_text(&self, key: &str) -> Result<String, String> {
        self.optional_text(key)?
            .ok_or_else(|| format!("{key} is missing from the arguments of {}", self.tool))
    }

    pub(super) fn optional_text(&self, key: &str) -> Result<Option<String>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(Value::Number(n)) => Ok(Some(n.to_string())),
            Some(other) => Err(format!("{key} must be a string, not {}", kind(other))),
        }
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>, String> {
        match self.get(key) {
            None => Ok(vec![]),
            Some(Value::Array(items)) => items
                .iter()
                .map(|v| {
                    v.as_str().map(str::to_owned).ok_or_else(|| format!("{key} must be an array of strings"))
                })
                .collect(),
            Some(other) => Err(format!("{key} must be an array of strings, not {}", kind(other))),
        }
    }

    pub(super) fn number(&self, key: &str, default: u64) -> Result<u64, String> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::String(text)) => {
                text.trim().parse().map_err(|_| format!("{key} must be a whole number, not {text:?}"))
            }
            Some(value) => {
                value.as_u64().ok_or_else(|| format!("{key} must be a whole number from 0, not {value}"))
            }
        }
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool, String> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::String(text)) if text == "true" || text == "false" => Ok(text == "true"),
            Some(other) => Err(format!("{key} must be true or false, not {}", kind(other))),
        }
    }

    pub(super) fn pairs(&self, key: &str) -> Result<Vec<(String, String)>, String> {
        match self.get(key) {
            None => Ok(vec![]),
            Some(Value::Object(map)) => map
                .iter()
                .map(|(name, value)| match value {
                    Value::String(text) => Ok((name.clone(), text.clone())),
                    Value::Number(n) => Ok((name.clone(), n.to_string())),
                    other => Err(format!("{key}.{name} must be a string, not {}", kind(other))),
                })
                .collect(),
            Some(other) => Err(format!("{key} must be an object of strings, not {}", kind(other))),
        }
    }

    /// A body may be given as text or as the JSON that it is to be.
    pub(super) fn body(&self, key: &str) -> Result<Option<String>, String> {
        Ok(self.get(key).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Arguments that would be right, from the schema: `{"path": string, "table": string, "durable"?: boolean}`.
pub(super) fn example(schema: &Value) -> String {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let Some(properties) = schema["properties"].as_object() else { return "{}".into() };
    let fields: Vec<String> = properties
        .iter()
        .map(|(name, field)| {
            let mark = if required.contains(&name.as_str()) { "" } else { "?" };
            let kind = match field["enum"].as_array() {
                Some(values) => values.iter().map(Value::to_string).collect::<Vec<_>>().join("|"),
                None => field["type"].as_str().unwrap_or("any").to_owned(),
            };
            format!("\"{name}\"{mark}: {kind}")
        })
        .collect();
    format!("{{{}}}", fields.join(", "))
}
