//! S3 servers for tests: started on loopback, ended with the value that stands for them.

use std::{
    net::{Ipv4Addr, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use cicada_contract::plan::S3Config;

pub(super) use super::versitygw::{ACCESS_KEY, BUCKET, SECRET_KEY, VersityGw};
use super::versitygw::{free_port, tool};
use crate::{Credentials, S3Store};

impl VersityGw {
    pub(super) async fn enable_versioning(&self) {
        use aws_sdk_s3::types::{BucketVersioningStatus, VersioningConfiguration};
        let versioning = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
        let client = self.store("").await.client_for_tests();
        client
            .put_bucket_versioning()
            .bucket(BUCKET)
            .versioning_configuration(versioning)
            .send()
            .await
            .unwrap();
    }

    pub(super) fn config(&self, prefix: &str) -> S3Config {
        config(self.port, BUCKET, prefix)
    }

    pub(super) async fn store(&self, prefix: &str) -> S3Store {
        S3Store::new(&self.config(prefix), Some(credentials())).await.unwrap()
    }
}

/// A running moto, the second opinion. It keeps everything in memory and checks no checksums.
pub(super) struct Moto {
    process: Child,
    pub(super) port: u16,
}

impl Moto {
    pub(super) async fn start() -> Self {
        let port = free_port();
        let mut command = Command::new(tool("moto_server"));
        command
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = Self { process: command.spawn().unwrap(), port };
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "moto did not start");
            std::thread::sleep(Duration::from_millis(100));
        }
        let client = server.store("").await.client_for_tests();
        client.create_bucket().bucket(BUCKET).send().await.unwrap();
        server
    }

    pub(super) async fn store(&self, prefix: &str) -> S3Store {
        S3Store::new(&config(self.port, BUCKET, prefix), Some(credentials())).await.unwrap()
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(super) fn config(port: u16, bucket: &str, prefix: &str) -> S3Config {
    S3Config {
        bucket: bucket.into(),
        prefix: prefix.into(),
        endpoint: Some(format!("http://127.0.0.1:{port}")),
        force_path_style: true,
        ..S3Config::default()
    }
}

pub(super) fn credentials() -> Credentials {
    Credentials {
        access_key_id: ACCESS_KEY.into(),
        secret_access_key: SECRET_KEY.into(),
        session_token: None,
    }
}
