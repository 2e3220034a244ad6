//! What status says of the memory, and when the store is looked into.

use super::*;

fn condition(w: &World, type_: &str) -> Option<(String, String)> {
    let status = w.status();
    conditions::find(&status.conditions, type_).map(|c| (c.status.clone(), c.reason.clone()))
}

fn is(status: &str, reason: &str) -> Option<(String, String)> {
    Some((status.to_owned(), reason.to_owned()))
}

fn memory(snapshot: &str, before: &str, epoch: u64, counted: bool) -> Option<MemoryReport> {
    Some(MemoryReport {
        snapshot: Some(snapshot.into()),
        before: Some(before.into()),
        epoch,
        counted,
        ..MemoryReport::default()
    })
}

fn without_schedule(now: &str) -> World {
    let mut w = World::sql("0 7 * * *", now);
    w.agent.spec.schedules.clear();
    w.environment.looks = true;
    w
}

fn find(w: &mut World, report: Option<CycleReport>) {
    w.look.as_mut().expect("a look is at work").found = ReportJob::Ended(Box::new(report));
    w.settle();
}

/// A failed cycle publishes a snapshot too: the ledger of the failure beside the memory as it was.
#[test]
fn the_snapshot_of_a_failed_cycle_holds_none_of_its_work() {
    for (class, counted, expected) in [
        (FailureClass::ExecutorFailed, false, is("False", "NotPersisted")),
        (FailureClass::Timeout, false, is("False", "NotPersisted")),
        (FailureClass::Timeout, true, is("True", "Interrupted")),
    ] {
        let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
        w.at("2026-12-01T07:00:00Z").done();
        assert_eq!(condition(&w, "LastCyclePersisted"), is("True", "Persisted"));
        w.at("2026-12-02T07:00:00Z");
        let mut report = CycleReport::failed(class, "x");
        report.memory = memory("2-0-y", "1-0-x", 2, counted);
        w.end(&report);
        assert_eq!(condition(&w, "LastCyclePersisted"), expected, "{class:?}");
    }
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T07:00:00Z");
    let mut report = CycleReport::failed(FailureClass::Timeout, "x");
    report.memory = memory("1-0-x", "1-0-x", 2, true);
    w.end(&report);
    assert_eq!(
        condition(&w, "LastCyclePersisted"),
        is("False", "NotPersisted"),
        "what it found, not what it left"
    );
}

#[test]
fn a_store_that_was_refused_is_not_safe_until_a_cycle_has_used_it() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T07:00:00Z").fail(FailureClass::StoreRefused);
    assert_eq!(condition(&w, "StoreSafe"), is("False", "StoreRefused"));
    w.request("again", &json!({}));
    w.at("2026-12-01T08:00:00Z").done();
    assert_eq!(condition(&w, "StoreSafe"), is("True", "ConditionalWrites"));
}

#[test]
fn who_shares_a_credential_is_told() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    let store = json!({"s3": {"bucket": "b", "credentials": {"secretName": "cicada-store"}}});
    w.agent.spec.store = Some(serde_json::from_value(store).unwrap());
    w.settle();
    assert_eq!(condition(&w, "CredentialsShared"), None);
    w.environment.shares_credentials = true;
    w.settle();
    assert_eq!(condition(&w, "CredentialsShared"), is("True", "CredentialsShared"));
    w.environment.shares_credentials = false;
    w.settle();
    assert_eq!(condition(&w, "CredentialsShared"), None);
}

fn moved() -> World {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.environment.looks = true;
    w.at("2026-12-01T07:00:00Z").done();
    w.agent.spec.store = Some(serde_json::from_value(json!({"directory": {"path": "/other"}})).unwrap());
    w.agent.metadata.generation = Some(2);
    w.at("2026-12-01T07:10:00Z");
    w
}

#[test]
fn a_moved_store_starts_nothing_until_the_memory_is_found_there() {
    let mut w = moved();
    assert_eq!((w.state(), condition(&w, "Stalled")), (State::Stalled, is("True", "StoreMoved")));
    find(&mut w, Some(CycleReport::failed(FailureClass::MemoryMissing, "no HEAD")));
    w.at("2026-12-02T07:00:00Z");
    assert_eq!(w.jobs_made.len(), 1, "the slot starts nothing");
    assert_eq!(w.log.iter().filter(|l| *l == "look").count(), 1, "one look for each place");
    // A person copied the memory and asks.
    w.request("copied", &json!({}));
    w.at("2026-12-02T08:00:00Z").done();
    assert_eq!(w.status().memory.unwrap().store.as_deref(), Some("file:///other"));
    assert_eq!((w.state(), condition(&w, "Stalled")), (State::Running, None), "the missed slot is caught up");
    w.done();
    assert_eq!((w.state(), w.jobs_made.len()), (State::Idle, 3));
    w.at("2026-12-03T07:00:00Z");
    assert_eq!(w.jobs_made.len(), 4);
}

