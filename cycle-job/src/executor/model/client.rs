//! The model's provider behind one small trait, and the patience that a cycle has with it.
//!
//! Replies are not streamed: a reply counts only when it is whole, so that a connection that breaks in the
//! middle can be tried again without any tool having run.

use std::time::Duration;

use async_trait::async_trait;
use cicada_contract::FailureClass;
use cicada_contract::text::{cut, printable};

use super::tools::Offered;
use super::transcript::{Reply, Transcript};
use super::usage::Tokens;
use crate::failure::Classified;

/// Most tries of one call.
const TRIES: u32 = 8;
/// Most time that one call may wait between its tries.
const PATIENCE: Duration = Duration::from_secs(300);
/// Longest single wait of our own choice; a provider's hint may be longer.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Tries of a call at whose address nothing listens, where people wait for the cycle: a server that is just
/// being started is met, one that is down is told within seconds.
const TRIES_ATTENDED: u32 = 3;

/// A language model.
#[async_trait]
pub trait Llm: Send + Sync {
    /// One call, one try.
    async fn call(&self, transcript: &Transcript, tools: &Offered) -> Result<Reply, CallError>;
}

/// Why a call has no reply. Messages hold no secret and no prompt.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CallError {
    /// The conversation does not fit the context window.
    #[error("the conversation does not fit the model's context window: {message}")]
    Overflow {
        /// What the provider said.
        message: String,
    },
    /// Rate limit, overload or an error of the provider's own.
    #[error("the model's provider answered {status}: {message}")]
    Busy {
        /// HTTP status.
        status: u16,
        /// When to come back, if it said.
        retry_after: Option<Duration>,
        /// What the provider said.
        message: String,
    },
    /// No connection, or none in time.
    #[error("the model's provider can't be reached: {message}")]
    Unreachable {
        /// What the client said.
        message: String,
        /// The machine answered, and nothing listens there: waiting helps only if somebody starts it.
        refused: bool,
    },
    /// The reply broke off or was no reply. It may have cost something.
    #[error("the model's reply was not whole: {message}")]
    Incomplete {
        /// What is wrong with it.
        message: String,
        /// What it cost, if it said.
        tokens: Option<Tokens>,
    },
    /// The provider refuses such calls: key, name, parameters, credit.
    #[error(
        "the model's provider refused the call ({status}): {message}; check spec.executor.model and its key"
    )]
    Refused {
        /// HTTP status; 0 if the call was never made.
        status: u16,
        /// What the provider said.
        message: String,
    },
}

impl CallError {
    /// True if the same call may work later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Unreachable { .. } | Self::Incomplete { .. })
    }
}

impl Classified for CallError {
    fn class(&self) -> FailureClass {
        if self.is_retryable() { FailureClass::ModelUnavailable } else { FailureClass::ExecutorFailed }
    }
}

/// How long to wait before the next try; None = give up. `tries` counts those made, `waited` is what they
/// waited together, `jitter` lies in 0..1; `attended` is true where people wait for the cycle.
pub fn wait_before_retry(
    error: &CallError,
    tries: u32,
    waited: Duration,
    jitter: f64,
    attended: bool,
) -> Option<Duration> {
    if !error.is_retryable() || tries >= most_tries(error, attended) {
        return None;
    }
    let own = Duration::from_secs(1 << tries.saturating_sub(1).min(6))
        .min(LONGEST_WAIT)
        .mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0);
    let wait = match error {
        // The provider's hint is a lower bound: coming back earlier only makes it longer.
        CallError::Busy { retry_after: Some(hint), .. } => own.max(*hint),
        _ => own,
    };
    (waited + wait <= PATIENCE).then_some(wait)
}

fn most_tries(error: &CallError, attended: bool) -> u32 {
    let refused = matches!(error, CallError::Unreachable { refused: true, .. });
    if attended && refused { TRIES_ATTENDED } else { TRIES }
}

/// What came of a call with all its tries.
#[derive(Debug)]
pub struct Called {
    /// The reply, or the last error.
    pub result: Result<Reply, CallError>,
    /// Tokens of tries whose reply was lost.
    pub lost: Vec<Tokens>,
    /// Tries that were made.
    pub tries: u32,
}

