//! export, import, copy, files: memories and files leave and arrive whole.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{Folder, command, head_of, ids, run};

/// The standard tool, as any user has it.
fn sqlite(file: &Path, sql: &str) -> String {
    let output = Command::new("sqlite3").arg(file).arg(sql).output().expect("sqlite3 is needed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn an_export_is_a_plain_database_and_replaces_nothing() {
    let folder = Folder::after(2);
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("clerk.db");
    folder.run(&["export", "shop/clerk", &text(&file)]).must();
    assert_eq!(sqlite(&file, "PRAGMA integrity_check; SELECT count(*) FROM visits"), "ok\n2");
    let first = out.path().join("first.db");
    folder.run(&["export", "shop/clerk", &text(&first), "--snapshot", "1"]).must();
    assert_eq!(sqlite(&first, "SELECT count(*) FROM visits"), "1");
    let ledger = out.path().join("ledger.db");
    folder.run(&["export", "shop/clerk", &text(&ledger), "--ledger"]).must();
    assert_eq!(sqlite(&ledger, "SELECT count(*) FROM cycles"), "2");

    let before = std::fs::read(&first).unwrap();
    let said = folder.run(&["export", "shop/clerk", &text(&first)]).ends(2);
    assert!(said.contains("is there already"), "{said}");
    assert_eq!(std::fs::read(&first).unwrap(), before);
    let said = folder.run(&["export", "shop/clerk", &text(&out.path().join("no/such/x.db"))]).ends(2);
    assert!(said.contains("there is no folder"), "{said}");
    let left: Vec<_> = std::fs::read_dir(out.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "nothing half is left: {left:?}");
}

#[test]
fn an_exported_folder_becomes_the_same_memory_elsewhere() {
    let folder = Folder::after(2);
    let out = tempfile::tempdir().unwrap();
    let backup = text(&out.path().join("backup"));
    folder.run(&["export", "shop/clerk", &backup, "--as", "folder"]).must();
    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(format!("{backup}/manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["owner"], "local/shop/clerk");
    let store = format!("file://{}", out.path().join("store").display());
    run(&["import", "lab/clerk", &backup, "--store", &store]).must();
    let asked =
        run(&["query", "lab/clerk", "SELECT count(*) FROM visits", "--store", &store, "-o", "csv"]).must();
    assert_eq!(asked.lines().nth(1), Some("2"));
    let log = run(&[
        "query",
        "lab/clerk",
        "--ledger",
        "SELECT count(*) FROM cycles",
        "--store",
        &store,
        "-o",
        "csv",
    ])
    .must();
    assert_eq!(log.lines().nth(1), Some("2"), "the ledger came along");
    run(&["verify", "lab/clerk", "--store", &store]).must();

    let archive = format!("{backup}/memory.db.zst");
    let mut bytes = std::fs::read(&archive).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&archive, bytes).unwrap();
    let said = run(&["import", "lab/other", &backup, "--store", &store]).ends(1);
    assert!(said.contains("damaged"), "{said}");
    assert!(!out.path().join("store/lab/other").exists(), "nothing was made");
}

#[test]
fn any_sound_sqlite_file_becomes_a_memory_and_nothing_else_does() {
    let out = tempfile::tempdir().unwrap();
    let store = format!("file://{}", out.path().join("store").display());
    let file = |name: &str, sql: &str| {
        let path = out.path().join(name);
        sqlite(&path, sql);
        text(&path)
    };
    let good = file(
        "good.db",
        "PRAGMA journal_mode = WAL; CREATE TABLE \"my places\"(url TEXT); INSERT INTO \"my places\" VALUES ('a'), ('b');",
    );
    run(&["import", "shop/places", &good, "--store", &store]).must();
    let rows =
        run(&["query", "shop/places", "SELECT count(*) FROM \"my places\"", "--store", &store, "-o", "csv"])
            .must();
    assert_eq!(rows.lines().nth(1), Some("2"));
    assert_eq!(head_of(&out.path().join("store/shop/places"))["owner"]["cluster"], "local");

    let text_file = text(&out.path().join("no.db"));
    std::fs::write(&text_file, "this is no database, but it is longer than the hundred bytes of a header, so that it is read as one ................").unwrap();
    let empty = text(&out.path().join("empty.db"));
    std::fs::write(&empty, "").unwrap();
    let damaged =
        file("damaged.db", "CREATE TABLE t(x); CREATE INDEX i ON t(x); INSERT INTO t VALUES (1), (2);");
    let mut bytes = std::fs::read(&damaged).unwrap();
    let end = bytes.len();
    bytes[end - 40..].fill(0x55);
    std::fs::write(&damaged, bytes).unwrap();
    for (path, words) in [
        (file("ours.db", "CREATE TABLE __messages(x)"), "platform"),
        (file("rtree.db", "CREATE VIRTUAL TABLE r USING rtree(id, a, b)"), "rtree"),
        (text_file, "not a SQLite database"),
        (empty, "empty"),
        (damaged, "damaged"),
    ] {
        let said = run(&["import", "shop/bad", &path, "--store", &store]).ends(1);
        assert!(said.contains(words), "{path}: {said}");
    }
    assert!(
        run(&["import", "shop/bad", "/nonexistent.db", "--store", &store]).ends(3).contains("can't find")
    );
    let folder = Folder::after(1);
    let ledger = text(&out.path().join("ledger.db"));
    folder.run(&["export", "shop/clerk", &ledger, "--ledger"]).must();
    let said = run(&["import", "shop/bad", &ledger, "--store", &store]).ends(1);
    assert!(said.contains("it is a ledger") && said.contains("--as folder"), "{said}");
    assert!(!out.path().join("store/shop/bad").exists(), "a refused file makes nothing");
}

#[test]
fn an_import_that_failed_lets_go_of_the_memory() {
    let folder = Folder::after(2);
    let first = folder.snapshots().remove(0);
    let exported = text(&folder.path().join("export.db"));
    folder.run(&["export", "shop/clerk", &exported]).must();
    // Nothing can be uploaded, while HEAD can be written.
    let (snapshots, aside) = (folder.agent_dir().join("snapshots"), folder.agent_dir().join("aside"));
    std::fs::rename(&snapshots, &aside).unwrap();
    std::fs::write(&snapshots, "in the way").unwrap();
    let before = folder.head();
    let ran = folder.run(&["import", "shop/clerk", &exported, "--yes"]);
    assert_ne!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    std::fs::remove_file(&snapshots).unwrap();
    std::fs::rename(&aside, &snapshots).unwrap();
    let after = folder.head();
    assert!(after["epoch"].as_u64() > before["epoch"].as_u64(), "it came as far as to hold the memory");
    assert!(after["holder"].is_null() && after["current"] == before["current"], "{after}");
    folder.run(&["restore", "shop/clerk", &first, "--yes"]).must();
}

#[test]
fn an_import_over_a_memory_asks_and_keeps_the_earlier_one() {
    let folder = Folder::after(2);
    let file = folder.path().join("new.db");
    sqlite(
        &file,
        "CREATE TABLE visits(n INTEGER PRIMARY KEY, note TEXT); INSERT INTO visits VALUES (7, 'imported');",
    );
    let before = folder.head();
    let said = folder.run(&["import", "shop/clerk", &text(&file)]).ends(2);
    assert!(said.contains("has a memory") && said.contains("--yes"), "{said}");
    assert_eq!(folder.head(), before);
    folder.busy();
    assert!(folder.run(&["import", "shop/clerk", &text(&file), "--yes"]).ends(4).contains("clerk-busy"));
    folder.run(&["import", "shop/clerk", &text(&file), "--yes", "--fence"]).must();
    assert_eq!(folder.ask("SELECT note FROM visits"), "imported");
    assert_eq!(folder.snapshots().len(), 3);
    folder.cycle();
    assert_eq!(folder.ask("SELECT count(*) FROM visits"), "2");
    let cycles =
        folder.run(&["query", "shop/clerk", "--ledger", "SELECT count(*) FROM cycles", "-o", "csv"]).must();
    assert_eq!(cycles.lines().nth(1), Some("3"), "the agent kept its own ledger");
    folder.run(&["restore", "shop/clerk", "2", "--yes"]).must();
    assert_eq!(folder.ask("SELECT count(*) FROM visits"), "2");
}

#[test]
fn a_memory_above_the_agents_limit_is_imported_only_when_confirmed() {
    let folder = Folder::new(crate::support::VISIT);
    folder.manifest("clerk", crate::support::VISIT, "  memory: {sizeLimit: 1Mi}\n");
    let file = folder.path().join("big.db");
    sqlite(&file, "CREATE TABLE t(x); INSERT INTO t VALUES (zeroblob(3000000));");
    let said = folder.run(&["import", "shop/clerk", &text(&file)]).ends(2);
    for words in
        ["spec.memory.sizeLimit of shop/clerk is 1.0 MiB", "to 3Mi at least", "nothing is deleted", "--yes"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!folder.agent_dir().join("HEAD.json").exists(), "nobody confirmed");
    folder.run(&["import", "shop/clerk", &text(&file), "--yes"]).must();
    assert_eq!(folder.ask("SELECT length(x) FROM t"), "3000000");
    folder.manifest("clerk", crate::support::VISIT, "  memory: {sizeLimit: 4Mi}\n");
    folder.cycle();
    folder.run(&["import", "shop/other", &text(&file)]).must();
}

#[test]
fn a_copy_has_its_own_owner_and_never_goes_over_another_memory() {
    let folder = Folder::after(2);
    std::fs::write(folder.path().join("data.csv"), "a,b\n1,2\n").unwrap();
    folder.run(&["files", "put", "shop/clerk", &text(&folder.path().join("data.csv"))]).must();
    let out = tempfile::tempdir().unwrap();
    let other = format!("file://{}", out.path().display());
    assert!(
        folder
            .run(&["copy", "shop/clerk", "lab/clerk", "--to-store", &other])
            .ends(2)
            .contains("owned by local/lab/clerk")
    );
    folder
        .run(&["copy", "shop/clerk", "lab/clerk", "--to-store", &other, "--to-cluster", "prod", "--yes"])
        .must();
    let head = head_of(&out.path().join("lab/clerk"));
    assert_eq!((&head["owner"]["cluster"], &head["owner"]["namespace"]), (&"prod".into(), &"lab".into()));
    assert_eq!(ids(&head), folder.snapshots());
    assert!(head["holder"].is_null() && folder.head()["holder"].is_null());
    run(&["verify", "lab/clerk", "--all", "--store", &other]).must();
    let got = out.path().join("got.csv");
    run(&["files", "get", "lab/clerk", "data.csv", "--to", &text(&got), "--store", &other]).must();
    assert_eq!(std::fs::read_to_string(got).unwrap(), "a,b\n1,2\n");

    let said = folder.run(&["copy", "shop/clerk", "lab/clerk", "--to-store", &other, "--yes"]).ends(1);
    assert!(said.contains("already holds a HEAD"), "{said}");
    assert!(
        folder.run(&["copy", "shop/clerk", "shop/clerk", "--yes"]).ends(2).contains("both source and target")
    );
    folder.cycle();
}

#[test]
fn a_copy_without_a_damaged_older_snapshot_says_so_by_name_and_exit_code() {
    let folder = Folder::after(3);
    let ids_before = folder.snapshots();
    folder.damage(&ids_before[0]);
    let out = tempfile::tempdir().unwrap();
    let other = format!("file://{}", out.path().display());
    let said = folder.run(&["copy", "shop/clerk", "shop/clerk", "--to-store", &other, "--yes"]).ends(6);
    assert!(said.contains(&format!("snapshot {} is damaged and was left out", ids_before[0])), "{said}");
    assert_eq!(ids(&head_of(&out.path().join("shop/clerk"))), ids_before[1..]);
    run(&["verify", "shop/clerk", "--all", "--store", &other]).must();

    folder.damage(&ids_before[2]);
    let nowhere = tempfile::tempdir().unwrap();
    let nothing = format!("file://{}", nowhere.path().display());
    let said = folder.run(&["copy", "shop/clerk", "shop/clerk", "--to-store", &nothing, "--yes"]).ends(1);
    assert!(said.contains("the current snapshot") && said.contains("cicadactl restore"), "{said}");
    assert!(!nowhere.path().join("shop/clerk/HEAD.json").exists());
    folder.run(&["restore", "shop/clerk", &ids_before[1], "--yes"]).must();
    folder.run(&["copy", "shop/clerk", "shop/clerk", "--to-store", &nothing, "--yes"]).ends(6);
}

/// A copy that was killed is no memory; run again it is whole.
#[test]
fn a_killed_copy_is_nothing_or_all() {
    let folder = Folder::after(6);
    let dir = folder.path().display().to_string();
    for step in 0..10 {
        let out = tempfile::tempdir().unwrap();
        let other = format!("file://{}", out.path().display());
        let args =
            ["copy", "shop/clerk", "shop/clerk", "--to-store", &other, "--yes", "--fence", "--local", &dir];
        let mut child = command(&args).stderr(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(step * 15));
        child.kill().unwrap();
        child.wait().unwrap();
        if !out.path().join("shop/clerk/HEAD.json").exists() {
            run(&args).must();
        }
        run(&["verify", "shop/clerk", "--all", "--store", &other]).must();
        folder.run(&["verify", "shop/clerk"]).must();
    }
}

#[test]
fn files_go_up_come_back_and_are_removed_when_confirmed() {
    let folder = Folder::after(1);
    let file = folder.path().join("zip.csv");
    std::fs::write(&file, "z\n1\n").unwrap();
    folder.run(&["files", "put", "shop/clerk", &text(&file), "--key", "in/zip.csv"]).must();
    let said = folder.run(&["files", "get", "shop/clerk", "zip.csv"]).ends(3);
    assert!(said.contains("no file zip.csv"), "{said}");
    let said = folder.run(&["files", "get", "shop/clerk", "in/zip.csv", "--to", &text(&file)]).ends(2);
    assert!(said.contains("is there already"), "{said}");
    assert!(folder.run(&["files", "delete", "shop/clerk", "in/zip.csv"]).ends(2).contains("--yes"));
    folder.run(&["files", "delete", "shop/clerk", "in/zip.csv", "--yes"]).must();
    assert_eq!(folder.run(&["files", "list", "shop/clerk", "-o", "json"]).must().trim(), "[]");
    assert!(folder.run(&["files", "put", "shop/clerk", "/nonexistent"]).ends(3).contains("can't find"));
    assert!(folder.run(&["files", "put", "shop/clerk", &text(folder.path())]).ends(2).contains("is no file"));
    assert!(
        folder
            .run(&["files", "put", "shop/clerk", &text(&file), "--key", "../up"])
            .ends(2)
            .contains("can't be a key")
    );
}