#[test]
fn another_address_of_the_same_store_is_noticed_by_itself() {
    let mut w = moved();
    let mut report = CycleReport::failed(FailureClass::Disrupted, "nothing of this cycle");
    report.memory = memory("1-0-x", "1-0-x", 1, true);
    find(&mut w, Some(report));
    assert_eq!((w.state(), condition(&w, "Stalled")), (State::Idle, None));
    assert!(w.look.is_none());
}

#[test]
fn an_older_memory_in_the_new_place_is_not_the_one_that_was_left() {
    let mut w = moved();
    w.agent.status.as_mut().unwrap().memory.as_mut().unwrap().epoch = Some(9);
    let mut report = CycleReport::failed(FailureClass::Disrupted, "x");
    report.memory = memory("1-0-x", "1-0-x", 1, true);
    find(&mut w, Some(report));
    assert_eq!(condition(&w, "Stalled"), is("True", "StoreMoved"));
}

#[test]
fn setting_the_store_back_or_accepting_the_loss_ends_it() {
    let mut back = moved();
    back.agent.spec.store = Some(serde_json::from_value(json!({"directory": {"path": "/store"}})).unwrap());
    back.settle();
    assert_eq!(condition(&back, "Stalled"), None);
    let mut lost = moved();
    lost.agent.metadata.annotations =
        Some([(crate::ACCEPT_MEMORY_LOSS.to_owned(), "1-0-x".to_owned())].into());
    lost.at("2026-12-02T07:00:00Z");
    assert_eq!(lost.jobs_made.len(), 2);
}

/// An edit while a cycle runs must not make its memory look as if it lay where the edit points.
#[test]
fn a_cycle_reports_the_place_where_it_was_started() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T07:00:00Z");
    w.agent.spec.store = Some(serde_json::from_value(json!({"directory": {"path": "/other"}})).unwrap());
    w.done();
    assert_eq!(w.status().memory.unwrap().store.as_deref(), Some("file:///store"));
    assert_eq!(condition(&w, "Stalled"), is("True", "StoreMoved"));
}

#[test]
fn an_agent_that_nothing_wakes_is_looked_for_once() {
    let mut w = without_schedule("2026-12-01T06:00:00Z");
    w.settle();
    assert!(w.log.is_empty(), "a folder may bring its first cycle along");
    assert_eq!(w.look_again, ts("2026-12-01T06:01:00Z"));
    w.at("2026-12-01T06:01:00Z");
    assert_eq!(w.log, ["look"]);
    let mut report = CycleReport::failed(FailureClass::Disrupted, "x");
    report.memory = memory("7-0-x", "7-0-x", 7, true);
    find(&mut w, Some(report));
    let found = w.status().memory.unwrap();
    assert_eq!((found.snapshot.as_deref(), found.epoch), (Some("7-0-x"), Some(7)));
    w.at("2026-12-02T06:00:00Z");
    assert_eq!(w.log, ["look"]);
    assert_eq!(condition(&w, "LastCyclePersisted"), None, "no cycle has run");
}

#[test]
fn a_look_that_finds_nothing_is_not_repeated() {
    for found in [None, Some(CycleReport::failed(FailureClass::MemoryMissing, "no HEAD"))] {
        let mut w = without_schedule("2026-12-01T06:00:00Z");
        w.at("2026-12-01T06:05:00Z");
        find(&mut w, found);
        w.at("2026-12-02T06:00:00Z");
        assert_eq!((w.log.len(), w.state()), (1, State::Idle));
        assert!(w.status().memory.unwrap().checked_at.is_some());
    }
}

#[test]
fn nothing_is_looked_for_where_a_cycle_will_look() {
    let mut scheduled = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    scheduled.environment.looks = true;
    scheduled.at("2026-12-01T06:30:00Z");
    let mut asked = without_schedule("2026-12-01T06:00:00Z");
    asked.request("r", &json!({}));
    asked.at("2026-12-01T06:30:00Z").done();
    asked.at("2026-12-01T07:30:00Z");
    let mut held = without_schedule("2026-12-01T06:00:00Z");
    held.environment.hold = Some("release".into());
    held.at("2026-12-01T06:30:00Z");
    for w in [scheduled, asked, held] {
        assert!(!w.log.iter().any(|l| l == "look"), "{:?}", w.log);
    }
}

