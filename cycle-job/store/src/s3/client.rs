//! Making the SDK's client: credentials, region, TLS roots, checksums, timeouts, retries.

use std::time::Duration;

use aws_config::{BehaviorVersion, Region};
use aws_sdk_s3::{
    Client,
    config::{
        Builder, RequestChecksumCalculation, ResponseChecksumValidation, SharedHttpClient,
        StalledStreamProtectionConfig, retry::RetryConfig, timeout::TimeoutConfig,
    },
};
use aws_smithy_http_client::tls::{self, TlsContext, TrustStore};
use cicada_contract::plan::S3Config;

use crate::store::{Result, StoreError};

/// No connection in this time means "unavailable". A good one takes milliseconds.
const CONNECT: Duration = Duration::from_secs(5);
/// To the first byte of an answer. Stores with 30 s of latency exist and must still work.
const READ: Duration = Duration::from_secs(90);
/// A transfer that moves no byte for this long is given up.
const STALLED: Duration = Duration::from_secs(60);
/// Tries of reads and of writes to keys that have one writer. Conditional writes are tried once.
const TRIES: u32 = 4;

/// Credentials as a Secret holds them.
#[derive(Clone)]
pub struct Credentials {
    /// `AWS_ACCESS_KEY_ID`.
    pub access_key_id: String,
    /// `AWS_SECRET_ACCESS_KEY`.
    pub secret_access_key: String,
    /// `AWS_SESSION_TOKEN`, if they are temporary.
    pub session_token: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

/// One configuration, two ways to call.
#[derive(Debug, Clone)]
pub(super) struct Clients {
    /// The SDK repeats a call that failed in passing.
    pub(super) retrying: Client,
    /// Each call is made once: a repeated conditional write would take its own first effect for
    /// another writer's.
    pub(super) once: Client,
}

impl Clients {
    /// Without `credentials` the SDK's own chain is used: environment, web identity, instance role.
    pub(super) async fn new(config: &S3Config, credentials: Option<Credentials>) -> Result<Self> {
        let region = Region::new(config.region.clone().unwrap_or_else(|| "us-east-1".into()));
        let mut loader = aws_config::defaults(BehaviorVersion::latest()).region(region);
        if let Some(path) = &config.ca_file {
            loader = loader.http_client(http_client(path).await?);
        }
        if let Some(c) = credentials {
            loader = loader.credentials_provider(aws_sdk_s3::config::Credentials::new(
                c.access_key_id,
                c.secret_access_key,
                c.session_token,
                None,
                "secret",
            ));
        }
        let shared = loader.load().await;
        let builder = Builder::from(&shared)
            .force_path_style(config.force_path_style || config.endpoint.is_some())
            .timeout_config(TimeoutConfig::builder().connect_timeout(CONNECT).read_timeout(READ).build())
            .stalled_stream_protection(
                StalledStreamProtectionConfig::enabled().grace_period(STALLED).build(),
            );
        let builder = match &config.endpoint {
            // Several S3 servers refuse the checksums that newer SDKs send by default
            // (icechunk#2115, rqlite#2701, minio#20845). Every archive has its own SHA-256.
            Some(url) => builder
                .endpoint_url(url)
                .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
                .response_checksum_validation(ResponseChecksumValidation::WhenRequired),
            None => builder,
        };
        let retrying = builder.clone().retry_config(RetryConfig::standard().with_max_attempts(TRIES)).build();
        let once = builder.retry_config(RetryConfig::disabled()).build();
        Ok(Self { retrying: Client::from_conf(retrying), once: Client::from_conf(once) })
    }
}

/// A client that trusts the machine's roots and those of a PEM bundle.
async fn http_client(path: &str) -> Result<SharedHttpClient> {
    let wrong = |why: String| StoreError::Config { what: format!("CA bundle {path}: {why}") };
    let pem = tokio::fs::read(path).await.map_err(|error| wrong(error.to_string()))?;
    if !pem.windows(27).any(|text| text == b"-----BEGIN CERTIFICATE-----") {
        return Err(wrong("no certificate in it".into()));
    }
    let trust = TrustStore::default().with_native_roots(true).with_pem_certificate(pem);
    let context =
        TlsContext::builder().with_trust_store(trust).build().map_err(|error| wrong(error.to_string()))?;
    Ok(aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::AwsLc))
        .tls_context(context)
        .build_https())
}
