//! One cycle as a child process: what a Job and its pod are in a cluster.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;
use cicada_contract::plan::{ContainerConfig, Executor, Mode};
use cicada_contract::{CyclePlan, CycleReport, FailureClass};
use cicada_cycle_job::executor::container::server::mark_ended;
use indicatif::ProgressBar;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::interrupt::stopped;
use crate::{output, progress};

/// Longest time between a signal's end of the child and its arrival here.
const SIGNAL_MARGIN: Duration = Duration::from_secs(1);

/// What a cycle left.
pub(super) struct Ended {
    /// Its report; made up from the exit code if the process left none.
    pub(super) report: CycleReport,
    /// How long it took.
    pub(super) took: Duration,
    /// What its Console channel printed.
    pub(super) console: Vec<String>,
}

/// Runs one cycle in `folder` and shows its phase while it works.
pub(super) async fn run(
    plan: &CyclePlan,
    config: &str,
    folder: &Path,
    secrets: &BTreeMap<String, String>,
) -> anyhow::Result<Ended> {
    std::fs::create_dir_all(folder).with_context(|| format!("can't make {}", folder.display()))?;
    let paths = Paths::new(folder);
    let put = |path: &Path, done: std::io::Result<()>| {
        done.with_context(|| format!("can't write {}", path.display()))
    };
    // In place of that of an earlier cycle, which must not be taken for this one's.
    put(&paths.report, cicada_cycle_job::reserve_report(&paths.report))?;
    put(&paths.config, std::fs::write(&paths.config, config))?;
    put(&paths.run, std::fs::write(&paths.run, serde_json::to_vec(&plan.run)?))?;
    let started = Instant::now();
    let program = std::env::current_exe()?;
    let own = match &plan.config.executor {
        Executor::Container(own) if plan.run.mode == Mode::Cycle => Some(own),
        _ => None,
    };
    let mut command = Command::new(&program);
    command
        .args(["cycle-job", "run", "--attended"])
        .args([Path::new("--config"), &paths.config, Path::new("--run"), &paths.run])
        .args([Path::new("--work"), &paths.work, Path::new("--report"), &paths.report]);
    if own.is_some() {
        // Address and token of the cycle before are no use to anybody.
        let _ = std::fs::remove_dir_all(&paths.mcp);
        command.args([Path::new("--mcp"), &paths.mcp]);
    }
    let mut child = command
        .envs(secrets)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("can't start the cycle")?;
    // Held, not written to: its end tells the cycle that this process is gone, also one that was killed.
    let hold = child.stdin.take();
    let bar = progress::spinner(&plan.config.owner.name);
    let own = own.map(|own| own_process(own, &plan.config.owner.name, &program, &paths.mcp)).transpose()?;
    let agent = plan.config.owner.name.clone();
    let stderr = child.stderr.take().map(|pipe| tokio::spawn(follow(pipe, agent, bar.clone())));
    let stdout = child.stdout.take().map(|pipe| tokio::spawn(lines(pipe)));
    let mut is_told = false;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            () = stopped(), if !is_told => {
                is_told = true;
                output::note("ending in order; the running cycle persists what it has");
                // Ctrl-C reaches the child by the terminal, too; a signal to this process alone does not.
                terminate(&child).await;
            }
        }
    };
    drop(hold);
    if let Some(task) = own {
        // A cycle that was killed could not say so itself: its agent would wait for the server.
        mark_ended(&paths.mcp);
        let _ = task.await;
    }
    if let Some(task) = stderr {
        let _ = task.await;
    }
    let console = match stdout {
        Some(task) => task.await.unwrap_or_default(),
        None => vec![],
    };
    bar.finish_and_clear();
    let report = std::fs::read_to_string(&paths.report).ok().and_then(|text| CycleReport::parse(&text).ok());
    let report = report.unwrap_or_else(|| {
        let class = status.code().and_then(FailureClass::from_exit_code);
        let class = class.unwrap_or(FailureClass::WorkerCrashed);
        CycleReport::failed(class, format!("the cycle left no report ({status})"))
    });
    if status.signal().is_some() || report.class == Some(FailureClass::Disrupted) {
        // Ctrl-C reaches both processes: this one's share of it may still be on its way.
        let _ = tokio::time::timeout(SIGNAL_MARGIN, stopped()).await;
    }
    Ok(Ended { report, took: started.elapsed(), console })
}

