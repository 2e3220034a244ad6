//! Durations and sizes as people write them.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A length of time: `30s`, `5m`, `1h30m`, `90d`. `0` means none where the field says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(pub String);

impl Span {
    /// Seconds; None if the text is no duration or too long for 64 bits.
    pub fn seconds(&self) -> Option<u64> {
        if self.0 == "0" {
            return Some(0);
        }
        let (mut total, mut number) = (0u64, None::<u64>);
        for c in self.0.chars() {
            if let Some(digit) = c.to_digit(10) {
                number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(digit.into())?);
                continue;
            }
            let unit = match c {
                's' => 1,
                'm' => 60,
                'h' => 3600,
                'd' => 86_400,
                _ => return None,
            };
            total = total.checked_add(number.take()?.checked_mul(unit)?)?;
        }
        (number.is_none() && !self.0.is_empty()).then_some(total)
    }
}

impl From<&str> for Span {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl JsonSchema for Span {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": 24, "pattern": "^(0|([0-9]{1,9}[smhd])+)$"})
    }
}

/// Bytes of a Kubernetes quantity (`256Mi`, `1G`, `268435456`); None if it is none or negative.
pub fn bytes(quantity: &Quantity) -> Option<u64> {
    let text = quantity.0.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: u64 = match unit {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let value: f64 = number.parse().ok()?;
    #[expect(clippy::cast_precision_loss, clippy::cast_sign_loss, clippy::cast_possible_truncation)]
    let result = (value * factor as f64).round() as u64; // a fraction of a unit: exact to the byte below 8 PiB
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, seconds) in [
            ("0", Some(0)),
            ("30s", Some(30)),
            ("1h30m", Some(5400)),
            ("90d", Some(7_776_000)),
            ("0s", Some(0)),
        ] {
            assert_eq!(Span::from(text).seconds(), seconds, "{text}");
        }
        for bad in ["", "5", "m", "1w", "-1s", "1.5h", "99999999999999999999d", "999999999999999999d"] {
            assert_eq!(Span::from(bad).seconds(), None, "{bad}");
        }
    }

    #[test]
    fn sizes_are_kubernetes_quantities() {
        for (text, size) in [
            ("256Mi", Some(256 << 20)),
            ("1G", Some(1_000_000_000)),
            ("1.5Gi", Some(3 << 29)),
            ("12", Some(12)),
            ("x", None),
            ("-1", None),
        ] {
            assert_eq!(bytes(&Quantity(text.into())), size, "{text}");
        }
    }
}
