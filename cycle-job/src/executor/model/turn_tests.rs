use serde_json::{Value, json};

use super::super::tools::Declaration;
use super::super::transcript::Arguments;
use super::super::usage::Tokens;
use super::*;

fn offered() -> Offered {
    let config = super::super::test_config();
    Offered::new(
        &config,
        vec![Declaration { name: "crm.find".into(), description: String::new(), schema: json!({}) }],
    )
}

fn reply(calls: &[(&str, Value)]) -> Reply {
    let calls = calls.iter().enumerate().map(|(n, (name, arguments))| Call {
        id: format!("c{n}"),
        name: (*name).into(),
        arguments: match arguments {
            Value::Object(map) => Arguments::Object(map.clone()),
            other => Arguments::Malformed { text: other.to_string(), problem: "not an object".into() },
        },
    });
    Reply {
        text: "thinking aloud".into(),
        calls: calls.collect(),
        stop: Stop::Normal,
        tokens: Tokens::default(),
        raw: None,
    }
}

fn decide(reply: &Reply, limits: &Limits, usage: &mut Usage, progress: &mut Progress) -> Next {
    after_reply(reply, &offered(), limits, &SpentBefore::default(), usage, progress)
}

#[test]
fn a_reply_without_a_call_is_asked_once() {
    let (mut usage, mut progress) = Default::default();
    let limits = Limits::default();
    assert_eq!(decide(&reply(&[]), &limits, &mut usage, &mut progress), Next::Say(ASK_FOR_FINISH));
    let Next::End(end) = decide(&reply(&[]), &limits, &mut usage, &mut progress) else { panic!() };
    assert_eq!((end.outcome, end.ended_by), (Outcome::Unstated, None));
}

#[test]
fn a_call_after_the_question_starts_anew() {
    let (mut usage, mut progress) = Default::default();
    let limits = Limits::default();
    decide(&reply(&[]), &limits, &mut usage, &mut progress);
    decide(&reply(&[("sql", json!({"sql": "SELECT 1"}))]), &limits, &mut usage, &mut progress);
    assert_eq!(decide(&reply(&[]), &limits, &mut usage, &mut progress), Next::Say(ASK_FOR_FINISH));
}

#[test]
fn a_cut_reply_is_told_to_work_in_smaller_steps() {
    let (mut usage, mut progress) = Default::default();
    let cut = Reply { stop: Stop::Cut, ..reply(&[]) };
    assert_eq!(decide(&cut, &Limits::default(), &mut usage, &mut progress), Next::Say(REPLY_WAS_CUT));
}

#[test]
fn parallel_calls_keep_their_order_and_bad_ones_stop_none() {
    let (mut usage, mut progress) = Default::default();
    let calls = [
        ("sql", json!({"sql": "SELECT 1"})),
        ("no_such_tool", json!({})),
        ("sql", json!("{broken")),
        ("crm.find", json!({"q": 1})),
        ("finish", json!({"outcome": "done", "summary": "all"})),
    ];
    let Next::Tools(tasks) = decide(&reply(&calls), &Limits::default(), &mut usage, &mut progress) else {
        panic!()
    };
    assert_eq!(tasks.iter().map(|(c, _)| c.id.as_str()).collect::<Vec<_>>(), ["c0", "c1", "c2", "c3", "c4"]);
    assert!(matches!(tasks[0].1, Task::Run(ToolCall::Sql { .. })));
    assert!(matches!(&tasks[1].1, Task::Refuse(text) if text.contains("there is no tool no_such_tool")));
    assert!(matches!(&tasks[2].1, Task::Refuse(text) if text.contains("not a JSON object")));
    assert!(matches!(tasks[3].1, Task::Run(ToolCall::Mcp { .. })));
    assert!(matches!(tasks[4].1, Task::Finish(_)));
    assert_eq!(usage.tool_calls, 4, "finish is not a tool call of the budget");
}

#[test]
fn finish_beside_a_failed_call_does_not_count() {
    let finish = Finish { outcome: Outcome::Done, summary: "sent".into() };
    assert!(
        matches!(after_tools(Some(&finish), 1), Some(Err(text)) if text.starts_with("not finished: 1 other call"))
    );
    let end = after_tools(Some(&finish), 0).unwrap().unwrap();
    assert_eq!((end.outcome, end.summary.as_deref()), (Outcome::Done, Some("sent")));
    assert_eq!(after_tools(None, 3), None);
}

#[test]
fn after_the_last_tool_call_one_reply_is_left_to_finish() {
    let (mut usage, mut progress): (Usage, Progress) = Default::default();
    let limits = Limits { max_tool_calls: 1, ..Limits::default() };
    let two = reply(&[("sql", json!({"sql": "SELECT 1"})), ("sql", json!({"sql": "SELECT 2"}))]);
    let Next::Tools(tasks) = decide(&two, &limits, &mut usage, &mut progress) else { panic!() };
    assert!(matches!(tasks[0].1, Task::Run(_)));
    assert!(matches!(&tasks[1].1, Task::Exhausted(text) if text.contains("limits.maxToolCalls (1)")));
    assert_eq!(before_call(&limits, &SpentBefore::default(), &usage, progress), None);
    let Next::Tools(tasks) = decide(&two, &limits, &mut usage, &mut progress) else { panic!() };
    assert!(tasks.iter().all(|(_, t)| matches!(t, Task::Exhausted(_))));
    assert_eq!(before_call(&limits, &SpentBefore::default(), &usage, progress), Some("maxToolCalls"));
    assert_eq!(ended_by("maxToolCalls").outcome, Outcome::Unstated);
}

#[test]
fn the_model_is_warned_before_a_limit() {
    let limits = Limits { max_model_calls: 5, max_tool_calls: 10, ..Limits::default() };
    let before = SpentBefore::default();
    let used = |model_calls, tool_calls| Usage { model_calls, tool_calls, ..Usage::default() };
    assert_eq!(warning(&limits, &before, &used(2, 6)), None);
    assert!(warning(&limits, &before, &used(3, 0)).unwrap().starts_with("2 model call(s) are left"));
    assert!(warning(&limits, &before, &used(1, 7)).unwrap().starts_with("3 tool call(s) are left"));
    assert!(warning(&limits, &before, &used(1, 10)).unwrap().starts_with("no tool call is left"));
}