/// A typo in the manifest stops the agent before it goes on from what was to be left; one of a person's own request
/// is that person's to mend.
#[test]
fn a_snapshot_that_is_not_there_stalls_only_where_the_manifest_names_it() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z").done();
    w.request("by-hand", &json!({"restore": {"snapshot": "9-9-x"}}));
    w.at("2026-12-01T08:00:00Z").fail(FailureClass::SnapshotMissing);
    let failed = w.cycles.iter().find(|c| c.metadata.name.as_deref() == Some("by-hand")).unwrap();
    assert_eq!(failed.status.clone().unwrap().reason.as_deref(), Some("SnapshotMissing"));
    assert_eq!((w.state(), w.status().consecutive_failures), (State::Idle, None));

    let restore = |snapshot: &str| {
        serde_json::from_value(json!({"restoreFrom": {"snapshot": snapshot}, "deletionPolicy": "Retain"}))
            .unwrap()
    };
    w.agent.spec.memory = restore("9-9-x");
    w.agent.spec.failed_cycles_history_limit = Some(0);
    w.at("2026-12-01T09:00:00Z").fail(FailureClass::SnapshotMissing);
    let ready = conditions::find(&w.status().conditions, "Ready").unwrap().clone();
    assert_eq!((w.state(), ready.reason.as_str()), (State::Stalled, "SnapshotMissing"));
    let jobs = w.jobs_made.len();
    w.at("2026-12-02T07:00:00Z").at("2026-12-02T08:00:00Z");
    assert_eq!(
        w.jobs_made.len(),
        jobs,
        "neither the slot nor the same restore again, though its cycle is pruned"
    );
    w.agent.spec.memory = restore("1-0-x");
    w.agent.metadata.generation = Some(2);
    // The slot that had waited, and the restore.
    w.at("2026-12-02T09:00:00Z").done();
    w.done();
    assert_eq!(w.status().memory.unwrap().applied_restore.as_deref(), Some("1-0-x/"));
    assert_eq!(conditions::find(&w.status().conditions, "Stalled"), None);
}

/// What the chart says for all agents stands where a manifest says nothing.
#[test]
fn a_whole_cluster_takes_over_memories_and_has_one_model_endpoint() {
    let model = json!({"executor": {"model": {"provider": "OpenAI", "name": "m"}}, "store": {"directory": {"path": "/s"}}});
    let mut w = World::new(&model, "2026-12-01T06:00:00Z");
    let planned = |w: &World| {
        let config = plan::plan_config(&w.agent, &w.defaults).unwrap();
        let cicada_contract::plan::Executor::Model(model) = config.executor else { panic!("no model") };
        (config.memory.take_over_from, model.base_url)
    };
    assert_eq!(planned(&w), (None, None));
    w.defaults.adopt_from = "old".into();
    w.defaults.model_base_url = Some("https://gateway".into());
    assert_eq!(planned(&w), (Some("old/n/a".into()), Some("https://gateway".into())));
    w.agent.spec.memory = Some(serde_json::from_value(json!({"takeOverFrom": "x/y/z"})).unwrap());
    w.agent.spec.executor.model.as_mut().unwrap().base_url = Some("https://own".into());
    assert_eq!(planned(&w), (Some("x/y/z".into()), Some("https://own".into())));
}

#[test]
fn an_agent_is_not_its_own_seed() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    let seed = |from: serde_json::Value| serde_json::from_value(json!({"seedFrom": from})).unwrap();
    for own in [json!({"name": "a"}), json!({"name": "a", "namespace": "n"})] {
        w.agent.spec.memory = seed(own);
        w.at("2026-12-01T06:00:00Z");
        assert_eq!(w.state(), State::Stalled);
    }
    w.agent.spec.memory = seed(json!({"name": "a", "namespace": "elsewhere"}));
    w.at("2026-12-01T06:00:00Z");
    assert_eq!(w.state(), State::Idle);
    let config = plan::plan_config(&w.agent, &w.defaults).unwrap();
    assert_eq!(config.memory.seed_from.unwrap().namespace, "elsewhere");
}
