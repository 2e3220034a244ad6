//! The cases of `tests/attacks`, each against a real worker. See the README there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cicada_contract::plan::{PlanSchedule, PlanSkill};
use cicada_memory::{BatchResult, FaultKind, MemoryOptions, MemoryWorker, Mounts, Value};

use crate::support::{Place, config, now};

struct Case {
    name: String,
    outcome: String,
    words: String,
    check: Option<(String, String)>,
    sql: String,
}

fn cases(file: &str) -> Vec<Case> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/attacks").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let parts = text.split("-- case: ").skip(1);
    parts
        .map(|part| {
            let (name, rest) = part.split_once('\n').unwrap();
            let (expect, mut body) = rest.split_once('\n').unwrap();
            let expect =
                expect.strip_prefix("-- expect: ").unwrap_or_else(|| panic!("{name}: no expectation"));
            let (outcome, words) = expect.split_once(' ').unwrap_or((expect, ""));
            let mut check = None;
            if let Some(rest) = body.strip_prefix("-- check: ") {
                let (line, after) = rest.split_once('\n').unwrap();
                let (query, value) = line.split_once(" => ").unwrap();
                check = Some((query.to_owned(), value.to_owned()));
                body = after;
            }
            Case {
                name: name.to_owned(),
                outcome: outcome.to_owned(),
                words: words.trim_matches('"').to_owned(),
                check,
                sql: expand(body),
            }
        })
        .collect()
}

/// `{{N*text}}` is N times the text.
fn expand(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (inner, behind) = after.split_once("}}").unwrap();
        out.push_str(before);
        match inner.split_once('*') {
            _ if inner == "NUL" => out.push('\0'),
            Some((count, text)) => out.push_str(&text.repeat(count.parse().unwrap())),
            None => panic!("{inner}"),
        }
        rest = behind;
    }
    out + rest
}

/// All that lasts: schema and rows.
fn dump(memory: &mut MemoryWorker) -> BTreeMap<String, Vec<Vec<Value>>> {
    let schema = memory
        .query("SELECT type, name, tbl_name, sql FROM main.sqlite_schema ORDER BY 1, 2", 10_000)
        .unwrap();
    let mut all = BTreeMap::new();
    for row in &schema.rows {
        let (Some("table"), Some(name)) = (row[0].as_str(), row[1].as_str()) else { continue };
        let rows = memory.query(&format!("SELECT * FROM main.\"{name}\""), 100_000).unwrap();
        all.insert(name.to_owned(), rows.rows);
    }
    all.insert("sqlite_schema".into(), schema.rows);
    all
}

/// What lies outside the worker's folder, and which names are in it.
fn outside(place: &Place) -> Vec<(String, Vec<u8>)> {
    let mut all = vec![];
    for entry in std::fs::read_dir(place.dir.path())
        .unwrap()
        .chain(std::fs::read_dir(place.dir.path().join("ledger")).unwrap())
    {
        let path = entry.unwrap().path();
        if path.is_file() {
            all.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
    for entry in std::fs::read_dir(place.memory_dir()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.starts_with("memory.db") {
            all.push((name, vec![]));
        }
    }
    all.sort();
    all
}

fn mounts(place: &Place) -> Mounts {
    let mut config = config();
    config.schedules.push(PlanSchedule {
        name: "morning".into(),
        schedule: "0 7 * * *".into(),
        once: false,
        time_zone: None,
        instruction: None,
        next: None,
        last: None,
    });
    config.skills.push(PlanSkill {
        name: "pricing".into(),
        description: String::new(),
        instructions: "Look.".into(),
        tools: vec![],
    });
    let mut ledger = place.ledger();
    ledger.ingest(&[crate::path::message("m1", "canary in a message")], now()).unwrap();
    let mut mounts = ledger.load_mounts(&config, &[], now()).unwrap();
    let card = ["card-rejected", "Buy a boat", "", "rejected"].map(Value::from).to_vec();
    let rest = [
        Value::Int(0),
        Value::Null,
        Value::Null,
        "too dear".into(),
        "2026-01-01T00:00:00Z".into(),
        Value::Null,
    ];
    mounts.tables.insert("__kanban_cards".into(), vec![[card, rest.to_vec()].concat()]);
    mounts.policy.rejected_cards = vec![("buy a boat".into(), "too dear".into())];
    mounts
}

fn setup(place: &Place) {
    place.file("small.csv", "a,b\n1,2\n");
    let hostile = "\"ignore all; DROP TABLE prices; --\",__messages,\"a\"\"b\",\u{202e}x,a\n=1+1,\u{0},'; DROP TABLE prices; --,x,\n";
    place.file("hostile.csv", hostile);
    place.file("broken.json", "[{\"a\": 1}, {\"a\": ");
    place.file("deep.json", &format!("[{{\"a\": {}{}}}]", "[".repeat(100_000), "]".repeat(100_000)));
    std::fs::write(
        place.memory_dir().join("files/binary.csv"),
        (0..=255u8).cycle().take(1000).collect::<Vec<_>>(),
    )
    .unwrap();
    std::fs::write(place.dir.path().join("outside.csv"), "secret\ncanary\n").unwrap();
    std::os::unix::fs::symlink(
        place.dir.path().join("outside.csv"),
        place.memory_dir().join("files/link.csv"),
    )
    .unwrap();
}

fn run(file: &str, size_limit: u64) {
    let place = Place::new();
    setup(&place);
    let mounts = mounts(&place);
    let options = MemoryOptions {
        sql_timeout: Duration::from_secs(1),
        ..MemoryOptions::new(size_limit, 64 << 20, Duration::from_secs(1))
    };
    assert!(options.address_space <= 512 << 20, "the system enforces this bound");
    let mut memory = place.memory_with(options);
    memory.mount(&mounts).unwrap();
    let made = memory
        .batch(
            "CREATE TABLE prices (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, price REAL); \
             INSERT INTO prices (name, price) VALUES ('a', 1.5), ('b', 2.5), ('c', NULL); \
             CREATE VIRTUAL TABLE notes USING fts5(body); INSERT INTO notes VALUES ('some words')",
        )
        .unwrap();
    assert!(made.is_ok(), "{}", made.text);
    let (before, around) = (dump(&mut memory), outside(&place));
    let mut failures = vec![];
    let all = cases(file);
    for case in &all {
        let started = Instant::now();
        let result = memory.batch(&case.sql).unwrap();
        let took = started.elapsed();
        if let Err(problem) = judge(case, &result, &mut memory) {
            failures.push(format!(
                "{file}: {}: {problem}\n{}",
                case.name,
                cicada_contract::text::cut(&result.text, 1200)
            ));
        }
        drop_scratch(&mut memory, case);
        if dump(&mut memory) != before {
            failures.push(format!("{file}: {}: the durable database changed\n{}", case.name, result.text));
            break;
        }
        assert_eq!(outside(&place), around, "{}: something outside changed", case.name);
        assert!(took < Duration::from_secs(30), "{}: took {took:?}", case.name);
        assert!(memory.edits().is_empty(), "{}: an edit of a mount was kept", case.name);
    }
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), all.len(), failures.join("\n"));
    memory.unmount().unwrap();
    memory.seal().unwrap();
}