/// Calls until there is a reply, a final error, or patience ends, which it does sooner where people wait.
pub async fn call(llm: &dyn Llm, transcript: &Transcript, tools: &Offered, attended: bool) -> Called {
    let mut lost = vec![];
    let mut waited = Duration::ZERO;
    for tries in 1.. {
        let error = match llm.call(transcript, tools).await {
            Ok(reply) => return Called { result: Ok(reply), lost, tries },
            Err(error) => error,
        };
        if let CallError::Incomplete { tokens, .. } = &error {
            lost.push(tokens.unwrap_or_else(|| Tokens::guess(transcript.bytes() + tools.bytes())));
        }
        let Some(wait) = wait_before_retry(&error, tries, waited, rand::random(), attended) else {
            return Called { result: Err(error), lost, tries };
        };
        let (most, wait_ms) =
            (most_tries(&error, attended), u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        tracing::info!(tries, most, wait_ms, reason = %error, "model call is tried again");
        waited += wait;
        tokio::time::sleep(wait).await;
    }
    // The loop has no end of its own; wait_before_retry ends it.
    Called {
        result: Err(CallError::Unreachable { message: "out of tries".into(), refused: false }),
        lost,
        tries: TRIES,
    }
}

/// Class of an answer with an error status.
pub fn from_status(status: u16, headers: &dyn Fn(&str) -> Option<String>, body: &str) -> CallError {
    let message = provider_message(body);
    let lower = body.to_ascii_lowercase();
    if matches!(status, 400 | 413 | 422) && says_overflow(&lower) {
        return CallError::Overflow { message };
    }
    let out_of_credit =
        lower.contains("insufficient_quota") || lower.contains("billing") || lower.contains("credit balance");
    let may_retry = match headers("x-should-retry").as_deref() {
        Some("false") => false,
        Some("true") => true,
        // 529 is one provider's "overloaded".
        _ => matches!(status, 408 | 409 | 425 | 429) || status >= 500,
    };
    if !may_retry || out_of_credit {
        return CallError::Refused { status, message };
    }
    CallError::Busy { status, retry_after: retry_after(headers, jiff::Timestamp::now()), message }
}

fn says_overflow(body: &str) -> bool {
    [
        "context_length_exceeded",
        "maximum context length",
        "context window",
        "exceed_context_size",
        "available context size",
        "prompt is too long",
        "input is too long",
        "request_too_large",
        "too many tokens",
    ]
    .iter()
    .any(|hint| body.contains(hint))
}

/// `retry-after-ms`, then `retry-after` as seconds or as a date.
fn retry_after(headers: &dyn Fn(&str) -> Option<String>, now: jiff::Timestamp) -> Option<Duration> {
    let number =
        |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0 && *n < 1e9);
    if let Some(ms) = headers("retry-after-ms").as_deref().and_then(number) {
        return Some(Duration::from_secs_f64(ms / 1000.0));
    }
    let text = headers("retry-after")?;
    if let Some(seconds) = number(&text) {
        return Some(Duration::from_secs_f64(seconds));
    }
    let at = jiff::fmt::rfc2822::parse(text.trim()).ok()?.timestamp();
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

/// The `error.message` of a provider's JSON, else the beginning of the text. Printable, at most 300 bytes.
pub fn provider_message(body: &str) -> String {
    let json: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let message = json.as_ref().and_then(|v| {
        let error = v.get("error").unwrap_or(v);
        error.get("message").or(Some(error)).and_then(serde_json::Value::as_str)
    });
    cut(&printable(message.unwrap_or(body).trim()), 300)
}

/// How much of the conversation may stay after an overflow, in bytes. `sent` is what was sent; the numbers
/// of the provider's message (its limit and what it counted) make the guess better.
pub fn target_after_overflow(message: &str, sent: usize) -> usize {
    let numbers: Vec<usize> = message
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse().ok())
        .filter(|n| (512..100_000_000).contains(n))
        .take(2)
        .collect();
    match numbers[..] {
        [a, b] if a != b => {
            let (limit, counted) = (a.min(b), a.max(b));
            // Three quarters: room for the reply and for what the next steps add.
            sent / counted.max(1) * limit / 4 * 3 + sent % counted.max(1) * limit / counted.max(1) / 4 * 3
        }
        _ => sent / 5 * 3,
    }
    .min(sent / 10 * 9)
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
