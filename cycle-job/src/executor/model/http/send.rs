//! One request to addresses that were looked at, and the next one that its response asks for.

use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt as _;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};

use super::{BODY_BYTES, HttpError, HttpResponse, Prepared, parse_url};

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for one whole response.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) async fn send(request: &Prepared, addresses: &[SocketAddr]) -> Result<HttpResponse, HttpError> {
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
pub(super) fn redirect(request: &Prepared, response: &HttpResponse) -> Option<Result<Prepared, HttpError>> {
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
