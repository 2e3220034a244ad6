//! The public data that the agents work on: the npm package vega-datasets, fetched by tests/run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::shell::root;

/// Path of one of the package's files.
#[track_caller]
pub fn file(name: &str) -> PathBuf {
    let folder = std::env::var("CICADA_TEST_DATA").map_or_else(|_| root().join("target/data"), PathBuf::from);
    let path = folder.join("vega-datasets@3.2.1").join(name);
    assert!(path.exists(), "{} is missing: tests/run fetches it", path.display());
    path
}

/// A month's price of a share.
#[derive(Debug, Clone, PartialEq)]
pub struct Price {
    /// Its symbol.
    pub symbol: String,
    /// As written, e.g. `Jan 1 2000`.
    pub date: String,
    /// In dollars.
    pub price: f64,
}

/// stocks.csv, read here without any code of the system under test.
pub fn stocks() -> Vec<Price> {
    let text = std::fs::read_to_string(file("stocks.csv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next().map(str::trim), Some("symbol,date,price"));
    lines
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let fields: Vec<&str> = line.trim().split(',').collect();
            assert_eq!(fields.len(), 3, "{line}");
            Price { symbol: fields[0].into(), date: fields[1].into(), price: fields[2].parse().unwrap() }
        })
        .collect()
}

/// Number of prices, lowest and highest, per symbol.
pub fn stock_summary() -> BTreeMap<String, (usize, f64, f64)> {
    let mut all = BTreeMap::new();
    for price in stocks() {
        let entry = all.entry(price.symbol).or_insert((0, f64::INFINITY, f64::NEG_INFINITY));
        *entry = (entry.0 + 1, entry.1.min(price.price), entry.2.max(price.price));
    }
    all
}
