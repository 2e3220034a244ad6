//! Writes that another writer was faster with.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use crate::operator::Operator;
use crate::plane::{Plane, until};
use crate::{agent, phase};

/// Ends the other writers, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// kubernetes#121070, cloudnative-pg#10612: a conflict on a status write was logged as an error, told as an event, and
/// came back after a wait that doubled. Here people and tools write the same objects without a break: the operator
/// meets conflicts, looks again within a second, and nobody hears of it.
#[test]
#[ignore = "needs etcd and kube-apiserver: tests/run"]
fn a_conflict_is_met_again_at_once_and_told_to_nobody() {
    let plane = Plane::get();
    let ns = plane.namespace("conflicts");
    let operator = Operator::start(plane, &ns.name, "conflicts", "lease-conflicts");
    ns.apply(&agent("a", "  successfulCyclesHistoryLimit: 100\n"));
    until("it is looked at", 30, || ns.get("pa", "a")["status"]["state"].is_string().then_some(()));
    let (stop, serial) = (AtomicBool::new(false), AtomicU32::new(0));
    let write = |what: &[&str]| {
        while !stop.load(SeqCst) {
            let value = format!("other={}", serial.fetch_add(1, SeqCst));
            // The first cycle may not be there yet.
            plane.say(&[&["annotate", "-n", &ns.name], what, &[&value, "--overwrite"]].concat());
        }
    };
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| write(&["pa", "a"]));
        scope.spawn(|| write(&["pa", "a"]));
        scope.spawn(|| write(&["pac", "--all"]));
        let mut asked = 0;
        until("the operator has met five conflicts", 300, || {
            asked += 1;
            ns.kubectl(&["annotate", "pa", "a", &format!("cicada.dev/run-now={asked}"), "--overwrite"]);
            until("the request is handled all the same", 30, || {
                (ns.get("pa", "a")["status"]["lastHandledRunNow"] == asked.to_string().as_str()).then_some(())
            });
            (operator.metric("cicada_api_conflicts_total") >= 5).then_some(())
        });
    });
    until("all is quiet", 30, || (ns.get("pa", "a")["status"]["state"] == "Idle").then_some(()));
    let cycles = ns.list("pac");
    assert!(cycles.iter().all(|c| phase(c) == "Succeeded"), "{cycles:#?}");
    assert_eq!(ns.jobs().len(), cycles.len(), "none was started twice");
    assert_eq!(operator.errors(), [""; 0]);
    let log = operator.log();
    // The client itself warns of the certificate of the tests' API server.
    let ours = log.lines().filter(|l| !l.contains("Server cert bypassed"));
    let loud: Vec<_> = ours.filter(|l| l.contains("WARN") || l.contains("ERROR")).collect();
    assert!(!log.is_empty() && loud.is_empty(), "{loud:#?}");
    let events = ns.list("events");
    let warnings: Vec<_> = events
        .iter()
        .filter(|e| e["type"] == "Warning" && e["involvedObject"]["kind"] == "PersistentAgent")
        .collect();
    assert!(!events.is_empty() && warnings.is_empty(), "{warnings:#?}");
}
