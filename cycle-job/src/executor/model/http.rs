//! The agent's own HTTP requests: only to hosts of the manifest, only to addresses that were looked at.
//!
//! A name is resolved once, every address is checked, and the connection goes to one of the checked
//! addresses, so that a second answer of the name server changes nothing. Each redirect is a request of
//! its own and goes through all of this again. Variables that name a proxy are ignored.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cicada_contract::plan::AllowedHost;
use futures::StreamExt as _;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode, Url};

use super::address::is_public;
use super::hosts::{host_matches, is_never_reachable, secret_host_matches};
use super::tools::HttpCall;
use crate::secrets::SecretText;

/// Most redirects that are followed.
const REDIRECTS: usize = 5;
/// Most bytes of a response body; the rest is not read.
pub const BODY_BYTES: usize = 5 << 20;
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for one whole response.
const TIMEOUT: Duration = Duration::from_secs(60);
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

/// Why a request was not made, or has no response. The texts are answers to the model.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Not a URL that can be requested.
    #[error("{0} is not a URL that can be requested: use http(s)://host/path without user name")]
    BadUrl(String),
    /// Not in the manifest.
    #[error("{host}:{port} is not in spec.http.allowedHosts, which has: {allowed}")]
    NotAllowed {
        /// Host of the URL.
        host: String,
        /// Port of the URL.
        port: u16,
        /// What is allowed.
        allowed: String,
    },
    /// The name leads to an address near us.
    #[error(
        "{host} resolves to {address}, which is not a public address; a person can allow it with private: true (spec.http.allowedHosts, spec.mcpServers)"
    )]
    NotPublic {
        /// Host of the URL.
        host: String,
        /// The first address that is refused.
        address: IpAddr,
    },
    /// A placeholder names no secret of the manifest.
    #[error("there is no secret {name}; the manifest has: {known}")]
    UnknownSecret {
        /// Name in the placeholder.
        name: String,
        /// Names of the manifest.
        known: String,
    },
    /// The secret is not for this host, or the URL is not https.
    #[error("secret {name} is sent by https and only to {hosts}")]
    SecretNotForHost {
        /// Name of the secret.
        name: String,
        /// Where it may go.
        hosts: String,
    },
    /// Method or header that can't be sent.
    #[error("{0}")]
    BadRequest(String),
    /// The name can't be resolved.
    #[error("{host} can't be resolved")]
    Resolve {
        /// Host of the URL.
        host: String,
        /// What the resolver said.
        #[source]
        source: std::io::Error,
    },
    /// No response, or not a whole one.
    #[error("the request to {host} failed")]
    Transport {
        /// Host of the URL.
        host: String,
        /// What the client said; its URL is taken out.
        #[source]
        source: reqwest::Error,
    },
    /// Too many redirects.
    #[error("more than {REDIRECTS} redirects")]
    TooManyRedirects,
}

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

async fn send(request: &Prepared, addresses: &[SocketAddr]) -> Result<HttpResponse, HttpError> {
    let host = request.url.host_str().unwrap_or_default().to_owned();
    let failed =
        |source: reqwest::Error| HttpError::Transport { host: host.clone(), source: source.without_url() };
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .resolve_to_addrs(&host, addresses)
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(TIMEOUT)
        .user_agent(concat!("cicada/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(failed)?;
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let name_ok = HeaderName::from_bytes(name.as_bytes());
        let (Ok(name), Ok(mut value)) = (name_ok, HeaderValue::from_str(value)) else {
            return Err(HttpError::BadRequest(format!("header {name} can't be sent as it is")));
        };
        value.set_sensitive(true);
        headers.append(name, value);
    }
    let mut builder = client.request(request.method.clone(), request.url.clone()).headers(headers);
    if let Some(body) = &request.body {
        builder = builder.body(body.clone());
    }
    let response = builder.send().await.map_err(failed)?;
    let status = response.status().as_u16();
    let headers = response
        .headers()
        .iter()
        .map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .collect();
    let mut body = vec![];
    let mut is_truncated = false;
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(failed)?;
        let room = BODY_BYTES - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            is_truncated = true;
            break;
        }
    }
    Ok(HttpResponse { status, url: request.url.to_string(), headers, body, is_truncated })
}

/// The request that a redirect asks for. It never carries a secret: one that can't do without ends here.
fn redirect(request: &Prepared, response: &HttpResponse) -> Option<Result<Prepared, HttpError>> {
    let status = StatusCode::from_u16(response.status).ok()?;
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let (_, location) = response.headers.iter().find(|(name, _)| name == "location")?;
    let url = match request
        .url
        .join(location)
        .map_err(|_| HttpError::BadUrl(cicada_contract::text::cut(location, 200)))
    {
        Ok(url) => url,
        Err(error) => return Some(Err(error)),
    };
    if let Err(error) = parse_url(url.as_str()) {
        return Some(Err(error));
    }
    let keeps_method =
        matches!(status.as_u16(), 307 | 308) || matches!(request.method, Method::GET | Method::HEAD);
    if keeps_method && request.body_has_secret {
        return None;
    }
    let same_origin = url.origin() == request.url.origin();
    let headers = request.headers.iter().filter(|(name, _)| {
        let personal = matches!(name.as_str(), "authorization" | "cookie");
        let of_body = matches!(name.as_str(), "content-type" | "content-encoding");
        !request.secret_headers.contains(name) && (same_origin || !personal) && (keeps_method || !of_body)
    });
    Some(Ok(Prepared {
        method: if keeps_method { request.method.clone() } else { Method::GET },
        url,
        headers: headers.cloned().collect(),
        secret_headers: vec![],
        body: if keeps_method { request.body.clone() } else { None },
        body_has_secret: false,
    }))
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
