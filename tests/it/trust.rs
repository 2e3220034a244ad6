//! A company's own authority: its certificates in a folder beside the public roots, as the chart's caConfigMapName mounts
//! them, are trusted by cycles.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use cicada_tests::shell::{program, run_command};

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn openssl(folder: &Path, args: &str) {
    let mut command = Command::new("openssl");
    command.current_dir(folder).args(args.split(' '));
    run_command(command, None).must();
}

/// Serves `web` by TLS with a certificate of an authority of its own, `trust/ca.crt`.
fn serve(folder: &Path) -> (Server, u16) {
    for name in ["web", "trust"] {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1").unwrap();
    openssl(
        folder,
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out trust/ca.crt -days 2 -subj /CN=company",
    );
    openssl(folder, "req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost");
    openssl(
        folder,
        "x509 -req -in server.csr -CA trust/ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.crt",
    );
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new("openssl");
    command.current_dir(folder.join("web")).args([
        "s_server",
        "-WWW",
        "-quiet",
        "-cert",
        "../server.crt",
        "-key",
        "../server.key",
    ]);
    command.arg("-accept").arg(format!("127.0.0.1:{port}"));
    let server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    cicada_tests::wait::until("it listens", 20, || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    (Server(server), port)
}

#[test]
#[ignore = "needs the built programs: tests/run"]
fn a_folder_of_certificates_is_trusted_beside_the_public_roots() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, port) = serve(folder.path());
    std::fs::write(folder.path().join("web/d.csv"), "id,tea\n1,green\n").unwrap();
    let hash = "d14aca42c9e780767c5d3177aad502b0313eaa10858d33d5834425ce0c43f46c";
    let agents = folder.path().join("agents");
    std::fs::create_dir(&agents).unwrap();
    let manifest = format!(
        "apiVersion: cicada.dev/v1alpha1\nkind: PersistentAgent\nmetadata: {{name: a, namespace: shop}}\nspec:\n  \
         files: [{{path: d.csv, from: {{url: \"https://localhost:{port}/d.csv\", sha256: {hash}}}}}]\n  \
         executor: {{sql: {{inline: \"SELECT load_table('d.csv', 'x'); CREATE TABLE t AS SELECT * FROM x\"}}}}\n"
    );
    std::fs::write(agents.join("a.yaml"), manifest).unwrap();
    let local = |trust: Option<&str>| {
        let mut command = Command::new(program("cicadactl"));
        command
            .arg("local")
            .arg(&agents)
            .arg("--once")
            .env_remove("SSL_CERT_FILE")
            .env_remove("SSL_CERT_DIR");
        if let Some(trust) = trust {
            command.env("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt");
            command.env("SSL_CERT_DIR", folder.path().join(trust));
        }
        run_command(command, None)
    };
    let stranger = local(None);
    assert!(!stranger.ok() && stranger.out.contains("UnknownIssuer"), "{stranger:?}");
    // The ConfigMap is not in this namespace: its folder is empty.
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let missing = local(Some("empty"));
    assert!(!missing.ok() && missing.out.contains("UnknownIssuer"), "{missing:?}");
    local(Some("trust")).must();
}
