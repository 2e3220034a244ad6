//! diff, and looking into memories with wrong names.

use crate::support::{Folder, run};

fn diff(folder: &Folder, more: &[&str]) -> serde_json::Value {
    let ids = folder.snapshots();
    let base = ["diff", "shop/clerk", ids[0].as_str(), ids.last().unwrap().as_str(), "-o", "json"];
    serde_json::from_str(&folder.run(&[&base, more].concat()).must()).unwrap()
}

fn table<'d>(document: &'d serde_json::Value, name: &str) -> &'d serde_json::Value {
    document["tables"]
        .as_array()
        .unwrap()
        .iter()
        .find(|t| t["name"] == name)
        .unwrap_or(&serde_json::Value::Null)
}

#[test]
fn rows_are_known_by_their_key_and_the_schema_is_compared() {
    let folder = Folder::new(
        "CREATE TABLE prices(product TEXT PRIMARY KEY, cents INTEGER); CREATE TABLE gone(x); \
         CREATE TABLE log(line TEXT); CREATE VIRTUAL TABLE words USING fts5(body); \
         CREATE TABLE pairs(a TEXT, b TEXT COLLATE NOCASE, v BLOB, PRIMARY KEY(a, b)) WITHOUT ROWID; \
         INSERT INTO prices VALUES ('tea', 100), ('milk', 50), ('salt', 7), ('it''s', 9); INSERT INTO log VALUES ('one'); \
         INSERT INTO words VALUES ('old text'); INSERT INTO pairs VALUES ('a', 'x', x'00'), ('A', 'x', x'01'), ('b', 'Y', x'02');",
    );
    folder.cycle();
    folder.manifest(
        "clerk",
        "REPLACE INTO prices VALUES ('tea', 120), ('it''s', 9); DELETE FROM prices WHERE product = 'milk'; \
         INSERT INTO prices VALUES ('coffee', 300); DROP TABLE gone; ALTER TABLE log ADD COLUMN at TEXT; \
         CREATE INDEX by_cents ON prices(cents); INSERT INTO words VALUES ('new text'); \
         UPDATE pairs SET v = x'03' WHERE a = 'A';",
        "",
    );
    folder.cycle();
    let found = diff(&folder, &["--table", "prices", "--rows", "10"]);
    let prices = table(&found, "prices");
    let numbers = ["before", "after", "added", "changed", "removed"].map(|key| prices[key].as_u64().unwrap());
    assert_eq!(numbers, [4, 4, 1, 1, 1], "{found:#}");
    let samples = prices["rows"].as_array().unwrap();
    assert_eq!(samples.len(), 3, "{samples:#?}");
    let edited = samples.iter().find(|s| s["before"]["product"] == "tea").unwrap();
    assert_eq!((&edited["before"]["cents"], &edited["after"]["cents"]), (&100.into(), &120.into()));
    assert_eq!(table(&found, "words")["added"], 1);
    assert_eq!(
        (&table(&found, "pairs")["changed"], &table(&found, "pairs")["added"]),
        (&1.into(), &0.into())
    );
    assert_eq!(
        (&table(&found, "gone")["before"], &table(&found, "gone")["after"]),
        (&0.into(), &serde_json::Value::Null)
    );
    assert_eq!(table(&found, "log")["changed"], 0, "a new column alone changes no row");
    let schema: Vec<String> = found["schema"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| {
            format!("{} {} {}", c["name"].as_str().unwrap(), !c["before"].is_null(), !c["after"].is_null())
        })
        .collect();
    assert_eq!(schema, ["by_cents false true", "gone true false", "log true true"]);
    assert_eq!(found["cycles"].as_array().unwrap().len(), 1);

    let text = folder.run(&["diff", "shop/clerk", "1"]).must();
    for words in ["prices", "table gone dropped", "index by_cents added", "CYCLE"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(folder.run(&["diff", "shop/clerk", "1", "--exit-code"]).code, Some(1));
    let same = folder.run(&["diff", "shop/clerk", "2", "--exit-code"]);
    assert!(same.ends(0).contains("no difference"));
}

#[test]
fn a_damaged_snapshot_is_told_from_its_ledger() {
    let folder = Folder::after(3);
    folder.damage(folder.snapshots().last().unwrap());
    let found = diff(&folder, &[]);
    assert!(found["damage"][0].as_str().unwrap().contains("can't be read"), "{found:#}");
    assert_eq!(table(&found, "visits")["before"], 1, "the sound side is counted");
    let cycles = found["cycles"].as_array().unwrap();
    assert_eq!(cycles.len(), 2, "{found:#}");
    assert_eq!(cycles[0]["tables"][0]["name"], "visits", "{found:#}");
    assert_eq!(cycles[0]["tables"][0]["inserted"], 1);
}

#[test]
fn large_tables_are_compared_page_by_page() {
    let folder = Folder::new(
        "CREATE TABLE big(id INTEGER PRIMARY KEY, text TEXT); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000) \
         INSERT INTO big SELECT i * 3, printf('%0100d', i) FROM n;",
    );
    folder.cycle();
    folder.manifest(
        "clerk",
        "DELETE FROM big WHERE id % 1000 = 0; UPDATE big SET text = 'x' WHERE id % 999 = 0; INSERT INTO big VALUES (1, 'a'), (100000, 'b');",
        "",
    );
    folder.cycle();
    let found = diff(&folder, &[]);
    let numbers = ["added", "changed", "removed"].map(|key| table(&found, "big")[key].as_u64().unwrap());
    assert_eq!(numbers, [2, 90, 30], "{found:#}");
}

#[test]
fn wrong_names_are_met_with_what_is_there() {
    let folder = Folder::after(1);
    for (args, words) in [
        (vec!["inspect", "shop/clrk"], "did you mean clerk?"),
        (vec!["query", "shop/clerk", "SELECT 1", "--snapshot", "7"], "no snapshot 7"),
        (vec!["files", "get", "shop/clerk", "none.csv"], "no file none.csv"),
        (vec!["log", "shop/clerk", "never"], "no such cycle as never"),
        (vec!["answer", "shop/clerk", "req-1", "yes"], "no question req-1"),
        (vec!["proposals", "show", "shop/clerk", "charter-1"], "no proposal charter-1"),
        (vec!["run", "shop/clrk"], "did you mean shop/clerk?"),
        (vec!["hold", "shop/clrk"], "did you mean shop/clerk?"),
        (vec!["diff", "shop/clerk", "5", "1"], "no snapshot 5"),
    ] {
        let said = folder.run(&args).ends(3);
        assert!(said.contains(words), "{args:?}: {said}");
    }
    let nowhere = run(&["list", "--local", "/nonexistent"]).ends(3);
    assert!(nowhere.contains("can't find the folder /nonexistent"), "{nowhere}");
    let twice = folder.run(&["inspect", "shop/clerk", "-n", "lab"]).ends(2);
    assert!(twice.contains("give one"), "{twice}");
    let no_cluster = run(&["inspect", "shop/clerk"]);
    assert!(no_cluster.err.contains("--store"), "{}", no_cluster.err);
}

#[test]
fn list_shows_every_agent_of_a_store_also_one_that_can_not_be_read() {
    let folder = Folder::after(1);
    folder.run(&["copy", "shop/clerk", "lab/twin", "--yes"]).must();
    std::fs::create_dir_all(folder.path().join(".cicada/store/lab/broken")).unwrap();
    std::fs::write(folder.path().join(".cicada/store/lab/broken/HEAD.json"), "{").unwrap();
    // One whose HEAD was lost, and one that has only got a message.
    folder.run(&["copy", "shop/clerk", "lab/headless", "--yes"]).must();
    std::fs::remove_file(folder.path().join(".cicada/store/lab/headless/HEAD.json")).unwrap();
    let store = format!("file://{}", folder.path().join(".cicada/store").display());
    run(&["send", "lab/later", "hello", "--store", &store]).must();
    let ran = folder.run(&["list", "-o", "json"]);
    let rows: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let seen: Vec<String> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|r| format!("{} {}", r["agent"].as_str().unwrap(), r["state"].as_str().unwrap()))
        .collect();
    assert_eq!(
        seen,
        [
            "lab/broken unreadable",
            "lab/headless no HEAD",
            "lab/later no memory yet",
            "lab/twin idle",
            "shop/clerk idle"
        ]
    );
    assert!(ran.err.contains("lab/headless: HEAD.json is missing"), "{}", ran.err);
    assert!(ran.err.contains("lab/broken: "), "{}", ran.err);
    let one = folder.run(&["list", "-n", "shop", "-o", "csv"]).must();
    assert_eq!(one.lines().count(), 2, "{one}");
}
