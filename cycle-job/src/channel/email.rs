//! Email: plain text by SMTP, with a Message-ID that is the same at each try, so that a mailbox shows a
//! repeat once.

use std::time::Duration;

use cicada_contract::text::{cut, printable, sha256_hex};
use cicada_memory::ledger::OutboxRow;
use cicada_store::DeliveryOutcome;
use lettre::message::header::ContentType;
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use reqwest::Url;

use crate::channel::Sent;
use crate::secrets::SecretText;

/// Longest wait for the server.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A mail server of the manifest.
pub(super) struct Server<'a> {
    /// `smtp://host:port` or `smtps://host:port`.
    pub(super) url: &'a str,
    /// Sender's address.
    pub(super) from: &'a str,
    /// User name and password.
    pub(super) login: Option<(SecretText, SecretText)>,
}

/// Sends one mail.
pub(super) async fn send(server: &Server<'_>, agent: &str, row: &OutboxRow) -> Sent {
    let mail = match build(server.from, agent, row) {
        Ok(mail) => mail,
        Err(reason) => return sent(DeliveryOutcome::Failed, reason),
    };
    let transport = match transport(server) {
        Ok(transport) => transport,
        Err(reason) => return sent(DeliveryOutcome::Failed, reason),
    };
    match transport.send(mail).await {
        Ok(response) => sent(DeliveryOutcome::Sent, &response.code().to_string()),
        Err(error) => by_error(&error),
    }
}

fn by_error(error: &lettre::transport::smtp::Error) -> Sent {
    // The server's text may repeat the address; the code says enough.
    let code = error.status().map_or_else(|| "no code".to_owned(), |c| format!("code {c}"));
    if error.is_permanent() {
        sent(DeliveryOutcome::Failed, &format!("the server refused it, {code}"))
    } else if error.is_transient() {
        sent(DeliveryOutcome::Deferred, &format!("the server asks to come back, {code}"))
    } else if error.is_tls() || error.is_client() {
        sent(DeliveryOutcome::Deferred, "no secure connection, or a part of SMTP that the server lacks")
    } else if error.is_response() || error.is_timeout() {
        // It may have been taken. A repeat has the same Message-ID.
        sent(DeliveryOutcome::Unknown, "no answer that could be understood in time")
    } else {
        sent(DeliveryOutcome::Deferred, "connection failed or broke")
    }
}

fn sent(outcome: DeliveryOutcome, detail: &str) -> Sent {
    Sent { outcome, detail: Some(cut(&printable(detail), 200)) }
}

/// `<hash@agent.namespace.cicada>`: from the message's id only.
fn message_id(agent: &str, id: &str) -> String {
    let host: Vec<String> = agent
        .rsplit('/')
        .map(|part| {
            part.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '.').collect::<String>()
        })
        .filter(|part| !part.is_empty())
        .collect();
    format!("<{}@{}.cicada>", &sha256_hex(id)[..32], host.join("."))
}

fn build(from: &str, agent: &str, row: &OutboxRow) -> Result<Message, &'static str> {
    let m = &row.message;
    let from: Mailbox = from.parse().map_err(|_| "the sender's address is none")?;
    let to: Mailbox = m.to.parse().map_err(|_| "the receiver's address is none")?;
    let subject =
        m.subject.as_deref().map_or_else(|| cut(m.body.lines().next().unwrap_or("Message"), 78), printable);
    Message::builder()
        .message_id(Some(message_id(agent, &m.id)))
        .date(row.created_at.into())
        .from(from)
        .to(to)
        .subject(printable(&subject))
        .header(ContentType::TEXT_PLAIN)
        .body(m.body.clone())
        .map_err(|_| "the mail can't be built from this message")
}

