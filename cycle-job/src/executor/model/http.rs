//! The agent's own HTTP requests: only to hosts of the manifest, only to addresses that were looked at.
//!
//! A name is resolved once, every address is checked, and the connection goes to one of the checked
//! addresses, so that a second answer of the name server changes nothing. Each redirect is a request of
//! its own and goes through all of this again. Variables that name a proxy are ignored.

mod error;
mod send;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use cicada_contract::plan::AllowedHost;
use reqwest::{Method, Url};

pub use self::error::HttpError;
use self::send::{redirect, send};
use super::address::is_public;
use super::hosts::{host_matches, is_never_reachable, secret_host_matches};
use super::tools::HttpCall;
use crate::secrets::SecretText;

/// Most redirects that are followed.
const REDIRECTS: usize = 5;
/// Most bytes of a response body; the rest is not read.
pub const BODY_BYTES: usize = 5 << 20;
/// Headers that decide where a request goes or how it is framed; not the model's to set.
const OWN_HEADERS: [&str; 8] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "proxy-authorization",
];

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// Status code.
    pub status: u16,
    /// Where it came from, after redirects.
    pub url: String,
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// Body, at most [`BODY_BYTES`].
    pub body: Vec<u8>,
    /// The body was longer.
    pub is_truncated: bool,
}

/// A secret of the manifest with its value.
#[derive(Debug, Clone)]
pub struct HostSecret {
    /// Name by which the model refers to it.
    pub name: String,
    /// Its value.
    pub value: SecretText,
    /// Hosts that may get it: `name`, `*.name`, each with `:port` where it is not 443.
    pub hosts: Vec<String>,
}

/// What the manifest allows.
#[derive(Clone)]
pub struct Rules {
    /// Hosts.
    pub allowed: Vec<AllowedHost>,
    /// Secrets.
    pub secrets: Vec<HostSecret>,
    /// How names are resolved.
    pub resolver: Arc<dyn Resolve>,
}

/// How names are resolved.
#[async_trait]
pub trait Resolve: Send + Sync {
    /// Addresses of `host`.
    async fn resolve(&self, host: &str) -> std::io::Result<Vec<IpAddr>>;
}

/// The machine's own resolver.
pub struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, host: &str) -> std::io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|a| a.ip()).collect())
    }
}

/// A request whose host was found in the manifest and whose secrets are filled in.
struct Prepared {
    method: Method,
    url: Url,
    headers: Vec<(String, String)>,
    /// Names of headers that hold a secret.
    secret_headers: Vec<String>,
    body: Option<String>,
    body_has_secret: bool,
}

impl Rules {
    /// True if the request may change something outside, so that a checkpoint comes first: any method but
    /// GET and HEAD, and any request to a host that may get a secret.
    pub fn changes_the_world(&self, call: &HttpCall) -> bool {
        if !matches!(call.method.as_str(), "GET" | "HEAD") || call.body.is_some() {
            return true;
        }
        let Ok(url) = Url::parse(&call.url) else { return false };
        self.secrets.iter().any(|s| s.hosts.iter().any(|h| secret_host_matches(h, &url)))
    }

    /// Makes the request and follows redirects.
    pub async fn request(&self, call: &HttpCall) -> Result<HttpResponse, HttpError> {
        let mut next = self.prepare(call)?;
        for _ in 0..=REDIRECTS {
            let allowed = self.allowed_host(&next.url)?;
            let addresses = checked_addresses(&*self.resolver, &next.url, allowed.private).await?;
            let response = send(&next, &addresses).await?;
            match redirect(&next, &response) {
                Some(follow) => next = follow?,
                None => return Ok(response),
            }
        }
        Err(HttpError::TooManyRedirects)
    }

