//! Manifests that several tests use.

use cicada_tests::gate::Gate;

/// An agent that runs `sql` each cycle, with further lines of its spec (two blanks before each).
pub(crate) fn sql_agent(name: &str, sql: &str, more: &str) -> String {
    let indented = sql.lines().fold(String::new(), |text, line| text + "        " + line.trim() + "\n");
    format!(
        "apiVersion: cicada.dev/v1alpha1\n\
         kind: PersistentAgent\n\
         metadata: {{name: {name}}}\n\
         spec:\n\
         \x20 charter: Keep what you are told.\n\
         \x20 memory: {{sizeLimit: 64Mi, ledgerSizeLimit: 64Mi}}\n\
         \x20 executor:\n\
         \x20   sql:\n\
         \x20     inline: |\n\
         {indented}{more}\n"
    )
}

/// A cycle that somebody asks for by creating it.
pub(crate) fn cycle(name: &str, agent: &str) -> String {
    format!(
        "{{apiVersion: cicada.dev/v1alpha1, kind: AgentCycle, metadata: {{name: {name}}}, spec: {{agentRef: {{name: {agent}}}}}}}"
    )
}

/// Lines of a spec: the store behind a proxy.
pub(crate) fn store_behind(gate: &Gate) -> String {
    format!(
        "\x20 store: {{s3: {{bucket: cicada, endpoint: \"{}\", forcePathStyle: true, credentials: {{secretName: cicada-store}}}}}}",
        gate.url()
    )
}

/// Counts its own cycles: one row for each execution that was kept.
pub(crate) const COUNTER: &str =
    "CREATE TABLE IF NOT EXISTS runs(id INTEGER PRIMARY KEY, at TEXT DEFAULT CURRENT_TIMESTAMP);
    INSERT INTO runs(at) VALUES (CURRENT_TIMESTAMP);";
