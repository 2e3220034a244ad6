//! Large uploads in parts. The object appears when the last call completes it, whole or not at all.

use std::path::Path;

use aws_sdk_s3::{
    primitives::{ByteStream, Length},
    types::{ChecksumAlgorithm, CompletedMultipartUpload, CompletedPart},
};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;

use super::{S3Store, conditions};
use crate::store::{Condition, ETag, Result, StoreError};

/// From this size on an object goes up in parts, bytes.
pub(super) const FROM: u64 = 32 << 20;
/// Size of a part, bytes; larger only where more than [`MOST_PARTS`] would be needed.
const PART: u64 = 16 << 20;
/// S3 allows 10,000.
const MOST_PARTS: u64 = 9_000;
/// Parts on their way at once. They are read from the file as they are sent, so this costs no memory.
const AT_ONCE: usize = 4;

pub(super) async fn upload(
    store: &S3Store,
    key: &str,
    file: &Path,
    size: u64,
    condition: &Condition,
) -> Result<ETag> {
    let attempt = store.attempt("upload", key, Some(condition));
    let started = store
        .clients
        .retrying
        .create_multipart_upload()
        .bucket(&store.bucket)
        .key(store.full(key))
        // Parts with checksums of an algorithm that was not declared here are refused at the end by
        // some servers, so both or neither.
        .set_checksum_algorithm(store.checksum())
        .send()
        .await
        .map_err(|error| attempt.failed(error))?;
    let id =
        started.upload_id.ok_or_else(|| attempt.answered(200, Some("no upload id in the answer"), None))?;
    let sent = send(store, key, &id, file, size, condition).await;
    // A completion whose answer was lost may yet make the object; aborting then is harmless, but
    // useless as well, and the caller reads again anyway.
    if sent.as_ref().is_err_and(|error| !error.is_unclear()) {
        abort(store, key, &id).await;
    }
    sent
}

async fn send(
    store: &S3Store,
    key: &str,
    id: &str,
    file: &Path,
    size: u64,
    condition: &Condition,
) -> Result<ETag> {
    let part_size = PART.max(size.div_ceil(MOST_PARTS));
    let parts = stream::iter((0..size.div_ceil(part_size)).map(|index| {
        let offset = index * part_size;
        send_part(store, key, id, file, index, offset, part_size.min(size - offset))
    }))
    .buffered(AT_ONCE)
    .try_collect::<Vec<_>>()
    .await;
    let parts = match parts {
        Ok(parts) => parts,
        Err(error) => {
            abort(store, key, id).await;
            return Err(error);
        }
    };
    let attempt = store.attempt("upload", key, Some(condition));
    let (if_match, if_none_match) = conditions(condition);
    let done = store
        .client(condition)
        .complete_multipart_upload()
        .bucket(&store.bucket)
        .key(store.full(key))
        .upload_id(id)
        .multipart_upload(CompletedMultipartUpload::builder().set_parts(Some(parts)).build())
        .set_if_match(if_match)
        .set_if_none_match(if_none_match)
        .send()
        .await
        .map_err(|error| attempt.failed(error))?;
    Ok(ETag(done.e_tag.unwrap_or_default()))
}

async fn send_part(
    store: &S3Store,
    key: &str,
    id: &str,
    file: &Path,
    index: u64,
    offset: u64,
    length: u64,
) -> Result<CompletedPart> {
    let number = i32::try_from(index + 1).unwrap_or(i32::MAX);
    let body = ByteStream::read_from().path(file).offset(offset).length(Length::Exact(length)).build().await;
    let body = body
        .map_err(|error| StoreError::LocalFile { path: file.into(), source: std::io::Error::other(error) })?;
    let sent = store
        .clients
        .retrying
        .upload_part()
        .bucket(&store.bucket)
        .key(store.full(key))
        .upload_id(id)
        .part_number(number)
        .set_checksum_algorithm(store.checksum())
        .body(body)
        .send()
        .await
        .map_err(|error| store.attempt("upload", key, None).failed(error))?;
    Ok(CompletedPart::builder()
        .part_number(number)
        .set_e_tag(sent.e_tag)
        .set_checksum_crc32(sent.checksum_crc32)
        .build())
}

/// Best effort: what is left is removed by the bucket's rule for incomplete uploads, or by `gc`.
async fn abort(store: &S3Store, key: &str, id: &str) {
    let sent = store
        .clients
        .once
        .abort_multipart_upload()
        .bucket(&store.bucket)
        .key(store.full(key))
        .upload_id(id)
        .send();
    if let Err(error) = sent.await {
        tracing::debug!(key, error = &error as &dyn std::error::Error, "an unfinished upload stays behind");
    }
}

/// Aborts the uploads below `prefix` that a killed process has left.
pub(super) async fn sweep(store: &S3Store, prefix: &str, before: Timestamp) -> Result<usize> {
    let full = store.full(prefix);
    let (mut swept, mut key_marker, mut id_marker) = (0, None, None);
    loop {
        let list = store.clients.retrying.list_multipart_uploads().bucket(&store.bucket).prefix(&full);
        let page = list.set_key_marker(key_marker).set_upload_id_marker(id_marker).send().await;
        let page = page.map_err(|error| store.attempt("sweep", prefix, None).failed(error))?;
        for upload in page.uploads.unwrap_or_default() {
            let began = upload.initiated.and_then(|at| Timestamp::from_second(at.secs()).ok());
            let (Some(key), Some(id)) = (upload.key, upload.upload_id) else { continue };
            // For some servers the prefix is only a hint here.
            if !key.starts_with(&full) || began.is_none_or(|began| began >= before) {
                continue;
            }
            let abort = store.clients.retrying.abort_multipart_upload().bucket(&store.bucket);
            let sent = abort.key(&key).upload_id(id).send().await;
            sent.map_err(|error| store.attempt("sweep", prefix, None).failed(error))?;
            swept += 1;
        }
        (key_marker, id_marker) = (page.next_key_marker, page.next_upload_id_marker);
        if page.is_truncated != Some(true) || key_marker.is_none() {
            return Ok(swept);
        }
    }
}

impl S3Store {
    /// Checksums only where the server is known to take them: AWS itself.
    fn checksum(&self) -> Option<ChecksumAlgorithm> {
        self.is_aws.then_some(ChecksumAlgorithm::Crc32)
    }
}
