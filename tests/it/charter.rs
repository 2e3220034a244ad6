//! A charter in force that is not the manifest's, by real Jobs: it is told until Git has it.

use cicada_tests::{memory::Unpacked, namespace::Namespace, wait};
use serde_json::{Value, json};

use crate::agents::{cycle, sql_agent};

const WANTED: &str = "Keep what you are told, and say when.";

/// An agent that wants another charter, and writes down which one it works by.
fn agent(ns: &Namespace, more: &str) {
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS charters(id INTEGER PRIMARY KEY, text TEXT);
        INSERT INTO charters(text) SELECT charter FROM __agent_config;
        UPDATE __agent_config SET charter = '{WANTED}' WHERE charter <> '{WANTED}';"
    );
    ns.apply(&sql_agent("worker", &sql, more));
}

fn run(ns: &Namespace, name: &str) {
    ns.create(&cycle(name, "worker"));
    let status = ns.wait_for_cycle(name, 120);
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    wait::until_seen(
        "the agent's status has the cycle",
        20,
        || ns.status("worker")["lastCycle"]["name"].clone(),
        |last| last == name,
    );
}

fn patch(ns: &Namespace, spec: &Value) {
    let patch = json!({ "spec": spec }).to_string();
    ns.kubectl(&["patch", "persistentagent", "worker", "--type=merge", "--patch", &patch]).must();
}

fn is_told(ns: &Namespace, by: &str) -> bool {
    let status = ns.status("worker");
    let told = !ns.condition("worker", "CharterDiverged").is_null();
    assert_eq!(status["charter"]["source"] == by, told, "{status:#}");
    told
}

/// The charter by which the newest cycle worked.
fn newest(ns: &Namespace) -> String {
    Unpacked::check(&ns.folder("worker")).sql("SELECT text FROM charters ORDER BY id DESC LIMIT 1")
}

/// Puts the charter in force into the manifest, as somebody does who commits it.
fn commit(ns: &Namespace) {
    let told = ns.wait_for_condition("worker", "CharterDiverged", "True", 20);
    assert!(told["message"].as_str().unwrap().contains("commit it to the manifest"), "{told:#}");
    assert_eq!(ns.condition("worker", "Ready")["status"], "True", "it is no fault");
    patch(ns, &json!({ "charter": WANTED }));
    wait::until_seen(
        "it is the manifest's",
        30,
        || ns.status("worker"),
        |status| status["charter"]["source"] == "Manifest",
    );
    assert!(ns.condition("worker", "CharterDiverged").is_null(), "before any cycle");
    let edited = |e: &Value| e["reason"] == "CharterEdited" && e["involvedObject"]["name"] == "worker";
    wait::until("an event says so", 20, || ns.list("events").iter().any(edited).then_some(()));
    run(ns, "committed");
    assert!(!is_told(ns, "Person") && !is_told(ns, "Agent"));
    assert_eq!(newest(ns), WANTED);
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn an_approved_charter_is_told_until_git_has_it_and_an_edit_makes_an_approval_void() {
    let ns = Namespace::new("charter-approved");
    agent(&ns, "");
    run(&ns, "proposes");
    let proposal = |ns: &Namespace| {
        let proposal = ns.status("worker")["proposals"][0].clone();
        assert_eq!(proposal["kind"], "charter", "{proposal:#}");
        format!("{}-{}", proposal["id"].as_str().unwrap(), proposal["hash"].as_str().unwrap())
    };
    let first = proposal(&ns);
    assert!(!is_told(&ns, "Person"), "a proposal is not in force");

    // An approval is one of a change to the text that the agent saw, and of nothing else.
    let edited = "Keep what you are told, briefly.";
    patch(&ns, &json!({"charter": edited, "approvals": [first]}));
    run(&ns, "edited");
    assert!(!is_told(&ns, "Person"));
    assert_eq!(newest(&ns), edited);

    let second = proposal(&ns);
    assert_ne!(first, second, "the same text over another one is another proposal");
    patch(&ns, &json!({ "approvals": [second] }));
    run(&ns, "approved");
    assert!(is_told(&ns, "Person"));
    run(&ns, "works-by-it");
    assert_eq!(newest(&ns), WANTED);
    commit(&ns);
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_charter_that_an_agent_may_change_itself_is_told_until_git_has_it() {
    let ns = Namespace::new("charter-applied");
    agent(&ns, "  selfManagement: {charter: Apply}\n");
    run(&ns, "applies");
    assert!(is_told(&ns, "Agent"));
    run(&ns, "works-by-it");
    assert_eq!(newest(&ns), WANTED);
    commit(&ns);
}
