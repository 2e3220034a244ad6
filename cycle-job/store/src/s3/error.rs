//! From what the SDK says to what a caller does.

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use cicada_contract::text::{cut, printable};

use super::words;
use crate::store::{Condition, StoreError};

/// What was tried, for the message and for what a status means.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt<'a> {
    pub(super) operation: &'static str,
    pub(super) key: &'a str,
    pub(super) condition: Option<&'a Condition>,
    pub(super) bucket: &'a str,
    pub(super) location: &'a str,
    /// The server as people configure it: its base URL, or `AWS`.
    pub(super) server: &'a str,
}

impl Attempt<'_> {
    /// The store error behind an SDK error.
    pub(super) fn failed<E>(self, error: SdkError<E, HttpResponse>) -> StoreError
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        // With everything that the SDK and the libraries below it say: more than people can use.
        tracing::debug!(operation = self.operation, key = self.key, error = ?error, "a call of the store failed");
        let status = error.raw_response().map(|response| response.status().as_u16());
        if let Some(status) = status.filter(|_| matches!(error, SdkError::ServiceError(_))) {
            return self.answered(status, error.code(), error.message());
        }
        if let Some(reason) = credentials_problem(&error) {
            return StoreError::Unauthorized {
                location: self.location.into(),
                reason: reason.into(),
                source: None,
            };
        }
        let what = match &error {
            SdkError::TimeoutError(_) => self.no_answer(),
            SdkError::DispatchFailure(failure) if failure.is_timeout() => self.no_answer(),
            SdkError::DispatchFailure(_) => words::connection(&error, self.server),
            SdkError::ResponseError(_) => {
                format!("an answer of {} that was cut short or is not S3's", self.server)
            }
            _ => {
                return StoreError::Config { what: format!("{}: {}", self.location, innermost(&error)) };
            }
        };
        StoreError::Unavailable { operation: self.operation, key: self.key.into(), what, source: None }
    }

    fn no_answer(self) -> String {
        format!("no answer in time from {}; look at the network, or at the server's load", self.server)
    }

    /// A server's own words, where they say more than its code.
    fn said(message: Option<&str>) -> String {
        let text = printable(message.unwrap_or_default());
        let text = text.trim();
        if text.is_empty() { String::new() } else { format!(", {}", cut(text, 160)) }
    }

    /// The store error behind an HTTP status and S3's error code.
    pub(super) fn answered(self, status: u16, code: Option<&str>, message: Option<&str>) -> StoreError {
        let key = || self.key.to_owned();
        let unclear_code =
            matches!(code, Some("SlowDown" | "RequestTimeout" | "InternalError" | "ServiceUnavailable"));
        match (status, code) {
            (_, Some("NoSuchBucket")) => StoreError::BucketMissing { bucket: self.bucket.into() },
            (401 | 403, _)
            | (
                _,
                Some(
                    "ExpiredToken"
                    | "SignatureDoesNotMatch"
                    | "RequestTimeTooSkewed"
                    | "InvalidToken"
                    | "InvalidAccessKeyId"
                    | "TokenRefreshRequired"
                    | "AuthFailure"
                    // versitygw's word for an access key id that it does not know, sent with a 404.
                    | "XAdminUserNotFound",
                ),
            ) => StoreError::Unauthorized {
                location: self.location.into(),
                reason: match code {
                    Some(code @ ("AccessDenied" | "Forbidden" | "AllAccessDisabled")) => {
                        format!("{code}: they are known, but no policy lets them {} `{}`", self.operation, self.key)
                    }
                    Some(code) => match words::refusal(code) {
                        Some(why) => format!("{code}: {why}"),
                        None => format!("{code}{}", Self::said(message)),
                    },
                    // The answer to HEAD has no body; and a proxy's has no code of S3's.
                    None => format!(
                        "status {status} to {} of `{}`: a policy of the bucket, or a proxy before it, does not let it through",
                        self.operation, self.key
                    ),
                },
                source: None,
            },
            // AWS answers 404 to If-Match on a missing key, Ceph 412.
            (404, Some("NoSuchKey")) if matches!(self.condition, Some(Condition::Match(_))) => {
                StoreError::Precondition { key: key() }
            }
            // Any other 404 (a proxy's, a wrong endpoint's) must not pass for an object that is missing.
            (404, Some("NoSuchKey")) => StoreError::NotFound { key: key() },
            (412, _) if self.condition == Some(&Condition::Create) => {
                StoreError::AlreadyExists { key: key() }
            }
            (412, _) => StoreError::Precondition { key: key() },
            // Two conditional writes met on the server; it says nothing about which one won.
            (409, _) => StoreError::Conflict { key: key() },
            (501, _) if self.condition.is_some_and(|condition| *condition != Condition::Any) => {
                StoreError::NoConditionalWrites {
                    location: self.location.into(),
                    what: format!("status 501 to {} with a condition", self.operation),
                }
            }
            (301 | 307, _)
            | (400, Some("AuthorizationHeaderMalformed" | "IllegalLocationConstraintException")) => {
                StoreError::Config {
                    what: format!("{} is in another region; set the store's region", self.location),
                }
            }
            _ if status >= 500 || status == 429 || status == 408 || unclear_code => StoreError::Unavailable {
                operation: self.operation,
                key: key(),
                what: code
                    .map_or_else(|| format!("status {status}"), |code| format!("status {status} {code}")),
                source: None,
            },
            _ => StoreError::Refused {
                operation: self.operation,
                key: key(),
                // Whoever answers without S3's error code is a proxy, or no S3 server at all.
                code: match code {
                    Some(code) => format!("{code}{}", Self::said(message)),
                    None => format!(
                        "status {status} without S3's error code; is {} an S3 server, and its http or https right?",
                        self.server
                    ),
                },
                source: None,
            },
        }
    }
}

