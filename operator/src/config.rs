//! Configuration file: what the chart sets.

use std::path::Path;

use anyhow::Context as _;
use cicada_operator_core::OperatorDefaults;
use serde::Deserialize;

/// The whole file. Unknown keys are an error: a misspelt limit must not mean "no limit".
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// What agents get where their manifest says nothing.
    pub defaults: OperatorDefaults,
    /// Reason why no cycle starts anywhere; none = they start.
    pub hold: Option<String>,
    /// How many cycles may run at once.
    pub capacity: Capacity,
    /// Page with one heading for each reason; events link to it. Empty: no link.
    pub runbook_url: String,
}

/// How many cycles may run at once; 0 = any number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Capacity {
    /// In all namespaces together.
    pub cycles: usize,
    /// In each namespace.
    pub cycles_per_namespace: usize,
}

impl Config {
    /// Reads a file; without one, everything has its default.
    pub fn load(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self::default()) };
        let text =
            std::fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?;
        serde_saphyr::from_str(&text).with_context(|| format!("could not understand {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_is_refused() {
        assert!(serde_saphyr::from_str::<Config>("capacity: {cycels: 3}").is_err());
        let config: Config =
            serde_saphyr::from_str("capacity: {cycles: 3}\ndefaults: {cluster: prod}").unwrap();
        assert_eq!((config.capacity.cycles, config.defaults.cluster.as_str()), (3, "prod"));
    }
}
