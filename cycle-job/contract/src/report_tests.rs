use super::*;

/// The largest second that a time can have.
const LATEST: i64 = 253_402_207_200;

fn largest() -> CycleReport {
    let mut r = CycleReport::failed(FailureClass::SqlitePersistenceUploadFailed, "\u{1}ü\"\\".repeat(500));
    r.memory = Some(MemoryReport {
        snapshot: Some("18446744073709551615-18446744073709551615-0123456789abcdef".into()),
        before: Some("18446744073709551615-18446744073709551615-0123456789abcdef".into()),
        epoch: u64::MAX,
        size: u64::MAX,
        archive_size: u64::MAX,
        tables: Some(u32::MAX),
        persisted_at: Some(LATEST),
        adopted: true,
        counted: true,
        seeded_from: Some(format!("{}/{} {}", "n".repeat(63), "a".repeat(52), "s".repeat(60))),
    });
    r.ended_by = Some("tokensPerCycle".into());
    r.tables = (0..50)
        .map(|n| TableChange {
            name: format!("{n:-<80}"),
            rows: Some(u64::MAX >> 1),
            before: Some(u64::MAX >> 1),
            inserted: n,
            updated: 1 << 60,
            deleted: 1 << 60,
        })
        .collect();
    r.agent_schedules = (0..12)
        .map(|n| AgentSchedule {
            key: format!("{n:-<16}"),
            schedule: "*/15 0-23/2 1-15,16-31 1,2,3,4,5,6,7,8,9,10,11,12 0,1,2,3,4,5,6".into(),
            time_zone: Some("America/Argentina/ComodRivadavia".into()),
        })
        .collect();
    r.agent_paused_until = Some(LATEST);
    r.charter =
        Some(CharterReport { source: CharterSource::Manifest, hash: "a".repeat(64), base: "b".repeat(64) });
    r.asks = (0..20)
        .map(|n| Ask {
            id: format!("{n:x<60}"),
            kind: "charter".into(),
            hash: "f".repeat(64),
            summary: "\"".repeat(200),
        })
        .collect();
    r.wakes = (0..PEERS_MAX).map(|n| format!("{n:a<52}")).collect();
    r.phases = (0..12).map(|n| PhaseTime { phase: format!("phase-{n}"), ms: u64::MAX }).collect();
    r.warnings = vec!["w\n".repeat(400); 40];
    r
}

#[test]
fn the_largest_report_fits_the_termination_message() {
    let json = largest().render();
    assert!(json.len() <= REPORT_MAX_BYTES, "{}", json.len());
    let back = CycleReport::parse(&json).unwrap();
    assert_eq!(back.class, Some(FailureClass::SqlitePersistenceUploadFailed));
    assert_eq!(back.memory.unwrap().epoch, u64::MAX);
    assert_eq!(back.agent_paused_until, Some(LATEST));
    assert_eq!(back.agent_schedules.len(), 12, "what the operator must act on is kept");
    assert_eq!(back.wakes.len(), PEERS_MAX, "a message that was delivered wakes its receiver");
    assert!(!json.contains('\u{1}') && !back.message.contains('\n'));
}

#[test]
fn a_report_of_a_later_release_is_read() {
    let mut value = serde_json::to_value(CycleReport::new(CycleResult::Done)).unwrap();
    value["inventedLater"] = 1.into();
    assert!(CycleReport::parse(&value.to_string()).is_ok());
}
