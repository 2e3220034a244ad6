//! Benchmarks of whole programs. Each number stands beside a floor measured in the same run, since
//! absolute times say more about the machine than about the program.

use std::fs;
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
    let benches: [(&str, Bench); 2] = [("cycle", cycle), ("start", start)];
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
        eprintln!("no such benchmark; there are: cycle, start");
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
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

    /// One cycle of `sql`; gives its wall time.
    fn cycle(&mut self, sql: &str) -> Result<Duration> {
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
        let work = self.path("work");
        fs::create_dir_all(&work)?;
        let begin = Instant::now();
        let status = Command::new(program()?)
            .arg("run")
            .arg("--config")
            .arg(self.path("config.json"))
            .arg("--run")
            .arg(self.path("run.json"))
            .arg("--work")
            .arg(&work)
            .arg("--report")
            .arg(self.path("report.json"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        let took = begin.elapsed();
        if !status.success() {
            return Err(format!(
                "{status}: {}",
                fs::read_to_string(self.path("report.json")).unwrap_or_default()
            )
            .into());
        }
        Ok(took)
    }

    /// The memory archive of HEAD's current snapshot.
    fn archive(&self) -> Result<PathBuf> {
        let base = self.path("store/bench/agent");
        let head: serde_json::Value = serde_json::from_slice(&fs::read(base.join("HEAD.json"))?)?;
        let snapshots = head["snapshots"].as_array().ok_or("HEAD lists no snapshots")?;
        let current =
            snapshots.iter().find(|s| s["id"] == head["current"]).ok_or("HEAD has no current snapshot")?;
        Ok(base.join(current["memory"]["key"].as_str().ok_or("the snapshot has no memory")?))
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
fn floor(archive: &Path, folder: &Path) -> Result<Duration> {
    let begin = Instant::now();
    sh(
        r#"zstd -q -d -f "$1" -o "$2/m.db"; sqlite3 "$2/m.db" "PRAGMA quick_check" ; zstd -q -3 -f "$2/m.db" -o "$2/m.db.zst"; sync "$2/m.db.zst""#,
        &[archive, folder],
    )?;
    Ok(begin.elapsed())
}

fn cycle() -> Result<()> {
    println!(
        "### Whole cycle against the floor (read + zstd -d + quick_check + zstd -3 + write by the C tools)\n"
    );
    println!("| memory | archive | floor | nothing changes | 20 rows change | ratio (20 rows) |");
    println!("|---|---|---|---|---|---|");
    let large = std::env::var("LARGE").is_ok().then_some(1000);
    for megabytes in SIZES.into_iter().chain(large) {
        let mut agent = Agent::new()?;
        // Half of each row compresses, half does not: like text with keys and numbers.
        agent.cycle(&format!(
            "CREATE TABLE rows(id INTEGER PRIMARY KEY, text TEXT, noise BLOB, n INTEGER DEFAULT 0);
             WITH RECURSIVE s(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM s WHERE v < {})
             INSERT INTO rows(id, text, noise) SELECT v, printf('%0500d', v), randomblob(480) FROM s;",
            megabytes * 1000
        ))?;
        let (mut floors, mut empty, mut changes) = (vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            floors.push(floor(&agent.archive()?, agent.folder.path())?);
            empty.push(agent.cycle("SELECT 1")?);
            changes.push(
                agent.cycle("UPDATE rows SET n = n + 1 WHERE id % (SELECT max(id) / 20 FROM rows) = 0")?,
            );
        }
        let archive = fs::metadata(agent.archive()?)?.len();
        let (floor, empty, change) = (median(floors), median(empty), median(changes));
        println!(
            "| {megabytes} MB | {:.1} MB | {:.3} s | {:.3} s | {:.3} s | {:.2} |",
            mb(archive),
            floor.as_secs_f64(),
            empty.as_secs_f64(),
            change.as_secs_f64(),
            change.as_secs_f64() / floor.as_secs_f64()
        );
    }
    println!();
    Ok(())
}

fn start() -> Result<()> {
    let mut agent = Agent::new()?;
    agent.cycle("CREATE TABLE t(a)")?;
    let mut times = vec![];
    let mut floors = vec![];
    for _ in 0..ROUNDS {
        times.push(agent.cycle("SELECT 1")?);
        let begin = Instant::now();
        sh(r#"sqlite3 :memory: "SELECT 1""#, &[])?;
        floors.push(begin.elapsed());
    }
    let size = fs::metadata(program()?)?.len();
    println!(
        "### Smallest cycle\n\n| whole cycle of an empty memory | sqlite3 of one statement | program |\n|---|---|---|"
    );
    println!(
        "| {:.3} s | {:.3} s | {:.1} MB |\n",
        median(times).as_secs_f64(),
        median(floors).as_secs_f64(),
        mb(size)
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a size for people")]
fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
