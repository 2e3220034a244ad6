//! What restore learned of the memory that the cycle starts from, for seal and persist.

use std::sync::{Arc, Mutex};

use cicada_store::{ArchiveRef, DELTA_FROM, DeltaBase, Head, PageHashes};
use jiff::Timestamp;

/// Set by restore, read by seal and persist.
#[derive(Debug, Default)]
pub struct Base(Mutex<Facts>);

#[derive(Debug, Default)]
struct Facts {
    /// Key of the archive and the hashes of its file's pages.
    pages: Option<(String, Arc<PageHashes>)>,
    /// It was checked as a whole in this cycle.
    checked: bool,
}

impl Base {
    /// Keeps the hashes of the pages of the file that `archive` makes.
    pub(crate) fn note_pages(&self, archive: &ArchiveRef, pages: PageHashes) {
        if let Ok(mut facts) = self.0.lock() {
            facts.pages = Some((archive.key.clone(), Arc::new(pages)));
        }
    }

    /// Remembers that the memory was checked as a whole.
    pub(crate) fn note_checked(&self) {
        if let Ok(mut facts) = self.0.lock() {
            facts.checked = true;
        }
    }

    /// True if the memory was checked as a whole in this cycle.
    pub(crate) fn is_checked(&self) -> bool {
        self.0.lock().is_ok_and(|facts| facts.checked)
    }

    /// What the finished memory may be packed as a delta against, with the hashes of that file's pages; None =
    /// it must be a whole archive.
    pub(crate) fn delta(&self, head: &Head, now: Timestamp) -> Option<(DeltaBase, Arc<PageHashes>)> {
        let base = head.delta_base(DELTA_FROM, now)?;
        let facts = self.0.lock().ok()?;
        // A fall back in between has made another archive the base.
        let (_, pages) = facts.pages.as_ref().filter(|(key, _)| *key == base.parent.key)?;
        Some((base, Arc::clone(pages)))
    }
}
