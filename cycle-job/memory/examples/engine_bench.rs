//! The engine's numbers: statements through the sandbox against the same in process, mounts of 10,000
//! messages, the schema prompt of 25 large tables. Each the median of five, printed as a Markdown table.
//!
//! `cargo run --release -p cicada-memory --example engine_bench [ROWS]`

use std::path::Path;
use std::time::{Duration, Instant};

use cicada_contract::PlanConfig;
use cicada_contract::plan::{Executor, Owner, SqlSource, StoreConfig};
use cicada_memory::ledger::IncomingMessage;
use cicada_memory::{
    Launcher, LedgerOptions, LedgerWorker, MOUNTS, MemoryOptions, MemoryWorker, Mounts, PromptOptions, Value,
};
use jiff::Timestamp;

fn main() -> std::process::ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    if args.peek().is_some_and(|a| a == "worker") {
        return cicada_memory::worker_main(args.skip(1));
    }
    let rows: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    match run(rows) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn run(rows: u64) -> Outcome<()> {
    let root = std::env::temp_dir().join(format!("cicada-bench-{}", std::process::id()));
    std::fs::create_dir_all(&root)?;
    println!("| engine | median of 5 | goal |\n|---|---|---|");
    let done = statements(&root).and_then(|()| messages(&root)).and_then(|()| prompt(&root, rows));
    std::fs::remove_dir_all(&root)?;
    done
}

fn worker(root: &Path, name: &str) -> Outcome<MemoryWorker> {
    let directory = root.join(name);
    std::fs::create_dir_all(directory.join("files"))?;
    let options = MemoryOptions::new(8 << 30, 64 << 20, Duration::from_secs(60));
    Ok(MemoryWorker::spawn(&Launcher::current_exe()?, &directory, options)?)
}

fn median(mut work: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let mut times = vec![];
    for _ in 0..5 {
        let started = Instant::now();
        work()?;
        times.push(started.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[2])
}

fn line(what: &str, value: f64, goal: &str) {
    println!("| {what} | {value:.2} | {goal} |");
}

const SETUP: &str = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, price REAL); CREATE INDEX i ON t (name); \
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000) INSERT INTO t SELECT i, 'name ' || i, i / 7.0 FROM n";

/// Batches as an agent writes them: ten statements, point reads, aggregates over some hundred rows, writes.
fn batch(turn: usize) -> Vec<String> {
    let id = turn * 37 % 19_000 + 1;
    vec![
        format!("SELECT * FROM t WHERE id = {id}"),
        format!("SELECT count(*), avg(price), min(name) FROM t WHERE id BETWEEN {id} AND {}", id + 500),
        format!("INSERT INTO t (name, price) VALUES ('new {turn}', {turn}.5)"),
        format!("UPDATE t SET price = price * 1.01 WHERE id BETWEEN {id} AND {}", id + 20),
        format!("SELECT name, price FROM t WHERE name LIKE 'name {}%' ORDER BY price DESC LIMIT 10", id % 90),
        format!("DELETE FROM t WHERE id = {id}"),
        format!(
            "SELECT substr(name, 1, 6) AS k, sum(price) FROM t WHERE id < {} GROUP BY k ORDER BY 2 DESC LIMIT 5",
            id % 900 + 100
        ),
        format!("WITH x AS (SELECT id, price FROM t WHERE id > {id} LIMIT 100) SELECT max(price) FROM x"),
        format!("INSERT INTO t (name, price) SELECT name || '-copy', price FROM t WHERE id > {id} LIMIT 5"),
        "SELECT count(*) FROM t".to_owned(),
    ]
}

fn statements(root: &Path) -> Outcome<()> {
    const BATCHES: usize = 100;
    let mut memory = worker(root, "statements")?;
    memory.batch(SETUP)?;
    let c = rusqlite::Connection::open(root.join("plain.db"))?;
    c.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")?;
    c.execute_batch(SETUP)?;
    let mut sandboxed = vec![];
    let mut plain = vec![];
    // By turns, so that another load of the machine meets both.
    for turn in (0..5 * BATCHES).map(|n| n % BATCHES) {
        let started = Instant::now();
        let done = memory.batch(&batch(turn).join(";\n"))?;
        sandboxed.push(started.elapsed().as_secs_f64() * 1000.0);
        if !done.is_ok() {
            return Err(done.text.into());
        }
        let started = Instant::now();
        in_process(&c, turn)?;
        plain.push(started.elapsed().as_secs_f64() * 1000.0);
    }
    let middle = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let (plain, sandboxed) = (middle(&mut plain), middle(&mut sandboxed));
    line("a batch of 10 statements, in process (ms)", plain, "");
    line("the same through the sandbox (ms)", sandboxed, "");
    line("ratio", sandboxed / plain, "1.3");
    Ok(())
}

