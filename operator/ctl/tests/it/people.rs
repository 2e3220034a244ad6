//! outbox, answer, proposals, hold: what people decide reaches the agent once.

use cicada_contract::plan::CycleIdentity;
use cicada_memory::ledger::{HumanRequest, OutgoingMessage};
use cicada_store::{DeliveryOutcome, Receipt};
use jiff::{SignedDuration, Timestamp};

use crate::support::{Folder, VISIT};

pub(crate) fn outgoing(id: &str) -> OutgoingMessage {
    OutgoingMessage {
        id: id.into(),
        channel: "mail".into(),
        to: "ann@example.org".into(),
        subject: Some("prices".into()),
        body: "hello".into(),
        conversation: None,
        attachments_json: None,
        payload_json: None,
        cycle: "clerk-1".into(),
    }
}

pub(crate) fn ask(id: &str, options: &[&str]) -> HumanRequest {
    let now = Timestamp::now();
    HumanRequest {
        id: id.into(),
        question: "Order tea?".into(),
        options: options.iter().map(|o| (*o).to_owned()).collect(),
        cycle: "clerk-1".into(),
        at: now,
        expires_at: now + SignedDuration::from_hours(72),
    }
}

fn states(folder: &Folder, more: &[&str]) -> Vec<String> {
    let out = folder.run(&[&["outbox", "shop/clerk", "-o", "json"], more].concat()).must();
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    let text = |m: &serde_json::Value| {
        format!("{} {}", m["message"].as_str().unwrap(), m["state"].as_str().unwrap())
    };
    document["messages"].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn the_outbox_tells_what_waits_and_what_may_have_left() {
    let folder = Folder::after(1);
    folder.change_ledger(|ledger| {
        let messages = ["a", "b", "c", "d"].map(outgoing);
        ledger.add_outgoing(&messages, Timestamp::now()).unwrap();
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = folder.store();
        let long_ago = Timestamp::now() - SignedDuration::from_mins(11);
        for (id, at) in [("b", Timestamp::now()), ("c", long_ago), ("d", long_ago)] {
            store.claim(id, 1, &CycleIdentity::default(), 1, at).await.unwrap().unwrap();
        }
        let receipt = Receipt { number: 1, outcome: DeliveryOutcome::Sent, detail: None, at: long_ago };
        store.receipt("d", &receipt).await.unwrap();
    });
    assert_eq!(states(&folder, &[]), ["a pending", "b sending", "c unknown"]);
    assert_eq!(states(&folder, &["--all"]), ["a pending", "b sending", "c unknown", "d sent"]);
    let table = folder.run(&["outbox", "shop/clerk"]).must();
    assert!(table.contains("ann@example.org"), "{table}");
}

/// What waited in a snapshot may have left since: after a restore it is told, not sent again.
#[test]
fn a_restore_sends_nothing_again() {
    let folder = Folder::after(1);
    folder.change_ledger(|ledger| ledger.add_outgoing(&[outgoing("a")], Timestamp::now()).unwrap());
    let waiting = folder.head()["current"].as_str().unwrap().to_owned();
    folder.cycle();
    folder.run(&["restore", "shop/clerk", &waiting, "--yes"]).must();
    assert_eq!(states(&folder, &[]), ["a unknown"]);
    let notices =
        folder.run(&["query", "shop/clerk", "--ledger", "SELECT text FROM notices", "-o", "csv"]).must();
    assert!(notices.contains(&waiting) && notices.contains("restored by a person"), "{notices}");
}

#[test]
fn a_question_is_answered_once() {
    let folder = Folder::after(1);
    folder.change_ledger(|ledger| {
        ledger.add_human_request(&ask("req-1", &["yes", "no"])).unwrap();
        ledger.add_human_request(&ask("req-2", &[])).unwrap();
    });
    let open = folder.run(&["answer", "shop/clerk"]).must();
    assert!(open.contains("req-1") && open.contains("2: no"), "{open}");
    assert!(folder.run(&["answer", "shop/clerk", "req-1", "3"]).ends(2).contains("1 to 2 are"));
    let said = folder.run(&["answer", "shop/clerk", "req-1", "2"]).ends(0);
    assert!(said.contains("req-1: no"), "{said}");
    let left = folder.run(&["answer", "shop/clerk"]);
    assert!(left.out.contains("req-2") && !left.out.contains("req-1"), "{}", left.out);
    assert!(left.err.contains("1 more are answered"), "{}", left.err);
    let again = folder.run(&["answer", "shop/clerk", "req-1", "1"]).ends(1);
    assert!(again.contains("the first one counts"), "{again}");
    folder.run(&["answer", "shop/clerk", "req-2", "When it rains"]).must();
    folder.cycle();
    let answers = folder
        .run(&[
            "query",
            "shop/clerk",
            "--ledger",
            "SELECT request_id, answer FROM human_requests ORDER BY 1",
            "-o",
            "csv",
        ])
        .must();
    assert_eq!(answers.lines().skip(1).collect::<Vec<_>>(), ["req-1,no", "req-2,When it rains"]);
    let late = folder.run(&["answer", "shop/clerk", "req-1", "1"]).ends(1);
    assert!(late.contains("was answered: no"), "{late}");
}

#[test]
fn a_proposal_is_shown_and_decided_by_its_content() {
    let folder =
        Folder::new("UPDATE __agent_config SET charter = 'Count visits.' || char(10) || 'Be kind.';");
    folder.cycle();
    let list = folder.run(&["proposals", "list", "shop/clerk", "-o", "json"]).must();
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let (id, hash) = (list[0]["proposal"].as_str().unwrap(), list[0]["hash"].as_str().unwrap());
    let shown = folder.run(&["proposals", "show", "shop/clerk", id]).must();
    assert!(shown.contains("+ Be kind.") && shown.contains(&format!("{id}-{hash}")), "{shown}");
    let manifest = folder.run(&["proposals", "show", "shop/clerk", id, "--manifest"]).must();
    assert!(manifest.contains("charter:") && manifest.contains("Be kind."), "{manifest}");
    assert!(folder.run(&["proposals", "approve", "shop/clerk", id]).ends(2).contains("--yes"));
    let said = folder.run(&["proposals", "approve", "shop/clerk", id, "--yes"]).ends(0);
    assert!(said.contains(&format!("cicada.dev/approve: {id}-{hash}")), "{said}");

    let text = std::fs::read_to_string(folder.path().join("clerk.yaml")).unwrap();
    std::fs::write(folder.path().join("clerk.yaml"), text.replace("Count visits.", "Count everything."))
        .unwrap();
    let said = folder.run(&["proposals", "approve", "shop/clerk", id, "--yes"]).ends(1);
    assert!(said.contains("an edit wins"), "{said}");
    folder.run(&["proposals", "reject", "shop/clerk", id, "--yes"]).must();
    let store = format!("file://{}", folder.path().join(".cicada/store").display());
    let said =
        crate::support::run(&["proposals", "approve", "shop/clerk", id, "--yes", "--store", &store]).ends(2);
    assert!(said.contains("--local DIR"), "{said}");
}

#[test]
fn nothing_starts_while_a_hold_stands() {
    let folder = Folder::new(VISIT);
    folder.run(&["hold", "shop/clerk", "--reason", "incident 12"]).must();
    let dir = folder.path().display().to_string();
    let once = crate::support::run(&["local", &dir, "--once"]);
    assert!(once.err.contains("shop/clerk is on hold: incident 12"), "{}{}", once.out, once.err);
    assert!(!folder.agent_dir().exists());
    assert!(folder.run(&["run", "shop/clerk"]).ends(1).contains("incident 12"));
    let said = folder.run(&["release", "shop/clerk"]).ends(0);
    assert!(said.contains("incident 12"), "{said}");
    folder.run(&["hold", "--all", "-n", "shop", "--reason", "migration"]).must();
    assert!(folder.run(&["run", "shop/clerk"]).ends(1).contains("migration"));
    folder.run(&["release", "--all", "-n", "shop"]).must();
    assert!(folder.run(&["release", "shop/clerk"]).ends(0).contains("was not on hold"));
    folder.cycle();
    assert!(folder.run(&["hold", "--all"]).code == Some(2), "a namespace must be named");
}
