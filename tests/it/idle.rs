//! An operator with nothing to do writes nothing but its own Lease.

use std::time::Duration;

use cicada_tests::{
    cluster::{Cluster, SYSTEM},
    namespace::Namespace,
};
use serde_json::Value;

use crate::agents::{COUNTER, cycle, sql_agent};

fn by_operator(event: &Value) -> bool {
    event["user"]["username"]
        .as_str()
        .is_some_and(|name| name.starts_with(&format!("system:serviceaccount:{SYSTEM}:")))
}

/// agent-sandbox#1254, #1245: writes without a change woke every watcher again and again.
#[test]
#[ignore = "needs the test cluster, and nothing else in it: tests/run"]
fn ten_idle_minutes_cost_no_write() {
    let seconds: u64 = std::env::var("CICADA_IDLE_SECONDS")
        .map_or(600, |text| text.parse().expect("CICADA_IDLE_SECONDS in seconds"));
    let ns = Namespace::new("idle");
    // One that has worked, one that never did, one that is suspended, one that is stalled.
    let yearly = "  schedules: [{name: year, cron: \"0 0 1 1 *\"}]\n";
    ns.apply(&sql_agent("worked", COUNTER, yearly));
    ns.apply(&sql_agent("waits", COUNTER, yearly));
    ns.apply(&sql_agent(
        "suspended",
        COUNTER,
        "  suspend: true\n  schedules: [{name: often, cron: \"* * * * *\"}]\n",
    ));
    ns.apply(&sql_agent("stalled", COUNTER, "  schedules: [{name: wrong, cron: \"0 0 31 2 *\"}]\n"));
    ns.create(&cycle("once", "worked"));
    assert_eq!(ns.wait_for_cycle("once", 120)["phase"], "Succeeded");
    ns.wait_for_condition("stalled", "Stalled", "True", 30);
    std::thread::sleep(Duration::from_secs(15));

    let start = now();
    eprintln!("watching the operator's writes for {seconds} s from {start}");
    std::thread::sleep(Duration::from_secs(seconds));
    let writes = Cluster::get().writes(&start, by_operator);
    let (leases, others): (Vec<Value>, Vec<Value>) =
        writes.into_iter().partition(|event| event["objectRef"]["resource"] == "leases");
    assert!(
        others.is_empty(),
        "{} writes in {seconds} idle seconds, the first: {:#}",
        others.len(),
        others[0]
    );
    // The Lease shows that the operator was alive, and that the log is read right.
    assert!(leases.len() as u64 >= seconds / 60, "only {} writes of the Lease", leases.len());
    assert!(leases.iter().all(|event| event["objectRef"]["namespace"] == SYSTEM));
}

/// Now, as the audit log writes it.
fn now() -> String {
    cicada_tests::shell::run("date", ["-u", "+%Y-%m-%dT%H:%M:%S.%6NZ"]).must().trim().to_owned()
}
