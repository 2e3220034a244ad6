//! The README's first command.

use std::process::Command;

use cicada_tests::shell::{Ran, root, run_command};

/// A copy of the example, so that the store (`.cicada` beside it) does not land in the checkout.
fn example() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(root().join("crds/examples/local")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    folder
}

/// `cargo run --release -- ARGS`, as the README writes it.
fn cargo_run(args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(root()).args(["run", "--release", "--quiet", "--offline", "--"]).args(args);
    run_command(command, None)
}

#[test]
#[ignore = "builds and runs cicadactl: tests/run"]
fn the_first_command_works_and_a_second_run_goes_on_from_the_first() {
    let folder = example();
    let dir = folder.path().to_string_lossy().into_owned();
    let first = cargo_run(&["local", &dir, "--once"]).must();
    for words in ["deliveries", "stock", "visits", "(new)"] {
        assert!(first.contains(words), "the summary lacks {words}:\n{first}");
    }
    let second = cargo_run(&["local", &dir, "--once"]).must();
    assert!(!second.contains("deliveries +"), "what is known is not loaded twice:\n{second}");
    let query = |sql: &str| {
        cargo_run(&[
            "query",
            "shop/tea-shop",
            sql,
            "--store",
            &format!("file://{dir}/.cicada/store"),
            "-o",
            "csv",
        ])
        .must()
    };
    assert!(query("SELECT count(*) AS n FROM visits").contains('2'), "two visits");
}
