//! What came with a message reaches the agent as it was said, by whichever way the message came, and as nobody's word.

use cicada_contract::Attachment;
use cicada_contract::plan::{PlanMessage, Provider};
use cicada_contract::report::CycleResult;
use cicada_store::{INBOX_VERSION, InboxMessage};
use serde_json::json;

use crate::agent::Agent;
use crate::model::{finish, server, sql, turn};
use crate::model_server::Turn;

const SAID: &str = r#"[{"name":"offer <b>.pdf","contentType":"application/pdf","size":1200,"url":"https://x.test/1"},{"name":"b"}]"#;

fn attachments() -> Vec<Attachment> {
    serde_json::from_str(SAID).unwrap()
}

async fn put(agent: &Agent, attachments: Vec<Attachment>) -> String {
    let message = InboxMessage {
        version: INBOX_VERSION,
        id: format!("mail {}", attachments.len()),
        channel: "mail".into(),
        from: "eve@example.org".into(),
        to: None,
        subject: None,
        body: "by the inbox".into(),
        conversation_id: None,
        peer: None,
        answers: None,
        attachments,
        payload: None,
        at: jiff::Timestamp::now(),
    };
    assert!(agent.store().await.put_message(&message).await.unwrap());
    message.hash()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attachments_travel_untouched_by_cycle_and_by_inbox_and_are_untrusted() {
    let copy = "CREATE TABLE got AS SELECT body, attachments_json, json_extract(attachments_json, '$[0].size') AS size FROM __messages";
    let told = [
        "<untrusted source=\"messages\"",
        "\"attachments\":[{",
        "\"name\":\"offer \\u003cb\\u003e.pdf\"",
        "\"contentType\":\"application/pdf\"",
        "\"size\":1200",
        "\"url\":\"https://x.test/1\"",
    ];
    let first = Turn {
        expect: told.map(str::to_owned).to_vec(),
        reject: vec!["offer <b>.pdf".into()],
        ..turn(vec![sql(copy)])
    };
    let server = server(vec![vec![first, turn(vec![finish("done")])]]).await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    put(&agent, attachments()).await;
    let mut run = agent.next_run();
    run.messages = vec![PlanMessage {
        id: "uid".into(),
        channel: "cycle".into(),
        from: "eve".into(),
        subject: None,
        body: "by a cycle".into(),
        attachments: attachments(),
        at: jiff::Timestamp::now(),
    }];
    let report = agent.run(&run).await;
    assert_eq!(report.result, CycleResult::Done, "{report:?}\n{}", agent.log());
    let got = agent.memory("SELECT * FROM got ORDER BY body").await;
    assert_eq!(got, [["by a cycle", SAID, "1200"], ["by the inbox", SAID, "1200"]]);
    server.must_have_gone_by_the_script();
}

/// The bounds of the custom resource hold in the inbox as well; what is beyond them is kept for a person to look at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_attachments_than_the_custom_resource_takes_are_not_read_from_the_inbox() {
    let mut agent = Agent::with_sql("CREATE TABLE IF NOT EXISTS got AS SELECT body FROM __messages");
    let one = Attachment { name: "a".into(), ..Attachment::default() };
    let most = cicada_contract::attachment::ATTACHMENTS_MAX;
    put(&agent, vec![one.clone(); most]).await;
    let refused = put(&agent, vec![one; most + 1]).await;
    let report = agent.cycle().await;
    assert_eq!(report.result, CycleResult::Done, "{report:?}\n{}", agent.log());
    assert!(report.warnings[0].contains("it has 17 attachments, at most 16 are allowed"), "{report:?}");
    assert_eq!(agent.memory("SELECT count(*) FROM got").await, [["1"]]);
    assert_eq!(agent.list("quarantine/").await, [format!("quarantine/inbox/{refused}.json")]);
    let shapeless = json!({"version": 1, "id": "x", "channel": "mail", "from": "eve", "at": "2026-12-01T00:00:00Z",
        "attachments": {"name": "no list"}});
    let folder = agent.dir.path().join("store/shop/price-watch/inbox");
    std::fs::write(folder.join(format!("{refused}.json")), shapeless.to_string()).unwrap();
    let report = agent.cycle().await;
    assert_eq!(report.result, CycleResult::Done, "{report:?}");
    assert!(report.warnings[0].contains("is no message"), "{report:?}");
}
