//! What people decide about proposals of the agent.

use serde::{Deserialize, Serialize};

/// A person's decision about a proposal of the agent, or about an MCP tool that has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Id as the report's [`crate::report::Ask::id`] shows it: `charter-1a2b3c4d`, or `server.tool`.
    pub id: String,
    /// Hash of the content that the person has seen: [`crate::report::Ask::hash`] or more of the same, at
    /// least [`APPROVAL_HASH_MIN`] lower-case hexadecimal digits.
    pub hash: String,
    /// What was decided.
    pub decision: Decision,
    /// Who decided, for the agent and the ledger: `spec.approvals`, `annotation`, a user's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

/// Shortest hash in an [`Approval`], in hexadecimal digits.
pub const APPROVAL_HASH_MIN: usize = 10;

/// What a person decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Decision {
    /// It shall be so.
    Approved,
    /// It shall not.
    Rejected,
}

impl Approval {
    /// Reads what a person writes, `<id>-<hash>`. None if it has not this form.
    pub fn parse(text: &str, decision: Decision, by: &str) -> Option<Self> {
        let (id, hash) = text.trim().rsplit_once('-')?;
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let valid = !id.is_empty() && hash.len() >= APPROVAL_HASH_MIN && hash.bytes().all(hex);
        valid.then(|| Self { id: id.to_owned(), hash: hash.to_owned(), decision, by: by.to_owned() })
    }

    /// True if it is about the content with this id and full hash.
    pub fn is_about(&self, id: &str, hash: &str) -> bool {
        self.id == id && self.hash.len() >= APPROVAL_HASH_MIN && hash.starts_with(&self.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approval_names_one_content_and_no_other() {
        let parse = |text: &str| Approval::parse(text, Decision::Approved, "annotation");
        let charter = parse("charter-1a2b3c4d-1a2b3c4d5e").unwrap();
        assert_eq!((charter.id.as_str(), charter.hash.as_str()), ("charter-1a2b3c4d", "1a2b3c4d5e"));
        assert!(charter.is_about("charter-1a2b3c4d", "1a2b3c4d5eff"));
        assert!(!charter.is_about("charter-1a2b3c4d", "1a2b3c4d5f00"));
        assert!(!charter.is_about("charter-1a2b3c4e", "1a2b3c4d5eff"));
        assert_eq!(parse("crm.find-bbbbbbbbbb").unwrap().id, "crm.find");
        for wrong in ["", "charter", "-1a2b3c4d5e", "charter-1a2b3c4d", "charter-1a2b3c4d-", "x-1A2B3C4D5E"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        // An empty hash, which any content begins with, approves nothing.
        let empty = Approval { hash: String::new(), ..charter };
        assert!(!empty.is_about("charter-1a2b3c4d", "1a2b3c4d5eff"));
    }
}
