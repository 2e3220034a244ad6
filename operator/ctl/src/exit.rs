//! Exit codes: what a script does differently. They are documented in the program's help.

use std::error::Error;

use cicada_store::{AcquireError, CollectError, CopyError, PublishError, StoreError};

/// Anything else.
pub(crate) const FAILED: u8 = 1;
/// The command line is wrong; clap has this number, too.
pub(crate) const USAGE: u8 = 2;
/// What was named is not there.
pub(crate) const NOT_FOUND: u8 = 3;
/// Somebody else holds the memory.
pub(crate) const HELD: u8 = 4;
/// Store or cluster can't be reached, or refuses the credentials.
pub(crate) const UNREACHABLE: u8 = 5;
/// Done, but for what was damaged and is named.
pub(crate) const LEFT_OUT: u8 = 6;
/// As shells say it of SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// A command line that clap can't judge, e.g. a combination of options.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

/// What was named is not there.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Missing(pub(crate) String);

/// Another process works on what this one was to work on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Busy(pub(crate) String);

/// SIGINT or SIGTERM.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// The exit code of a command that ended so.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    error.chain().find_map(code_of).unwrap_or(FAILED)
}

fn code_of(error: &(dyn Error + 'static)) -> Option<u8> {
    if error.is::<UsageError>() {
        return Some(USAGE);
    }
    if error.is::<Missing>() {
        return Some(NOT_FOUND);
    }
    if error.is::<Busy>() {
        return Some(HELD);
    }
    if error.is::<Interrupted>() {
        return Some(INTERRUPTED);
    }
    match error.downcast_ref::<AcquireError>() {
        Some(AcquireError::Held { .. } | AcquireError::Outrun) => return Some(HELD),
        Some(AcquireError::Deleted { .. }) => return Some(NOT_FOUND),
        _ => {}
    }
    if error.downcast_ref::<PublishError>().is_some_and(PublishError::is_fenced) {
        return Some(HELD);
    }
    if matches!(error.downcast_ref::<CollectError>(), Some(CollectError::NoHead)) {
        return Some(NOT_FOUND);
    }
    if matches!(error.downcast_ref::<CopyError>(), Some(CopyError::TargetNotEmpty { .. })) {
        return Some(FAILED);
    }
    match error.downcast_ref::<StoreError>() {
        Some(StoreError::NotFound { .. }) => return Some(NOT_FOUND),
        Some(StoreError::InvalidKey { .. }) => return Some(USAGE),
        Some(
            StoreError::Unauthorized { .. }
            | StoreError::NotPermitted { .. }
            | StoreError::BucketMissing { .. }
            | StoreError::Unavailable { .. }
            | StoreError::Config { .. }
            | StoreError::Refused { .. },
        ) => return Some(UNREACHABLE),
        _ => {}
    }
    if error.is::<kube::config::InferConfigError>() || error.is::<kube::config::KubeconfigError>() {
        return Some(UNREACHABLE);
    }
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) if status.is_not_found() => Some(NOT_FOUND),
        Some(kube::Error::Api(status)) if status.is_forbidden() || status.code == 401 => Some(UNREACHABLE),
        Some(kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::Auth(_)) => {
            Some(UNREACHABLE)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    fn of(error: impl Error + Send + Sync + 'static) -> u8 {
        code(&Err::<(), _>(error).context("while something was done").unwrap_err())
    }

    #[test]
    fn a_script_can_tell_what_to_do_from_the_exit_code() {
        let unavailable =
            StoreError::Unavailable { operation: "get", key: "k".into(), what: "no".into(), source: None };
        assert_eq!(of(cicada_store::ReadHeadError::Store(unavailable)), UNREACHABLE);
        assert_eq!(of(Missing("no".into())), NOT_FOUND);
        assert_eq!(of(UsageError("no".into())), USAGE);
        assert_eq!(of(PublishError::Fenced { by: "c".into(), epoch: 2 }), HELD);
        assert_eq!(of(AcquireError::Outrun), HELD);
        assert_eq!(of(Busy("no".into())), HELD);
        assert_eq!(of(Interrupted), INTERRUPTED);
        assert_eq!(of(std::io::Error::other("x")), FAILED);
    }
}
