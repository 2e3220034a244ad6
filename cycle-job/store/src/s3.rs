//! A bucket as a store: AWS S3 and servers that speak its protocol.
//!
//! Conditional writes are sent once, without the SDK's retries, because a repeated one would meet its own
//! first effect and take it for another writer's. What an unclear answer means is decided above, by
//! reading again.

mod client;
mod error;
mod facts;
mod multipart;
mod words;

use std::path::Path;

use async_trait::async_trait;
use aws_sdk_s3::{Client, primitives::ByteStream};
use bytes::Bytes;
use cicada_contract::plan::S3Config;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

pub use self::client::Credentials;
use self::{client::Clients, error::Attempt};
use crate::store::{
    BucketFacts, Condition, Downloaded, ETag, GET_MAX_BYTES, Object, ObjectMeta, ObjectStore, Result,
    StoreError, check_key,
};

/// Tries of a download whose body broke off; the SDK's own retries end with the answer's head.
const DOWNLOAD_TRIES: u32 = 3;

/// A bucket as a store.
#[derive(Debug, Clone)]
pub struct S3Store {
    clients: Clients,
    bucket: String,
    /// Empty, or ends in a slash.
    prefix: String,
    location: String,
    server: String,
    is_aws: bool,
}

impl S3Store {
    /// A store for `config`; nothing is sent yet. Without `credentials` the SDK's own chain is used:
    /// environment, web identity, instance role.
    pub async fn new(config: &S3Config, credentials: Option<Credentials>) -> Result<Self> {
        if config.bucket.is_empty() {
            return Err(StoreError::Config { what: "the bucket has no name".into() });
        }
        let prefix = config.prefix.trim_matches('/');
        if !prefix.is_empty() {
            check_key(prefix)?;
        }
        let location = format!("s3://{}{}{prefix}", config.bucket, if prefix.is_empty() { "" } else { "/" });
        Ok(Self {
            clients: Clients::new(config, credentials).await?,
            bucket: config.bucket.clone(),
            prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") },
            location,
            server: config.endpoint.clone().unwrap_or_else(|| "AWS".into()),
            is_aws: config.endpoint.is_none(),
        })
    }

    #[cfg(test)]
    pub(crate) fn client_for_tests(&self) -> Client {
        self.clients.retrying.clone()
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn attempt<'a>(
        &'a self,
        operation: &'static str,
        key: &'a str,
        condition: Option<&'a Condition>,
    ) -> Attempt<'a> {
        Attempt {
            operation,
            key,
            condition,
            bucket: &self.bucket,
            location: &self.location,
            server: &self.server,
        }
    }

    fn client(&self, condition: &Condition) -> &Client {
        match condition {
            Condition::Any => &self.clients.retrying,
            Condition::Create | Condition::Match(_) => &self.clients.once,
        }
    }

    async fn write(
        &self,
        operation: &'static str,
        key: &str,
        body: ByteStream,
        condition: &Condition,
    ) -> Result<ETag> {
        let (if_match, if_none_match) = conditions(condition);
        let sent = self
            .client(condition)
            .put_object()
            .bucket(&self.bucket)
            .key(self.full(key))
            .set_if_match(if_match)
            .set_if_none_match(if_none_match)
            .body(body)
            .send()
            .await
            .map_err(|error| self.attempt(operation, key, Some(condition)).failed(error))?;
        match sent.e_tag {
            Some(etag) => Ok(ETag(etag)),
            None => Err(StoreError::NoConditionalWrites {
                location: self.location.clone(),
                what: "a write was answered without an ETag".into(),
            }),
        }
    }

    async fn download_once(&self, key: &str, file: &Path, max_bytes: u64) -> Result<Downloaded> {
        let attempt = self.attempt("download", key, None);
        let local = |source| StoreError::LocalFile { path: file.into(), source };
        let answer = self
            .clients
            .retrying
            .get_object()
            .bucket(&self.bucket)
            .key(self.full(key))
            .send()
            .await
            .map_err(|error| attempt.failed(error))?;
        let mut out = tokio::fs::File::create(file).await.map_err(local)?;
        let mut body = answer.body;
        let (mut size, mut hash) = (0_u64, Sha256::new());
        while let Some(chunk) = body.try_next().await.map_err(|error| broke_off("download", key, error))? {
            size += chunk.len() as u64;
            if size > max_bytes {
                return Err(StoreError::TooLarge { key: key.into(), limit: max_bytes });
            }
            hash.update(&chunk);
            out.write_all(&chunk).await.map_err(local)?;
        }
        out.flush().await.map_err(local)?;
        Ok(Downloaded { size, sha256: hex::encode(hash.finalize()) })
    }
}

