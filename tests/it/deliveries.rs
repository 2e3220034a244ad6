//! What could not leave leaves a minute later, by a delivery cycle of `cicadactl local`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use cicada_tests::model_server::{Conversation, ModelServer, ScriptedCall, Turn};
use cicada_tests::shell::{program, run_command};
use cicada_tests::wait;
use serde_json::json;

/// Answers one request after the other with these statuses; gives what came.
fn receiver(statuses: Vec<u16>) -> (u16, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for status in statuses {
            let Ok((stream, _)) = listener.accept() else { return };
            let mut reader = BufReader::new(stream);
            let (mut key, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                let line = line.trim().to_lowercase();
                if let Some(value) = line.strip_prefix("idempotency-key:") {
                    value.trim().clone_into(&mut key);
                }
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.is_empty() {
                    break;
                }
            }
            std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).unwrap();
            let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            let _ = tell.send(key);
        }
    });
    (port, told)
}

#[test]
#[ignore = "runs cicadactl for more than a minute: tests/run"]
fn a_message_that_could_not_leave_leaves_a_minute_later_without_a_model() {
    let (port, told) = receiver(vec![503, 200]);
    let call = |name: &str, arguments| ScriptedCall { name: name.into(), arguments, raw: None };
    let calls = vec![
        call("send_message", json!({"to": "buyer", "channel": "hook", "body": "Assam is cheap"})),
        call("finish", json!({"outcome": "done", "summary": "told"})),
    ];
    let second = Turn {
        calls: vec![call("finish", json!({"outcome": "done", "summary": "told"}))],
        ..Turn::default()
    };
    let conversation = Conversation {
        agent: "default/teller".into(),
        cycles: vec![vec![Turn { calls, ..Turn::default() }, second]],
        window: None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime.block_on(ModelServer::start([conversation])).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let manifest = format!(
        "apiVersion: cicada.dev/v1alpha1\nkind: PersistentAgent\nmetadata: {{name: teller}}\nspec:\n\
         \x20 charter: Tell the buyer.\n\x20 runToken: once\n\
         \x20 executor: {{model: {{provider: OpenAICompatible, name: scripted, baseUrl: \"{}\"}}}}\n\
         \x20 channels: [{{name: hook, webhook: {{url: \"http://127.0.0.1:{port}/\"}}}}]\n\
         \x20 contacts: [{{channel: hook, address: buyer, allowOutbound: true}}]\n",
        server.url
    );
    std::fs::write(folder.path().join("teller.yaml"), manifest).unwrap();
    let dir = folder.path().to_str().unwrap();
    let mut local = Command::new(program("cicadactl"))
        .args(["local", dir])
        .env("OPENAI_API_KEY", "scripted")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let first = told.recv_timeout(Duration::from_secs(60)).expect("the message is tried");
    let asked = server.requests().len();
    let second = told.recv_timeout(Duration::from_secs(120)).expect("the message is tried again");
    assert_eq!(first, second, "with the key by which its receiver removes repeats");
    let store = format!("file://{dir}/.cicada/store");
    let sql = "SELECT state, attempts FROM outbox";
    let args = ["query", "default/teller", sql, "--ledger", "--store", &store, "-o", "csv"];
    wait::until("the ledger knows", 30, || {
        let mut command = Command::new(program("cicadactl"));
        command.args(args);
        run_command(command, None).must().contains("sent,2").then_some(())
    });
    assert_eq!(server.requests().len(), asked, "the delivery asked no model");
    Command::new("kill").args(["-INT", &local.id().to_string()]).status().unwrap();
    assert!(local.wait().unwrap().success());
}
