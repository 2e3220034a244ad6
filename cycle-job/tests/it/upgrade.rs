//! An upgrade that is taken back: what this release and the first one make of each other's HEAD, by whole
//! cycles.

use cicada_contract::FailureClass;
use cicada_contract::report::CycleResult;
use serde_json::{Value, json};

use crate::agent::Agent;

const GROW: &str = "CREATE TABLE IF NOT EXISTS t (n); INSERT INTO t VALUES (random())";
/// HEAD as version 1 wrote it, with fields that no release knows yet.
const FIRST: &str = include_str!("../../store/src/tests/head-v1.json");

fn read(agent: &Agent) -> Value {
    serde_json::from_slice(&std::fs::read(agent.objects().join("HEAD.json")).unwrap()).unwrap()
}

fn write(agent: &Agent, head: &Value) {
    std::fs::write(agent.objects().join("HEAD.json"), serde_json::to_vec_pretty(head).unwrap()).unwrap();
}

/// What the first release does with HEAD, from the description of version 1 and with no code of this one: a
/// cycle that changes nothing. It refuses another version, needs what version 1 must have, and keeps the rest.
pub(crate) fn cycle_of_the_first_release(agent: &Agent, uid: &str) -> Result<(), String> {
    let mut head = read(agent);
    if head["version"] != 1 {
        return Err(format!("unknown_version: HEAD has version {}", head["version"]));
    }
    let known: Value = serde_json::from_str(FIRST).unwrap();
    for field in ["owner", "epoch", "acquiredBy", "writer", "write", "writtenAt", "current", "published"] {
        let (found, old) = (&head[field], &known[field]);
        assert_eq!(std::mem::discriminant(found), std::mem::discriminant(old), "{field}: {found}");
    }
    let snapshots = head["snapshots"].as_array().unwrap();
    let current = snapshots.iter().find(|s| s["id"] == head["current"]).unwrap().clone();
    for snapshot in snapshots {
        for archive in ["memory", "ledger"] {
            whole(agent, &snapshot[archive]);
        }
    }
    let epoch = head["epoch"].as_u64().unwrap() + 1;
    let cycle = json!({"name": uid, "uid": uid});
    let id = format!("{epoch}-1-00000000000000ff");
    let mut published = current;
    (published["id"], published["cycle"], published["kind"]) = (json!(id), cycle.clone(), json!("final"));
    head["snapshots"].as_array_mut().unwrap().push(published);
    (head["epoch"], head["current"]) = (json!(epoch), json!(id));
    head["acquiredBy"] = json!({"cycle": cycle, "attempt": 1});
    head["writer"] = json!("fe".repeat(16));
    head["published"] = json!(head["published"].as_u64().unwrap() + 1);
    write(agent, &head);
    Ok(())
}

/// An archive of version 1: one zstd frame, the file in it, and the hashes of both.
fn whole(agent: &Agent, archive: &Value) {
    let bytes = std::fs::read(agent.objects().join(archive["key"].as_str().unwrap())).unwrap();
    let file = zstd::decode_all(&*bytes).unwrap();
    assert_eq!(archive["archiveSize"], bytes.len());
    assert_eq!(archive["fileSize"], file.len());
    assert_eq!(archive["archiveSha256"], cicada_contract::text::sha256_hex(&bytes));
    assert_eq!(archive["fileSha256"], cicada_contract::text::sha256_hex(&file));
}

/// HEAD with the fields of version 1 only, and with those of a release to come.
fn as_of_the_first_release(agent: &Agent) {
    let (mut head, known): (Value, Value) = (read(agent), serde_json::from_str(FIRST).unwrap());
    head.as_object_mut().unwrap().retain(|field, _| !known[field].is_null());
    for (field, value) in known.as_object().unwrap() {
        if head[field].is_null() {
            head[field] = value.clone();
        }
    }
    write(agent, &head);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_can_be_taken_back_and_done_again() {
    let mut agent = Agent::with_sql(GROW);
    assert_eq!(agent.cycle().await.result, CycleResult::Done, "{}", agent.log());
    as_of_the_first_release(&agent);
    let old = read(&agent);
    // Upgrade, two cycles.
    for _ in 0..2 {
        assert_eq!(agent.cycle().await.result, CycleResult::Done, "{}", agent.log());
    }
    // Rollback, a cycle; upgrade, a cycle; and so once more.
    for n in 1..=2_u32 {
        cycle_of_the_first_release(&agent, &format!("old-{n}")).unwrap();
        let between = read(&agent);
        assert_eq!(agent.cycle().await.result, CycleResult::Done, "{}", agent.log());
        let head = read(&agent);
        assert_eq!(head["epoch"].as_u64().unwrap(), between["epoch"].as_u64().unwrap() + 1);
        assert!(head["snapshots"].as_array().unwrap().iter().any(|s| s["id"] == between["current"]));
        for field in ["version", "handled", "appliedRestore", "erasures", "auditHead", "inventedLater"] {
            assert_eq!(head[field], old[field], "{field}");
        }
    }
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["5"]], "no cycle of either is lost");
}

/// Version 2 is for the first release what version 3 is for this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_of_a_later_release_stops_each_release_and_stays() {
    let mut agent = Agent::with_sql(GROW);
    assert_eq!(agent.cycle().await.result, CycleResult::Done, "{}", agent.log());
    let sound = read(&agent);
    let mut later = sound.clone();
    for version in [3, 99] {
        later["version"] = json!(version);
        write(&agent, &later);
        let bytes = std::fs::read(agent.objects().join("HEAD.json")).unwrap();
        let report = agent.cycle().await;
        assert_eq!(report.class, Some(FailureClass::UnknownVersion), "{report:?}");
        assert!(report.message.contains(&format!("HEAD has version {version}")), "{report:?}");
        assert_eq!(std::fs::read(agent.objects().join("HEAD.json")).unwrap(), bytes);
    }
    later["version"] = json!(2);
    write(&agent, &later);
    assert!(cycle_of_the_first_release(&agent, "old").unwrap_err().starts_with("unknown_version"));
    assert_eq!(read(&agent), later);
    // The release that knows it goes on, and without deltas gives it back to the first.
    assert_eq!(agent.cycle().await.result, CycleResult::Done, "{}", agent.log());
    cycle_of_the_first_release(&agent, "old").unwrap();
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["2"]]);
}
