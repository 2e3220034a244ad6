//! What tools of MCP servers were like when they were first used.

use cicada_contract::plan::{Approval, Decision};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::ToolPin;
use crate::protocol::Fault;

/// Pins tools that are new, and gives the names of those that are not what they were. What changed stays
/// refused until it is again as it was pinned, or the pin is approved.
pub(crate) fn pin(
    c: &Connection,
    tools: &[ToolPin],
    approvals: &[Approval],
    now: Timestamp,
) -> Result<Vec<String>, Fault> {
    let mut changed = vec![];
    for tool in tools {
        let pinned: Option<String> = c
            .prepare_cached("SELECT hash FROM mcp_tools WHERE name = ?1")?
            .query_row([&tool.name], |r| r.get(0))
            .optional()?;
        let accept =
            approvals.iter().any(|a| a.decision == Decision::Approved && a.is_about(&tool.name, &tool.hash));
        match pinned {
            Some(hash) if hash == tool.hash => {
                let sql = "UPDATE mcp_tools SET changed_hash = NULL, changed_at = NULL WHERE name = ?1 AND changed_hash IS NOT NULL";
                c.prepare_cached(sql)?.execute([&tool.name])?;
            }
            Some(_) if !accept => {
                c.prepare_cached("UPDATE mcp_tools SET changed_hash = ?2, changed_at = ?3 WHERE name = ?1")?
                    .execute(params![tool.name, tool.hash, now.to_string()])?;
                changed.push(tool.name.clone());
            }
            _ => {
                c.prepare_cached(
                    "INSERT INTO mcp_tools (name, hash, pinned_at) VALUES (?1, ?2, ?3) \
                     ON CONFLICT (name) DO UPDATE SET hash = excluded.hash, pinned_at = excluded.pinned_at, changed_hash = NULL, changed_at = NULL",
                )?
                .execute(params![tool.name, tool.hash, now.to_string()])?;
            }
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_tool_is_refused_until_it_is_approved_or_as_it_was() {
        let c = Connection::open_in_memory().unwrap();
        super::super::schema::migrate(&c).unwrap();
        let tool = |hash: &str| [ToolPin { name: "crm.find".into(), hash: hash.into() }];
        let pin = |hash: &str, approved: &[&str]| {
            let approved: Vec<Approval> =
                approved.iter().filter_map(|a| Approval::parse(a, Decision::Approved, "manifest")).collect();
            pin(&c, &tool(hash), &approved, Timestamp::UNIX_EPOCH).unwrap()
        };
        let asked = || super::super::cycle::overview(&c, Timestamp::UNIX_EPOCH, "UTC").unwrap().asks;
        assert!(pin("aaaaaaaaaaaa", &[]).is_empty());
        assert!(pin("aaaaaaaaaaaa", &[]).is_empty());
        assert_eq!(pin("bbbbbbbbbbbb", &[]), ["crm.find"]);
        assert_eq!(pin("bbbbbbbbbbbb", &["crm.find-aaaaaaaaaa"]), ["crm.find"]);
        let ask = asked().remove(0);
        assert_eq!(
            (ask.id.as_str(), ask.kind.as_str(), ask.hash.as_str()),
            ("crm.find", "tool", "bbbbbbbbbb")
        );
        assert!(pin("aaaaaaaaaaaa", &[]).is_empty());
        assert_eq!(asked(), [], "it is again as it was");
        assert!(pin("bbbbbbbbbbbb", &["crm.find-bbbbbbbbbb"]).is_empty());
        assert_eq!(pin("aaaaaaaaaaaa", &[]), ["crm.find"]);
    }
}
