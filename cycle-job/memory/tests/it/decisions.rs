//! What the agent proposes about itself, and what people decide.

use cicada_contract::PlanConfig;
use cicada_contract::plan::{Approval, CharterPolicy, Decision, PlanSchedule};
use cicada_contract::report::CharterSource;
use cicada_contract::text::sha256_hex;
use cicada_memory::ledger::BeginCycle;
use cicada_memory::{LedgerWorker, Mounts, Value};
use jiff::{SignedDuration, Timestamp};

use crate::faults::{mounted, ok};
use crate::ledger::place_memory;
use crate::support::{Place, config, now};

#[test]
fn a_charter_edit_follows_the_policy() {
    let place = Place::new();
    let (mut ledger, mut memory, _) = mounted(&place);
    ok(
        &mut memory,
        "UPDATE __agent_config SET charter = 'Watch prices.' || char(10) || 'Tell sales.', short_description = 'A watcher'",
    );
    let edits = memory.edits();
    let with = |policy| PlanConfig {
        self_management: cicada_contract::plan::SelfManagement { charter: policy, ..Default::default() },
        ..config()
    };
    let report = ledger.apply_edits(&edits, &with(CharterPolicy::Propose), "c1", now()).unwrap();
    // Who may read the agent's status may not read what it proposes.
    assert_eq!(
        (report.asks[0].kind.as_str(), report.asks[0].summary.as_str()),
        ("charter", "a charter of 25 bytes")
    );
    let charter = |ledger: &mut LedgerWorker, config: &PlanConfig| {
        ledger.load_mounts(config, &[], now()).unwrap().rows("__agent_config")[0][1].clone()
    };
    assert_eq!(charter(&mut ledger, &config()), "Watch prices.".into(), "a proposal is not in force");
    ok(&mut memory, "UPDATE __agent_config SET short_description = 'A watcher of prices'");
    let mut memory = place_memory(&ledger.load_mounts(&config(), &[], now()).unwrap());
    ok(&mut memory.1, "UPDATE __agent_config SET charter = 'Applied.'");
    ledger.apply_edits(&memory.1.edits(), &with(CharterPolicy::Apply), "c2", now()).unwrap();
    assert_eq!(charter(&mut ledger, &config()), "Applied.".into());
    let git = PlanConfig { charter: "Edited in Git.".into(), ..config() };
    assert_eq!(charter(&mut ledger, &git), "Edited in Git.".into(), "an edit of the manifest wins");
    let denied = place_memory(&Mounts {
        policy: ledger.load_mounts(&with(CharterPolicy::Deny), &[], now()).unwrap().policy,
        ..ledger.load_mounts(&config(), &[], now()).unwrap()
    })
    .1
    .batch("UPDATE __agent_config SET charter = 'x'")
    .unwrap();
    assert!(denied.text.contains("the manifest denies it"), "{}", denied.text);
}

/// A ledger with one open proposal of a charter; its id and hash.
fn proposed(place: &Place) -> (LedgerWorker, String, String) {
    let (mut ledger, mut memory, _) = mounted(place);
    ok(&mut memory, "UPDATE __agent_config SET charter = 'Watch prices daily.'");
    let report = ledger.apply_edits(&memory.edits(), &config(), "c1", now()).unwrap();
    (ledger, report.asks[0].id.clone(), report.asks[0].hash.clone())
}

fn in_force(ledger: &mut LedgerWorker, config: &PlanConfig) -> Value {
    ledger.load_mounts(config, &[], now()).unwrap().rows("__agent_config")[0][1].clone()
}

#[test]
fn an_approved_charter_is_in_force_until_the_manifest_is_edited() {
    let place = Place::new();
    let (mut ledger, id, hash) = proposed(&place);
    let approval = Approval::parse(&format!("{id}-{hash}"), Decision::Approved, "annotation").unwrap();
    let told = ledger.decide_proposals(std::slice::from_ref(&approval), &config(), "c2", now()).unwrap();
    assert!(told[0].contains("approved by annotation"), "{told:?}");
    assert_eq!(in_force(&mut ledger, &config()), "Watch prices daily.".into());
    // Again with each cycle, and after an answer was lost: it counts once.
    ledger.killer().kill();
    assert_eq!(
        ledger.decide_proposals(std::slice::from_ref(&approval), &config(), "c3", now()).unwrap(),
        Vec::<String>::new()
    );
    let overview = ledger.overview(now(), "UTC").unwrap();
    assert_eq!((overview.asks.len(), overview.notices), (0, told));
    assert_eq!(
        ledger.query("SELECT field, old_value, new_value, actor FROM config_changes", 9).unwrap().rows,
        [["charter".into(), "Watch prices.".into(), "Watch prices daily.".into(), Value::from("person")]]
    );
    let edited = PlanConfig { charter: "Edited in Git.".into(), ..config() };
    assert_eq!(in_force(&mut ledger, &edited), "Edited in Git.".into());
    // The agent proposes the same text over the edited manifest: the old approval is not one of that.
    let mut memory = place_memory(&ledger.load_mounts(&edited, &[], now()).unwrap()).1;
    let update = "UPDATE __agent_config SET charter = 'Watch prices daily.'";
    ok(&mut memory, update);
    ledger.apply_edits(&memory.edits(), &edited, "c4", now()).unwrap();
    ledger.decide_proposals(&[approval], &edited, "c5", now()).unwrap();
    assert_eq!(in_force(&mut ledger, &edited), "Edited in Git.".into());
    assert_eq!(ledger.overview(now(), "UTC").unwrap().asks.len(), 1);
}

