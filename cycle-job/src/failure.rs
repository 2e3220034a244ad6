//! How a phase's error becomes the class and the one line that people see.

use std::error::Error;

use cicada_contract::FailureClass;
use cicada_contract::text::{cut, printable};

/// An error that knows its failure class.
pub trait Classified: Error + Send + Sync + 'static {
    /// The class.
    fn class(&self) -> FailureClass;
}

/// The end of a cycle that did not go as it should: what the report says.
#[derive(Debug)]
pub struct Failure {
    /// Its class.
    pub class: FailureClass,
    /// Error and sources in one printable line of at most 1,024 bytes.
    pub message: String,
}

impl Failure {
    /// A failure that has no error behind it.
    pub fn new(class: FailureClass, message: impl AsRef<str>) -> Self {
        Self { class, message: cut(&printable(message.as_ref()), 1024) }
    }
}

impl<E: Classified> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.class(), chain(&error))
    }
}

/// The error and its sources, joined by `: `.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let line = source.to_string();
        // Some libraries repeat their source in their own text.
        if !text.contains(&line) {
            text.push_str(": ");
            text.push_str(&line);
        }
        next = source.source();
    }
    text
}
