//! The charter in force beside the one of the manifest: a person's approval, or the agent itself where its manifest
//! lets it, can put another text in force, until the manifest is edited.

use cicada_contract::{
    report::{CharterReport, CharterSource as Told},
    text::cut,
};
use cicada_crds::status::{CharterSource, CharterStatus};

use crate::{conditions::Wanted, decide::Step};

/// Type of the condition, and reason of what is told about it.
const DIVERGED: &str = "CharterDiverged";
/// Reason of the event that tells of an edit which ended an approval.
const EDITED: &str = "CharterEdited";
/// A hash where people read it: as much of it as an approval names.
fn shown(hash: &str) -> &str {
    hash.get(..cicada_contract::plan::APPROVAL_HASH_MIN).unwrap_or(hash)
}

/// Takes in what a cycle's report says.
pub(crate) fn take_up(step: &mut Step<'_>, report: &CharterReport) {
    let source = match report.source {
        Told::Manifest => CharterSource::Manifest,
        Told::Agent => CharterSource::Agent,
        Told::Person => CharterSource::Person,
    };
    let known = CharterStatus { source, hash: cut(&report.hash, 64), base: Some(cut(&report.base, 64)) };
    let news = step.status.charter.as_ref() != Some(&known);
    step.status.charter = Some(known);
    if let Some(text) = difference(step).filter(|_| news) {
        step.note(false, DIVERGED, text, None);
    }
}

/// The condition; an edit of the manifest's text is in force at once, whatever was approved over the old one.
pub(crate) fn conclude(step: &mut Step<'_>) -> Wanted {
    if let Some((known, manifest)) = overridable(step)
        && known.base.as_ref() != Some(&manifest)
    {
        step.status.charter = Some(CharterStatus {
            source: CharterSource::Manifest,
            hash: manifest.clone(),
            base: Some(manifest),
        });
        let text =
            "the charter was edited in the manifest: that text is in force, and no earlier change of it";
        step.note(false, EDITED, text.into(), None);
    }
    match difference(step) {
        Some(text) => Wanted::new(DIVERGED, true, DIVERGED, text),
        None => Wanted::absent(DIVERGED),
    }
}

/// The charter in force where it is not the manifest's, and the hash of the manifest's.
fn overridable(step: &Step<'_>) -> Option<(CharterStatus, String)> {
    let known = step.status.charter.clone().filter(|c| c.source != CharterSource::Manifest)?;
    Some((known, step.seen.environment.charter_sha256.clone()?))
}

fn difference(step: &Step<'_>) -> Option<String> {
    let (known, manifest) = overridable(step)?;
    let by = match known.source {
        CharterSource::Agent => "the agent made itself",
        _ => "a person approved",
    };
    (known.hash != manifest).then(|| {
        format!(
            "the charter in force ({}) is one that {by}, not the manifest's ({}): commit it to the manifest, or edit \
             the manifest, which ends it",
            shown(&known.hash),
            shown(&manifest),
        )
    })
}
