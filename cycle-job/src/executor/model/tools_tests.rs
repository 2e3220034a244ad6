use serde_json::json;

use super::*;

fn offered() -> Offered {
    let mcp = Declaration {
        name: "crm.find_customer".into(),
        description: "Find".into(),
        schema: json!({"type": "object"}),
    };
    let mut offered = Offered { declarations: declare::always(), mcp: vec!["crm.find_customer".into()] };
    offered.declarations.push(mcp);
    offered.declarations.push(declare::send_message(&["mail"]));
    offered
}

fn call(name: &str, arguments: Value) -> Call {
    let Value::Object(arguments) = arguments else { panic!() };
    Call { id: "c1".into(), name: name.into(), arguments: Arguments::Object(arguments) }
}

#[test]
fn numbers_and_flags_written_as_text_are_understood() {
    let parsed =
        offered().parse(&call("read_file", json!({"path": "a.txt", "offset": "10", "limit": null}))).unwrap();
    assert_eq!(parsed, ToolCall::ReadFile { path: "a.txt".into(), offset: 10, limit: 20_000 });
    let parsed = offered()
        .parse(&call("load_table", json!({"path": "a.csv", "table": "a", "durable": "true"})))
        .unwrap();
    assert_eq!(parsed, ToolCall::LoadTable { path: "a.csv".into(), table: "a".into(), durable: true });
}

#[test]
fn a_wrong_call_is_answered_with_what_would_be_right() {
    for (call, starts) in [
        (call("sqll", json!({})), "not executed: there is no tool sqll. The tools are: sql, finish"),
        (
            call("http_request", json!({"url": "https://a"})),
            "not executed: there is no tool http_request (the manifest allows no host",
        ),
        (
            call("sql", json!({"query": "SELECT 1"})),
            "not executed: sql is missing from the arguments of sql. sql takes {\"sql\": string}",
        ),
        (call("sql", json!({"sql": ["SELECT 1"]})), "not executed: sql must be a string, not an array"),
        (
            call("finish", json!({"outcome": "ok", "summary": ""})),
            "not executed: outcome \"ok\" is not done, nothing_to_do or blocked",
        ),
        (
            Call {
                id: "c1".into(),
                name: "sql".into(),
                arguments: Arguments::Malformed { text: "{\"sql\": \"SEL".into(), problem: "EOF".into() },
            },
            "not executed: the arguments of sql are not a JSON object (EOF). They were: {\"sql\": \"SEL. Send the call again with arguments like {\"sql\": string}",
        ),
        (
            call("request_human_input", json!({"question": "x".repeat(501)})),
            "not executed: question has 501 characters, 500 are the most",
        ),
    ] {
        let answer = offered().parse(&call).unwrap_err();
        assert!(answer.starts_with(starts), "{answer}");
    }
}

#[test]
fn an_mcp_tool_keeps_its_arguments() {
    let parsed = offered().parse(&call("crm.find_customer", json!({"id": [1, {"x": null}]}))).unwrap();
    let ToolCall::Mcp { name, arguments } = parsed else { panic!() };
    assert_eq!(
        (name.as_str(), Value::Object(arguments)),
        ("crm.find_customer", json!({"id": [1, {"x": null}]}))
    );
}

#[test]
fn wire_names_are_what_providers_allow() {
    let declaration =
        |name: &str| Declaration { name: name.into(), description: String::new(), schema: json!({}) };
    assert_eq!(declaration("crm.find_customer").wire_name(), "crm__find_customer");
    let long = declaration(&format!("server.{}", "ü".repeat(80))).wire_name();
    assert_eq!(long.len(), 64);
    assert!(long.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'));
    assert_eq!(offered().own_name("crm__find_customer"), "crm.find_customer");
    assert_eq!(offered().own_name("nothing"), "nothing");
}

#[test]
fn a_summary_is_cut_at_its_bound() {
    let parsed =
        offered().parse(&call("finish", json!({"outcome": "done", "summary": "ü".repeat(900)}))).unwrap();
    let ToolCall::Finish(finish) = parsed else { panic!() };
    assert_eq!(finish.summary.chars().count(), SUMMARY_CHARS);
}
