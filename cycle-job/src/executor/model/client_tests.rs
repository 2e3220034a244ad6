use std::sync::Mutex;

use super::super::prompt::{Part, Prompt};
use super::*;

fn none(_: &str) -> Option<String> {
    None
}

#[test]
fn a_providers_hint_is_a_lower_bound_and_patience_ends() {
    let busy = |seconds| CallError::Busy { status: 429, retry_after: seconds, message: String::new() };
    let wait = |error: &CallError, tries, waited| {
        wait_before_retry(error, tries, Duration::from_secs(waited), 1.0, false).map(|d| d.as_secs())
    };
    assert_eq!(wait(&busy(None), 1, 0), Some(1));
    assert_eq!(wait(&busy(None), 4, 0), Some(8));
    assert_eq!(wait(&busy(Some(Duration::from_secs(37))), 1, 0), Some(37));
    assert_eq!(wait(&busy(Some(Duration::from_secs(301))), 1, 0), None, "nobody waits that long in a pod");
    assert_eq!(wait(&busy(None), 4, 295), None);
    assert_eq!(wait(&busy(None), TRIES, 0), None);
    assert_eq!(wait(&CallError::Refused { status: 401, message: String::new() }, 1, 0), None);
    assert_eq!(wait(&CallError::Overflow { message: String::new() }, 1, 0), None);
}

#[test]
fn people_do_not_wait_minutes_for_a_server_that_is_down() {
    let refused = CallError::Unreachable { message: "nothing listens".into(), refused: true };
    let lost = CallError::Unreachable { message: "timeout".into(), refused: false };
    let again = |error: &CallError, tries, attended| {
        wait_before_retry(error, tries, Duration::ZERO, 1.0, attended).is_some()
    };
    assert!(again(&refused, TRIES_ATTENDED - 1, true), "a server that is just being started is met");
    assert!(!again(&refused, TRIES_ATTENDED, true));
    assert!(again(&refused, TRIES_ATTENDED, false), "a pod waits: nobody would start it again");
    assert!(again(&lost, TRIES_ATTENDED, true));
}

#[test]
fn statuses_become_what_a_caller_does_differently() {
    for status in [408, 409, 429, 500, 502, 503, 529] {
        assert!(from_status(status, &none, "").is_retryable(), "{status}");
    }
    for status in [400, 401, 403, 404, 422] {
        let error = from_status(status, &none, "{\"error\": {\"message\": \"no such model\"}}");
        assert_eq!(error, CallError::Refused { status, message: "no such model".into() });
        assert_eq!(error.class(), FailureClass::ExecutorFailed);
    }
    let quota =
        "{\"error\": {\"message\": \"You exceeded your current quota\", \"code\": \"insufficient_quota\"}}";
    assert!(!from_status(429, &none, quota).is_retryable());
    let no = |name: &str| (name == "x-should-retry").then(|| "false".to_owned());
    assert!(!from_status(503, &no, "").is_retryable());
    for body in [
        "{\"error\": {\"code\": \"context_length_exceeded\", \"message\": \"too long\"}}",
        "{\"type\": \"error\", \"error\": {\"type\": \"invalid_request_error\", \"message\": \"prompt is too long: 210000 tokens > 200000 maximum\"}}",
        "{\"error\": {\"message\": \"the request exceeds the available context size, try increasing it\"}}",
    ] {
        assert!(matches!(from_status(400, &none, body), CallError::Overflow { .. }), "{body}");
    }
}

#[test]
fn retry_after_is_read_in_each_of_its_forms() {
    let now: jiff::Timestamp = "2026-12-01T10:00:00Z".parse().unwrap();
    let read = |name: &'static str, value: &'static str| {
        retry_after(&move |n: &str| (n == name).then(|| value.to_owned()), now)
    };
    assert_eq!(read("retry-after", "7"), Some(Duration::from_secs(7)));
    assert_eq!(read("retry-after", "0.5"), Some(Duration::from_millis(500)));
    assert_eq!(read("retry-after-ms", "250"), Some(Duration::from_millis(250)));
    assert_eq!(read("retry-after", "Tue, 01 Dec 2026 10:00:30 GMT"), Some(Duration::from_secs(30)));
    assert_eq!(read("retry-after", "Tue, 01 Dec 2026 09:00:00 GMT"), Some(Duration::ZERO));
    assert_eq!(read("retry-after", "soon"), None);
    assert_eq!(read("retry-after", "-5"), None);
}

#[test]
fn an_overflow_says_how_much_may_stay() {
    let openai = "This model's maximum context length is 8192 tokens. However, your messages resulted in 16384 tokens.";
    let target = target_after_overflow(openai, 64_000);
    assert!((20_000..=24_000).contains(&target), "{target}");
    let anthropic = target_after_overflow("prompt is too long: 210000 tokens > 200000 maximum", 800_000);
    assert!((550_000..=580_000).contains(&anthropic), "{anthropic}");
    assert_eq!(target_after_overflow("too long", 10_000), 6000);
    assert!(target_after_overflow("limit 8192, used 8193", 30_000) < 27_001, "always shorter");
}

struct Script(Mutex<Vec<Result<Reply, CallError>>>);

#[async_trait]
impl Llm for Script {
    async fn call(&self, _: &Transcript, _: &Offered) -> Result<Reply, CallError> {
        self.0.lock().unwrap().remove(0)
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_paid_for_and_tried_again() {
    let reply = Reply {
        text: "ok".into(),
        calls: vec![],
        stop: super::super::transcript::Stop::Normal,
        tokens: Tokens::default(),
        raw: None,
    };
    let script = Script(Mutex::new(vec![
        Err(CallError::Busy {
            status: 529,
            retry_after: Some(Duration::from_secs(20)),
            message: String::new(),
        }),
        Err(CallError::Incomplete { message: "cut".into(), tokens: None }),
        Err(CallError::Incomplete {
            message: "no choices".into(),
            tokens: Some(Tokens { input: 5, cached: 0, output: 1 }),
        }),
        Ok(reply.clone()),
    ]));
    let part = Part { name: "task", required: true, text: "x".repeat(400) };
    let transcript = Transcript::new(Prompt { system: String::new(), parts: vec![part] });
    let started = tokio::time::Instant::now();
    let called = call(&script, &transcript, &Offered::default(), false).await;
    assert_eq!((called.result, called.tries), (Ok(reply), 4));
    assert_eq!(called.lost, [Tokens::guess(400), Tokens { input: 5, cached: 0, output: 1 }]);
    assert!(started.elapsed() >= Duration::from_secs(20));
}
