//! Webhook: a signed POST whose receiver can tell a repeat by its key.
//!
//! The body is the same at each try, byte for byte, and so is `Idempotency-Key`; only the time in the
//! signature differs. `Cicada-Signature: t=<seconds>,v1=<hex>` is HMAC-SHA-256 over `<seconds>.<body>`.

use std::time::Duration;

use cicada_contract::text::{cut, printable};
use cicada_memory::ledger::OutboxRow;
use cicada_store::DeliveryOutcome;
use hmac::{Hmac, Mac};
use jiff::Timestamp;
use serde_json::json;
use sha2::Sha256;

use crate::channel::Sent;
use crate::secrets::SecretText;

/// Longest wait for the receiver. A claim counts as unknown only long after this.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Header of the signature.
pub const SIGNATURE_HEADER: &str = "cicada-signature";

/// Posts one message.
pub(super) async fn send(
    url: &str,
    key: Option<&SecretText>,
    agent: &str,
    row: &OutboxRow,
    now: Timestamp,
) -> Sent {
    let body = body(agent, row);
    let client = reqwest::Client::builder()
        .no_proxy()
        // A redirected POST could reach a host that nobody named.
        .redirect(reqwest::redirect::Policy::none())
        .timeout(TIMEOUT)
        .user_agent(concat!("cicada/", env!("CARGO_PKG_VERSION")))
        .build();
    let client = match client {
        Ok(client) => client,
        Err(_) => return sent(DeliveryOutcome::Deferred, "could not set up the client"),
    };
    let mut request = client
        .post(url)
        .header("content-type", "application/json")
        .header("idempotency-key", &row.message.id)
        .body(body.clone());
    if let Some(key) = key {
        request = request.header(SIGNATURE_HEADER, signature(key.expose(), now, &body));
    }
    match request.send().await {
        Ok(response) => by_status(response.status().as_u16()),
        Err(error) if error.is_connect() => sent(DeliveryOutcome::Deferred, "connection failed"),
        Err(error) if error.is_builder() => sent(DeliveryOutcome::Failed, "the URL can't be requested"),
        // It may have arrived. The receiver removes the repeat by the key.
        Err(error) if error.is_timeout() => sent(DeliveryOutcome::Unknown, "no answer in time"),
        Err(_) => sent(DeliveryOutcome::Unknown, "the connection broke before an answer"),
    }
}

fn by_status(status: u16) -> Sent {
    match status {
        200..=299 => sent(DeliveryOutcome::Sent, &status.to_string()),
        408 | 425 | 429 | 500..=599 => sent(DeliveryOutcome::Deferred, &format!("status {status}")),
        // 409: a receiver that knows the key says so this way.
        409 => sent(DeliveryOutcome::Sent, "409, known already"),
        _ => sent(DeliveryOutcome::Failed, &format!("status {status}")),
    }
}

fn sent(outcome: DeliveryOutcome, detail: &str) -> Sent {
    Sent { outcome, detail: Some(cut(&printable(detail), 200)) }
}

/// The JSON that is posted. It depends on the message only.
fn body(agent: &str, row: &OutboxRow) -> String {
    let m = &row.message;
    let attachments =
        m.attachments_json.as_deref().and_then(|t| serde_json::from_str::<serde_json::Value>(t).ok());
    json!({
        "id": m.id, "agent": agent, "channel": m.channel, "to": m.to, "subject": m.subject, "body": m.body,
        "conversation": m.conversation, "attachments": attachments, "createdAt": row.created_at,
    })
    .to_string()
}

/// `t=<seconds>,v1=<hex>`.
pub fn signature(key: &str, now: Timestamp, body: &str) -> String {
    let seconds = now.as_second();
    // HMAC takes keys of any length; the error type is there for other algorithms.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key.as_bytes()) else { return String::new() };
    mac.update(format!("{seconds}.{body}").as_bytes());
    format!("t={seconds},v1={}", hex::encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::http::{HeaderMap, StatusCode};
    use axum::routing::post;

    use super::*;
    use crate::channel::tests::{row, secret};

    type Seen = Arc<Mutex<Vec<(HeaderMap, String)>>>;

    async fn receiver(answers: Vec<u16>) -> (String, Seen) {
        let seen = Seen::default();
        let (log, answers) = (seen.clone(), Arc::new(Mutex::new(answers)));
        let handler = move |headers: HeaderMap, body: String| async move {
            log.lock().unwrap().push((headers, body));
            let mut answers = answers.lock().unwrap();
            StatusCode::from_u16(if answers.is_empty() { 200 } else { answers.remove(0) }).unwrap()
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        tokio::spawn(async move {
            axum::serve(listener, Router::new().route("/hook", post(handler))).await.unwrap()
        });
        (url, seen)
    }

    #[tokio::test]
    async fn each_try_has_the_same_body_and_key_and_a_valid_signature() {
        let (url, seen) = receiver(vec![503, 200]).await;
        let key = secret("hook-key");
        for (second, outcome) in [(100, DeliveryOutcome::Deferred), (200, DeliveryOutcome::Sent)] {
            let now = Timestamp::from_second(second).unwrap();
            assert_eq!(send(&url, Some(&key), "shop/price-watch", &row(), now).await.outcome, outcome);
        }
        let seen = seen.lock().unwrap();
        assert_eq!(seen[0].1, seen[1].1);
        for (headers, body) in seen.iter() {
            assert_eq!(headers["idempotency-key"], "m-1");
            let signature = headers[SIGNATURE_HEADER].to_str().unwrap();
            let (time, mac) = signature.strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
            let mut expected = Hmac::<Sha256>::new_from_slice(b"hook-key").unwrap();
            expected.update(format!("{time}.{body}").as_bytes());
            expected.verify_slice(&hex::decode(mac).unwrap()).unwrap();
        }
        let json: serde_json::Value = serde_json::from_str(&seen[0].1).unwrap();
        assert_eq!(
            (json["to"].as_str(), json["body"].as_str()),
            (Some("sales@example.org"), Some("Milk fell by 12 %.\nBuy."))
        );
    }

    #[tokio::test]
    async fn an_answer_decides_and_silence_is_unknown() {
        let (url, _) = receiver(vec![404, 429, 302, 409]).await;
        let mut outcomes = vec![];
        for _ in 0..4 {
            outcomes.push(send(&url, None, "a/b", &row(), Timestamp::UNIX_EPOCH).await.outcome);
        }
        use DeliveryOutcome::{Deferred, Failed, Sent, Unknown};
        assert_eq!(outcomes, [Failed, Deferred, Failed, Sent]);
        assert_eq!(
            send("http://127.0.0.1:9/", None, "a/b", &row(), Timestamp::UNIX_EPOCH).await.outcome,
            Deferred
        );
        // A server that takes the request and hangs up.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            use tokio::io::AsyncReadExt;
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
        });
        assert_eq!(send(&url, None, "a/b", &row(), Timestamp::UNIX_EPOCH).await.outcome, Unknown);
    }
}
