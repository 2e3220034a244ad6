//! Names as Kubernetes takes them: what no manifest can be called is told before anything is looked for.

use crate::exit::UsageError;

/// Longest name of an object in bytes.
const NAME_MAX: usize = 253;
/// Longest name of a namespace in bytes.
const NAMESPACE_MAX: usize = 63;

/// Refuses what can't be an agent's `namespace` and `name`.
pub(crate) fn check(namespace: &str, name: &str) -> Result<(), UsageError> {
    let wrong = |what: &str, text: &str| {
        UsageError(format!("{text:?} can't be the {what}: lower-case letters, digits, and - between them"))
    };
    if !is_label(namespace) || namespace.len() > NAMESPACE_MAX {
        return Err(wrong("name of a namespace", namespace));
    }
    if !is_name(name) {
        return Err(wrong("name of an agent", name));
    }
    Ok(())
}

/// True if an object can be called so: parts between dots.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= NAME_MAX && text.split('.').all(is_label)
}

/// True if a ConfigMap or Secret can have such a key; then it can be a file's name, too.
pub(crate) fn is_key(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !text.is_empty() && text.len() <= NAME_MAX && text.bytes().all(allowed) && !matches!(text, "." | "..")
}

fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_manifest_can_have_are_looked_for() {
        for (namespace, name) in [("shop", "clerk"), ("default", "a.b-c.1"), ("1", "2")] {
            assert!(check(namespace, name).is_ok(), "{namespace}/{name}");
        }
        for (namespace, name) in [
            ("..", "x"),
            ("shop", "../x"),
            ("shop", "a/b"),
            ("shop", ""),
            ("", "x"),
            ("Shop", "x"),
            ("shop", "a_b"),
            ("a.b", "x"),
            ("shop", "-x"),
            ("shop", "é"),
        ] {
            assert!(check(namespace, name).is_err(), "{namespace}/{name}");
        }
        assert!(is_key("operator.yaml") && !is_key("a/b") && !is_key(".."));
    }
}
