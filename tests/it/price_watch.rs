//! The main job, from a user's view: install, apply, and three cycles woken in three ways.

use std::path::Path;

use cicada_tests::{data, memory::Unpacked, namespace::Namespace, wait};
use serde_json::Value;

use crate::agents::{cycle, sql_agent};

const SQL: &str = "SELECT load_table('stocks.csv', 'incoming');
    CREATE TABLE IF NOT EXISTS prices(symbol TEXT NOT NULL, date TEXT NOT NULL, price REAL NOT NULL, PRIMARY KEY(symbol, date));
    INSERT INTO prices SELECT symbol, date, price FROM incoming WHERE true ON CONFLICT DO NOTHING;
    CREATE TABLE IF NOT EXISTS summary(symbol TEXT PRIMARY KEY, months INTEGER, lowest REAL, highest REAL);
    INSERT OR REPLACE INTO summary SELECT symbol, count(*), min(price), max(price) FROM prices GROUP BY symbol;
    CREATE TABLE IF NOT EXISTS heard(message_id TEXT PRIMARY KEY, sender TEXT, body TEXT);
    INSERT INTO heard SELECT message_id, from_address, body FROM __messages WHERE is_new AND NOT is_outbound ON CONFLICT DO NOTHING;
    CREATE TABLE IF NOT EXISTS cycles(id INTEGER PRIMARY KEY, prices INTEGER, messages INTEGER, files INTEGER);
    INSERT INTO cycles(prices, messages, files)
    SELECT (SELECT count(*) FROM prices), (SELECT count(*) FROM __messages), (SELECT count(*) FROM __files);";

const FILES: &str =
    "  files: [{path: stocks.csv, from: {configMapKeyRef: {name: prices, key: stocks.csv}}}]\n";

fn schedule(cron: &str) -> String {
    format!(
        "  schedules: [{{name: prices, cron: \"{cron}\", timeZone: Europe/Berlin, instruction: Load the prices.}}]\n  inbound: Anyone\n{FILES}"
    )
}

/// What SQL computed in the pod against what this test computes from the file.
fn assert_numbers(memory: &Unpacked) {
    let expected: Vec<String> = data::stock_summary()
        .into_iter()
        .map(|(symbol, (months, lowest, highest))| format!("{symbol}|{months}|{lowest:.2}|{highest:.2}"))
        .collect();
    let stored = memory.sql(
        "SELECT symbol, months, printf('%.2f', lowest), printf('%.2f', highest) FROM summary ORDER BY symbol",
    );
    assert_eq!(stored.lines().collect::<Vec<_>>(), expected);
    assert_eq!(memory.sql("SELECT count(*) FROM prices"), data::stocks().len().to_string());
}

/// argo-workflows#15732: an image without zone files fell back to another zone. The operator's image holds nothing but
/// its program, and the schedule here has a zone.
#[test]
#[ignore = "needs the test cluster: tests/run"]
fn three_cycles_woken_in_three_ways_grow_one_memory() {
    let ns = Namespace::new("price-watch");
    ns.config_map("prices", &data::file("stocks.csv"));
    ns.apply(&sql_agent("price-watch", SQL, &schedule("* * * * *")));
    ns.cicadactl(&["send"], "price-watch", &["--from", "sales", "--channel", "cli", "Watch MSFT, please"])
        .must();

    // 1: a slot of the cron schedule.
    let first = ns.wait_for_cycles(1, 150).remove(0);
    ns.apply(&sql_agent("price-watch", SQL, &schedule("0 0 1 1 *")));
    assert_eq!(first["status"]["phase"], "Succeeded", "{first:#}");
    assert_eq!(first["spec"]["triggers"][0]["type"], "Schedule");
    assert_eq!(first["spec"]["triggers"][0]["schedule"], "prices");
    let name = first["metadata"]["name"].as_str().unwrap();
    let minute: i64 =
        name.trim_start_matches("price-watch-").parse().expect("a slot's cycle is named by its minute");
    assert!(minute > 29_000_000, "{name}");
    // A second slot may have come before the schedule was changed: the counts below start from here.
    let before = wait::until("the agent is idle", 120, || {
        let status = ns.status("price-watch");
        (status["state"] == "Idle" && status["activeCycle"].is_null())
            .then(|| ns.wait_for_cycles(1, 10).len())
    });
    let memory = Unpacked::check(&ns.folder("price-watch"));
    assert_numbers(&memory);
    assert_eq!(memory.sql("SELECT sender, body FROM heard"), "sales|Watch MSFT, please");
    let runs: usize = memory.sql("SELECT count(*) FROM cycles").parse().unwrap();
    assert_eq!(runs, before);
    assert_eq!(memory.sql("SELECT prices, messages, files FROM cycles WHERE id = 1"), "560|1|1");

    // 2: the annotation.
    ns.run_now("price-watch", "by-hand-1");
    let cycles = ns.wait_for_cycles(before + 1, 120);
    let second =
        cycles.iter().find(|c| c["spec"]["triggers"][0]["type"] == "Request").expect("a requested cycle");
    assert_eq!(second["status"]["phase"], "Succeeded", "{second:#}");
    assert_eq!(ns.status("price-watch")["lastHandledRunNow"], "by-hand-1");

    // 3: kubectl create of an AgentCycle.
    ns.create(&cycle("on-demand", "price-watch"));
    let third = ns.wait_for_cycle("on-demand", 120);
    assert_eq!(third["phase"], "Succeeded", "{third:#}");

    let memory = Unpacked::check(&ns.folder("price-watch"));
    assert_numbers(&memory);
    assert_eq!(memory.sql("SELECT count(*), count(DISTINCT id) FROM cycles"), format!("{0}|{0}", before + 2));
    assert_eq!(memory.tables(), ["cycles", "heard", "prices", "summary"]);
    assert_eq!(memory.sql("SELECT count(*) FROM heard"), "1", "a message is heard once");

    // Each cycle had a pod of its own, under another name.
    let jobs: Vec<Value> =
        ns.wait_for_cycles(before + 2, 10).iter().map(|c| c["status"]["job"].clone()).collect();
    let mut names: Vec<&str> = jobs.iter().map(|j| j.as_str().expect("each cycle names its Job")).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), before + 2);

    columns_tell_the_truth(&ns, before + 2);
}

