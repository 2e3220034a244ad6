//! What tools of MCP servers were like when they were first used.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::ToolPin;
use crate::protocol::Fault;

/// Pins tools that are new, and gives the names of those that are not what they were. What changed stays
/// refused until it is again as it was pinned, or the pin is approved.
pub(crate) fn pin(
    c: &Connection,
    tools: &[ToolPin],
    approved: &[String],
    now: Timestamp,
) -> Result<Vec<String>, Fault> {
    let mut changed = vec![];
    for tool in tools {
        let pinned: Option<String> = c
            .prepare_cached("SELECT hash FROM mcp_tools WHERE name = ?1")?
            .query_row([&tool.name], |r| r.get(0))
            .optional()?;
        let accept = approved.iter().any(|a| *a == approval(tool));
        match pinned {
            Some(hash) if hash == tool.hash => {}
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

/// What a person writes to approve a change: `<server>.<tool>-<first 10 of the hash>`.
pub(crate) fn approval(tool: &ToolPin) -> String {
    format!("{}-{}", tool.name, tool.hash.get(..10).unwrap_or(&tool.hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_tool_is_refused_until_it_is_approved_or_as_it_was() {
        let c = Connection::open_in_memory().unwrap();
        super::super::schema::migrate(&c).unwrap();
        let tool = |hash: &str| [ToolPin { name: "crm.find".into(), hash: hash.into() }];
        let pin =
            |hash: &str, approved: &[String]| pin(&c, &tool(hash), approved, Timestamp::UNIX_EPOCH).unwrap();
        assert!(pin("aaaaaaaaaaaa", &[]).is_empty());
        assert!(pin("aaaaaaaaaaaa", &[]).is_empty());
        assert_eq!(pin("bbbbbbbbbbbb", &[]), ["crm.find"]);
        assert_eq!(pin("bbbbbbbbbbbb", &["crm.find-aaaaaaaaaa".into()]), ["crm.find"]);
        assert!(pin("aaaaaaaaaaaa", &[]).is_empty());
        assert!(pin("bbbbbbbbbbbb", &["crm.find-bbbbbbbbbb".into()]).is_empty());
        assert_eq!(pin("aaaaaaaaaaaa", &[]), ["crm.find"]);
    }
}