#[test]
fn only_what_the_person_saw_is_approved() {
    let place = Place::new();
    let (mut ledger, id, hash) = proposed(&place);
    let mut decide = |text: String, decision, config: &PlanConfig| {
        let approval = Approval::parse(&text, decision, "").unwrap();
        let told = ledger.decide_proposals(&[approval], config, "c2", now()).unwrap();
        (told, in_force(&mut ledger, config))
    };
    let stays = |charter: &str| (Vec::<String>::new(), Value::from(charter));
    let other: String = hash.chars().rev().collect();
    for text in [format!("{id}-{other}"), format!("charter-00000000-{hash}")] {
        assert_eq!(decide(text, Decision::Approved, &config()), stays("Watch prices."));
    }
    let edited = PlanConfig { charter: "Edited in Git.".into(), ..config() };
    let (told, charter) = decide(format!("{id}-{hash}"), Decision::Approved, &edited);
    assert!(told[0].contains("the manifest was edited after it"), "{told:?}");
    assert_eq!(charter, "Edited in Git.".into());
    assert_eq!(decide(format!("{id}-{hash}"), Decision::Approved, &config()), stays("Watch prices."));
}

#[test]
fn a_rejected_proposal_is_told_and_not_in_force() {
    let place = Place::new();
    let (mut ledger, id, hash) = proposed(&place);
    let no = Approval { id, hash, decision: Decision::Rejected, by: "ann".into() };
    let told = ledger.decide_proposals(std::slice::from_ref(&no), &config(), "c2", now()).unwrap();
    assert!(told[0].ends_with("was rejected by ann"), "{told:?}");
    assert_eq!(in_force(&mut ledger, &config()), "Watch prices.".into());
    let late = Approval { decision: Decision::Approved, ..no };
    ledger.decide_proposals(&[late], &config(), "c3", now()).unwrap();
    assert_eq!(in_force(&mut ledger, &config()), "Watch prices.".into(), "the first decision stays");
}

/// What the report tells of the charter in force: who put it there, and over which text of the manifest.
#[test]
fn an_edit_of_the_manifest_ends_an_approval_for_good() {
    let place = Place::new();
    let (mut ledger, id, hash) = proposed(&place);
    let told = |ledger: &mut LedgerWorker, config: &PlanConfig| {
        let charter = ledger.apply_edits(&[], config, "c9", now()).unwrap().charter.unwrap();
        assert_eq!(charter.base, sha256_hex(&config.charter));
        (charter.source, charter.hash)
    };
    assert_eq!(told(&mut ledger, &config()), (CharterSource::Manifest, sha256_hex("Watch prices.")));
    let approval = Approval { id, hash, decision: Decision::Approved, by: "ann".into() };
    ledger.decide_proposals(&[approval], &config(), "c2", now()).unwrap();
    assert_eq!(told(&mut ledger, &config()), (CharterSource::Person, sha256_hex("Watch prices daily.")));
    let edited = PlanConfig { charter: "Edited in Git.".into(), ..config() };
    ledger.decide_proposals(&[], &edited, "c3", now()).unwrap();
    assert_eq!(told(&mut ledger, &edited), (CharterSource::Manifest, sha256_hex("Edited in Git.")));
    // A revert in Git is an edit, too: what was approved over the old text does not come back by itself.
    ledger.decide_proposals(&[], &config(), "c4", now()).unwrap();
    assert_eq!(told(&mut ledger, &config()), (CharterSource::Manifest, sha256_hex("Watch prices.")));
    let rows = ledger.query("SELECT new_value, actor FROM config_changes ORDER BY rowid", 9).unwrap().rows;
    assert_eq!(rows[1], ["Edited in Git.".into(), Value::from("manifest")]);
    let notices = ledger.overview(now(), "UTC").unwrap().notices;
    assert_eq!(notices.iter().filter(|n| n.contains("edited in the manifest")).count(), 1, "{notices:?}");
}

