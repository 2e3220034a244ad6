//! Argo CD's health scripts, run by a real Lua 5.1 (the version that Argo CD embeds).

use mlua::{Lua, LuaSerdeExt as _};
use serde_json::{Value, json};

/// Status and message of an object by one of our scripts.
pub(crate) fn health(script: &str, object: &Value) -> (String, String) {
    let path = format!("{}/../../charts/cicada/files/argocd/{script}", env!("CARGO_MANIFEST_DIR"));
    let lua = Lua::new();
    lua.globals().set("obj", lua.to_value(object).unwrap()).unwrap();
    let result: mlua::Table = lua.load(std::fs::read_to_string(path).unwrap()).eval().unwrap();
    (result.get("status").unwrap(), result.get("message").unwrap())
}

fn agent(status: &Value) -> Value {
    json!({"metadata": {"generation": 2}, "status": status})
}

#[test]
fn an_agent_is_degraded_only_when_a_person_must_act() {
    let failed = json!([{"type": "LastCycleFailed", "status": "True", "reason": "Timeout"}]);
    let stalled = json!([{"type": "Stalled", "status": "True", "reason": "MemoryMissing", "message": "m"}]);
    let table = [
        (json!({"observedGeneration": -1}), "Progressing"),
        (json!({"observedGeneration": 1, "state": "Idle"}), "Progressing"),
        (json!({"observedGeneration": 2, "state": "Idle"}), "Healthy"),
        (json!({"observedGeneration": 2, "state": "Running"}), "Healthy"),
        (json!({"observedGeneration": 2, "state": "BackingOff", "conditions": failed}), "Healthy"),
        (json!({"observedGeneration": 2, "state": "Suspended"}), "Suspended"),
        (json!({"observedGeneration": 2, "state": "Held"}), "Suspended"),
        (json!({"observedGeneration": 2, "state": "Stalled", "conditions": stalled}), "Degraded"),
    ];
    for (status, expected) in table {
        assert_eq!(health("persistentagent.lua", &agent(&status)).0, expected, "{status}");
    }
    assert_eq!(health("persistentagent.lua", &json!({"metadata": {"generation": 1}})).0, "Progressing");
    let with_failure = agent(&json!({"observedGeneration": 2, "state": "BackingOff", "conditions": failed}));
    assert_eq!(health("persistentagent.lua", &with_failure).1, "last cycle failed: Timeout");
    assert_eq!(health("persistentagent-strict.lua", &with_failure).0, "Degraded");
}

#[test]
fn a_cycle_progresses_until_it_has_ended() {
    for (phase, expected) in [
        ("Pending", "Progressing"),
        ("Running", "Progressing"),
        ("Succeeded", "Healthy"),
        ("Failed", "Degraded"),
    ] {
        assert_eq!(health("agentcycle.lua", &json!({"status": {"phase": phase}})).0, expected);
    }
    assert_eq!(health("agentcycle.lua", &json!({"status": {"observedGeneration": -1}})).0, "Progressing");
}
