//! Bad input: what the user sees, to the first words.

use cicada_tests::{namespace::Namespace, shell::variable};

use serde_json::Value;

use crate::agents::{COUNTER, cycle, sql_agent};

/// Refused by the API server: a manifest, and what kubectl says.
#[test]
#[ignore = "needs the test cluster: tests/run"]
fn what_the_api_server_can_check_is_refused_at_once() {
    let ns = Namespace::new("refused");
    let good = sql_agent("worker", COUNTER, "");
    let long = "n".repeat(53);
    let table = [
        (
            "unknown field",
            good.replace("charter:", "chartre:"),
            "strict decoding error: unknown field \"spec.chartre\"",
        ),
        (
            "two executors",
            format!("{good}    container: {{image: x, command: [\"/x\"]}}\n"),
            "exactly one executor is needed: model, sql or container",
        ),
        (
            "name too long",
            good.replace("name: worker", &format!("name: {long}")),
            "metadata.name must have at most 52 characters: names of cycles and Jobs are made from it",
        ),
        (
            "no time in a schedule",
            format!("{good}  schedules: [{{name: x}}]\n"),
            "exactly one of cron and at is needed in a schedule",
        ),
    ];
    for (what, manifest, words) in table {
        let said = ns.try_apply(&manifest).must_fail();
        assert!(said.contains(words), "{what}: kubectl said: {said}");
    }
    assert!(ns.list("persistentagents").is_empty());
}

/// Refused by the operator: more lines of the spec, reason of Stalled, and the first words of its message.
#[test]
#[ignore = "needs the test cluster: tests/run"]
fn what_only_the_operator_can_check_stalls_the_agent() {
    let ns = Namespace::new("stalls");
    let table = [
        (
            "zone",
            "  schedules: [{name: x, cron: \"0 7 * * *\", timeZone: Europe/Berln}]\n",
            "UnknownTimeZone",
            "unknown time zone \"Europe/Berln\"",
        ),
        (
            "six-fields",
            "  schedules: [{name: x, cron: \"0 0 7 * * *\"}]\n",
            "UnparseableSchedule",
            "6-field cron expression \"0 0 7 * * *\"",
        ),
        (
            "never",
            "  schedules: [{name: x, cron: \"0 0 31 2 *\"}]\n",
            "ScheduleNeverFires",
            "never-firing cron expression \"0 0 31 2 *\"",
        ),
    ];
    for (name, more, reason, words) in table {
        ns.apply(&sql_agent(name, COUNTER, more));
        let stalled = ns.wait_for_condition(name, "Stalled", "True", 30);
        assert_eq!(stalled["reason"], reason, "{name}: {stalled:#}");
        let message = stalled["message"].as_str().unwrap();
        assert!(message.starts_with(words), "{name}: {message}");
        assert_eq!(ns.condition(name, "Ready")["status"], "False");
        assert_eq!(ns.status(name)["state"], "Stalled");
    }
    assert!(ns.list("agentcycles").is_empty(), "none of them starts a cycle");
}

/// Runs a cycle that must fail; checks its class, the agent's Stalled reason, and the first words.
fn fails(ns: &Namespace, agent: &str, class: &str, reason: &str, words: &str) {
    ns.create(&cycle(&format!("{agent}-fails"), agent));
    let status = ns.wait_for_cycle(&format!("{agent}-fails"), 150);
    assert_eq!(status["phase"], "Failed", "{status:#}");
    assert_eq!(status["class"], class, "{status:#}");
    let stalled = ns.wait_for_condition(agent, "Stalled", "True", 30);
    assert_eq!(stalled["reason"], reason, "{stalled:#}");
    let message = stalled["message"].as_str().unwrap();
    assert!(message.starts_with(words), "Stalled says: {message}");
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_corrupt_archive_stops_the_agent() {
    let ns = Namespace::new("corrupt");
    ns.apply(&sql_agent("worker", COUNTER, ""));
    ns.create(&cycle("first", "worker"));
    assert_eq!(ns.wait_for_cycle("first", 120)["phase"], "Succeeded");
    let folder = ns.folder("worker");
    let snapshot = folder.current();
    let archive = folder.object(snapshot["memory"]["key"].as_str().unwrap());
    let mut bytes = std::fs::read(&archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    std::fs::write(&archive, bytes).unwrap();
    fails(
        &ns,
        "worker",
        "restore_corrupt",
        "MemoryCorrupt",
        &format!("snapshot {} is damaged; ", snapshot["id"].as_str().unwrap()),
    );
    // The ledger may tell of the failure in a snapshot of its own; the memory stays the one that it was.
    assert_eq!(folder.current()["memory"], snapshot["memory"]);
    let finals = |head: &Value| -> Vec<Value> {
        head["snapshots"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|s| s["kind"] == "final")
            .map(|s| s["id"].clone())
            .collect()
    };
    assert_eq!(finals(&folder.must_head()), [snapshot["id"].clone()], "no new final snapshot");
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn wrong_credentials_stop_the_agent() {
    let ns = Namespace::new("credentials");
    ns.credentials("test", "not-the-secret");
    ns.apply(&sql_agent("worker", COUNTER, ""));
    fails(
        &ns,
        "worker",
        "store_refused",
        "StoreRefused",
        "the memory can't be acquired: could not read HEAD: the store refused the credentials: SignatureDoesNotMatch",
    );
    assert!(ns.folder("worker").keys().is_empty());
    // gke-labs/kube-agents#1631: a rotated secret never reached who had started with the old one. Here the next cycle
    // has it, and what it found replaces what was told before (KEDA#7792).
    ns.credentials(&variable("CICADA_S3_ACCESS_KEY"), &variable("CICADA_S3_SECRET_KEY"));
    ns.create(&cycle("rotated", "worker"));
    assert_eq!(ns.wait_for_cycle("rotated", 120)["phase"], "Succeeded");
    ns.wait_for_condition("worker", "Ready", "True", 10);
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_missing_bucket_stops_the_agent() {
    let ns = Namespace::new("bucket");
    let store = format!(
        "  store: {{s3: {{bucket: not-there, endpoint: \"{}\", forcePathStyle: true, credentials: {{secretName: cicada-store}}}}}}\n",
        variable("CICADA_S3_ENDPOINT")
    );
    ns.apply(&sql_agent("worker", COUNTER, &store));
    fails(
        &ns,
        "worker",
        "store_refused",
        "StoreRefused",
        "the memory can't be acquired: could not read HEAD: the bucket does not exist: create `not-there`",
    );
}

/// As gke-labs/kube-agents#1711, a Secret that is not what the agent needs: told by its name and key, and not a
/// container that can't be created until a deadline passes.
#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_missing_secret_key_stops_the_agent() {
    let ns = Namespace::without_credentials("secret");
    ns.apply("{apiVersion: v1, kind: Secret, metadata: {name: cicada-store}, stringData: {AWS_ACCESS_KEY_ID: test}}");
    ns.apply(&sql_agent("worker", COUNTER, ""));
    fails(
        &ns,
        "worker",
        "secret_missing",
        "SecretMissing",
        &format!("secret {}/cicada-store has no key AWS_SECRET_ACCESS_KEY: run kubectl", ns.name),
    );
}
