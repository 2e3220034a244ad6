//! Each command prints each format, and no value is lost or obeyed by a terminal.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::{Folder, Ran, commands, run};

/// All commands that have `--output`.
fn with_output(path: &[String], found: &mut Vec<String>) {
    let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
    args.push("--help");
    let help = run(&args).must();
    let below = commands(&help);
    if below.is_empty() && help.contains("--output") {
        found.push(path.join(" "));
    }
    for name in below {
        with_output(&[path, &[name]].concat(), found);
    }
}

/// A folder of which every command has something to tell.
fn full() -> Folder {
    let folder = Folder::new(
        "UPDATE __agent_config SET charter = 'Be kind.'; CREATE TABLE IF NOT EXISTS visits(n INTEGER PRIMARY KEY, note TEXT); \
         INSERT INTO visits(note) VALUES ('a,\"b\"' || char(10) || char(8238));",
    );
    folder.cycle();
    folder.cycle();
    folder.change_ledger(|ledger| {
        let now = Timestamp::now();
        ledger.add_outgoing(&[crate::people::outgoing("m-1")], now).unwrap();
        ledger.add_human_request(&crate::people::ask("req-1", &["yes", "no"])).unwrap();
    });
    let file = folder.path().join("zip.csv");
    std::fs::write(&file, "z\n").unwrap();
    folder.run(&["files", "put", "shop/clerk", &file.display().to_string()]).must();
    let stray = folder.agent_dir().join("snapshots/1-9-00000000000000aa");
    std::fs::create_dir_all(&stray).unwrap();
    std::fs::write(stray.join("memory.db.zst"), "left by a dead pod").unwrap();
    folder
}

fn records(ran: &Ran) -> Vec<csv::StringRecord> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(ran.out.as_bytes());
    reader.records().collect::<Result<_, _>>().unwrap_or_else(|e| panic!("{e}: {}", ran.out))
}

#[test]
fn every_command_prints_every_format() {
    let mut all = vec![];
    with_output(&[], &mut all);
    assert!(all.len() >= 13, "{all:?}");
    // A cycle sweeps what gc is to show.
    all.sort_by_key(|command| command == "local");
    let folder = full();
    let dir = folder.path().display().to_string();
    for command in &all {
        let more: &[&str] = match command.as_str() {
            "list" => &[],
            "query" => &["shop/clerk", "SELECT * FROM visits"],
            "diff" => &["shop/clerk", "1"],
            "local" => &[],
            _ => &["shop/clerk"],
        };
        let ask = |format: &str| {
            let mut args: Vec<&str> = command.split(' ').chain(more.iter().copied()).collect();
            args.extend(["-o", format]);
            if command == "local" {
                args.extend(["--once", &dir]);
                return run(&args);
            }
            folder.run(&args)
        };
        let [table, json, yaml, csv] = ["table", "json", "yaml", "csv"].map(|format| {
            let ran = ask(format);
            assert_eq!(ran.code, Some(0), "{command} -o {format}: {}{}", ran.out, ran.err);
            assert!(!ran.out.is_empty(), "{command} -o {format}");
            ran
        });
        assert!(!table.out.contains('\u{202e}'), "{command}: {:?}", table.out);
        let json: Value =
            serde_json::from_str(&json.out).unwrap_or_else(|e| panic!("{command}: {e}: {}", json.out));
        let yaml: Value =
            serde_saphyr::from_str(&yaml.out).unwrap_or_else(|e| panic!("{command}: {e}: {}", yaml.out));
        if command != "local" {
            assert_eq!(json, yaml, "{command}");
        }
        let records = records(&csv);
        assert!(records.len() > 1 && records[0].len() > 1, "{command} -o csv: {}", csv.out);
    }
    let said = run(&["local", &dir, "-o", "json"]).ends(2);
    assert!(said.contains("--once"), "{said}");
}

#[test]
fn no_value_of_a_query_is_lost_in_any_format() {
    let folder = Folder::after(1);
    let sql = "SELECT 1 AS n, 2 AS n, 'three' AS n, 9e999 AS big, -9e999 AS small, NULL AS void, 0.1 AS tenth, \
               'a' || char(27) || '[2J' || char(8238) || 'b' AS nasty, x'00ff' AS bytes, 9007199254740993 AS many";
    let ask = |format: &str| folder.run(&["query", "shop/clerk", sql, "-o", format]);
    let wanted = json!([{"n": 1, "n:1": 2, "n:2": "three", "big": "Inf", "small": "-Inf", "void": null, "tenth": 0.1,
        "nasty": "a\u{1b}[2J\u{202e}b", "bytes": "x'00ff'", "many": 9_007_199_254_740_993_u64}]);
    let (json, yaml) = (ask("json").must(), ask("yaml").must());
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), wanted);
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), wanted);
    let table = ask("table").must();
    assert!(table.contains(r"a\u{1b}[2J\u{202e}b") && table.contains("-Inf"), "{table}");
    for text in [json, yaml, table] {
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text:?}");
    }
    let csv = ask("csv");
    let row: Vec<String> = records(&csv)[1].iter().map(str::to_owned).collect();
    assert_eq!(row[..5], ["1", "2", "three", "Inf", "-Inf"]);
    assert_eq!(row[7], "a\u{1b}[2J\u{202e}b", "a pipe gets the value itself");
}

/// `| head -1` is no failure.
#[test]
fn a_closed_pipe_is_no_failure() {
    let folder = Folder::after(1);
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) SELECT i, hex(zeroblob(20)) FROM n";
    let dir = folder.path().display().to_string();
    for format in ["table", "json", "yaml", "csv"] {
        let args = ["query", "shop/clerk", sql, "--rows", "200000", "-o", format, "--local", &dir];
        let mut child = crate::support::command(&args)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 10];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{format}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "{format}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
