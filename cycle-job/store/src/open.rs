//! From configuration and URLs to a store.

use std::{path::Path, sync::Arc};

use cicada_contract::plan::{S3Config, StoreConfig};

use crate::{
    directory::DirectoryStore,
    s3::{Credentials, S3Store},
    store::{ObjectStore, Result, StoreError},
};

/// Opens a store; nothing is read or written yet. Without `credentials` a bucket uses the AWS SDK's own
/// chain (environment, web identity, instance role); a directory never needs any.
pub async fn open(config: &StoreConfig, credentials: Option<Credentials>) -> Result<Arc<dyn ObjectStore>> {
    Ok(match config {
        StoreConfig::S3(s3) => Arc::new(S3Store::new(s3, credentials).await?),
        StoreConfig::Directory { path, .. } => Arc::new(DirectoryStore::new(path)),
    })
}

/// `file:///dir`, a plain path, or `s3://bucket/prefix`; endpoint and region only count for a bucket.
pub fn parse_url(url: &str, endpoint: Option<&str>, region: Option<&str>) -> Result<StoreConfig> {
    let wrong = |what: &str| Err(StoreError::Config { what: format!("`{url}` {what}") });
    if let Some(rest) = url.strip_prefix("s3://") {
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return wrong("names no bucket; write s3://bucket or s3://bucket/prefix");
        }
        return Ok(StoreConfig::S3(S3Config {
            bucket: bucket.into(),
            prefix: prefix.trim_matches('/').into(),
            endpoint: endpoint.map(str::to_owned),
            region: region.map(str::to_owned),
            force_path_style: endpoint.is_some(),
            ..S3Config::default()
        }));
    }
    let path = match url.strip_prefix("file://") {
        Some(path) if Path::new(path).is_absolute() => path,
        Some(_) => return wrong("is not absolute; write file:///dir"),
        None if url.contains("://") => return wrong("is no store; write s3://bucket/prefix or file:///dir"),
        None => url,
    };
    if path.is_empty() {
        return wrong("names no directory");
    }
    Ok(StoreConfig::Directory { path: path.into(), claim_name: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_bucket_or_a_directory() {
        let StoreConfig::S3(s3) = parse_url("s3://memories/a/b/", Some("http://h:1"), Some("eu")).unwrap()
        else {
            panic!("not S3")
        };
        assert_eq!((s3.bucket.as_str(), s3.prefix.as_str(), s3.force_path_style), ("memories", "a/b", true));
        assert_eq!((s3.endpoint.as_deref(), s3.region.as_deref()), (Some("http://h:1"), Some("eu")));
        for (url, path) in [("file:///var/m", "/var/m"), ("state", "state"), ("/var/m", "/var/m")] {
            assert_eq!(
                parse_url(url, None, None).unwrap(),
                StoreConfig::Directory { path: path.into(), claim_name: None }
            );
        }
        for bad in ["s3://", "file://relative", "gs://bucket", ""] {
            let text = parse_url(bad, None, None).unwrap_err().to_string();
            assert!(text.starts_with("the store's configuration is wrong: "), "{text}");
        }
    }
}
