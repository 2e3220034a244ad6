//! A bucket behind a proxy that breaks requests on the wire.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cicada_contract::plan::{S3Config, StoreConfig};
use cicada_store::Credentials;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::proxy::{Proxy, Wire};

const KEY: &str = "test-access";
const SECRET: &str = "test-secret";

/// A running versitygw and the proxy before it.
pub(super) struct Bucket {
    server: Child,
    port: u16,
    proxy: Proxy,
    _dir: tempfile::TempDir,
}

impl Bucket {
    pub(super) async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("data/memories")).unwrap();
        std::fs::create_dir_all(dir.path().join("sidecar")).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(tool("versitygw"));
        command.env("ROOT_ACCESS_KEY", KEY).env("ROOT_SECRET_KEY", SECRET);
        command.args(["--port", &format!("127.0.0.1:{port}"), "--quiet", "posix", "--sidecar"]);
        command.arg(dir.path().join("sidecar")).arg(dir.path().join("data"));
        let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(20), "versitygw did not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Self { server, port, proxy: Proxy::before(port).await, _dir: dir }
    }

    /// As a cycle reaches it: by the proxy.
    pub(super) fn config(&self, prefix: &str) -> StoreConfig {
        Self::at(self.proxy.port, prefix)
    }

    /// As the test reaches it.
    pub(super) fn direct(&self, prefix: &str) -> StoreConfig {
        Self::at(self.port, prefix)
    }

    fn at(port: u16, prefix: &str) -> StoreConfig {
        StoreConfig::S3(S3Config {
            bucket: "memories".into(),
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

impl Drop for Bucket {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

pub(super) fn credentials() -> Credentials {
    Credentials { access_key_id: KEY.into(), secret_access_key: SECRET.into(), session_token: None }
}

/// Where the tools of `tests/run` lie: `CICADA_TOOLS`, or `target/tools/bin` of the checkout.
fn tool(name: &str) -> PathBuf {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(1).unwrap();
    let folder =
        std::env::var_os("CICADA_TOOLS").map_or_else(|| checkout.join("target/tools/bin"), PathBuf::from);
    let path = folder.join(name);
    assert!(path.is_file(), "{} is missing: tests/run builds it", path.display());
    path
}