/// What a person sees first.
fn columns_tell_the_truth(ns: &Namespace, cycles: usize) {
    let agents = ns.kubectl(&["get", "pa"]).must();
    let lines: Vec<&str> = agents.lines().collect();
    assert!(
        lines[0].starts_with("NAME") && lines[0].contains("STATE") && lines[0].contains("LAST SUCCESS"),
        "{agents}"
    );
    assert!(lines[1].starts_with("price-watch") && lines[1].contains("Idle"), "{agents}");
    let status = ns.status("price-watch");
    let head = ns.folder("price-watch").must_head();
    assert_eq!(status["memory"]["snapshot"], head["current"], "status names HEAD's snapshot");
    assert_eq!(status["memory"]["epoch"], head["epoch"]);
    assert_eq!(status["memory"]["tables"], 4);
    assert_eq!(status["memory"]["size"], ns.folder("price-watch").current()["memory"]["fileSize"]);
    assert_eq!(ns.condition("price-watch", "Ready")["status"], "True");
    assert_eq!(
        status["observedGeneration"],
        ns.get("persistentagent", "price-watch")["metadata"]["generation"]
    );

    let listed = ns.kubectl(&["get", "pac"]).must();
    assert_eq!(listed.lines().count(), cycles + 1, "{listed}");
    assert!(
        listed.lines().skip(1).all(|line| line.contains("price-watch") && line.contains("Succeeded")),
        "{listed}"
    );
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn large_files_come_from_the_store() {
    let ns = Namespace::new("places");
    for name in ["zipcodes.csv", "movies.json"] {
        ns.cicadactl(&["files", "put"], "places", &[&data::file(name).to_string_lossy(), "--key", name])
            .must();
    }
    ns.apply(&sql_agent(
        "places",
        "SELECT load_table('zipcodes.csv', 'z');
         SELECT load_table('movies.json', 'm');
         CREATE TABLE places AS SELECT state, count(*) AS codes, count(DISTINCT county) AS counties FROM z GROUP BY state;
         CREATE TABLE films AS SELECT * FROM m;",
        "  files: [{path: zipcodes.csv, from: {storeKey: zipcodes.csv}}, {path: movies.json, from: {storeKey: movies.json}}]\n",
    ));
    ns.run_now("places", "1");
    let cycle = ns.wait_for_cycles(1, 120).remove(0);
    assert_eq!(cycle["status"]["phase"], "Succeeded", "{cycle:#}");
    let memory = Unpacked::check(&ns.folder("places"));
    assert_eq!(memory.tables(), ["films", "places"]);

    let codes = states(&data::file("zipcodes.csv"));
    let stored = memory.sql("SELECT state, codes FROM places WHERE state IS NOT NULL ORDER BY state");
    assert_eq!(stored.lines().map(String::from).collect::<Vec<_>>(), codes);

    let films: Vec<Value> =
        serde_json::from_slice(&std::fs::read(data::file("movies.json")).unwrap()).unwrap();
    assert_eq!(memory.sql("SELECT count(*) FROM films"), films.len().to_string());
    let rated: Vec<f64> = films.iter().filter_map(|f| f["IMDB Rating"].as_f64()).collect();
    #[expect(clippy::cast_precision_loss, reason = "a few thousand films")]
    let mean = rated.iter().sum::<f64>() / rated.len() as f64;
    assert_eq!(
        memory.sql("SELECT count(IMDB_Rating), printf('%.6f', avg(IMDB_Rating)) FROM films"),
        format!("{}|{mean:.6}", rated.len())
    );
    let gross: i64 = films.iter().filter_map(|f| f["Worldwide Gross"].as_i64()).sum();
    assert_eq!(
        memory.sql("SELECT sum(Worldwide_Gross) FROM films WHERE typeof(Worldwide_Gross) = 'integer'"),
        gross.to_string()
    );
}

/// `STATE|number of codes` for each state, from the file itself (no field of it is quoted).
fn states(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(!text.contains('"'), "{} has quoted fields now", file.display());
    let mut counts = std::collections::BTreeMap::new();
    for line in text.lines().skip(1).filter(|line| !line.trim().is_empty()) {
        *counts.entry(line.split(',').nth(4).unwrap().to_owned()).or_insert(0) += 1;
    }
    counts.remove("");
    counts.into_iter().map(|(state, codes): (String, u32)| format!("{state}|{codes}")).collect()
}
