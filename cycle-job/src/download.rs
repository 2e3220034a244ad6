//! Files of the manifest that come by URL, and the hash of files. People wrote the URL and the SHA-256, so the host is trusted
//! and the bytes are checked; nothing that the agent says leads here.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

/// Largest download, in bytes: what a pod's disk still holds beside the databases by default.
const MAX_BYTES: u64 = 256 << 20;
/// Longest time of one download.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Why a file could not be downloaded.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// No connection, no answer, or an answer that is not a success.
    #[error("the server did not give it")]
    Http(#[source] reqwest::Error),
    /// The file could not be written.
    #[error("it could not be written")]
    Write(#[from] std::io::Error),
    /// Too large.
    #[error("it has more than {MAX_BYTES} bytes")]
    TooLarge,
    /// Other bytes than the manifest names.
    #[error("it has SHA-256 {found}, spec.files says {expected}")]
    WrongHash {
        /// What came.
        found: String,
        /// What the manifest says.
        expected: String,
    },
}

/// Downloads `url` to `target`; a file with other bytes than `sha256` is removed. Gives its bytes.
pub async fn download(url: &str, sha256: &str, target: &Path) -> Result<u64, DownloadError> {
    let result = fetch(url, sha256, target).await;
    if result.is_err() {
        // Nothing half downloaded is left to be loaded.
        let _ = tokio::fs::remove_file(target).await;
    }
    result
}

async fn fetch(url: &str, sha256: &str, target: &Path) -> Result<u64, DownloadError> {
    let client = reqwest::Client::builder().timeout(TIMEOUT).build().map_err(DownloadError::Http)?;
    let response = client.get(url).send().await.and_then(reqwest::Response::error_for_status);
    // A URL may carry a token in its query: the error must not repeat it.
    let mut stream = response.map_err(|e| DownloadError::Http(e.without_url()))?.bytes_stream();
    let mut file = tokio::fs::File::create(target).await?;
    let (mut hash, mut size) = (Sha256::new(), 0);
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|e| DownloadError::Http(e.without_url()))?;
        size += chunk.len() as u64;
        if size > MAX_BYTES {
            return Err(DownloadError::TooLarge);
        }
        hash.update(&chunk);
        file.write_all(&chunk).await?;
    }
    file.flush().await?;
    let found = hex::encode(hash.finalize());
    if found == sha256.to_ascii_lowercase() {
        Ok(size)
    } else {
        Err(DownloadError::WrongHash { found, expected: sha256.to_owned() })
    }
}

/// Bytes and SHA-256 of a file.
pub(crate) fn measure(path: &Path) -> std::io::Result<(u64, String)> {
    let mut file = std::fs::File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    let mut size = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((size, hex::encode(hash.finalize())));
        }
        hash.update(&buffer[..read]);
        size += read as u64;
    }
}
