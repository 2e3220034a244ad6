//! Every command says how it is used, by example.

use crate::support::{commands, run};

fn walk(path: &[String], seen: &mut Vec<String>) {
    let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
    args.push("--help");
    let help = run(&args).must();
    let below = commands(&help);
    if below.is_empty() || path.is_empty() {
        assert!(help.contains("Example"), "{path:?} has no example:\n{help}");
    }
    seen.push(path.join(" "));
    for name in below {
        walk(&[path, &[name]].concat(), seen);
    }
}

#[test]
fn every_command_has_an_example_in_its_help_and_a_heading_in_the_docs() {
    let mut seen = vec![];
    walk(&[], &mut seen);
    assert!(seen.len() > 25, "{seen:?}");
    let docs =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cicadactl.md")).unwrap();
    for command in seen.iter().filter(|c| !c.is_empty()) {
        let first = command.split(' ').next().unwrap();
        assert!(docs.contains(&format!("cicadactl {first}")), "docs/cicadactl.md lacks {command}");
    }
    let top = run(&["--help"]).must();
    assert!(top.contains("Exit codes:"), "{top}");
}

#[test]
fn a_wrong_command_line_ends_with_two() {
    for args in
        [vec!["restroe"], vec!["restore"], vec!["verify", "a/b", "--all", "--snapshot", "1"], vec!["hold"]]
    {
        assert_eq!(run(&args).code, Some(2), "{args:?}");
    }
}
