//! A bucket behind a proxy that breaks requests on the wire.

use cicada_contract::plan::{S3Config, StoreConfig};
use cicada_store::Credentials;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::proxy::{Proxy, Wire};
use crate::versitygw::{ACCESS_KEY, BUCKET, SECRET_KEY, VersityGw};

/// A running server and the proxy before it.
pub(super) struct Bucket {
    server: VersityGw,
    proxy: Proxy,
}

impl Bucket {
    pub(super) async fn start() -> Self {
        let server = VersityGw::start();
        Self { proxy: Proxy::before(server.port).await, server }
    }

    /// As a cycle reaches it: by the proxy.
    pub(super) fn config(&self, prefix: &str) -> StoreConfig {
        Self::at(self.proxy.port, prefix)
    }

    /// As the test reaches it.
    pub(super) fn direct(&self, prefix: &str) -> StoreConfig {
        Self::at(self.server.port, prefix)
    }

    fn at(port: u16, prefix: &str) -> StoreConfig {
        StoreConfig::S3(S3Config {
            bucket: BUCKET.into(),
            prefix: prefix.into(),
            endpoint: Some(format!("http://127.0.0.1:{port}")),
            force_path_style: true,
            secret_name: Some("store".into()),
            ..S3Config::default()
        })
    }

    /// Breaks some of the next requests.
    pub(super) fn disturb(&self, rng: &mut StdRng) {
        for ahead in 1..=25 {
            if rng.random_bool(0.06) {
                let wires = [
                    Wire::Refuse(503),
                    Wire::Refuse(409),
                    Wire::Mask(500),
                    Wire::Mask(409),
                    Wire::Cut,
                    Wire::CutBefore,
                    Wire::Late(503),
                    Wire::HalfBody,
                ];
                self.proxy.break_ahead(ahead, *wires.choose(rng).unwrap_or(&Wire::Cut));
            }
        }
    }

    /// No more faults, and what is late lands.
    pub(super) async fn calm(&self) -> usize {
        self.proxy.calm();
        self.proxy.land().await.into_iter().filter(|status| (200..300).contains(status)).count()
    }
}

pub(super) fn credentials() -> Credentials {
    Credentials {
        access_key_id: ACCESS_KEY.into(),
        secret_access_key: SECRET_KEY.into(),
        session_token: None,
    }
}
