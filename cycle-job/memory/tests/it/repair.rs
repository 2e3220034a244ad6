//! Repairs hold their promise on any text.

use cicada_memory::sql::repair::{outside, serial, spelling};
use cicada_memory::sql::tokens::{Kind, tokens};
use proptest::prelude::*;

/// Pieces of SQL, of prose and of noise, in any order.
fn text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "SELECT",
        "INSERT INTO t VALUES (",
        ")",
        "ILIKE",
        "NOW()",
        "now ( )",
        "'",
        "''",
        "'it''s'",
        "\"",
        "\"a\"\"b\"",
        "`",
        "```",
        "```sql\n",
        "\n```\n",
        "[x]",
        "--",
        "-- c\n",
        "/*",
        "*/",
        "/* ILIKE */",
        ";",
        "x'00'",
        "SERIAL PRIMARY KEY",
        "CREATE TABLE t (id",
        ",",
        "LEN(",
        "nvl(a, 1)",
        "$5",
        "?1",
        ":a",
        "1.5e3",
        "Here is the query:\n",
        "It's fine.",
        "DELETE FROM t",
        "WHERE",
        "=",
        ".",
        "🦗",
        "ä",
        "\\",
        "'$.path'",
        "AUTO_INCREMENT",
        "curdate()",
        " ",
        "\n",
        "\t",
    ]);
    prop::collection::vec(piece, 0..25).prop_map(|parts| parts.join(" "))
}

/// What no repair may change, in order of the bytes.
fn literals(sql: &str) -> Vec<&str> {
    let kinds = [Kind::Literal, Kind::Quoted, Kind::Number, Kind::Comment, Kind::Variable, Kind::Open];
    let mut all: Vec<&str> = tokens(sql).iter().filter(|t| kinds.contains(&t.kind)).map(|t| t.text).collect();
    all.sort_unstable();
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_literals_of_a_statement_are_the_same_before_and_after(sql in text()) {
        for repaired in [spelling(&sql), serial(&sql)].into_iter().flatten() {
            prop_assert_eq!(literals(&sql), literals(&repaired.0));
            prop_assert!(!repaired.1.is_empty());
        }
    }

    #[test]
    fn what_is_left_of_a_batch_is_a_part_of_it_unchanged(sql in text()) {
        let (inner, notes) = outside(&sql);
        prop_assert!(sql.contains(inner));
        prop_assert_eq!(notes.is_empty(), inner == sql.trim());
    }

    #[test]
    fn a_repair_is_done_once(sql in text()) {
        if let Some((repaired, _)) = spelling(&sql) {
            prop_assert_eq!(spelling(&repaired), None);
        }
    }
}
