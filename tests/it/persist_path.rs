//! What a persisted memory holds, and what it never holds.

use cicada_tests::{memory::Unpacked, namespace::Namespace, shell::root};

use crate::agents::sql_agent;

/// One canary for each mounted table. Each reaches its table by the way that real content takes.
const CANARIES: [(&str, &str); 8] = [
    ("__messages", "canary-message-5b1c"),
    ("__files", "canary-file-77d2"),
    ("__contacts", "canary-contact-e09a"),
    ("__agent_config", "canary-charter-31f8"),
    ("__agent_schedules", "canary-schedule-c6d4"),
    ("__agent_skills", "canary-skill-9a0e"),
    ("__tool_results", "canary-result-48b7"),
    ("__kanban_cards", "canary-card-d25f"),
];

const MORE: &str = "  inbound: Anyone
  contacts: [{channel: cli, address: buyer, displayName: canary-contact-e09a}]
  schedules: [{name: year, cron: \"0 0 1 1 *\", instruction: canary-schedule-c6d4}]
  skills: [{name: reports, description: how a report looks, instructions: canary-skill-9a0e}]
  files: [{path: canary-file-77d2.csv, from: {configMapKeyRef: {name: rows, key: rows.csv}}}]
";

/// Writes a card, leaves a tool result, copies one message, and counts in which mounts each canary stands
/// (so that a canary that never arrived can't pass for one that was kept out).
fn sql() -> String {
    let mut sql = String::from(
        "SELECT 'canary-result-48b7' AS answer;
         INSERT INTO __kanban_cards(title, status) SELECT 'canary-card-d25f', 'todo' WHERE NOT EXISTS (SELECT 1 FROM __kanban_cards WHERE title = 'canary-card-d25f');
         CREATE TABLE IF NOT EXISTS copied(body TEXT);
         INSERT INTO copied SELECT body FROM __messages WHERE body LIKE 'canary-copied%' AND is_new;
         CREATE TABLE IF NOT EXISTS seen(cycle INTEGER, mount TEXT, found INTEGER);
         CREATE TABLE IF NOT EXISTS cycles(id INTEGER PRIMARY KEY);
         INSERT INTO cycles DEFAULT VALUES;\n",
    );
    let columns = [
        ("__messages", "body"),
        ("__files", "path"),
        ("__contacts", "display_name"),
        ("__agent_config", "charter"),
        ("__agent_schedules", "instruction"),
        ("__agent_skills", "instructions"),
        ("__tool_results", "coalesce(result_json, '') || coalesce(result_text, '')"),
        ("__kanban_cards", "title"),
    ];
    for ((mount, column), (_, canary)) in columns.iter().zip(CANARIES) {
        // Parts of the word, so that the statement itself is no copy of it in a tool result.
        let (head, tail) = canary.split_at(9);
        let name = mount.trim_start_matches('_');
        sql += &[
            "INSERT INTO seen SELECT (SELECT max(id) FROM cycles), '",
            name,
            "', count(*) FROM ",
            mount,
            " WHERE instr(",
            column,
            ", '",
            head,
            "' || '",
            tail,
            "') > 0;\n",
        ]
        .concat();
    }
    sql
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn no_mounted_content_is_in_a_memory_unless_the_agent_copied_it() {
    let ns = Namespace::new("canaries");
    ns.config_map("rows", &{
        let file =
            tempfile::Builder::new().prefix("rows").suffix(".csv").tempdir().unwrap().keep().join("rows.csv");
        std::fs::write(&file, "a,b\n1,2\n").unwrap();
        file
    });
    let agent = sql_agent("canaries", &sql(), MORE)
        .replace("charter: Keep what you are told.", "charter: canary-charter-31f8");
    ns.apply(&agent);
    ns.cicadactl(&["send"], "canaries", &["--from", "buyer", "canary-message-5b1c"]).must();
    ns.cicadactl(&["send"], "canaries", &["--from", "buyer", "canary-copied-0fe3"]).must();
    for token in ["1", "2"] {
        ns.run_now("canaries", token);
        let cycles = ns.wait_for_cycles(token.parse().unwrap(), 120);
        assert!(cycles.iter().all(|c| c["status"]["phase"] == "Succeeded"), "{cycles:#?}");
    }
    let memory = Unpacked::check(&ns.folder("canaries"));
    let seen = memory.sql("SELECT mount, max(found) FROM seen GROUP BY mount ORDER BY mount");
    for (mount, canary) in CANARIES {
        let name = mount.trim_start_matches('_');
        let found: u32 = seen
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}|")))
            .unwrap_or_else(|| panic!("{name} is not in: {seen}"))
            .parse()
            .unwrap();
        assert!(found >= 1, "the canary of {mount} never arrived there: {seen}");
        assert!(!memory.memory_contains(canary), "the canary of {mount} stands in the memory's bytes");
    }
    assert_eq!(memory.sql("SELECT body FROM copied"), "canary-copied-0fe3");
    assert!(memory.memory_contains("canary-copied-0fe3"), "what the agent copies is kept");
    assert_eq!(memory.tables(), ["copied", "cycles", "seen"]);
}

#[test]
fn every_mount_of_the_engine_has_a_canary() {
    // The names stand in the engine's one list; this test's list is kept by hand, so that a mount that
    // is added there without a canary here is noticed.
    let engine = root().join("cycle-job/memory/src/mounts");
    let mut text = String::new();
    for entry in std::fs::read_dir(&engine).unwrap() {
        text.push_str(&std::fs::read_to_string(entry.unwrap().path()).unwrap());
    }
    for mount in cicada_tests::memory::MOUNTS {
        assert!(text.contains(&format!("\"{mount}\"")), "{mount} is not in {}", engine.display());
    }
    let names: std::collections::BTreeSet<&str> = text
        .split('"')
        .filter(|part| {
            part.starts_with("__")
                && part.len() > 4
                && part.bytes().all(|b| b == b'_' || b.is_ascii_lowercase())
        })
        .collect();
    let expected: std::collections::BTreeSet<&str> = cicada_tests::memory::MOUNTS.into();
    assert_eq!(names, expected);
}
