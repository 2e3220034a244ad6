//! Two agents of a folder that answer each other whatever they hear, without a model: what ends it are the bounds.

use std::path::Path;

use crate::support::{Folder, Running, VISIT, run, wait_for};

/// An agent each of whose cycles writes to `peer`.
fn answering(folder: &Path, name: &str, peer: &str, more: &str) {
    let text = format!(
        "apiVersion: cicada.dev/v1alpha1
kind: PersistentAgent
metadata: {{name: {name}, namespace: shop}}
spec:
  charter: Answer.
  peers: [{{name: {peer}}}]
{more}  executor:
    container:
      image: registry.example.com/none
      command: [sh, -ec]
      args:
      - |
        cycle-job child call message_peer '{{\"peer\": \"{peer}\", \"body\": \"And you?\"}}'
"
    );
    std::fs::write(folder.join(format!("{name}.yaml")), text).unwrap();
}

fn pair(more: &str) -> Folder {
    let folder = Folder::new(VISIT);
    std::fs::remove_file(folder.path().join("clerk.yaml")).unwrap();
    answering(folder.path(), "ping", "pong", more);
    answering(folder.path(), "pong", "ping", more);
    folder
}

fn ask(folder: &Folder, agent: &str, sql: &str) -> String {
    let ran = folder.run(&["query", agent, sql, "--ledger", "-o", "csv"]);
    ran.out.lines().nth(1).unwrap_or_default().to_owned()
}

fn hops(folder: &Folder, agent: &str) -> String {
    ask(
        folder,
        agent,
        "SELECT coalesce(max(json_extract(payload_json, '$.hops')), 0) FROM messages WHERE direction = 'out'",
    )
}

#[test]
fn a_running_local_wakes_peers_until_their_hops_are_spent() {
    let folder = pair("");
    let running = Running::start(&folder);
    folder.run(&["run", "shop/ping", "--wait"]).must();
    wait_for("the last answer", || (hops(&folder, "shop/ping") == "7").then_some(()));
    assert_eq!(running.end(), Some(0));
    let cycles = "SELECT count(*) FROM cycles";
    let of = |agent: &str| ask(&folder, agent, cycles);
    assert_eq!((of("shop/ping"), of("shop/pong")), ("4".into(), "3".into()), "{}", Running::log(&folder));
    assert_eq!(hops(&folder, "shop/pong"), "6");
    // The seventh has arrived and waits for a cycle of another reason.
    let out = folder.run(&["outbox", "shop/ping", "--all"]).must();
    assert!(out.contains("Peer") && out.contains("sent") && !out.contains("pending"), "{out}");
    let again = Running::start(&folder);
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(again.end(), Some(0));
    assert_eq!(of("shop/pong"), "3", "{}", Running::log(&folder));
    let once = run(&["local", &folder.path().display().to_string(), "--once"]);
    assert_eq!(once.code, Some(0), "{}{}", once.out, once.err);
    let heard = ask(
        &folder,
        "shop/pong",
        "SELECT max(json_extract(payload_json, '$.hops')) FROM messages WHERE direction = 'in' AND handled",
    );
    assert_eq!(heard, "7");
}

#[test]
fn cycles_per_day_end_it_before_the_hops_do() {
    let folder = pair("  limits: {cyclesPerDay: 1}\n");
    let once = run(&["local", &folder.path().display().to_string(), "--once"]);
    // One that waits for midnight has not succeeded.
    assert_eq!(once.code, Some(1), "{}{}", once.out, once.err);
    let woken = "SELECT count(*) FROM cycles WHERE triggers_json LIKE '%Peer%'";
    assert_eq!(ask(&folder, "shop/ping", woken), "1", "{}{}", once.out, once.err);
    assert_eq!(ask(&folder, "shop/pong", woken), "1", "{}{}", once.out, once.err);
}

#[test]
fn who_is_not_named_back_or_not_there_is_told_of_at_once() {
    let folder = pair("");
    folder.manifest("pong", VISIT, "");
    let once = run(&["local", &folder.path().display().to_string(), "--once"]);
    let said = format!("{}{}", once.out, once.err);
    assert!(said.contains("the spec.peers of that agent does not name this one"), "{said}");
    std::fs::remove_file(folder.path().join("pong.yaml")).unwrap();
    let once = run(&["local", &folder.path().display().to_string(), "--once"]);
    let said = format!("{}{}", once.out, once.err);
    assert!(said.contains("there is no agent of this name in the namespace"), "{said}");
    assert!(!folder.path().join(".cicada/store/shop/pong/inbox").exists());
}