fn transport(server: &Server<'_>) -> Result<AsyncSmtpTransport<Tokio1Executor>, &'static str> {
    let url =
        Url::parse(server.url).map_err(|_| "the server is not smtp://host:port or smtps://host:port")?;
    let host = url.host_str().ok_or("the server has no host")?.trim_matches(['[', ']']).to_owned();
    let parameters = || TlsParameters::new(host.clone()).map_err(|_| "TLS can't be set up");
    let is_local = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|a| a.is_loopback());
    let (tls, port) = match url.scheme() {
        "smtps" => (Tls::Wrapper(parameters()?), 465),
        // A password only travels encrypted; without one, encryption is taken where it is offered.
        "smtp" if server.login.is_some() && !is_local => (Tls::Required(parameters()?), 587),
        "smtp" if is_local => (Tls::None, 25),
        "smtp" => (Tls::Opportunistic(parameters()?), 25),
        _ => return Err("the server is not smtp://host:port or smtps://host:port"),
    };
    let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&host)
        .port(url.port().unwrap_or(port))
        .tls(tls)
        .timeout(Some(TIMEOUT));
    if let Some((user, password)) = &server.login {
        builder =
            builder.credentials(Credentials::new(user.expose().to_owned(), password.expose().to_owned()));
    }
    Ok(builder.build())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    use super::*;
    use crate::channel::tests::row;

    /// A server that answers by the first word of each line; `reply` may change an answer. Gives the mail.
    async fn smtp(reply: fn(&str) -> Option<&'static str>) -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("smtp://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            stream.write_all(b"220 ready\r\n").await.unwrap();
            let (mut mail, mut in_data, mut line) = (String::new(), false, String::new());
            while stream.read_line(&mut line).await.unwrap_or(0) > 0 {
                mail.push_str(&line);
                let word = if in_data {
                    if line == ".\r\n" { "DOT" } else { "" }
                } else {
                    line.get(..4).unwrap_or("")
                };
                let answer = match (reply(word), word) {
                    (Some("hang up"), _) => return mail,
                    (Some(answer), _) => answer,
                    (_, "") => "",
                    (_, "DATA") => "354 go on",
                    (_, "QUIT") => "221 bye",
                    (_, "EHLO") => "250 test",
                    _ => "250 ok",
                };
                in_data = word == "DATA" && answer.starts_with('3') || in_data && word != "DOT";
                if !answer.is_empty() {
                    stream.write_all(format!("{answer}\r\n").as_bytes()).await.unwrap();
                }
                line.clear();
            }
            mail
        });
        (url, task)
    }

    async fn outcome(reply: fn(&str) -> Option<&'static str>) -> (Sent, String) {
        let (url, task) = smtp(reply).await;
        let sent = send(
            &Server { url: &url, from: "Price Watch <agent@example.org>", login: None },
            "shop/price-watch",
            &row(),
        )
        .await;
        (sent, task.await.unwrap())
    }

    #[tokio::test]
    async fn a_mail_has_the_same_message_id_at_each_try() {
        let (first, mail) = outcome(|_| None).await;
        assert_eq!(first.outcome, DeliveryOutcome::Sent);
        let (_, again) = outcome(|_| None).await;
        let id = |mail: &str| mail.lines().find(|l| l.starts_with("Message-ID:")).unwrap().to_owned();
        assert_eq!(id(&mail), id(&again));
        assert!(id(&mail).ends_with("@price-watch.shop.cicada>"), "{mail}");
        assert!(
            mail.contains("RCPT TO:<sales@example.org>") && mail.contains("Subject: Price drop"),
            "{mail}"
        );
        assert!(mail.contains("Milk fell by 12 %"), "{mail}");
    }

    #[tokio::test]
    async fn the_servers_answer_decides() {
        let cases: [(fn(&str) -> Option<&'static str>, DeliveryOutcome); 4] = [
            (|w| (w == "RCPT").then_some("550 no such user sales@example.org"), DeliveryOutcome::Failed),
            (|w| (w == "MAIL").then_some("451 greylisted"), DeliveryOutcome::Deferred),
            (|w| (w == "DOT").then_some("554 spam"), DeliveryOutcome::Failed),
            // The library does not tell how far it came; a repeat has the same Message-ID.
            (|w| (w == "EHLO").then_some("hang up"), DeliveryOutcome::Unknown),
        ];
        for (reply, expected) in cases {
            let (sent, _) = outcome(reply).await;
            assert_eq!(sent.outcome, expected, "{sent:?}");
            assert!(!sent.detail.unwrap().contains("sales@"), "no address in the detail");
        }
    }

    #[tokio::test]
    async fn no_answer_after_the_last_dot_is_unknown() {
        let (sent, _) = outcome(|w| (w == "DOT").then_some("hang up")).await;
        assert_eq!(sent.outcome, DeliveryOutcome::Unknown, "{sent:?}");
    }

    #[test]
    fn a_message_can_add_no_header_of_its_own() {
        let mut row = row();
        row.message.subject = Some("Hi\r\nBcc: eve@example.org".into());
        let mail = String::from_utf8(build("a@example.org", "shop/a", &row).unwrap().formatted()).unwrap();
        assert!(!mail.lines().any(|l| l.starts_with("Bcc:")), "{mail}");
        row.message.to = "a@example.org\r\nBcc: eve@example.org".into();
        assert_eq!(build("a@example.org", "shop/a", &row).err(), Some("the receiver's address is none"));
    }

    #[test]
    fn a_password_travels_encrypted_only() {
        let login = Some((crate::channel::tests::secret("user"), crate::channel::tests::secret("password")));
        let server = Server { url: "smtp://mail.example.org", from: "a@example.org", login };
        assert!(format!("{:?}", transport(&server).unwrap()).contains("Required"));
    }
}
