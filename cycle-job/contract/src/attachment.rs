//! Files that came with a message, as its sender describes them: names, types and sizes, not the files.
//!
//! The same bounds hold for the inbox and, as its schema, for `AgentCycle.spec.message`.

use serde::{Deserialize, Serialize};

/// Most of one message.
pub const ATTACHMENTS_MAX: usize = 16;
/// Longest name, in characters.
pub const ATTACHMENT_NAME_MAX: usize = 255;
/// Longest media type, in characters: RFC 6838 allows 127 for each half, no registered one has more in all.
pub const ATTACHMENT_TYPE_MAX: usize = 127;
/// Longest URL, in characters.
pub const ATTACHMENT_URL_MAX: usize = 1024;
/// Largest size, in bytes: the largest whole number that every reader of JSON keeps.
pub const ATTACHMENT_SIZE_MAX: u64 = (1 << 53) - 1;

/// A file that came with a message. Nothing of it is checked; all of it is the sender's word.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// Its name.
    pub name: String,
    /// Media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Where it lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

impl Attachment {
    /// Bytes of its texts.
    pub fn text_bytes(&self) -> usize {
        let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.name.len() + optional(&self.content_type) + optional(&self.url)
    }

    fn problem(&self) -> Option<String> {
        let longest = [
            ("name", Some(&self.name), ATTACHMENT_NAME_MAX),
            ("contentType", self.content_type.as_ref(), ATTACHMENT_TYPE_MAX),
            ("url", self.url.as_ref(), ATTACHMENT_URL_MAX),
        ];
        let too_long =
            longest.into_iter().find(|(_, text, most)| text.is_some_and(|t| t.chars().count() > *most));
        if let Some((field, _, most)) = too_long {
            return Some(format!("an attachment's {field} has more than {most} characters"));
        }
        if self.name.is_empty() {
            return Some("an attachment has no name".into());
        }
        let large = self.size.is_some_and(|size| size > ATTACHMENT_SIZE_MAX);
        large.then(|| format!("an attachment's size is above {ATTACHMENT_SIZE_MAX}"))
    }
}

/// Why these are not attachments of one message; names nothing of their content.
pub fn attachments_problem(all: &[Attachment]) -> Option<String> {
    if all.len() > ATTACHMENTS_MAX {
        return Some(format!("it has {} attachments, at most {ATTACHMENTS_MAX} are allowed", all.len()));
    }
    all.iter().find_map(Attachment::problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_counted_in_characters_as_the_schema_counts_them() {
        let named = |name: &str| Attachment { name: name.into(), ..Attachment::default() };
        let whole = Attachment {
            name: "ü".repeat(ATTACHMENT_NAME_MAX),
            content_type: Some("t".repeat(ATTACHMENT_TYPE_MAX)),
            size: Some(ATTACHMENT_SIZE_MAX),
            url: Some("u".repeat(ATTACHMENT_URL_MAX)),
        };
        assert_eq!(attachments_problem(&vec![whole.clone(); ATTACHMENTS_MAX]), None);
        for (wrong, words) in [
            (vec![named("a"); ATTACHMENTS_MAX + 1], "at most 16"),
            (vec![named("")], "no name"),
            (vec![named("a"), named(&"ü".repeat(ATTACHMENT_NAME_MAX + 1))], "name has more than 255"),
            (vec![Attachment { content_type: Some("t".repeat(128)), ..named("a") }], "contentType"),
            (vec![Attachment { url: Some("u".repeat(1025)), ..named("a") }], "url has more than 1024"),
            (vec![Attachment { size: Some(ATTACHMENT_SIZE_MAX + 1), ..named("a") }], "size is above"),
        ] {
            let problem = attachments_problem(&wrong).unwrap_or_default();
            assert!(problem.contains(words), "{words}: {problem}");
        }
    }
}
