//! The documented exit codes: a script can rely on them for every command.

use crate::support::{Folder, run};

/// Commands that are given all they need, but for an agent that is not there.
const NOBODY: [&[&str]; 22] = [
    &["inspect", "shop/clrk"],
    &["query", "shop/clrk", "SELECT 1"],
    &["log", "shop/clrk"],
    &["snapshots", "shop/clrk"],
    &["diff", "shop/clrk", "1"],
    &["outbox", "shop/clrk"],
    &["gc", "shop/clrk"],
    &["gc", "shop/clrk", "--yes"],
    &["restore", "shop/clrk", "1", "--yes"],
    &["export", "shop/clrk", "/tmp/cicadactl-never.db"],
    &["copy", "shop/clrk", "shop/other", "--yes"],
    &["answer", "shop/clrk"],
    &["answer", "shop/clrk", "req-1", "yes"],
    &["send", "shop/clrk", "hello"],
    &["run", "shop/clrk"],
    &["hold", "shop/clrk"],
    &["release", "shop/clrk"],
    &["hold", "--all", "-n", "shp"],
    &["proposals", "list", "shop/clrk"],
    &["proposals", "show", "shop/clrk", "charter-1"],
    &["proposals", "approve", "shop/clrk", "charter-1", "--yes"],
    &["files", "get", "shop/clrk", "a.csv"],
];

#[test]
fn an_agent_that_is_not_there_is_three_for_every_command() {
    let folder = Folder::after(1);
    for args in NOBODY {
        let ran = folder.run(args);
        assert_eq!(ran.code, Some(3), "{args:?}: {}{}", ran.out, ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{args:?}: {}", ran.err);
    }
    assert!(!folder.path().join(".cicada/store/shop/clrk").exists(), "nothing was made for nobody");
    let verify = folder.run(&["verify", "shop/clrk"]).ends(2);
    assert!(verify.contains("did you mean clerk?"), "{verify}");
}

#[test]
fn a_name_or_place_that_can_not_be_is_a_wrong_command_line() {
    let folder = Folder::after(1);
    let dir = folder.path().display().to_string();
    let manifest = folder.path().join("clerk.yaml").display().to_string();
    for args in NOBODY.iter().filter(|args| args.contains(&"shop/clrk")) {
        for name in ["../x", "shop/../x", "a/b/c", "shop/", "/clerk", "Shop/clerk", ""] {
            let args: Vec<&str> = args.iter().map(|a| if *a == "shop/clrk" { name } else { *a }).collect();
            let ran = folder.run(&args);
            assert_eq!(ran.code, Some(2), "{args:?}: {}{}", ran.out, ran.err);
        }
        for store in ["gs://bucket", "s3://", "file://relative"] {
            let ran = run(&[args, &["--store", store][..]].concat());
            assert_eq!(ran.code, Some(2), "{args:?} {store}: {}{}", ran.out, ran.err);
        }
        assert_eq!(run(&[args, &["--local", &manifest][..]].concat()).code, Some(2), "{args:?} on a file");
        assert_eq!(run(&[args, &["--local", "/nonexistent"][..]].concat()).code, Some(3), "{args:?} nowhere");
    }
    for args in [
        vec!["local", &dir, "--once", "--store", "gs://bucket"],
        vec!["local", &manifest],
        vec!["list", "--store", "s3://"],
        vec!["query", "shop/clerk", "SELECT 1", "--timeout", "0", "--local", &dir],
        vec!["query", "shop/clerk", "SELECT 1", "-o", "xml", "--local", &dir],
        vec!["send", "shop/clerk", " \n", "--local", &dir],
        vec!["send", "shop/clerk", "hello", "--from", "", "--local", &dir],
        vec!["restore", "shop/clerk", "1", "--local", &dir, "--yes", "--maybe"],
    ] {
        let ran = run(&args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}{}", ran.out, ran.err);
    }
    assert!(!folder.agent_dir().join("inbox").exists(), "nothing arrived");
}

#[test]
fn what_is_not_there_is_three() {
    let folder = Folder::after(2);
    let empty = tempfile::tempdir().unwrap();
    let empty = empty.path().display().to_string();
    for args in [
        vec!["local", "/nonexistent", "--once"],
        vec!["local", &empty, "--once"],
        vec!["prompt", "--db", "/nonexistent.db"],
        vec!["sql", "--db", "/nonexistent.db", "SELECT 1"],
    ] {
        let ran = run(&args);
        assert_eq!(ran.code, Some(3), "{args:?}: {}{}", ran.out, ran.err);
    }
    let newest = folder.snapshots().pop().unwrap();
    let typo = format!("{}x{}", &newest[..6], &newest[7..]);
    for args in [
        vec!["restore", "shop/clerk", &typo, "--yes"],
        vec!["query", "shop/clerk", "SELECT 1", "--snapshot", &typo],
        vec!["export", "shop/clerk", "/tmp/cicadactl-never.db", "--snapshot", &typo],
        vec!["diff", "shop/clerk", &typo],
    ] {
        let said = folder.run(&args).ends(3);
        assert!(said.contains(&format!("did you mean {newest}?")), "{args:?}: {said}");
    }
    let said = folder.run(&["restore", "shop/clerk", "9", "--yes"]).ends(3);
    assert!(said.contains("the newest are") && said.contains(&newest), "{said}");
}

#[test]
fn what_can_not_be_reached_is_five() {
    let folder = Folder::after(1);
    let file = folder.path().join("visits.csv").display().to_string();
    std::fs::write(&file, "n\n").unwrap();
    // Nobody may make a folder there, root neither.
    let readonly = "file:///sys/cicada-store";
    let down = ["--store", "s3://bucket", "--endpoint", "http://127.0.0.1:1"];
    for (args, words) in [
        (vec!["send", "shop/clerk", "hello", "--store", readonly], "no permission to put"),
        (vec!["files", "put", "shop/clerk", &file, "--store", readonly], "no permission to put"),
        ([&["inspect", "shop/clerk"][..], &down].concat(), "nothing listens at http://127.0.0.1:1"),
        ([&["list"][..], &down].concat(), "nothing listens at http://127.0.0.1:1"),
        ([&["send", "shop/clerk", "hello"][..], &down].concat(), "nothing listens at http://127.0.0.1:1"),
        (vec!["inspect", "shop/clerk"], "--store"),
        (vec!["list"], "--store"),
        (vec!["run", "shop/clerk"], "kubeconfig"),
        (vec!["list", "--kubeconfig", "/nonexistent"], "can't read /nonexistent"),
    ] {
        let mut command = crate::support::command(&args);
        command.env("AWS_ACCESS_KEY_ID", "a").env("AWS_SECRET_ACCESS_KEY", "b").env("HOME", "/nonexistent");
        let ran = crate::support::finish(command);
        assert_eq!(ran.code, Some(5), "{args:?}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains(words) && ran.err.lines().count() == 1, "{args:?}: {}", ran.err);
    }
}

#[test]
fn the_codes_are_documented_in_the_help_and_the_docs() {
    let help = run(&["--help"]).must();
    let docs =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cicadactl.md")).unwrap();
    for (code, meaning) in [
        (0, "done"),
        (1, "failed"),
        (2, "wrong command line"),
        (3, "no such"),
        (4, "somebody else"),
        (5, "can't be reached"),
        (130, "interrupted"),
    ] {
        assert!(help.contains(&format!("{code} {meaning}")), "{code}: {help}");
        assert!(docs.contains(&format!("| {code} | {meaning}")), "{code}");
    }
}
