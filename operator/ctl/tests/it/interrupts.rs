//! Ctrl-C, SIGTERM and SIGKILL: commands end at once, and nothing of them stays on the machine.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Folder, VISIT, command, run, wait_for};

/// It would run for hours.
const ENDLESS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n WHERE i < 0";

fn left(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect()
}

/// Processes that work in a folder.
fn at_work(folder: &Path) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|p| std::fs::read_link(p.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder)))
        .count()
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

fn endless(folder: &Folder, temp: &Path) -> Child {
    let dir = folder.path().display().to_string();
    let mut command = command(&["query", "shop/clerk", ENDLESS, "--timeout", "600", "--local", &dir]);
    let child = command.env("TMPDIR", temp).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the worker", || (at_work(temp) > 0).then_some(()));
    child
}

#[test]
fn a_query_that_takes_too_long_names_the_option() {
    let folder = Folder::after(1);
    let start = Instant::now();
    for more in [&[][..], &["--ledger"]] {
        let said = folder.run(&[&["query", "shop/clerk", ENDLESS, "--timeout", "1"], more].concat()).ends(1);
        assert!(said.contains("stopped after 1 s") && said.contains("--timeout SECONDS"), "{said}");
    }
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[test]
fn a_signal_ends_a_query_at_once_and_leaves_nothing() {
    let folder = Folder::after(1);
    for name in ["-INT", "-TERM"] {
        let temp = tempfile::tempdir().unwrap();
        let child = endless(&folder, temp.path());
        signal(&child, name);
        let start = Instant::now();
        let output = child.wait_with_output().unwrap();
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        assert_eq!(output.status.code(), Some(130));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "error: interrupted\n");
        assert!(left(temp.path()).is_empty(), "{:?}", left(temp.path()));
        wait_for("the worker's end", || (at_work(temp.path()) == 0).then_some(()));
    }
}

#[test]
fn what_a_killed_command_left_goes_with_the_next_one() {
    let folder = Folder::after(1);
    let temp = tempfile::tempdir().unwrap();
    let mut killed = endless(&folder, temp.path());
    signal(&killed, "-KILL");
    killed.wait().unwrap();
    wait_for("the worker's end", || (at_work(temp.path()) == 0).then_some(()));
    assert_eq!(left(temp.path()).len(), 1);
    let mut alive = endless(&folder, temp.path());
    assert_eq!(left(temp.path()).len(), 1, "the dead one's went, the living one's is there");
    let dir = folder.path().display().to_string();
    let mut next = command(&["inspect", "shop/clerk", "--local", &dir]);
    assert!(next.env("TMPDIR", temp.path()).stdout(Stdio::null()).status().unwrap().success());
    assert_eq!(left(temp.path()).len(), 1, "a living one's stays");
    signal(&alive, "-INT");
    alive.wait().unwrap();
    assert_eq!(left(temp.path()).len(), 0);
}

#[test]
fn once_is_interrupted_in_order_and_says_so() {
    let folder = Folder::after(1);
    let manifest = "apiVersion: cicada.dev/v1alpha1\nkind: PersistentAgent\nmetadata: {name: own, namespace: shop}\nspec:\n  \
                    charter: c\n  executor:\n    container: {image: x, command: [sh, -c, 'echo started; sleep 60']}\n";
    std::fs::write(folder.path().join("own.yaml"), manifest).unwrap();
    std::fs::write(folder.path().join("zzz.yaml"), manifest.replace("name: own", "name: zzz")).unwrap();
    let log = folder.path().join("log");
    let dir = folder.path().display().to_string();
    let mut child = command(&["local", &dir, "--once"])
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_for("the command", || said().contains("own| started").then_some(()));
    signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130), "{}", said());
    assert!(said().contains("interrupted") && !said().contains("zzz"), "{}", said());
    folder.run(&["verify", "shop/clerk"]).must();
    assert_eq!(run(&["list", "--local", &dir, "-o", "csv"]).code, Some(0));
}

/// Processes with these words in their command line.
fn with_words(words: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|p| std::fs::read(p.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(words)).count()
}

/// An agent whose own command says that it has started, and then takes a minute.
fn slow(name: &str, seconds: &str) -> Folder {
    let folder = Folder::new(VISIT);
    std::fs::remove_file(folder.path().join("clerk.yaml")).unwrap();
    let command = format!("echo started; sleep {seconds}; true");
    let manifest = format!(
        "apiVersion: cicada.dev/v1alpha1\nkind: PersistentAgent\nmetadata: {{name: {name}, namespace: shop}}\nspec:\n  \
         charter: c\n  executor:\n    container: {{image: x, command: [sh, -c, '{command}']}}\n"
    );
    std::fs::write(folder.path().join("own.yaml"), manifest).unwrap();
    folder
}

fn once(folder: &Folder) -> Command {
    let mut command = command(&["local", &folder.path().display().to_string(), "--once"]);
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    command.stdout(Stdio::null()).stderr(log);
    command
}

fn started(folder: &Folder, name: &str) {
    wait_for("the command", || {
        let said = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        said.contains(&format!("{name}| started")).then_some(())
    });
}

#[test]
fn a_killed_local_leaves_neither_cycle_nor_command_behind() {
    let folder = slow("orphan", "61.0625");
    let mut killed = once(&folder).spawn().unwrap();
    started(&folder, "orphan");
    let dir = folder.path().canonicalize().unwrap().display().to_string();
    assert!(with_words("sleep 61.0625") > 0 && with_words(&dir) > 1);
    signal(&killed, "-KILL");
    killed.wait().unwrap();
    wait_for("their end", || (with_words("sleep 61.0625") + with_words(&dir) == 0).then_some(()));
    // It ended in order: nobody is in the way of the next one.
    assert!(folder.head_of("orphan")["holder"].is_null());
}

/// Ctrl-C on a terminal goes to every process at once: whichever is the first to know, it was an interrupt.
#[test]
fn ctrl_c_is_an_interrupt_whichever_process_hears_of_it_first() {
    use std::os::unix::process::CommandExt as _;
    let folder = slow("own", "62.0625");
    for wait in [0, 20, 60, 120, 200, 300] {
        let mut child = once(&folder).process_group(0).spawn().unwrap();
        if wait == 300 {
            started(&folder, "own");
        } else {
            // The cycle is being started: it can't hear yet, or just can.
            wait_for("the cycle", || (with_words(&folder.path().display().to_string()) > 1).then_some(()));
            std::thread::sleep(Duration::from_millis(wait));
        }
        let group = format!("-{}", child.id());
        assert!(Command::new("kill").args(["-INT", "--", &group]).status().unwrap().success());
        let said = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        assert_eq!(child.wait().unwrap().code(), Some(130), "after {wait} ms: {}", said());
    }
}

#[test]
fn a_log_is_followed_until_somebody_ends_it() {
    let folder = Folder::after(1);
    let dir = folder.path().display().to_string();
    let out = folder.path().join("out");
    let mut child = command(&["log", "shop/clerk", "-f", "--local", &dir])
        .stdout(std::fs::File::create(&out).unwrap())
        .spawn()
        .unwrap();
    let cycles =
        || std::fs::read_to_string(&out).unwrap().lines().filter(|l| l.starts_with("clerk-")).count();
    wait_for("the first cycle", || (cycles() == 1).then_some(()));
    folder.cycle();
    folder.cycle();
    wait_for("the later ones", || (cycles() == 3).then_some(()));
    signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(folder.run(&["log", "shop/clerk", "-f", "-o", "json"]).ends(2).contains("leave -o out"));
}
