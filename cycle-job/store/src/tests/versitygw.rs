//! versitygw, the real S3 server of tests: started on loopback with a bucket on a directory of its own, ended
//! with the value that stands for it. Tests of other crates include this file by its path.

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

pub(super) const ACCESS_KEY: &str = "test-access";
pub(super) const SECRET_KEY: &str = "test-secret";
pub(super) const BUCKET: &str = "memories";

/// A running versitygw with its bucket, on a directory that goes with it.
pub(super) struct VersityGw {
    process: Child,
    pub(super) port: u16,
    pub(super) dir: tempfile::TempDir,
    versioned: bool,
}

/// Where the tools of `tests/run` lie: `CICADA_TOOLS`, or `target/tools/bin` of the checkout.
pub(super) fn tool(name: &str) -> PathBuf {
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let checkout = above.find(|folder| folder.join("Cargo.lock").is_file()).unwrap();
    let folder =
        std::env::var_os("CICADA_TOOLS").map_or_else(|| checkout.join("target/tools/bin"), PathBuf::from);
    let path = folder.join(name);
    assert!(path.is_file(), "{} is missing: tests/run builds it", path.display());
    path
}

pub(super) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

impl VersityGw {
    pub(super) fn start() -> Self {
        Self::start_with(false)
    }

    pub(super) fn start_with(versioned: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["data", "versions", "sidecar"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        std::fs::create_dir(dir.path().join("data").join(BUCKET)).unwrap();
        let port = free_port();
        let process = Self::spawn(dir.path(), port, versioned);
        let server = Self { process, port, dir, versioned };
        server.wait();
        server
    }

    fn spawn(dir: &Path, port: u16, versioned: bool) -> Child {
        let mut command = Command::new(tool("versitygw"));
        command.env("ROOT_ACCESS_KEY", ACCESS_KEY).env("ROOT_SECRET_KEY", SECRET_KEY);
        command.args(["--port", &format!("127.0.0.1:{port}"), "--quiet", "posix"]);
        if versioned {
            command.arg("--versioning-dir").arg(dir.join("versions"));
        }
        // File systems without user attributes need a folder of their own for the server's notes.
        if !has_user_attributes(dir) {
            command.arg("--sidecar").arg(dir.join("sidecar"));
        }
        command.arg(dir.join("data")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn wait(&self) {
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20), "versitygw did not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// SIGKILL, then a new process on the same data and port.
    pub(super) fn kill_and_restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = Self::spawn(self.dir.path(), self.port, self.versioned);
        self.wait();
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for VersityGw {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn has_user_attributes(dir: &Path) -> bool {
    // The python or setfattr of a machine may be missing; the kernel's own list of file systems is not.
    // tmpfs takes user attributes since Linux 6.6; ext4, xfs, btrfs and overlay have them.
    let probe = Command::new("setfattr").args(["-n", "user.probe", "-v", "1"]).arg(dir).status();
    match probe {
        Ok(status) => status.success(),
        Err(_) => {
            let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
            let of_dir = mounts.lines().filter_map(|line| {
                let mut fields = line.split(' ');
                let (_, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
                dir.starts_with(point).then(|| (point.len(), kind.to_owned()))
            });
            of_dir.max().is_some_and(|(_, kind)| ["ext4", "xfs", "btrfs", "overlay"].contains(&kind.as_str()))
        }
    }
}
