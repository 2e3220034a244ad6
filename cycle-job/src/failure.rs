//! How a phase's error becomes the class and the one line that people see.

use std::error::Error;

use std::io::ErrorKind;

use cicada_contract::FailureClass;
use cicada_contract::text::{cut, printable};
use cicada_memory::WorkerError;

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

/// Class of a worker's error; `otherwise` is what the phase calls the rest. A full disk has one class wherever it
/// is met.
pub(crate) fn worker_class(error: &WorkerError, otherwise: FailureClass) -> FailureClass {
    if error.is_disk_full() { FailureClass::DiskBudget } else { otherwise }
}

/// As [`worker_class`], of an error of the system about a file.
pub(crate) fn disk_class(error: &std::io::Error, otherwise: FailureClass) -> FailureClass {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => FailureClass::DiskBudget,
        _ => otherwise,
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