/// Starts the agent's own command, as its container would be in a cluster: no secret of the manifest, only
/// MCP's token. It has the rights of whoever typed the command, so that is said each time.
fn own_process(
    own: &ContainerConfig,
    agent: &str,
    program: &Path,
    mcp: &Path,
) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let line = own.command.iter().chain(&own.args).map(String::as_str).collect::<Vec<_>>().join(" ");
    output::note(&format!(
        "{agent}: runs on this machine with your rights, in place of the image {}: {}",
        own.image,
        cicada_contract::text::cut(&cicada_contract::text::printable(&line), 200)
    ));
    let bin = mcp.join("bin");
    std::fs::create_dir_all(&bin)?;
    let link = bin.join("cycle-job");
    std::os::unix::fs::symlink(program, &link).with_context(|| format!("can't make {}", link.display()))?;
    let mut child = Command::new(&link)
        .args([Path::new("child"), Path::new("--mcp"), mcp, Path::new("--")])
        .args(own.command.iter().chain(&own.args))
        .envs(&own.env)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("can't start the agent's command")?;
    let outputs = [
        child.stdout.take().map(|pipe| tokio::spawn(show(pipe, agent.to_owned()))),
        child.stderr.take().map(|pipe| tokio::spawn(show(pipe, agent.to_owned()))),
    ];
    Ok(tokio::spawn(async move {
        let _ = child.wait().await;
        for task in outputs.into_iter().flatten() {
            let _ = task.await;
        }
    }))
}

/// What the command prints.
async fn show(pipe: impl tokio::io::AsyncRead + Unpin, agent: String) {
    let mut lines = BufReader::new(pipe).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        output::note(&format!("{agent}| {}", cicada_contract::text::printable(&line)));
    }
}

/// Asks the child to end in order.
async fn terminate(child: &Child) {
    if let Some(id) = child.id() {
        let _ = Command::new("kill").args(["-TERM", &id.to_string()]).status().await;
    }
}

struct Paths {
    config: PathBuf,
    run: PathBuf,
    work: PathBuf,
    report: PathBuf,
    mcp: PathBuf,
}

impl Paths {
    fn new(folder: &Path) -> Self {
        let at = |name| folder.join(name);
        Self {
            config: at("config.json"),
            run: at("run.json"),
            work: at("work"),
            report: at("report.json"),
            mcp: at("mcp"),
        }
    }
}

/// Follows the child's log: phases and waiting move the progress line, warnings and errors are shown as they come.
async fn follow(pipe: impl tokio::io::AsyncRead + Unpin, agent: String, bar: ProgressBar) {
    let mut lines = BufReader::new(pipe).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(event) = serde_json::from_str::<Value>(&line) else {
            output::note(&line);
            continue;
        };
        let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or("");
        if !text("phase").is_empty() {
            bar.set_message(text("phase").to_owned());
        } else if let Some(waiting) = waiting(&event) {
            bar.set_message(waiting.clone());
            if bar.is_hidden() {
                // Nobody sees the line; minutes without a word would read as a hang.
                output::note(&format!("{agent}: {waiting}"));
            }
        } else if let Some(step) = event.get("step") {
            bar.set_message(format!("step {step} {}", text("tool")));
        }
        // The end of the cycle is told by the summary.
        if matches!(text("level"), "WARN" | "ERROR") && event.get("class").is_none() {
            output::note(&format!(
                "{}: {}{}",
                text("level").to_lowercase(),
                text("message"),
                details(&event)
            ));
        }
    }
}

/// What a cycle waits for before it calls the model again, and for how long.
fn waiting(event: &Value) -> Option<String> {
    let number = |key: &str| event.get(key)?.as_u64();
    let (tries, most, wait) = (number("tries")?, number("most")?, number("wait_ms")?);
    let reason = event.get("reason")?.as_str()?;
    Some(format!("{reason}; try {} of {most} in {} s", tries + 1, wait.div_ceil(1000)))
}

fn details(event: &Value) -> String {
    let skip = ["timestamp", "level", "message", "target"];
    let Some(fields) = event.as_object() else { return String::new() };
    fields.iter().filter(|(k, _)| !skip.contains(&k.as_str())).map(|(k, v)| format!(" {k}={v}")).collect()
}

async fn lines(pipe: impl tokio::io::AsyncRead + Unpin) -> Vec<String> {
    let mut all = vec![];
    let mut lines = BufReader::new(pipe).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        all.push(line);
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wait_is_told_with_its_reason_and_end() {
        let event = json!({"level": "INFO", "message": "model call is tried again", "tries": 1, "most": 3,
            "wait_ms": 1700, "reason": "nothing listens at http://127.0.0.1:1/v1/"});
        assert_eq!(waiting(&event).unwrap(), "nothing listens at http://127.0.0.1:1/v1/; try 2 of 3 in 2 s");
        assert_eq!(waiting(&json!({"message": "model replied", "tries": 1})), None);
    }
}
