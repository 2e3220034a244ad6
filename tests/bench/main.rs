//! Benchmarks of whole programs. Each number stands beside a floor measured in the same run, since
//! absolute times say more about the machine than about the program.

mod bytes;

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use cicada_contract::plan::{PlanConfig, PlanRun};
use serde_json::json;

/// Odd, so that the median is a measured value.
const ROUNDS: usize = 5;
/// Rows of 1,000 bytes make a memory of this many MB.
const SIZES: [u64; 3] = [1, 10, 100];

type Bench = fn() -> Result<()>;
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let name = std::env::args().nth(1);
    let benches: [(&str, Bench); 3] = [("cycle", cycle), ("bytes", bytes::bytes), ("start", start)];
    let mut ran = 0;
    for (bench, run) in benches {
        if name.as_deref().is_none_or(|wanted| wanted == bench) {
            ran += 1;
            if let Err(error) = run() {
                eprintln!("{bench}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    if ran == 0 {
        eprintln!("no such benchmark; there are: cycle, bytes, start");
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
}

/// Twenty rows, spread over the table.
const CHANGE: &str = "UPDATE rows SET n = n + 1 WHERE id % (SELECT max(id) / 20 FROM rows) = 0";

/// Times of one cycle, from the start of its process.
struct Took {
    whole: Duration,
    /// Until the executor began.
    first_sql: Duration,
    /// Of the phase.
    restore: Duration,
    /// Processor time, children included.
    processor: Duration,
}

/// Processor time of the children that have ended so far, to a hundredth of a second.
fn processor() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name of the program is in parentheses and may hold anything.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| fields.get(n).and_then(|field| field.parse::<u64>().ok()).ok_or("/proc/self/stat");
    Ok(Duration::from_millis(10 * (ticks(13)? + ticks(14)?)))
}

/// An agent in a directory store, worked by the real program.
struct Agent {
    folder: tempfile::TempDir,
    cycles: u32,
}

impl Agent {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("store"))?;
        Ok(Self { folder, cycles: 0 })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// One cycle of `sql`.
    fn cycle(&mut self, sql: &str) -> Result<Took> {
        self.cycles += 1;
        let config: PlanConfig = serde_json::from_value(json!({
            "version": 1,
            "owner": {"cluster": "bench", "namespace": "bench", "name": "agent"},
            "charter": "",
            "store": {"directory": {"path": self.path("store")}},
            "executor": {"sql": {"inline": sql}},
            "memory": {"sizeLimit": 4u64 << 30, "ledgerSizeLimit": 256 << 20,
                "retention": {"snapshots": 2, "maxAge": 86400, "messages": 86400, "toolResults": 86400, "steps": 86400, "cycles": 86400}},
            "limits": {"timeout": 1800, "maxModelCalls": 0, "maxToolCalls": 0, "tokensPerCycle": 0, "tokensPerDay": 0,
                "messagesPerCycle": 0, "messagesPerDay": 0, "sqlTimeout": 600, "timeZone": "UTC"},
        }))?;
        let (config, sha256) = config.render();
        let run: PlanRun = serde_json::from_value(json!({
            "version": 1,
            "configSha256": sha256,
            "cycle": {"name": format!("cycle-{}", self.cycles), "uid": format!("uid-{}", self.cycles)},
            "triggers": [{"type": "Request"}],
        }))?;
        fs::write(self.path("config.json"), config)?;
        fs::write(self.path("run.json"), serde_json::to_string(&run)?)?;
        // A pod starts with an empty folder: to remove the file of the cycle before is no part of a cycle.
        let work = self.path("work");
        fs::remove_dir_all(&work).or_else(|e| (e.kind() == ErrorKind::NotFound).then_some(()).ok_or(e))?;
        fs::create_dir_all(&work)?;
        let (begin, processor_before) = (Instant::now(), processor()?);
        let mut process = Command::new(program()?)
            .arg("run")
            .arg("--config")
            .arg(self.path("config.json"))
            .arg("--run")
            .arg(self.path("run.json"))
            .arg("--work")
            .arg(&work)
            .arg("--report")
            .arg(self.path("report.json"))
            .env("CICADA_LOG", "info")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        // The log tells when the executor begins.
        let mut first_sql = Duration::ZERO;
        for line in BufReader::new(process.stderr.take().ok_or("no log")?).lines() {
            if first_sql.is_zero() && line?.contains(r#""phase":"execute""#) {
                first_sql = begin.elapsed();
            }
        }
        let status = process.wait()?;
        let (whole, processor) = (begin.elapsed(), processor()?.saturating_sub(processor_before));
        let report = fs::read_to_string(self.path("report.json")).unwrap_or_default();
        if !status.success() {
            return Err(format!("{status}: {report}").into());
        }
        let report: serde_json::Value = serde_json::from_str(&report)?;
        if std::env::var("PHASES").is_ok() {
            eprintln!("{:>8.1} ms  {}", ms(whole), report["phases"]);
        }
        let restore = report["phases"].as_array().into_iter().flatten().find(|p| p["phase"] == "restore");
        let restore = restore.and_then(|p| p["ms"].as_u64()).ok_or("the report names no restore")?;
        Ok(Took { whole, first_sql, restore: Duration::from_millis(restore), processor })
    }

    /// Fills the memory with this many MB. Half of each row compresses, half does not: like text with keys and
    /// numbers.
    fn fill(&mut self, megabytes: u64) -> Result<()> {
        let done = self.cycle(&format!(
            "CREATE TABLE rows(id INTEGER PRIMARY KEY, text TEXT, noise BLOB, n INTEGER DEFAULT 0);
             WITH RECURSIVE s(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM s WHERE v < {})
             INSERT INTO rows(id, text, noise) SELECT v, printf('%0500d', v), randomblob(480) FROM s;",
            megabytes * 1000
        ));
        done.map(|_| ())
    }
}

fn program() -> Result<String> {
    Ok(format!(
        "{}/cycle-job",
        std::env::var("CICADA_BIN").map_err(|_| "CICADA_BIN is not set: use tests/bench/run")?
    ))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn sh(script: &str, args: &[&Path]) -> Result<()> {
    let status = Command::new("sh").args(["-euc", script, "sh"]).args(args).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{script}: {status}").into()) }
}

/// What any such program has to do at least, by the C tools: read and unpack, one check, pack, write.
fn floor(archive: &Path, folder: &Path) -> Result<(Duration, Duration)> {
    let (begin, processor_before) = (Instant::now(), processor()?);
    sh(
        r#"zstd -q -d -f "$1" -o "$2/m.db"; sqlite3 "$2/m.db" "PRAGMA quick_check" ; zstd -q -3 -f "$2/m.db" -o "$2/m.db.zst"; sync "$2/m.db.zst""#,
        &[archive, folder],
    )?;
    Ok((begin.elapsed(), processor()?.saturating_sub(processor_before)))
}

/// The whole archive that the current snapshot's memory is made of.
fn whole_archive(agent: &Agent) -> Result<PathBuf> {
    let folder = agent.path("store/bench/agent/snapshots");
    let mut found = vec![];
    for snapshot in fs::read_dir(folder)? {
        let path = snapshot?.path().join("memory.db.zst");
        if let Ok(meta) = fs::metadata(&path) {
            found.push((meta.modified()?, path));
        }
    }
    found.sort();
    Ok(found.pop().ok_or("there is no whole archive")?.1)
}

fn cycle() -> Result<()> {
    println!(
        "### Whole cycle against the floor (read + zstd -d + quick_check + zstd -3 + write by the C tools)\n"
    );
    println!(
        "| memory | archive | floor | nothing changes | of it restore | 20 rows change | ratio | over the floor | processor time: floor | 20 rows | ratio |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let large = std::env::var("LARGE").is_ok().then_some(1000);
    for megabytes in SIZES.into_iter().chain(large) {
        let mut agent = Agent::new()?;
        agent.fill(megabytes)?;
        let (mut floors, mut empty, mut restores, mut changes) = (vec![], vec![], vec![], vec![]);
        let (mut floor_work, mut change_work) = (vec![], vec![]);
        for _ in 0..ROUNDS {
            let (wall, work) = floor(&whole_archive(&agent)?, agent.folder.path())?;
            floors.push(wall);
            floor_work.push(work);
            let nothing = agent.cycle("SELECT 1")?;
            empty.push(nothing.whole);
            restores.push(nothing.restore);
            let change = agent.cycle(CHANGE)?;
            changes.push(change.whole);
            change_work.push(change.processor);
        }
        let archive = fs::metadata(whole_archive(&agent)?)?.len();
        let (floor, change) = (median(floors), median(changes));
        let (floor_work, change_work) = (median(floor_work).as_secs_f64(), median(change_work).as_secs_f64());
        println!(
            "| {megabytes} MB | {:.1} MB | {:.3} s | {:.3} s | {:.3} s | {:.3} s | {:.2} | {:.0} ms | {floor_work:.2} s | {change_work:.2} s | {:.2} |",
            mb(archive),
            floor.as_secs_f64(),
            median(empty).as_secs_f64(),
            median(restores).as_secs_f64(),
            change.as_secs_f64(),
            change.as_secs_f64() / floor.as_secs_f64(),
            ms(change) - ms(floor),
            change_work / floor_work,
        );
    }
    println!();
    Ok(())
}

fn start() -> Result<()> {
    let mut agent = Agent::new()?;
    agent.cycle("CREATE TABLE t(a)")?;
    let (mut times, mut starts, mut floors) = (vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        let took = agent.cycle("SELECT 1")?;
        times.push(took.whole);
        starts.push(took.first_sql);
        let begin = Instant::now();
        sh(r#"sqlite3 :memory: "SELECT 1""#, &[])?;
        floors.push(begin.elapsed());
    }
    let size = fs::metadata(program()?)?.len();
    println!(
        "### Smallest cycle\n\n| start of the process to first SQL | whole cycle | sqlite3 of one statement | program |\n|---|---|---|---|"
    );
    println!(
        "| {:.0} ms | {:.0} ms | {:.0} ms | {:.1} MB |\n",
        ms(median(starts)),
        ms(median(times)),
        ms(median(floors)),
        mb(size)
    );
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[expect(clippy::cast_precision_loss, reason = "a size for people")]
fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
