//! Why a request was not made, or has no response.

use std::net::IpAddr;

use super::REDIRECTS;

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
