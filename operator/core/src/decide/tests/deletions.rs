//! An agent that is deleted, with or without its memory.

use super::*;

/// An agent with deletionPolicy Delete that somebody has deleted.
fn deleted() -> World {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.agent.spec.memory = Some(serde_json::from_value(json!({"deletionPolicy": "Delete"})).unwrap());
    w.at("2026-12-01T06:00:00Z");
    assert!(deletion::is_kept(&w.agent), "before its first cycle");
    w.at("2026-12-01T07:00:00Z").done();
    w.agent.metadata.deletion_timestamp = Some(Time(ts("2026-12-01T08:00:00Z")));
    w
}

fn delete_job(end: Option<JobEnd>) -> JobView {
    JobView { name: "delete".into(), uid: "delete-uid".into(), end, ..JobView::default() }
}

#[test]
fn a_deleted_agent_waits_for_its_memory() {
    let mut w = deleted();
    w.at("2026-12-01T08:00:01Z");
    assert_eq!(w.log.last().unwrap(), "start delete job");
    assert_eq!(w.look_again, ts("2026-12-01T08:01:01Z"));
    w.delete_job = Some(delete_job(None));
    let before = w.log.len();
    w.at("2026-12-01T08:02:00Z");
    assert_eq!(w.log.len(), before);
    w.delete_job = Some(delete_job(Some(JobEnd { complete: true, attempts: 1, ..JobEnd::default() })));
    w.at("2026-12-01T08:03:00Z");
    assert!(!deletion::is_kept(&w.agent) && w.log.len() == before, "{:?}", w.log);
    w.at("2026-12-02T07:00:00Z");
    assert_eq!(w.jobs_made.len(), 1, "nothing runs any more");
}

#[test]
fn a_memory_that_stayed_in_an_earlier_store_is_named() {
    let mut w = deleted();
    let other = json!({"directory": {"path": "/other"}});
    w.agent.spec.store = Some(serde_json::from_value(other).unwrap());
    w.delete_job = Some(delete_job(Some(JobEnd { complete: true, attempts: 1, ..JobEnd::default() })));
    w.at("2026-12-01T08:00:01Z");
    assert!(!deletion::is_kept(&w.agent));
    let told = w.log.last().unwrap();
    assert!(told.starts_with("abandon ") && told.contains("/store, under n/a: the store of its"), "{told}");
}

#[test]
fn an_agent_whose_memory_can_not_be_deleted_goes_and_tells() {
    // The namespace is being deleted: no Job can be made.
    let mut w = deleted();
    w.delete_refused = Some("because it is being terminated".into());
    w.at("2026-12-01T08:00:01Z");
    assert!(!deletion::is_kept(&w.agent));
    assert_eq!(
        w.log.last().unwrap(),
        "abandon /store/n/a; to remove it: rm -r /store/n/a: because it is being terminated"
    );
    // The credentials are gone.
    let failed = |class| {
        let report = CycleReport::failed(class, "Secret n/s3 is missing");
        let message = Some(report.render());
        Some(delete_job(Some(JobEnd { message, attempts: 1, ..JobEnd::default() })))
    };
    let mut w = deleted();
    w.delete_job = failed(FailureClass::SecretMissing);
    w.at("2026-12-01T08:00:30Z");
    assert!(w.log.last().unwrap().ends_with(": SecretMissing: Secret n/s3 is missing"), "{:?}", w.log);
    // An outage is waited for, but not longer than ten minutes.
    let mut w = deleted();
    w.delete_job = failed(FailureClass::StoreUnavailable);
    w.at("2026-12-01T08:05:00Z");
    assert_eq!(w.log[w.log.len() - 2..], ["delete job", "start delete job"]);
    w.delete_job = Some(delete_job(None));
    w.at("2026-12-01T08:10:00Z");
    assert!(w.log.last().unwrap().ends_with("it took longer than 10 minutes"), "{:?}", w.log);
}

/// The operator's Role goes with its namespace: the finalizer must be off before.
#[test]
fn an_agent_of_a_namespace_that_ends_is_let_go_at_once() {
    let told = "abandon /store/n/a; to remove it: rm -r /store/n/a: its namespace is being deleted";
    let mut alive = deleted();
    alive.agent.metadata.deletion_timestamp = None;
    let mut leaving = deleted();
    leaving.delete_job = Some(delete_job(None));
    for mut w in [alive, leaving] {
        assert!(deletion::is_kept(&w.agent));
        w.environment.namespace_ends = true;
        w.at("2026-12-01T08:00:01Z");
        assert!(!deletion::is_kept(&w.agent));
        assert_eq!(w.log.last().unwrap(), told);
        let before = w.log.len();
        w.at("2026-12-01T08:00:02Z");
        assert!(!deletion::is_kept(&w.agent) && w.log.len() == before, "once, and not put back: {:?}", w.log);
    }
    let mut gone = deleted();
    gone.delete_job = Some(delete_job(Some(JobEnd { complete: true, attempts: 1, ..JobEnd::default() })));
    gone.environment.namespace_ends = true;
    gone.at("2026-12-01T08:00:01Z");
    assert!(!deletion::is_kept(&gone.agent) && !gone.log.iter().any(|l| l.starts_with("abandon")));
}

#[test]
fn retain_is_the_default_and_a_change_of_mind_counts() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z");
    assert_eq!(w.agent.metadata.finalizers, None);
    let mut w = deleted();
    w.agent.spec.memory = None;
    w.at("2026-12-01T08:00:01Z");
    assert!(!deletion::is_kept(&w.agent) && !w.log.iter().any(|l| l.contains("delete")), "{:?}", w.log);
}