    fn prepare(&self, call: &HttpCall) -> Result<Prepared, HttpError> {
        let method = match call.method.as_str() {
            "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" => {
                Method::from_bytes(call.method.as_bytes()).unwrap_or(Method::GET)
            }
            other => {
                return Err(HttpError::BadRequest(format!(
                    "method {other} is not one of GET, HEAD, POST, PUT, PATCH, DELETE"
                )));
            }
        };
        let url = parse_url(&call.url)?;
        self.allowed_host(&url)?;
        let mut headers = vec![];
        let mut secret_headers = vec![];
        for (name, value) in &call.headers {
            let name = name.to_ascii_lowercase();
            if OWN_HEADERS.contains(&name.as_str()) {
                return Err(HttpError::BadRequest(format!("header {name} is set by the platform")));
            }
            let (value, has_secret) = self.fill(value, &url)?;
            if has_secret {
                secret_headers.push(name.clone());
            }
            headers.push((name, value));
        }
        let (body, body_has_secret) = match &call.body {
            None => (None, false),
            Some(body) => self.fill(body, &url).map(|(body, has)| (Some(body), has))?,
        };
        Ok(Prepared { method, url, headers, secret_headers, body, body_has_secret })
    }

    /// Puts secrets in place of `{{secret:NAME}}`. The result is never shown to anybody but the host.
    fn fill(&self, text: &str, url: &Url) -> Result<(String, bool), HttpError> {
        let mut filled = String::new();
        let mut rest = text;
        let mut found = false;
        while let Some(at) = rest.find("{{secret:") {
            let Some(end) = rest[at..].find("}}") else { break };
            let name = rest[at + 9..at + end].trim();
            let Some(secret) = self.secrets.iter().find(|s| s.name == name) else {
                let known = self.secrets.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", ");
                return Err(HttpError::UnknownSecret { name: name.to_owned(), known });
            };
            if url.scheme() != "https" || !secret.hosts.iter().any(|h| secret_host_matches(h, url)) {
                return Err(HttpError::SecretNotForHost {
                    name: name.to_owned(),
                    hosts: secret.hosts.join(", "),
                });
            }
            filled.push_str(&rest[..at]);
            filled.push_str(secret.value.expose());
            rest = &rest[at + end + 2..];
            found = true;
        }
        filled.push_str(rest);
        Ok((filled, found))
    }

    fn allowed_host(&self, url: &Url) -> Result<&AllowedHost, HttpError> {
        let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(0));
        self.allowed.iter().find(|a| a.port.unwrap_or(443) == port && host_matches(&a.host, host)).ok_or_else(
            || HttpError::NotAllowed {
                host: host.to_owned(),
                port,
                allowed: self
                    .allowed
                    .iter()
                    .map(|a| format!("{}:{}", a.host, a.port.unwrap_or(443)))
                    .collect::<Vec<_>>()
                    .join(", "),
            },
        )
    }
}

/// Resolves the host of `url` once and checks all of it: a name that leads to both kinds of address is
/// refused. What connects to the answer can't be led elsewhere by a second one.
pub async fn checked_addresses(
    resolver: &dyn Resolve,
    url: &Url,
    private: bool,
) -> Result<Vec<SocketAddr>, HttpError> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let found = match host.parse::<IpAddr>() {
        Ok(address) => vec![address],
        Err(_) => resolver
            .resolve(host)
            .await
            .map_err(|source| HttpError::Resolve { host: host.to_owned(), source })?,
    };
    if found.is_empty() {
        return Err(HttpError::Resolve {
            host: host.to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
        });
    }
    let refused = |a: &&IpAddr| if private { is_never_reachable(**a) } else { !is_public(**a) };
    if let Some(address) = found.iter().find(refused) {
        return Err(HttpError::NotPublic { host: host.to_owned(), address: *address });
    }
    let port = url.port_or_known_default().unwrap_or(443);
    Ok(found.into_iter().map(|a| SocketAddr::new(a, port)).collect())
}

fn parse_url(text: &str) -> Result<Url, HttpError> {
    let bad = || HttpError::BadUrl(cicada_contract::text::cut(text, 200));
    let url = Url::parse(text.trim()).map_err(|_| bad())?;
    let plain =
        matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
    if plain && url.host_str().is_some_and(|h| !h.is_empty()) { Ok(url) } else { Err(bad()) }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
