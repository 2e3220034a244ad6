//! The three example agents with a language model, on scripted conversations: here by cicadactl local.

use std::path::Path;

use cicada_tests::data;
use cicada_tests::model_server::{Conversation, ModelServer};
use cicada_tests::shell::{Ran, program, root, run_command};
use serde_json::Value;

/// An example's folder with its scripted model.
struct Example {
    folder: tempfile::TempDir,
    agent: String,
    server: ModelServer,
    /// The server runs in it.
    _runtime: tokio::runtime::Runtime,
}

impl Example {
    fn new(name: &str) -> Self {
        Self::of(name, &[name])
    }

    /// With the conversations of several agents; queries go to the first.
    fn of(name: &str, conversations: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(root().join("crds/examples/model").join(name)).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
        let conversation = |name: &&str| -> Conversation {
            let script = std::fs::read(root().join(format!("tests/conversations/{name}.json"))).unwrap();
            serde_json::from_slice(&script).unwrap()
        };
        let conversations: Vec<_> = conversations.iter().map(conversation).collect();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let agent = conversations[0].agent.clone();
        let server = runtime.block_on(ModelServer::start(conversations)).unwrap();
        Self { folder, agent, server, _runtime: runtime }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn cicadactl(&self, args: &[&str]) -> Ran {
        let mut command = std::process::Command::new(program("cicadactl"));
        command.args(args).env("OPENAI_API_KEY", "scripted");
        run_command(command, None)
    }

    /// One run of everything in the folder.
    fn once(&self) -> String {
        let dir = self.path().to_str().unwrap();
        let out = self.cicadactl(&["local", dir, "--once", "--model-url", &self.server.url]).must();
        self.server.must_have_gone_by_the_script();
        out
    }

    /// A query on memory or ledger.
    fn query(&self, sql: &str, more: &[&str]) -> Vec<Value> {
        let store = format!("file://{}/.cicada/store", self.path().display());
        let args = [&["query", self.agent.as_str(), sql, "--store", &store, "-o", "json"], more].concat();
        let json: Value = serde_json::from_str(&self.cicadactl(&args).must()).unwrap();
        json.as_array().cloned().unwrap_or_else(|| panic!("no array: {json}"))
    }

    fn memory(&self, sql: &str) -> Vec<Value> {
        self.query(sql, &[])
    }

    fn ledger(&self, sql: &str) -> Vec<Value> {
        self.query(sql, &["--ledger"])
    }
}

fn no_mount_is_left(example: &Example) {
    let left = example.memory("SELECT name FROM sqlite_schema WHERE name LIKE '\\_\\_%' ESCAPE '\\'");
    assert_eq!(left, Vec::<Value>::new());
}

#[test]
#[ignore = "runs cicadactl: tests/run"]
fn price_watch_tells_the_buyer_once() {
    let example = Example::new("price-watch");
    example.once();
    let csv = example.path().join("prices.csv");
    let text = std::fs::read_to_string(&csv).unwrap();
    std::fs::write(&csv, text.replace("Teehaus,620", "Teehaus,540")).unwrap();
    let second = example.once();
    assert!(second.contains("540"), "the message is on the console:\n{second}");
    let third = example.once();
    assert!(!third.contains("620 -> 540"), "nothing is told twice:\n{third}");
    let count = example.memory(
        "SELECT seen_at, count(*) AS n, sum(cents) AS cents FROM prices GROUP BY seen_at ORDER BY seen_at",
    );
    let sum = |first: i64| serde_json::json!([first, first - 80]);
    assert_eq!(serde_json::json!([count[0]["cents"], count[1]["cents"]]), sum(549 + 620 + 799 + 840 + 310));
    let outbox = example.ledger("SELECT to_address, state FROM outbox");
    assert_eq!(outbox, [serde_json::json!({"to_address": "buyer", "state": "sent"})]);
    no_mount_is_left(&example);
}

#[test]
#[ignore = "runs cicadactl: tests/run"]
fn inbox_triage_answers_contacts_makes_cards_and_asks() {
    let example = Example::new("inbox-triage");
    example.once();
    let kinds = example.memory("SELECT sender, kind FROM requests ORDER BY sender");
    let kind = |n: usize| (kinds[n]["sender"].as_str().unwrap(), kinds[n]["kind"].as_str().unwrap());
    assert_eq!(kinds.len(), 3);
    assert_eq!(
        [kind(0), kind(1), kind(2)],
        [("anna@example.org", "question"), ("ben@example.net", "complaint"), ("eve@example.net", "spam"),]
    );
    let cards = example.ledger("SELECT card_id, status FROM cards ORDER BY card_id");
    assert_eq!(cards.len(), 2);
    assert_eq!((cards[0]["card_id"].as_str(), cards[0]["status"].as_str()), (Some("cup-ben"), Some("doing")));
    let outbox = example.ledger("SELECT to_address FROM outbox");
    assert_eq!(outbox, [serde_json::json!({"to_address": "anna@example.org"})], "nobody but contacts");
    assert_eq!(example.ledger("SELECT state FROM human_requests").len(), 1);
    no_mount_is_left(&example);
}

#[test]
#[ignore = "runs cicadactl: tests/run"]
fn tea_desk_asks_another_agent_and_tells_the_customer() {
    let example = Example::of("tea-desk", &["tea-desk", "tea-stock"]);
    let out = example.once();
    assert!(out.contains("12 packs of green tea"), "the answer is on the console:\n{out}");
    assert_eq!(example.memory("SELECT status FROM questions"), [serde_json::json!({"status": "answered"})]);
    let sent = example.ledger("SELECT channel, to_address FROM outbox ORDER BY created_at");
    let row = |channel: &str, to: &str| serde_json::json!({"channel": channel, "to_address": to});
    assert_eq!(sent, [row("Peer", "stock"), row("console", "anna@example.org")]);
    let woken = example.ledger("SELECT count(*) AS n FROM cycles WHERE triggers_json LIKE '%\"Peer\"%'");
    assert_eq!(woken[0]["n"], 1, "one answer, one cycle");
    no_mount_is_left(&example);
}

#[test]
#[ignore = "runs cicadactl: tests/run"]
fn data_analyst_finds_what_the_files_say() {
    let example = Example::new("data-analyst");
    for name in ["movies.json", "zipcodes.csv"] {
        std::fs::copy(data::file(name), example.path().join(name)).unwrap();
    }
    for _ in 0..3 {
        example.once();
    }
    let movies: Vec<Value> =
        serde_json::from_slice(&std::fs::read(data::file("movies.json")).unwrap()).unwrap();
    let answer = |question: &str| {
        let rows = example.memory(&format!("SELECT answer FROM findings WHERE question = '{question}'"));
        rows[0]["answer"].as_str().unwrap().to_owned()
    };
    assert_eq!(answer("best genre"), best_genre(&movies));
    assert_eq!(answer("busiest director"), busiest_director(&movies));
    assert_eq!(
        answer("states with ZIP codes"),
        states(&std::fs::read_to_string(data::file("zipcodes.csv")).unwrap())
    );
    assert_eq!(example.memory("SELECT count(*) AS n FROM movies")[0]["n"], movies.len());
    no_mount_is_left(&example);
}

/// The same three answers, computed here from the files.
pub(crate) fn best_genre(movies: &[Value]) -> String {
    let mut genres: std::collections::BTreeMap<&str, (f64, f64)> = std::collections::BTreeMap::new();
    for movie in movies {
        if let (Some(genre), Some(rating)) = (movie["Major Genre"].as_str(), movie["IMDB Rating"].as_f64()) {
            let entry = genres.entry(genre).or_default();
            *entry = (entry.0 + rating, entry.1 + 1.0);
        }
    }
    let means = genres.into_iter().filter(|(_, (_, n))| *n >= 50.0).map(|(genre, (sum, n))| (genre, sum / n));
    let (genre, mean) = means.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    let mean = (mean * 100.0).round() / 100.0;
    format!("{genre}: {mean}")
}

pub(crate) fn busiest_director(movies: &[Value]) -> String {
    let mut films: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    movies.iter().filter_map(|m| m["Director"].as_str()).for_each(|d| *films.entry(d).or_default() += 1);
    let most = films.values().max().copied().unwrap();
    let (director, n) = films.into_iter().find(|(_, n)| *n == most).unwrap();
    format!("{director}: {n}")
}

pub(crate) fn states(csv: &str) -> String {
    let mut zips: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for line in csv.lines().skip(1).filter(|l| !l.is_empty()) {
        *zips.entry(line.split(',').nth(4).unwrap()).or_default() += 1;
    }
    let most = zips.values().max().copied().unwrap();
    let (state, _) = zips.iter().find(|(_, n)| **n == most).unwrap();
    format!("{}, most in {state}", zips.len())
}
