//! What a bucket keeps beyond its objects, as far as the credentials may ask.

use aws_sdk_s3::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    types::{BucketVersioningStatus, ObjectLockEnabled},
};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use crate::store::BucketFacts;

pub(super) async fn of(client: &Client, bucket: &str) -> BucketFacts {
    let versioning = client.get_bucket_versioning().bucket(bucket).send().await;
    let lock = client.get_object_lock_configuration().bucket(bucket).send().await;
    let replication = client.get_bucket_replication().bucket(bucket).send().await;
    BucketFacts {
        // A suspended bucket makes no new versions and keeps the old ones.
        versioning: versioning.ok().map(|answer| {
            matches!(answer.status, Some(BucketVersioningStatus::Enabled | BucketVersioningStatus::Suspended))
        }),
        object_lock: known(lock, "ObjectLockConfigurationNotFoundError").map(|answer| {
            let enabled = answer
                .and_then(|answer| answer.object_lock_configuration)
                .and_then(|configuration| configuration.object_lock_enabled);
            enabled == Some(ObjectLockEnabled::Enabled)
        }),
        replication: known(replication, "ReplicationConfigurationNotFoundError")
            .map(|answer| answer.is_some()),
    }
}

/// `Some(None)` where the server says that there is no such configuration, None where it says nothing.
fn known<T, E: ProvideErrorMetadata>(
    answer: Result<T, SdkError<E, HttpResponse>>,
    none: &str,
) -> Option<Option<T>> {
    match answer {
        Ok(answer) => Some(Some(answer)),
        Err(error) if error.code() == Some(none) => Some(None),
        Err(_) => None,
    }
}
