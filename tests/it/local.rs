//! The README's first command.

use std::process::Command;

use cicada_tests::shell::{Ran, program, root, run, run_command};
use serde_json::Value;

/// A copy of the example, so that its store (`.cicada` beside the manifest) does not land in the checkout.
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

fn cicadactl(args: &[&str]) -> Ran {
    let mut command = Command::new(program("cicadactl"));
    command.args(args);
    run_command(command, None)
}

#[test]
fn cargo_run_from_a_fresh_clone_is_cicadactl() {
    let ran = run(
        env!("CARGO"),
        [
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version=1",
            "--manifest-path",
            &root().join("Cargo.toml").to_string_lossy(),
        ],
    );
    let metadata: Value = serde_json::from_str(&ran.must()).unwrap();
    let default = metadata["workspace_default_members"].as_array().unwrap();
    assert_eq!(default.len(), 1, "{default:?}");
    let package = metadata["packages"].as_array().unwrap().iter().find(|p| p["id"] == default[0]).unwrap();
    let programs: Vec<&Value> = package["targets"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|t| t["kind"][0] == "bin")
        .map(|t| &t["name"])
        .collect();
    assert_eq!(programs, ["cicadactl"]);
}

#[test]
#[ignore = "needs the built programs: tests/run"]
fn the_first_command_works_and_a_second_run_goes_on_from_the_first() {
    let folder = example();
    let dir = folder.path().to_string_lossy().into_owned();
    let first = cicadactl(&["local", &dir, "--once"]).must();
    for words in ["deliveries", "stock", "visits", "(new)"] {
        assert!(first.contains(words), "the summary lacks {words}:\n{first}");
    }
    let store = format!("file://{dir}/.cicada/store");
    let query =
        |sql: &str| cicadactl(&["query", "shop/tea-shop", sql, "--store", &store, "-o", "csv"]).must();
    let rows = |table: &str| -> usize {
        let answer = query(&format!("SELECT count(*) AS n FROM {table}"));
        answer.lines().nth(1).unwrap_or_else(|| panic!("{table}: {answer}")).trim().parse().unwrap()
    };
    let (deliveries, visits) = (rows("deliveries"), rows("visits"));
    let lines = std::fs::read_to_string(folder.path().join("deliveries.csv"))
        .unwrap()
        .lines()
        .filter(|l| !l.is_empty())
        .count();
    assert_eq!(deliveries, lines - 1, "each line of the file is a row");
    assert_eq!(visits, 1);

    let second = cicadactl(&["local", &dir, "--once"]).must();
    assert_eq!(rows("deliveries"), deliveries, "what is known is not loaded twice:\n{second}");
    assert_eq!(rows("visits"), 2, "the second cycle goes on from the first:\n{second}");
    assert!(!second.contains("(new)"), "no table is new any more:\n{second}");
}

/// No image is pulled: the command runs here, and that is said. Secrets of the folder do not reach it.
#[test]
#[ignore = "needs the built programs: tests/run"]
fn a_command_in_place_of_an_image_remembers_and_is_announced() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_string_lossy().into_owned();
    std::fs::write(
        folder.path().join("agent.yaml"),
        "apiVersion: v1
kind: Secret
metadata: {name: crm, namespace: shop}
stringData: {token: canary-secret-3f}
---
apiVersion: cicada.dev/v1alpha1
kind: PersistentAgent
metadata: {name: own, namespace: shop}
spec:
  charter: Count.
  executor:
    container:
      image: registry.example.com/none
      command: [sh, -ec]
      args:
      - |
        env > \"$OUT/env.txt\"
        cycle-job child sql 'CREATE TABLE IF NOT EXISTS runs (n INTEGER PRIMARY KEY); INSERT INTO runs DEFAULT VALUES'
        echo printed by the command
        [ ! -e \"$OUT/fail\" ] || exit 7
  secrets: [{name: crm, secretKeyRef: {name: crm, key: token}, allowedHosts: [crm.test]}]
",
    )
    .unwrap();
    let once = || {
        let mut command = Command::new(program("cicadactl"));
        command.args(["local", &dir, "--once"]).env("OUT", folder.path());
        run_command(command, None)
    };
    for _ in 0..2 {
        let ran = once();
        let said = ran.err.clone();
        ran.must();
        assert!(said.contains("with your rights, in place of the image registry.example.com/none"), "{said}");
        assert!(said.contains("own| printed by the command"), "{said}");
    }
    std::fs::write(folder.path().join("fail"), "").unwrap();
    let failed = once();
    assert!(!failed.ok(), "{}", failed.out);
    let store = format!("file://{dir}/.cicada/store");
    let rows =
        cicadactl(&["query", "shop/own", "SELECT count(*) AS n FROM runs", "--store", &store, "-o", "csv"]);
    assert_eq!(rows.must().lines().nth(1).map(str::trim), Some("2"));
    let env = std::fs::read_to_string(folder.path().join("env.txt")).unwrap();
    assert!(env.contains("CICADA_MCP_TOKEN=") && !env.contains("canary-secret"), "{env}");
}
