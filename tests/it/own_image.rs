//! Agents that are somebody's own image, in real pods: what they can do, and what they can't find out.

use cicada_tests::memory::Unpacked;
use cicada_tests::namespace::Namespace;
use serde_json::{Value, json};

use crate::agents::cycle;

const IMAGE: &str = "docker.io/local/agent:1";

/// An agent whose container runs `command`, with a Secret of its own that only its http tool may use.
fn agent(ns: &Namespace, name: &str, command: &[&str]) {
    ns.apply(
        r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "crm"}, "stringData": {"token": "canary-secret-91f3"}}"#,
    );
    ns.apply(
        &json!({
            "apiVersion": "cicada.dev/v1alpha1", "kind": "PersistentAgent", "metadata": {"name": name},
            "spec": {
                "charter": "Count what you are told.",
                "memory": {"sizeLimit": "64Mi", "ledgerSizeLimit": "64Mi"},
                "backoffLimit": 1,
                "executor": {"container": {"image": IMAGE, "command": command, "env": [{"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}]}},
                "channels": [{"name": "console", "console": {}}],
                "contacts": [{"channel": "console", "address": "buyer", "allowOutbound": true}],
                "secrets": [{"name": "crm", "secretKeyRef": {"name": "crm", "key": "token"}, "allowedHosts": ["crm.test"]}],
            },
        })
        .to_string(),
    );
}

fn run(ns: &Namespace, name: &str, of: &str) -> Value {
    ns.create(&cycle(name, of));
    ns.wait_for_cycle(name, 180)
}

/// What the command printed in the pod of a cycle that has ended.
fn printed(ns: &Namespace) -> String {
    let pods = ns.list("pods");
    let newest = pods
        .iter()
        .max_by_key(|pod| pod["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned())
        .expect("a pod");
    ns.kubectl(&["logs", newest["metadata"]["name"].as_str().unwrap(), "--container", "agent"]).must()
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_python_agent_with_the_official_client_remembers_over_three_cycles() {
    let ns = Namespace::new("python");
    agent(&ns, "own", &["python3", "/app/agent.py"]);
    for name in ["first", "second", "third"] {
        let status = run(&ns, name, "own");
        assert_eq!(status["phase"], "Succeeded", "{status:#}\n{}", printed(&ns));
        assert_eq!(status["outcome"], "done", "{status:#}");
    }
    assert_eq!(printed(&ns).trim(), "done");
    let memory = Unpacked::check(&ns.folder("own"));
    assert_eq!(memory.tables(), ["parts", "wakes"]);
    assert_eq!(memory.sql("SELECT count(*), max(n) FROM wakes"), "3|3");
    assert_eq!(memory.sql("SELECT count(*), sum(part) FROM parts"), "30|135");
    // Fifteen batches, one of them wrong, and two messages, one of them refused; `finish` is not counted.
    assert_eq!(memory.ledger_sql("SELECT DISTINCT tool_calls, messages FROM cycles"), "17|1");
    assert_eq!(memory.ledger_sql("SELECT count(*) FROM outbox WHERE to_address = 'buyer'"), "3");
    assert_eq!(memory.ledger_sql("SELECT count(*) FROM outbox WHERE to_address <> 'buyer'"), "0");
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_shell_script_works_by_the_same_tools_and_its_exit_code_counts() {
    let ns = Namespace::new("script");
    let count = "set -e
        cycle-job child sql 'CREATE TABLE IF NOT EXISTS runs (n INTEGER PRIMARY KEY)'
        cycle-job child sql 'INSERT INTO runs DEFAULT VALUES'
        cycle-job child prompt | grep -q 'Count what you are told.'";
    agent(&ns, "own", &["sh", "-c", count]);
    assert_eq!(run(&ns, "first", "own")["phase"], "Succeeded");
    assert_eq!(run(&ns, "second", "own")["phase"], "Succeeded");
    agent(&ns, "own", &["sh", "-c", &format!("{count}\nexit 42")]);
    let status = run(&ns, "third", "own");
    assert_eq!(
        (&status["phase"], &status["class"]),
        (&json!("Failed"), &json!("executor_failed")),
        "{status:#}"
    );
    assert!(status["message"].as_str().unwrap().contains("exit code 42"), "{status:#}");
    let memory = Unpacked::check(&ns.folder("own"));
    assert_eq!(memory.sql("SELECT count(*) FROM runs"), "2", "the memory is as before the cycle that failed");
    assert_eq!(
        memory.ledger_sql("SELECT kind, class FROM cycles WHERE cycle = 'third'"),
        "failed|executor_failed"
    );
    // The pod's own exit codes: the cycle's is the truth, the agent's supervisor has no other word.
    let pods = ns.list("pods");
    let failed = pods.iter().find(|pod| pod["status"]["phase"] == "Failed").expect("the third cycle's pod");
    let code = |container: &str| {
        let all = failed["status"]["containerStatuses"].as_array().unwrap();
        let one = all.iter().find(|c| c["name"] == container).unwrap();
        one["state"]["terminated"]["exitCode"].as_i64()
    };
    assert_eq!((code("cycle"), code("agent")), (Some(26), Some(0)), "{failed:#}");
}

/// Looks for everything that a container could look for. What it finds it prints.
const HOSTILE: &str = r#"
    scan() { find / -readable -type f -not -path '/sys/*' "$@" 2>/dev/null; }
    echo "files: $(scan | wc -l)"
    # The patterns do not match themselves. Some files of /proc have no end: those are looked at below.
    scan -not -path '/proc/*' -size -200M -exec grep -laE 'canary-[s]ecret|canary-[r]ow|SQLite [f]ormat 3|AWS_[S]ECRET|test[s]ecret' {} + 2>/dev/null | while read -r file; do
      case $file in /var/run/cicada/bin/cycle-job | /opt/python/* | /lib/* | /usr/lib/*) ;; *) echo "FOUND $file" ;; esac
    done
    for file in /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/maps; do tr '\0' ' ' < "$file"; done 2>/dev/null | grep -aE 'canary-[s]ecret|--[c]onfig|test[s]ecret' | sed 's/^/FOUND in proc: /'
    sed 's/^/session: /' /var/run/cicada/mcp/session.json; echo
    find /var/run /run -type f 2>/dev/null | sort -u | sed 's/^/run: /'
    find / -name '*.db' -not -path '/proc/*' 2>/dev/null | while read -r file; do echo x >> "$file" && echo "WROTE $file"; done
    for file in /var/run/cicada/mcp/x /var/run/cicada/mcp/session.json /var/run/cicada/bin/x /var/run/cicada/bin/cycle-job /work/x /proc/1/mem; do
      { echo x >> "$file"; } 2>/dev/null && echo "WROTE $file"
    done
    curl -s -m 3 http://169.254.169.254/latest/meta-data/iam/security-credentials/ && echo "METADATA"
    curl -s -m 3 -H 'Metadata-Flavor: Google' http://169.254.169.254/computeMetadata/v1/instance/service-accounts/default/token && echo "METADATA"
    curl -sk -m 5 -o /dev/null -w 'api: %{http_code}\n' "https://$KUBERNETES_SERVICE_HOST/api/v1/namespaces/default/secrets"
    curl -s -m 5 -o /dev/null -w 's3: %{http_code}\n' "$S3/cicada?list-type=2"
    grep -E 'CapEff|NoNewPrivs|Uid' /proc/self/status
    for file in /proc/1/environ ../../secrets/crm/token ../ledger/ledger.db; do
      cycle-job child call load_table "{\"path\": \"$file\", \"table\": \"stolen\"}" >/dev/null && echo "LOADED $file"
    done
    cycle-job child sql "ATTACH DATABASE '../ledger/ledger.db' AS l" >/dev/null && echo "ATTACHED"
    echo end
    exit 0
"#;

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_hostile_image_finds_no_secret_no_database_and_no_token_but_mcps() {
    let ns = Namespace::new("hostile");
    agent(
        &ns,
        "own",
        &["sh", "-c", "cycle-job child sql \"CREATE TABLE kept AS SELECT 'canary-row-55aa' AS text\""],
    );
    assert_eq!(run(&ns, "first", "own")["phase"], "Succeeded");
    let script = format!("S3={}\n{HOSTILE}", ns.cluster().s3_endpoint());
    agent(&ns, "own", &["sh", "-c", &script]);
    let status = run(&ns, "second", "own");
    let log = printed(&ns);
    assert_eq!(status["phase"], "Succeeded", "{status:#}\n{log}");
    for word in ["FOUND", "WROTE", "METADATA", "LOADED", "ATTACHED", "canary"] {
        assert!(!log.contains(word), "{word}: {log}");
    }
    // It did look: these lines show that each part ran.
    let files: usize = log.lines().find_map(|l| l.strip_prefix("files: ")).unwrap().trim().parse().unwrap();
    assert!(files > 1000, "{log}");
    let run_files: Vec<&str> = log.lines().filter_map(|l| l.strip_prefix("run: ")).collect();
    assert_eq!(run_files, ["/var/run/cicada/bin/cycle-job", "/var/run/cicada/mcp/session.json"], "{log}");
    assert!(log.contains("api: 401") || log.contains("api: 403"), "{log}");
    assert!(log.contains("s3: 403"), "{log}");
    assert!(log.contains("CapEff:\t0000000000000000") && log.contains("NoNewPrivs:\t1"), "{log}");
    assert!(log.trim_end().ends_with("end"), "{log}");
    let memory = Unpacked::check(&ns.folder("own"));
    assert_eq!(memory.sql("SELECT text FROM kept"), "canary-row-55aa");
    assert_eq!(memory.tables(), ["kept"]);
    // The token stands in no object of the cluster: not in the Job, the pod, or an event.
    let pods = ns.list("pods");
    let session = log.lines().find_map(|l| l.strip_prefix("session: ")).unwrap();
    let session: Value = serde_json::from_str(session).unwrap();
    let token = session["token"].as_str().filter(|t| t.len() == 64).unwrap();
    let text = format!("{:?}{:?}{:?}{:?}", ns.list("jobs"), pods, ns.list("events"), ns.list("configmaps"));
    assert!(!text.contains(token) && !text.contains("canary-secret"), "{text}");
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn killed_in_the_middle_the_next_attempt_does_it_alone() {
    let ns = Namespace::new("own-kill");
    // What the first attempt did is gone with it: the table can be made again.
    let script = "cycle-job child sql 'CREATE TABLE runs (n)' || exit 1
        cycle-job child sql 'INSERT INTO runs VALUES (1)'
        sleep 15";
    agent(&ns, "own", &["sh", "-c", script]);
    ns.create(&cycle("first", "own"));
    let pod = ns.wait_for_running_pod(60);
    cicada_tests::wait::until("the command works", 60, || {
        ns.kubectl(&["logs", &pod, "--container", "cycle"]).out.contains("tool called").then_some(())
    });
    ns.cluster().kill_container(&ns.name, &pod, "cycle");
    let status = ns.wait_for_cycle("first", 240);
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    assert!(status["attempts"].as_u64() >= Some(2), "{status:#}");
    assert_eq!(Unpacked::check(&ns.folder("own")).sql("SELECT count(*) FROM runs"), "1");
}
