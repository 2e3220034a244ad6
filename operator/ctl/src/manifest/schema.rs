//! A manifest beside the schema of its kind.

use anyhow::bail;
use serde_json::Value;

use crate::target::did_you_mean;

/// Refuses what the generated schema does not have, as an API server with strict validation would: serde alone
/// drops unknown fields in silence, and names no place.
pub(super) fn check_schema(document: &Value, schema: &Value) -> anyhow::Result<()> {
    let mut wrong = vec![];
    match document.get("spec") {
        Some(spec) => walk(spec, schema, "spec", &mut wrong),
        None => wrong.push("spec is missing".to_owned()),
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("; ")) }
}

fn walk(value: &Value, schema: &Value, path: &str, wrong: &mut Vec<String>) {
    if let Some(problem) = problem(value, schema) {
        wrong.push(format!("{path} {problem}"));
        return;
    }
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, schema.get("items").unwrap_or(&Value::Null), &format!("{path}[{index}]"), wrong);
            }
        }
        Value::Object(fields) => {
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            let missing = required.filter_map(Value::as_str).filter(|name| !fields.contains_key(*name));
            wrong.extend(missing.map(|name| format!("{path}.{name} is missing")));
            let Some(known) = schema.get("properties").and_then(Value::as_object) else { return };
            for (name, field) in fields {
                match known.get(name) {
                    Some(inner) => walk(field, inner, &format!("{path}.{name}"), wrong),
                    None => wrong.push(format!(
                        "unknown field {path}.{name}{}",
                        did_you_mean(name, &known.keys().cloned().collect::<Vec<_>>())
                    )),
                }
            }
        }
        _ => {}
    }
}

/// What is wrong with one value, whatever is in it.
fn problem(value: &Value, schema: &Value) -> Option<String> {
    let (wanted, fits) = match schema.get("type").and_then(Value::as_str)? {
        "string" => ("a text (quote it)", value.is_string()),
        "integer" => ("a whole number", value.is_i64() || value.is_u64()),
        "number" => ("a number", value.is_number()),
        "boolean" => ("true or false", value.is_boolean()),
        "array" => ("a list", value.is_array()),
        "object" => ("an object", value.is_object()),
        _ => return None,
    };
    // Left empty, which means that it is not set.
    if value.is_null() {
        return None;
    }
    if !fits {
        return Some(format!("must be {wanted}"));
    }
    if let Some(problem) = out_of_bounds(value, schema) {
        return Some(problem);
    }
    let choices = schema.get("enum").and_then(Value::as_array)?;
    if choices.contains(value) {
        return None;
    }
    let choices: Vec<String> = choices.iter().filter_map(|c| c.as_str().map(str::to_owned)).collect();
    let near = did_you_mean(value.as_str().unwrap_or_default(), &choices);
    Some(format!("is {value}: {} are possible{near}", choices.join(", ")))
}

/// Too long or too short, too many or too few, too large or too small.
fn out_of_bounds(value: &Value, schema: &Value) -> Option<String> {
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    #[expect(clippy::cast_precision_loss, reason = "a manifest has no 2^53 characters")]
    let (size, shown, least, most) = match value {
        Value::String(text) => {
            // As the API server counts.
            let count = text.chars().count();
            (count as f64, format!("has {count} characters"), bound("minLength"), bound("maxLength"))
        }
        Value::Array(items) => {
            let count = items.len();
            (count as f64, format!("has {count} entries"), bound("minItems"), bound("maxItems"))
        }
        Value::Number(number) => {
            (number.as_f64()?, format!("is {number}"), bound("minimum"), bound("maximum"))
        }
        _ => return None,
    };
    let too_much = most.filter(|most| size > *most).map(|most| format!("{shown}, at most {most}"));
    too_much.or_else(|| Some(format!("{shown}, at least {}", least.filter(|least| size < *least)?)))
}