#[async_trait]
impl ObjectStore for S3Store {
    async fn get(&self, key: &str) -> Result<Object> {
        check_key(key)?;
        let sent = self.clients.retrying.get_object().bucket(&self.bucket).key(self.full(key)).send().await;
        let answer = sent.map_err(|error| self.attempt("get", key, None).failed(error))?;
        let etag = ETag(answer.e_tag.unwrap_or_default());
        let mut body = answer.body;
        let mut bytes = vec![];
        while let Some(chunk) = body.try_next().await.map_err(|error| broke_off("get", key, error))? {
            if (bytes.len() + chunk.len()) as u64 > GET_MAX_BYTES {
                return Err(StoreError::TooLarge { key: key.into(), limit: GET_MAX_BYTES });
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Object { bytes: bytes.into(), etag })
    }

    async fn download(&self, key: &str, file: &Path, max_bytes: u64) -> Result<Downloaded> {
        check_key(key)?;
        let mut tries = 0;
        loop {
            tries += 1;
            match self.download_once(key, file, max_bytes).await {
                Ok(done) => return Ok(done),
                Err(error) if error.is_retryable() && tries < DOWNLOAD_TRIES => {
                    tracing::debug!(
                        key,
                        tries,
                        error = &error as &dyn std::error::Error,
                        "download starts again"
                    );
                }
                Err(error) => {
                    // The half of a file must not be taken for a whole one; the caller gets the first error.
                    let _ = tokio::fs::remove_file(file).await;
                    return Err(error);
                }
            }
        }
    }

    async fn put(&self, key: &str, bytes: Bytes, condition: Condition) -> Result<ETag> {
        check_key(key)?;
        self.write("put", key, ByteStream::from(bytes), &condition).await
    }

    async fn upload(&self, key: &str, file: &Path, condition: Condition) -> Result<ETag> {
        check_key(key)?;
        let local = |source| StoreError::LocalFile { path: file.into(), source };
        let size = tokio::fs::metadata(file).await.map_err(local)?.len();
        if size >= multipart::FROM {
            return multipart::upload(self, key, file, size, &condition).await;
        }
        let body = ByteStream::from_path(file).await.map_err(|error| local(std::io::Error::other(error)))?;
        self.write("upload", key, body, &condition).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        check_key(key)?;
        let sent =
            self.clients.retrying.delete_object().bucket(&self.bucket).key(self.full(key)).send().await;
        match sent.map_err(|error| self.attempt("delete", key, None).failed(error)) {
            Ok(_) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>> {
        let mut found = vec![];
        let mut pages = self
            .clients
            .retrying
            .list_objects_v2()
            .bucket(&self.bucket)
            .prefix(self.full(prefix))
            .into_paginator()
            .send();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| self.attempt("list", prefix, None).failed(error))?;
            for object in page.contents.unwrap_or_default() {
                let Some(key) = object.key.as_deref().and_then(|key| key.strip_prefix(&self.prefix)) else {
                    continue;
                };
                let modified = object.last_modified.and_then(|at| Timestamp::from_second(at.secs()).ok());
                found.push(ObjectMeta {
                    key: key.to_owned(),
                    size: object.size.and_then(|size| u64::try_from(size).ok()).unwrap_or_default(),
                    modified: modified.unwrap_or_default(),
                });
            }
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    async fn sweep(&self, prefix: &str, before: Timestamp) -> Result<usize> {
        multipart::sweep(self, prefix, before).await
    }

    async fn facts(&self) -> BucketFacts {
        facts::of(&self.clients.retrying, &self.bucket).await
    }

    fn needs_probe(&self) -> bool {
        true
    }

    fn location(&self) -> String {
        self.location.clone()
    }
}

/// The two headers of a condition: If-Match and If-None-Match.
fn conditions(condition: &Condition) -> (Option<String>, Option<String>) {
    match condition {
        Condition::Any => (None, None),
        Condition::Create => (None, Some("*".into())),
        Condition::Match(etag) => (Some(etag.0.clone()), None),
    }
}

fn broke_off(
    operation: &'static str,
    key: &str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> StoreError {
    tracing::debug!(operation, key, error = ?error, "an answer broke off");
    StoreError::Unavailable {
        operation,
        key: key.into(),
        what: "an answer that ended early".into(),
        source: None,
    }
}
