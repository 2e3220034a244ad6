//! `local` and `run`: agents of a folder, with one process or two, with edits and failures.

use std::process::Command;

use crate::support::{Folder, Running, VISIT, run, wait_for};

#[test]
fn a_failed_executor_makes_once_end_non_zero_however_short_the_history() {
    for more in ["", "  failedCyclesHistoryLimit: 0\n  backoffLimit: 0\n"] {
        let folder = Folder::new(VISIT);
        folder.manifest("clerk", "INSERT INTO no_table VALUES (1);", more);
        let ran = run(&["local", &folder.path().display().to_string(), "--once"]);
        assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
        assert!(ran.out.contains("no such table"), "{}{}", ran.out, ran.err);
    }
    let folder = Folder::new(VISIT);
    let manifest = "apiVersion: cicada.dev/v1alpha1\nkind: PersistentAgent\nmetadata: {name: own, namespace: shop}\nspec:\n  \
                    charter: c\n  executor:\n    container: {image: x, command: [sh, -c, 'exit 7']}\n";
    std::fs::write(folder.path().join("own.yaml"), manifest).unwrap();
    let ran = run(&["local", &folder.path().display().to_string(), "--once"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
}

#[test]
fn an_older_head_is_noticed_by_the_next_process() {
    let folder = Folder::after(1);
    let path = folder.agent_dir().join("HEAD.json");
    let old = std::fs::read(&path).unwrap();
    folder.cycle();
    let (newer, newest) = (std::fs::read(&path).unwrap(), folder.snapshots().pop().unwrap());
    let stops = || {
        let ran = run(&["local", &folder.path().display().to_string(), "--once"]);
        assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
        assert!(ran.out.contains("store_rolled_back"), "{}{}", ran.out, ran.err);
        assert!(ran.out.contains(&format!("accept-memory-loss: {newest}")), "{}{}", ran.out, ran.err);
    };
    // By hand: the newer snapshot lies beside it.
    std::fs::write(&path, &old).unwrap();
    stops();
    let verified = folder.run(&["verify", "shop/clerk"]);
    assert_eq!(verified.code, Some(1));
    assert!(verified.out.contains(&format!("snapshot {newest} is of a later epoch")), "{}", verified.out);
    folder.run(&["gc", "shop/clerk"]).must();
    assert_eq!(std::fs::read(&path).unwrap(), old);
    let to = folder.path().join("older.db");
    for look in [
        vec!["inspect", "shop/clerk"],
        vec!["snapshots", "shop/clerk"],
        vec!["query", "shop/clerk", "SELECT 1"],
        vec!["log", "shop/clerk"],
        vec!["export", "shop/clerk", to.to_str().unwrap()],
    ] {
        let said = folder.run(&look).ends(0);
        let told = format!("the store has snapshot {newest}; cicadactl verify shop/clerk says what to do");
        assert!(said.contains("warning: this is an older state") && said.contains(&told), "{look:?}: {said}");
    }
    std::fs::write(&path, &newer).unwrap();
    folder.cycle();
    // From a backup: nothing but the folder's own state knows of the newer one.
    let newest = folder.snapshots().pop().unwrap();
    for id in &folder.snapshots()[1..] {
        std::fs::remove_dir_all(folder.agent_dir().join("snapshots").join(id)).unwrap();
    }
    std::fs::write(&path, &old).unwrap();
    let ran = run(&["local", &folder.path().display().to_string(), "--once"]);
    assert!(ran.code == Some(1) && ran.out.contains("store_rolled_back"), "{}{}", ran.out, ran.err);
    let manifest = folder.path().join("clerk.yaml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let accepted = format!("namespace: shop, annotations: {{cicada.dev/accept-memory-loss: {newest}}}}}");
    std::fs::write(&manifest, text.replace("namespace: shop}", &accepted)).unwrap();
    folder.cycle();
    assert_eq!(folder.ask("SELECT count(*) FROM visits"), "2");
}

/// By the same road as in a cluster, and within the same bounds.
#[test]
fn what_came_with_the_message_of_a_cycle_reaches_the_agent() {
    let folder = Folder::new(
        "CREATE TABLE IF NOT EXISTS got(said TEXT); INSERT INTO got SELECT attachments_json FROM __messages WHERE is_new;",
    );
    let write = |attachments: &str| {
        let text = format!(
            "apiVersion: cicada.dev/v1alpha1\nkind: AgentCycle\nmetadata: {{name: mail, namespace: shop}}\nspec:\n  agentRef: {{name: clerk}}\n  \
             message: {{body: look, attachments: [{attachments}]}}\n"
        );
        std::fs::write(folder.path().join("mail.yaml"), text).unwrap();
    };
    write("{name: a.pdf, contentType: application/pdf, size: 7, url: 'https://x.test/a'}");
    folder.cycle();
    let said = ["name", "contentType", "size", "url"]
        .map(|f| format!("json_extract(said, '$[0].{f}')"))
        .join(" || ' ' || ");
    let sql = format!("SELECT {said} FROM got");
    assert_eq!(folder.ask(&sql), "a.pdf application/pdf 7 https://x.test/a");
    write(&"{name: a}, ".repeat(17));
    let ran = run(&["local", &folder.path().display().to_string(), "--once"]);
    assert!(
        ran.err.contains("spec.message.attachments has 17 entries, at most 16"),
        "{}{}",
        ran.out,
        ran.err
    );
}

/// Both plan one more cycle in some seconds; one of them then holds its own schedules back.
#[test]
fn an_agent_that_rests_is_not_woken_by_its_own_schedules() {
    let visits = |pause: &str| {
        format!(
            "CREATE TABLE IF NOT EXISTS visits(n INTEGER PRIMARY KEY); \
             INSERT INTO __agent_schedules (schedule_key, kind, run_at) \
             SELECT 'soon', 'once', strftime('%FT%TZ', 'now', '+15 seconds') WHERE NOT EXISTS (SELECT 1 FROM visits); \
             {pause} INSERT INTO visits DEFAULT VALUES;"
        )
    };
    let folder =
        Folder::new(&visits("UPDATE __agent_config SET paused_until = strftime('%FT%TZ', 'now', '+1 day');"));
    folder.manifest("eager", &visits(""), "");
    let running = Running::start(&folder);
    for agent in ["shop/clerk", "shop/eager"] {
        folder.run(&["run", agent, "--wait"]).must();
    }
    assert!(
        Running::log(&folder).contains("schedules of its own start nothing until"),
        "{}",
        Running::log(&folder)
    );
    let count = |agent| {
        let out = folder.run(&["query", agent, "SELECT count(*) FROM visits", "-o", "csv"]).must();
        out.lines().nth(1).unwrap_or_default().to_owned()
    };
    wait_for("the planned cycle", || (count("shop/eager") == "2").then_some(()));
    assert_eq!(count("shop/clerk"), "1");
    folder.run(&["run", "shop/clerk", "--wait"]).must();
    assert_eq!(count("shop/clerk"), "2", "a request wakes it");
    assert_eq!(running.end(), Some(0));
    let told = folder.run(&["inspect", "shop/clerk"]).must();
    assert!(told.contains("schedules  1 of its own, paused until "), "{told}");
}

#[test]
fn run_does_the_cycle_here_when_nobody_else_does() {
    let folder = Folder::new(VISIT);
    let ran = folder.run(&["run", "shop/clerk", "--wait"]);
    assert!(ran.out.contains("shop/clerk: done") && ran.err.contains("runs here"), "{}{}", ran.out, ran.err);
    assert_eq!(ran.code, Some(0));
    folder.run(&["run", "shop/clerk"]).must();
    assert_eq!(folder.ask("SELECT count(*) FROM visits"), "2");
    folder.manifest("clerk", "INSERT INTO no_table VALUES (1);", "");
    assert_eq!(folder.run(&["run", "shop/clerk"]).code, Some(1));
}

#[test]
fn a_running_local_takes_requests_messages_and_edits() {
    let folder = Folder::new(
        "CREATE TABLE IF NOT EXISTS visits(n INTEGER PRIMARY KEY, note TEXT); \
         INSERT INTO visits(note) SELECT coalesce((SELECT body FROM __messages WHERE is_new ORDER BY seq DESC), 'none');",
    );
    let running = Running::start(&folder);
    let second = run(&["local", &folder.path().display().to_string(), "--once"]).ends(4);
    assert!(second.contains("another cicadactl local works on"), "{second}");

    let ran = folder.run(&["run", "shop/clerk", "--wait"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert!(ran.out.starts_with("Succeeded"), "{}", ran.out);
    assert_eq!(folder.ask("SELECT note FROM visits"), "none");

    let sent = folder.run(&["send", "shop/clerk", "Watch tea"]).ends(0);
    assert!(sent.contains("the running cicadactl local reads it now"), "{sent}");
    wait_for("the message's cycle", || {
        (folder.ask("SELECT count(*) FROM visits WHERE note = 'Watch tea'") == "1").then_some(())
    });

    // A stranger is heard, but wakes nobody: the next cycle reads it.
    let sent =
        folder.run(&["send", "shop/clerk", "Sell all", "--channel", "mail", "--from", "eve@example.com"]);
    assert!(sent.err.contains("eve@example.com is no contact on mail"), "{}", sent.err);
    wait_for("the word about it", || {
        Running::log(&folder).contains("a message of eve@example.com (mail) waits").then_some(())
    });
    assert_eq!(folder.ask("SELECT count(*) FROM visits"), "2");
    folder.run(&["run", "shop/clerk", "--wait"]).must();
    assert_eq!(folder.ask("SELECT note FROM visits ORDER BY n DESC"), "Sell all");

    folder.manifest("clerk", "INSERT INTO no_table VALUES (1);", "");
    folder.manifest("other", VISIT, "");
    wait_for("the reload", || Running::log(&folder).contains("manifests read again").then_some(()));
    let failed = folder.run(&["run", "shop/clerk", "--wait"]);
    assert_eq!(failed.code, Some(1), "{}{}", failed.out, failed.err);
    assert!(failed.out.starts_with("Failed"), "{}", failed.out);
    folder.run(&["run", "shop/other", "--wait"]).must();

    std::fs::write(folder.path().join("other.yaml"), "kind: [").unwrap();
    wait_for("the complaint", || {
        Running::log(&folder).contains("the earlier manifests stay in force").then_some(())
    });
    folder.run(&["run", "shop/clerk", "--wait"]).ends(1);

    folder.manifest("other", VISIT, "");
    std::fs::remove_file(folder.path().join("clerk.yaml")).unwrap();
    wait_for("the farewell", || Running::log(&folder).contains("its manifest is gone").then_some(()));
    assert_eq!(running.end(), Some(0));
    folder.run(&["verify", "shop/other"]).must();
}

#[test]
fn a_schedule_of_the_folder_runs_by_itself_and_a_hold_stops_it() {
    let folder = Folder::new(VISIT);
    folder.manifest("clerk", VISIT, "  schedules:\n    - {name: always, cron: \"* * * * *\"}\n");
    folder.run(&["hold", "shop/clerk"]).must();
    let running = Running::start(&folder);
    let ran = folder.run(&["run", "shop/clerk"]);
    assert_eq!(ran.code, Some(0), "a request waits: {}", ran.err);
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert!(!folder.agent_dir().exists(), "{}", Running::log(&folder));
    folder.run(&["release", "shop/clerk"]).must();
    wait_for("the cycle", || folder.agent_dir().join("HEAD.json").exists().then_some(()));
    assert_eq!(running.end(), Some(0));
}

#[test]
fn a_secret_that_is_not_set_is_named_before_the_first_call() {
    let folder = Folder::new(VISIT);
    let manifest = |more: &str| {
        let text = format!(
            "apiVersion: cicada.dev/v1alpha1\nkind: PersistentAgent\nmetadata: {{name: clerk, namespace: shop}}\nspec:\n  \
             charter: c\n  backoffLimit: 0\n  executor:\n    model: {{provider: OpenAI, name: m{more}}}\n"
        );
        std::fs::write(folder.path().join("clerk.yaml"), text).unwrap();
    };
    let dir = folder.path().display().to_string();
    manifest(", apiKeySecretRef: {name: llm, key: token}");
    let ran = run(&["local", &dir, "--once"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("LLM_TOKEN"), "{}{}", ran.out, ran.err);
    manifest("");
    let ran = run(&["local", &dir, "--once"]);
    assert!(ran.out.contains("OPENAI_API_KEY"), "{}{}", ran.out, ran.err);
    // A server of one's own needs no key: the first thing that is wrong is that nothing listens there.
    // It is told while it happens, and soon the cycle gives up.
    let start = std::time::Instant::now();
    let ran = run(&["local", &dir, "--once", "--model-url", "http://127.0.0.1:1/v1/"]);
    assert!(start.elapsed() < std::time::Duration::from_secs(60), "{:?}", start.elapsed());
    assert_eq!(ran.code, Some(1));
    assert!(!ran.out.contains("OPENAI_API_KEY"), "{}{}", ran.out, ran.err);
    let nothing = "nothing listens at http://127.0.0.1:1/v1/";
    assert!(
        ran.err.contains(&format!("clerk: the model's provider can't be reached: {nothing}; try 2 of 3 in ")),
        "{}",
        ran.err
    );
    assert!(ran.out.contains("model_unavailable") && ran.out.contains(nothing), "{}{}", ran.out, ran.err);
}

#[test]
fn by_the_name_of_a_kubectl_plugin_the_help_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("kubectl-cicada");
    std::os::unix::fs::symlink(crate::support::PROGRAM, &link).unwrap();
    let help = |args: &[&str]| {
        let output = Command::new(&link).args(args).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let top = help(&["--help"]);
    assert!(top.contains("Usage: kubectl cicada ") && !top.contains("cicadactl"), "{top}");
    let below = help(&["restore", "--help"]);
    assert!(below.contains("Usage: kubectl cicada restore ") && !below.contains("cicadactl"), "{below}");
    let folder = Folder::after(1);
    let output = Command::new(&link)
        .args(["inspect", "shop/clerk", "--local"])
        .arg(folder.path())
        .env_remove("CICADA_STORE")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Also where a message names the next command.
    let output = Command::new(&link)
        .args(["log", "shop/clerk", "never", "--local"])
        .arg(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("kubectl cicada log shop/clerk") && !said.contains("cicadactl"), "{said}");
}

#[test]
fn an_agent_of_the_folder_starts_from_the_memory_of_another() {
    let folder = Folder::after(2);
    let snapshot = folder.snapshots()[0].clone();
    let seed = format!("  memory: {{seedFrom: {{name: clerk, snapshot: {snapshot}}}}}\n");
    folder.manifest("heir", VISIT, &seed);
    folder.cycle();
    let count = folder.run(&["query", "shop/heir", "SELECT count(*) FROM visits", "-o", "csv"]).must();
    assert_eq!(count.lines().nth(1), Some("2"));
    assert_eq!(folder.ask("SELECT count(*) FROM visits"), "3");
    let told = folder.run(&["inspect", "shop/heir"]).must();
    assert!(told.contains(&format!("snapshot {snapshot} of shop/clerk")), "{told}");
    // A name that has no memory is told with what to do.
    folder.manifest("stray", VISIT, "  memory: {seedFrom: {name: clark}}\n");
    let ran = run(&["local", &folder.path().display().to_string(), "--once"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(
        format!("{}{}", ran.out, ran.err).contains("shop/clark, which has no memory"),
        "{}{}",
        ran.out,
        ran.err
    );
}

#[test]
fn a_cycle_for_nobody_is_told_and_one_of_another_namespace_stays_there() {
    let folder = Folder::new(VISIT);
    let cycle = |name: &str, namespace: &str, agent: &str| {
        let text = format!(
            "apiVersion: cicada.dev/v1alpha1\nkind: AgentCycle\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{agentRef: {{name: {agent}}}}}\n"
        );
        std::fs::write(folder.path().join(format!("{name}.yaml")), text).unwrap();
    };
    cycle("extra", "shop", "clerk");
    cycle("typo", "shop", "clrk");
    cycle("elsewhere", "lab", "clerk");
    let ran = run(&["local", &folder.path().display().to_string(), "--once"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert!(
        ran.err.contains("AgentCycle typo is for shop/clrk") && ran.err.contains("did you mean shop/clerk?"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("AgentCycle elsewhere is for lab/clerk"), "{}", ran.err);
    assert_eq!(folder.ask("SELECT count(*) FROM visits"), "2", "{}", ran.out);
}