#[test]
fn an_agent_sees_when_its_own_schedule_woke_it_and_when_each_will() {
    let place = Place::new();
    let (mut ledger, mut memory, _) = mounted(&place);
    ok(
        &mut memory,
        "INSERT INTO __agent_schedules (schedule_key, schedule, instruction) VALUES ('weekly', '0 9 * * 1', 'Count.')",
    );
    ledger.apply_edits(&memory.edits(), &config(), "c1", now()).unwrap();
    let trigger =
        serde_json::json!([{"type": "Schedule", "schedule": "agent/weekly", "slot": "2026-12-07T09:00:00Z"}]);
    let begin = BeginCycle {
        cycle: "c2".into(),
        uid: "u2".into(),
        attempt: 1,
        epoch: 2,
        triggers_json: trigger.to_string(),
        at: now(),
    };
    ledger.begin_cycle(&begin).unwrap();
    let mut config = config();
    config.schedules = vec![PlanSchedule {
        name: "morning".into(),
        schedule: "0 7 * * *".into(),
        once: false,
        time_zone: None,
        instruction: None,
        next: None,
        last: None,
    }];
    let mounts = ledger.load_mounts(&config, &[], now()).unwrap();
    let rows = mounts.rows("__agent_schedules");
    assert_eq!((&rows[0][0], rows[0][9].is_null()), (&"morning".into(), false));
    assert_eq!((&rows[1][0], &rows[1][10]), (&"weekly".into(), &"2026-12-07T09:00:00Z".into()));
}

/// Value of a column of the only row of `__agent_config`.
fn paused(ledger: &mut LedgerWorker) -> Value {
    ledger.load_mounts(&config(), &[], now()).unwrap().rows("__agent_config")[0][3].clone()
}

#[test]
fn an_agent_rests_within_a_month_and_only_where_it_may_have_schedules() {
    let place = Place::new();
    let (mut ledger, mut memory, _) = mounted(&place);
    let after = |days: i64| now() + SignedDuration::from_hours(24 * days);
    let (until, far) = (after(2), after(31));
    let plan = format!(
        "INSERT INTO __agent_schedules (schedule_key, kind, schedule, run_at) VALUES ('daily', 'recurring', '0 12 * * *', NULL), \
         ('late', 'once', NULL, '{}'), ('soon', 'once', NULL, '{}')",
        after(5),
        after(1)
    );
    ok(&mut memory, &plan);
    let set = |until: Timestamp| format!("UPDATE __agent_config SET paused_until = '{until}'");
    let told = memory.batch(&set(far)).unwrap().text;
    assert!(told.contains("more than 30 days ahead: the latest is '"), "{told}");
    ok(&mut memory, &set(until));
    let edits = memory.edits();
    let report = ledger.apply_edits(&edits, &config(), "c1", now()).unwrap();
    assert_eq!((report.paused_until, report.refused), (Some(until), vec![]));
    // After an answer that was lost the same is asked for again.
    let again = ledger.apply_edits(&edits, &config(), "c1", now()).unwrap();
    assert_eq!((again.paused_until, again.conflicts), (Some(until), Vec::<String>::new()));
    let next: Vec<String> = ledger
        .load_mounts(&config(), &[], now())
        .unwrap()
        .rows("__agent_schedules")
        .iter()
        .map(|row| row[9].display())
        .collect();
    assert_eq!(next, [until.to_string(), after(5).to_string(), Value::Null.display()], "'soon' is skipped");

    // The manifest takes it away, and the time passes.
    let none = cicada_contract::plan::SelfManagement { schedules: false, ..Default::default() };
    let without = PlanConfig { self_management: none, ..config() };
    assert_eq!(ledger.apply_edits(&[], &without, "c2", now()).unwrap().paused_until, None);
    let later = until + SignedDuration::from_secs(1);
    assert_eq!(ledger.apply_edits(&[], &config(), "c2", later).unwrap().paused_until, None);
    let (_place, mut denied) = place_memory(&ledger.load_mounts(&without, &[], now()).unwrap());
    let told = denied.batch(&set(until + SignedDuration::from_hours(1))).unwrap().text;
    assert!(told.contains("the manifest allows none (selfManagement.schedules)"), "{told}");
    ok(&mut denied, "UPDATE __agent_config SET short_description = 'still mine'");
    ok(&mut denied, "UPDATE __agent_config SET paused_until = NULL");
    ledger.apply_edits(&denied.edits(), &without, "c3", now()).unwrap();
    assert_eq!(paused(&mut ledger), Value::Null, "an end is always allowed");
}

/// Edits come from a process that runs what the agent writes: the mount's checks are not the only ones.
#[test]
fn a_rest_beyond_the_bound_is_refused_by_the_ledger_as_well() {
    let place = Place::new();
    let (mut ledger, mut memory, _) = mounted(&place);
    ok(&mut memory, "UPDATE __agent_config SET paused_until = '2026-12-03'");
    let mut edits = memory.edits();
    edits[0].after.as_mut().unwrap()[3] = "2126-01-01T00:00:00Z".into();
    let report = ledger.apply_edits(&edits, &config(), "c1", now()).unwrap();
    assert!(report.refused[0].contains("more than 30 days ahead"), "{report:?}");
    assert_eq!((report.paused_until, paused(&mut ledger)), (None, Value::Null));
}
