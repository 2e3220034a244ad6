//! The engine's numbers: statements through the sandbox against the same in process, mounts of 10,000
//! messages, the schema prompt of 25 large tables. Each the median of five, printed as a Markdown table.
//!
//! `cargo run --release -p cicada-memory --example engine_bench [ROWS]`

use std::path::Path;
use std::time::{Duration, Instant};

use cicada_memory::{Launcher, MOUNTS, MemoryOptions, MemoryWorker, Mounts, PromptOptions, Value};

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

fn messages(root: &Path) -> Outcome<()> {
    let mount = &MOUNTS[0];
    let rows = (0..10_000i64).map(|n| {
        mount
            .columns
            .iter()
            .map(|(name, kind)| match (*name, *kind) {
                ("seq", _) => Value::Int(n + 1),
                ("body", _) => format!("message {n}: {}", "some words of a message. ".repeat(12)).into(),
                (_, kind) if kind.starts_with("INTEGER") => Value::Int(n % 2),
                (name, _) => format!("{name} {n}").into(),
            })
            .collect()
    });
    let mut mounts = Mounts::default();
    mounts.tables.insert(mount.name.to_owned(), rows.collect());
    let mut memory = worker(root, "messages")?;
    memory.mount(&mounts)?;
    let ms = median(|| Ok(memory.mount(&mounts)?))?;
    line("10,000 messages of 300 bytes mounted (ms)", ms, "20");
    Ok(())
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
