//! What a change of twenty rows uploads, against the whole archive and against litestream for the same file
//! and the same change.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Agent, CHANGE, ROUNDS, Result, mb, sh, whole_archive};

pub(crate) fn bytes() -> Result<()> {
    println!("### Bytes uploaded for a change of 20 rows\n");
    println!(
        "| memory | whole archive | memory | ledger | HEAD, all writes | all | litestream | all / litestream |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let large = std::env::var("LARGE").is_ok().then_some(1000);
    for megabytes in [100].into_iter().chain(large) {
        let mut agent = Agent::new()?;
        agent.fill(megabytes)?;
        let archive = whole_archive(&agent)?;
        let whole = fs::metadata(&archive)?.len();
        let stream = litestream(&archive, &agent.path("litestream"))?;
        let mut rounds = vec![];
        for _ in 0..ROUNDS {
            let before = sizes(&agent.path("store"))?;
            agent.cycle(CHANGE)?;
            let after = sizes(&agent.path("store"))?;
            let new = |name: &str| -> u64 {
                let new = after.iter().filter(|(path, _)| !before.contains_key(*path));
                new.filter(|(path, _)| path.to_string_lossy().contains(name)).map(|(_, size)| size).sum()
            };
            // HEAD is written when a cycle begins and when it ends.
            let head =
                after.iter().find(|(path, _)| path.ends_with("HEAD.json")).map_or(0, |(_, size)| *size);
            rounds.push((new("memory."), new("ledger."), 2 * head));
        }
        rounds.sort_unstable();
        let (memory, ledger, head) = rounds[ROUNDS / 2];
        let all = memory + ledger + head;
        println!(
            "| {megabytes} MB | {:.1} MB | {} | {} | {} | {} | {} | {:.2} |",
            mb(whole),
            kb(memory),
            kb(ledger),
            kb(head),
            kb(all),
            stream.map_or("not found".into(), kb),
            stream.map_or(f64::NAN, |stream| mb(all) / mb(stream)),
        );
    }
    println!();
    Ok(())
}

fn kb(bytes: u64) -> String {
    format!("{:.1} kB", mb(bytes) * 1e3)
}

/// Every file below `folder` with its size.
fn sizes(folder: &Path) -> Result<BTreeMap<PathBuf, u64>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                found.insert(entry.path(), entry.metadata()?.len());
            }
        }
    }
    Ok(found)
}

/// Ends with the value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The median of what litestream (`LITESTREAM`, else the one on the path) adds to its replica for the change;
/// None where there is no litestream.
fn litestream(archive: &Path, folder: &Path) -> Result<Option<u64>> {
    let program = std::env::var("LITESTREAM").unwrap_or_else(|_| "litestream".into());
    if Command::new(&program).arg("version").stdout(Stdio::null()).status().is_err() {
        return Ok(None);
    }
    fs::create_dir_all(folder)?;
    let (file, replica) = (folder.join("m.db"), folder.join("replica"));
    sh(r#"zstd -q -d -f "$1" -o "$2" && sqlite3 "$2" "PRAGMA journal_mode = WAL""#, &[archive, &file])?;
    let url = format!("file://{}", replica.display());
    let child = Command::new(&program)
        .arg("replicate")
        .arg(&file)
        .arg(&url)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let running = Running(child);
    let mut total = settled(&replica, 0)?;
    let mut rounds = vec![];
    for _ in 0..ROUNDS {
        sh(&format!(r#"sqlite3 "$1" "{CHANGE}""#), &[&file])?;
        let after = settled(&replica, total)?;
        rounds.push(after - total);
        total = after;
    }
    drop(running);
    fs::remove_dir_all(folder)?;
    rounds.sort_unstable();
    Ok(Some(rounds[ROUNDS / 2]))
}

/// Waits until the replica is above `above` bytes and has not grown for three seconds.
fn settled(replica: &Path, above: u64) -> Result<u64> {
    let begin = Instant::now();
    let (mut last, mut since) = (0, Instant::now());
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now: u64 =
            if replica.exists() { sizes(replica).map_or(last, |all| all.values().sum()) } else { 0 };
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if last > above && since.elapsed() > Duration::from_secs(3) {
            return Ok(last);
        }
        if begin.elapsed() > Duration::from_secs(600) {
            return Err("litestream wrote nothing for ten minutes".into());
        }
    }
}