fn in_process(c: &rusqlite::Connection, turn: usize) -> Outcome<()> {
    c.execute_batch("BEGIN")?;
    for sql in batch(turn) {
        let mut statement = c.prepare(&sql)?;
        let width = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            for n in 0..width {
                std::hint::black_box(row.get_ref(n)?);
            }
        }
    }
    Ok(c.execute_batch("COMMIT")?)
}

/// From the ledger's file to the mounted table, and a refresh of results of which one is new.
fn messages(root: &Path) -> Outcome<()> {
    let directory = root.join("ledger");
    std::fs::create_dir_all(&directory)?;
    let mut ledger = LedgerWorker::spawn(&Launcher::current_exe()?, &directory, LedgerOptions::default())?;
    let now = Timestamp::UNIX_EPOCH;
    ledger.ingest(&(0..10_000).map(message).collect::<Vec<_>>(), now)?;
    let config = config();
    let mut memory = worker(root, "messages")?;
    memory.mount(&ledger.load_mounts(&config, &[], now)?)?;
    let mut load = || ledger.load_tables(&config, &[], now, &["__messages"]);
    let mounts = load()?;
    let loaded = median(|| load().map(drop).map_err(Into::into))?;
    let mounted = median(|| memory.mount(&mounts).map_err(Into::into))?;
    line("10,000 messages of 300 bytes read from the ledger (ms)", loaded, "");
    line("and mounted (ms)", mounted, "");
    line("both (ms)", median(|| memory.mount(&load()?).map_err(Into::into))?, "20");
    let mount = &MOUNTS[6];
    let text = "some words of a result. ".repeat(1000);
    let row = |n: usize| -> Vec<Value> {
        let cell = |(name, kind): &(&str, &str)| match (*name, *kind) {
            ("result_text", _) => text.as_str().into(),
            (_, kind) if kind.starts_with("INTEGER") => Value::Int(0),
            (name, _) => format!("{name} {n}").into(),
        };
        mount.columns.iter().map(cell).collect()
    };
    let mut results = Mounts::default();
    results.tables.insert(mount.name.to_owned(), (0..200).map(row).collect());
    memory.mount(&results)?;
    let refresh = median(|| {
        let rows = results.tables.entry(mount.name.to_owned()).or_default();
        rows.push(row(rows.len()));
        memory.mount(&results).map_err(Into::into)
    })?;
    line("one tool result beside 200 of 24 KB (ms)", refresh, "");
    Ok(())
}

fn message(n: usize) -> IncomingMessage {
    let text = |name: &str| format!("{name} {n}");
    IncomingMessage {
        id: text("message_id"),
        channel: "Email".into(),
        from: text("from_address"),
        to: Some(text("to_address")),
        conversation: Some(text("conversation_id")),
        peer_agent: None,
        subject: Some(text("subject")),
        body: format!("message {n}: {}", "some words of a message. ".repeat(12)),
        attachments_json: None,
        payload_json: Some(text("payload_json")),
        at: Timestamp::UNIX_EPOCH,
        cycle: "c".into(),
    }
}

fn config() -> PlanConfig {
    let store = StoreConfig::Directory { path: String::new(), claim_name: None };
    PlanConfig::new(Owner::default(), store, Executor::Sql(SqlSource::Inline(String::new())))
}

fn prompt(root: &Path, rows: u64) -> Outcome<()> {
    let mut memory = worker(root, "prompt")?;
    for n in 0..25 {
        let sql = format!(
            "CREATE TABLE table_{n} (id INTEGER PRIMARY KEY, mail TEXT, state TEXT, price REAL, day TEXT, body TEXT); \
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {rows}) INSERT INTO table_{n} \
             SELECT i, 'u' || i || '@example.com', iif(i % 3, 'open', 'closed'), i / 4.0, '2024-01-01', 'text number ' || i FROM n"
        );
        let done = memory.batch(&sql)?;
        if !done.is_ok() {
            return Err(done.text.into());
        }
    }
    memory.unmount()?;
    memory.seal()?;
    drop(memory);
    let mut cold = vec![];
    let options = PromptOptions::default();
    let mut memory = worker(root, "prompt")?;
    for _ in 0..5 {
        memory = worker(root, "prompt")?;
        let started = Instant::now();
        memory.schema_prompt(&options)?;
        cold.push(started.elapsed().as_secs_f64() * 1000.0);
    }
    cold.sort_by(f64::total_cmp);
    line(&format!("schema prompt of 25 tables x {rows} rows, cold (ms)"), cold[2], "50");
    let warm = median(|| memory.schema_prompt(&options).map(|_| ()).map_err(Into::into))?;
    line("the same, warm (ms)", warm, "5");
    Ok(())
}