fn judge(case: &Case, result: &BatchResult, memory: &mut MemoryWorker) -> Result<(), String> {
    let kind = result.error.as_ref().map(|e| e.kind);
    let message = result.error.as_ref().map_or("", |e| &e.message);
    let fits = match case.outcome.as_str() {
        "refused" => kind == Some(Some(FaultKind::Refused)),
        "error" => matches!(kind, Some(Some(FaultKind::Sql | FaultKind::Constraint | FaultKind::Refused))),
        "stopped" => {
            matches!(kind, Some(None | Some(FaultKind::Timeout | FaultKind::OutOfMemory | FaultKind::Full)))
        }
        "harmless" | "works" => kind.is_none(),
        other => return Err(format!("unknown outcome {other}")),
    };
    if !fits || !message.contains(&case.words) {
        return Err(format!("expected {} {:?}, got {kind:?} {message:?}", case.outcome, case.words));
    }
    if let Some((query, wanted)) = &case.check {
        let rows = memory.query(query, 1).map_err(|e| e.to_string())?;
        let found = rows.rows.first().map_or("nothing".into(), |r| r[0].display());
        if found != *wanted {
            return Err(format!("{query} gave {found}, not {wanted}"));
        }
    }
    Ok(())
}

/// Tables that a case made for itself.
fn drop_scratch(memory: &mut MemoryWorker, case: &Case) {
    let mut names = vec![];
    let temp = "SELECT type, name FROM temp.sqlite_temp_schema WHERE type IN ('table', 'view') AND name NOT GLOB '__*'";
    for row in memory.query(temp, 100).unwrap().rows {
        names.push(format!("DROP {} temp.{}", row[0].display(), row[1].display()));
    }
    if case.outcome == "works" {
        names.push("DROP TABLE IF EXISTS t; DROP TABLE IF EXISTS durable".into());
    }
    if !names.is_empty() {
        let done = memory.batch(&names.join(";")).unwrap();
        assert!(done.is_ok(), "{}: {}", case.name, done.text);
    }
}

#[test]
fn other_files_are_out_of_reach() {
    run("files.sql", 64 << 20);
}

#[test]
fn settings_are_the_platforms() {
    run("settings.sql", 64 << 20);
}

#[test]
fn names_of_the_platform_stay_its_own() {
    run("names.sql", 64 << 20);
}

#[test]
fn a_batch_is_one_transaction_whatever_it_says() {
    run("transactions.sql", 64 << 20);
}

#[test]
fn time_and_memory_are_bounded() {
    run("limits.sql", 64 << 20);
}

#[test]
fn the_size_limit_holds() {
    run("size.sql", 4 << 20);
}

#[test]
fn literals_are_never_altered() {
    run("literals.sql", 64 << 20);
}

#[test]
fn edits_of_mounts_are_checked_as_they_are_written() {
    run("mounts.sql", 64 << 20);
}

#[test]
fn the_suite_has_its_cases() {
    let files = [
        "files.sql",
        "settings.sql",
        "names.sql",
        "transactions.sql",
        "limits.sql",
        "size.sql",
        "literals.sql",
        "mounts.sql",
    ];
    let count: usize = files.iter().map(|f| cases(f).len()).sum();
    assert!(count >= 400, "{count}");
}
