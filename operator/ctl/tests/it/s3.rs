//! The same commands on a real S3 server, and what its refusals look like to people.

use crate::support::{Folder, Ran, command, finish};
use crate::versitygw::{ACCESS_KEY, BUCKET, SECRET_KEY, VersityGw};

fn with_keys(args: &[&str], key: &str, secret: &str) -> Ran {
    let mut command = command(args);
    command.env("AWS_ACCESS_KEY_ID", key).env("AWS_SECRET_ACCESS_KEY", secret);
    finish(command)
}

fn on(server: &VersityGw, args: &[&str]) -> Ran {
    let endpoint = server.endpoint();
    let store = format!("s3://{BUCKET}/agents");
    with_keys(&[args, &["--store", &store, "--endpoint", &endpoint]].concat(), ACCESS_KEY, SECRET_KEY)
}

#[test]
#[ignore = "needs versitygw"]
fn a_memory_lives_in_a_bucket_through_every_command() {
    let server = VersityGw::start();
    let folder = Folder::new(crate::support::VISIT);
    let dir = folder.path().display().to_string();
    for _ in 0..2 {
        on(&server, &["local", &dir, "--once"]).must();
    }
    on(&server, &["verify", "shop/clerk", "--all"]).must();
    let ids = on(&server, &["snapshots", "shop/clerk", "-o", "json"]).must();
    let ids: serde_json::Value = serde_json::from_str(&ids).unwrap();
    let first = ids[1]["id"].as_str().unwrap();
    let found = on(&server, &["diff", "shop/clerk", first]).must();
    assert!(found.contains("visits"), "{found}");
    on(&server, &["restore", "shop/clerk", first, "--yes"]).must();
    let rows = on(&server, &["query", "shop/clerk", "SELECT count(*) FROM visits", "-o", "csv"]).must();
    assert_eq!(rows.lines().nth(1), Some("1"));
    on(&server, &["gc", "shop/clerk", "--yes"]).must();
    let backup = folder.path().join("backup").display().to_string();
    on(&server, &["export", "shop/clerk", &backup, "--as", "folder"]).must();
    on(&server, &["import", "lab/clerk", &backup]).must();
    on(&server, &["copy", "shop/clerk", "lab/twin", "--yes"]).must();
    let to = format!("file://{}", folder.path().join("home").display());
    on(&server, &["copy", "shop/clerk", "shop/clerk", "--to-store", &to, "--yes"]).must();
    on(&server, &["outbox", "shop/clerk"]).must();
    let list = on(&server, &["list", "-o", "csv"]).must();
    assert_eq!(list.lines().count(), 4, "{list}");
    for agent in ["shop/clerk", "lab/clerk", "lab/twin"] {
        on(&server, &["verify", agent, "--all"]).must();
    }
}

/// Nothing of the SDK's own text reaches people, and each refusal says what to do.
#[test]
#[ignore = "needs versitygw"]
fn refusals_of_a_store_are_readable_and_have_their_exit_code() {
    let server = VersityGw::start();
    let endpoint = server.endpoint();
    let tls = endpoint.replace("http://", "https://");
    let store = format!("s3://{BUCKET}");
    let good = (ACCESS_KEY, SECRET_KEY);
    for (what, store, endpoint, (key, secret), words) in [
        ("key", store.as_str(), endpoint.as_str(), ("nobody", "x"), "does not know the access key id"),
        ("secret", &store, &endpoint, ("test-access", "x"), "the secret access key is wrong"),
        ("bucket", "s3://no-such-bucket", &endpoint, good, "create `no-such-bucket` or correct"),
        ("port", &store, "http://127.0.0.1:1", good, "nothing listens at http://127.0.0.1:1"),
        ("name", &store, "http://no-such-host.invalid", good, "can't be resolved"),
        ("tls", &store, &tls, good, "does not speak TLS; write http://"),
        ("scheme", "gs://bucket", &endpoint, good, "write s3://bucket/prefix or file:///dir"),
    ] {
        let ran = with_keys(&["inspect", "a/b", "--store", store, "--endpoint", endpoint], key, secret);
        let code = if what == "scheme" { 2 } else { 5 };
        assert_eq!(ran.code, Some(code), "{what}: {}", ran.err);
        assert!(ran.err.contains(words), "{what}: {}", ran.err);
        for raw in
            ["Error {", "DispatchFailure", "dispatch failure", "service error", "unhandled", "aws_request_id"]
        {
            assert!(!ran.err.contains(raw), "{what}: raw text of the SDK: {}", ran.err);
        }
        assert_eq!(ran.err.lines().count(), 1, "{what}: {}", ran.err);
    }
    let mut none = command(&["inspect", "a/b", "--store", &store, "--endpoint", &endpoint]);
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"] {
        none.env_remove(name);
    }
    none.env("AWS_EC2_METADATA_DISABLED", "true").env("HOME", "/nonexistent");
    let ran = finish(none);
    assert!(ran.err.contains("set AWS_ACCESS_KEY_ID"), "{}", ran.err);
}