/// Credentials that could not be had at all. A provider that timed out is an outage, not a refusal.
fn credentials_problem(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(problem) = error.downcast_ref::<CredentialsError>() {
            return match problem {
                CredentialsError::CredentialsNotLoaded(_) => Some(
                    "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
                ),
                CredentialsError::InvalidConfiguration(_) => Some("the workload identity is not set up"),
                CredentialsError::ProviderTimedOut(_) => None,
                _ => Some("no credentials could be got"),
            };
        }
        next = error.source();
    }
    None
}

fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ETag;

    fn answered(status: u16, code: Option<&str>, condition: Option<Condition>) -> StoreError {
        Attempt {
            operation: "put",
            key: "shop/clerk/HEAD.json",
            condition: condition.as_ref(),
            bucket: "memories",
            location: "s3://memories",
            server: "http://s3.test",
        }
        .answered(status, code, None)
    }

    #[test]
    fn each_answer_has_its_variant_and_its_first_words() {
        let any = Some(Condition::Any);
        let create = Some(Condition::Create);
        let matching = Some(Condition::Match(ETag("\"1\"".into())));
        for (status, code, condition, words) in [
            (
                403,
                Some("SignatureDoesNotMatch"),
                &any,
                "the store refused the credentials: SignatureDoesNotMatch",
            ),
            (403, Some("InvalidAccessKeyId"), &any, "the store refused the credentials: InvalidAccessKeyId"),
            (400, Some("ExpiredToken"), &any, "the store refused the credentials: ExpiredToken"),
            (
                403,
                Some("AccessDenied"),
                &any,
                "the store refused the credentials: AccessDenied: they are known, but no policy lets them put `shop",
            ),
            (
                403,
                None,
                &any,
                "the store refused the credentials: status 403 to put of `shop/clerk/HEAD.json`: a policy",
            ),
            (404, Some("NoSuchBucket"), &any, "the bucket does not exist: create `memories`"),
            (404, Some("NoSuchBucket"), &matching, "the bucket does not exist: create `memories`"),
            (404, Some("XAdminUserNotFound"), &any, "the store refused the credentials: XAdminUserNotFound"),
            (404, None, &None, "the store refused put of `shop/clerk/HEAD.json`: status 404"),
            (404, Some("NoSuchKey"), &None, "no object `shop/clerk/HEAD.json`"),
            (
                404,
                Some("NoSuchKey"),
                &matching,
                "object `shop/clerk/HEAD.json` was changed by another writer",
            ),
            (412, Some("PreconditionFailed"), &matching, "object `shop/clerk/HEAD.json` was changed"),
            (412, Some("PreconditionFailed"), &create, "object `shop/clerk/HEAD.json` exists already"),
            (
                409,
                Some("ConditionalRequestConflict"),
                &matching,
                "the store could not order concurrent writes",
            ),
            (501, Some("NotImplemented"), &create, "the store has no conditional writes: status 501"),
            (501, Some("NotImplemented"), &any, "the store is unavailable"),
            (
                503,
                Some("SlowDown"),
                &any,
                "the store is unavailable: put of `shop/clerk/HEAD.json` got status 503 SlowDown",
            ),
            (500, None, &any, "the store is unavailable"),
            (429, None, &any, "the store is unavailable"),
            (
                301,
                Some("PermanentRedirect"),
                &any,
                "the store's configuration is wrong: s3://memories is in another region",
            ),
            (400, Some("InvalidRequest"), &any, "the store refused put"),
        ] {
            let text = answered(status, code, condition.clone()).to_string();
            assert!(text.starts_with(words), "{status} {code:?}: {text}");
        }
    }

    #[test]
    fn only_what_may_have_landed_is_unclear() {
        let matching = Some(Condition::Match(ETag("\"1\"".into())));
        for (status, unclear) in
            [(500, true), (503, true), (409, true), (412, false), (403, false), (404, false), (400, false)]
        {
            assert_eq!(answered(status, None, matching.clone()).is_unclear(), unclear, "{status}");
        }
    }
}
