//! Secrets by reference: read where they are used, never kept in a plan, a log or a report.

use std::fmt;
use std::path::PathBuf;

use cicada_contract::FailureClass;
use cicada_contract::plan::SecretRef;

use crate::failure::Classified;

/// Where secrets lie: files `<directory>/<secret>/<key>`, as a pod mounts them; else the environment
/// variable `<SECRET>_<KEY>`, as `cicadactl local` passes them on.
#[derive(Debug, Clone)]
pub struct Secrets {
    directory: Option<PathBuf>,
    namespace: String,
}

/// A secret's text. It has no `Display`, and `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// The text itself, at the place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Why a secret can't be had.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// Neither file nor variable.
    #[error(
        "secret {namespace}/{name} has no key {key}: run kubectl -n {namespace} create secret generic {name} --from-literal={key}=... (local: set {variable})"
    )]
    Missing {
        /// Namespace of the agent.
        namespace: String,
        /// Name of the Secret.
        name: String,
        /// Key in it.
        key: String,
        /// Variable that `cicadactl local` looks at.
        variable: String,
    },
    /// There, but not text.
    #[error("secret {name}, key {key} can't be read as text")]
    Unreadable {
        /// Name of the Secret.
        name: String,
        /// Key in it.
        key: String,
        /// What the read said.
        #[source]
        source: std::io::Error,
    },
}

impl Classified for SecretError {
    fn class(&self) -> FailureClass {
        FailureClass::SecretMissing
    }
}

/// Variable in which `cicadactl local` passes a secret: `<SECRET>_<KEY>`, upper case, `_` for what a
/// variable's name can't hold.
pub fn variable_name(name: &str, key: &str) -> String {
    format!("{name}_{key}")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect()
}

impl Secrets {
    /// Secrets of an agent in `namespace`; `directory` is where the pod mounts them.
    pub fn new(directory: Option<PathBuf>, namespace: &str) -> Self {
        Self { directory, namespace: namespace.to_owned() }
    }

    /// Reads one key. A line break at the end is not part of it: `echo` and editors add one.
    pub fn get(&self, reference: &SecretRef) -> Result<SecretText, SecretError> {
        let SecretRef { name, key } = reference;
        if let Some(path) = self.directory.as_ref().map(|d| d.join(name).join(key)) {
            match std::fs::read_to_string(path) {
                Ok(text) => return Ok(SecretText(text.trim_end_matches(['\n', '\r']).to_owned())),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => {
                    return Err(SecretError::Unreadable { name: name.clone(), key: key.clone(), source });
                }
            }
        }
        let variable = variable_name(name, key);
        match std::env::var(&variable) {
            Ok(text) if !text.is_empty() => Ok(SecretText(text)),
            _ => Err(SecretError::Missing {
                namespace: self.namespace.clone(),
                name: name.clone(),
                key: key.clone(),
                variable,
            }),
        }
    }

    /// Every key of a Secret, in order of the names. Only what a pod mounts is known: variables have no list.
    pub fn all(&self, name: &str) -> Result<Vec<(String, SecretText)>, SecretError> {
        let folder = self.directory.as_ref().map(|d| d.join(name));
        let mut keys: Vec<String> = folder
            .and_then(|f| std::fs::read_dir(f).ok())
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            // The kubelet's own links begin with two dots.
            .filter(|key| !key.starts_with(".."))
            .collect();
        keys.sort();
        if keys.is_empty() {
            return Err(SecretError::Missing {
                namespace: self.namespace.clone(),
                name: name.to_owned(),
                key: "at all".to_owned(),
                variable: variable_name(name, "KEY"),
            });
        }
        keys.into_iter()
            .map(|key| Ok((key.clone(), self.get(&SecretRef { name: name.to_owned(), key })?)))
            .collect()
    }

    /// Like [`Self::get`], with None for a key that does not exist.
    pub fn find(&self, reference: &SecretRef) -> Result<Option<SecretText>, SecretError> {
        match self.get(reference) {
            Ok(text) => Ok(Some(text)),
            Err(SecretError::Missing { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_wins_and_debug_hides_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("api")).unwrap();
        std::fs::write(dir.path().join("api/token"), "s3cret-canary\n").unwrap();
        let secrets = Secrets::new(Some(dir.path().to_owned()), "shop");
        let text = secrets.get(&SecretRef { name: "api".into(), key: "token".into() }).unwrap();
        assert_eq!(text.expose(), "s3cret-canary");
        assert!(!format!("{text:?}").contains("canary"));
    }

    #[test]
    fn a_missing_key_names_the_command_that_helps() {
        let secrets = Secrets::new(None, "shop");
        let error = secrets.get(&SecretRef { name: "open-ai".into(), key: "api.key".into() }).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("secret shop/open-ai has no key api.key: run kubectl -n shop create secret"),
            "{text}"
        );
        assert!(text.contains("OPEN_AI_API_KEY"), "{text}");
        assert_eq!(error.class(), FailureClass::SecretMissing);
    }
}
