use proptest::prelude::*;
use serde_json::json;

use super::*;

fn prompt(optional: usize) -> Prompt {
    let part = |name: &'static str, required, text: String| Part { name, required, text };
    Prompt {
        system: "rules and charter".into(),
        parts: vec![
            part("schema", false, "s".repeat(optional)),
            part("cards", true, "open card: buy milk".into()),
            part("task", true, "instruction: check all products".into()),
        ],
    }
}

fn step(n: usize, bytes: usize) -> [Entry; 2] {
    let id = format!("c{n}");
    let Value::Object(arguments) = json!({"sql": format!("SELECT {n}")}) else { unreachable!() };
    let call = Call { id: id.clone(), name: "sql".into(), arguments: Arguments::Object(arguments) };
    [
        Entry::Model(Reply {
            text: String::new(),
            calls: vec![call],
            stop: Stop::Normal,
            tokens: Tokens::default(),
            raw: None,
        }),
        Entry::Tools(vec![Answer {
            call_id: id,
            name: "sql".into(),
            text: "r".repeat(bytes),
            result_id: Some(format!("r{n}")),
        }]),
    ]
}

fn filled(steps: usize, bytes: usize, optional: usize) -> Transcript {
    let mut transcript = Transcript::new(prompt(optional));
    (0..steps).flat_map(|n| step(n, bytes)).for_each(|e| transcript.push(e));
    transcript
}

fn every_answer_has_its_call(transcript: &Transcript) {
    let entries = transcript.entries();
    for (at, entry) in entries.iter().enumerate() {
        match entry {
            Entry::Tools(answers) => {
                let Some(Entry::Model(reply)) = at.checked_sub(1).and_then(|b| entries.get(b)) else {
                    panic!("answers without calls")
                };
                let calls: Vec<_> = reply.calls.iter().map(|c| &c.id).collect();
                assert_eq!(calls, answers.iter().map(|a| &a.call_id).collect::<Vec<_>>());
            }
            Entry::Model(reply) if !reply.calls.is_empty() => {
                assert!(matches!(entries.get(at + 1), Some(Entry::Tools(_)) | None), "calls without answers");
            }
            _ => {}
        }
    }
}

#[test]
fn an_answer_is_whole_once_and_short_after() {
    let mut transcript = filled(1, 10_000, 0);
    let Entry::Tools(answers) = &transcript.entries()[1] else { panic!() };
    assert_eq!(answers[0].text.len(), 10_000);
    step(1, 10).into_iter().for_each(|e| transcript.push(e));
    let Entry::Tools(answers) = &transcript.entries()[1] else { panic!() };
    assert!(answers[0].text.len() <= AGED_ANSWER_BYTES);
    assert!(answers[0].text.ends_with("recall_result r0, or __tool_results]"), "{}", answers[0].text);
}

#[test]
fn forty_results_fit_a_small_window_and_the_required_parts_stay() {
    let mut transcript = filled(40, 2048, 6000);
    transcript.compact(12_000).unwrap();
    assert!(transcript.bytes() <= 12_000);
    let opening = transcript.opening();
    assert!(opening.contains("open card: buy milk") && opening.contains("instruction: check all products"));
    assert_eq!(transcript.system(), "rules and charter");
    every_answer_has_its_call(&transcript);
}

#[test]
fn a_window_that_cannot_hold_the_charter_is_an_error() {
    let mut transcript = filled(3, 100, 0);
    let error = transcript.compact(20).unwrap_err();
    assert!(error.to_string().starts_with("the model's context window is too small"), "{error}");
}

#[test]
fn a_remark_travels_with_the_newest_answer() {
    let mut transcript = filled(1, 10, 0);
    transcript.remark("two model calls are left");
    assert_eq!(transcript.entries().len(), 2);
    let Entry::Tools(answers) = &transcript.entries()[1] else { panic!() };
    assert!(answers[0].text.ends_with("[platform] two model calls are left"));
}

proptest! {
    #[test]
    fn compaction_keeps_what_must_stay(steps in 0usize..60, bytes in 0usize..5000, optional in 0usize..20_000, target in 200usize..60_000) {
        let mut transcript = filled(steps, bytes, optional);
        let before = transcript.bytes();
        let result = transcript.compact(target);
        prop_assert!(transcript.bytes() <= before.max(700), "never longer, but for the digest");
        if result.is_ok() {
            prop_assert!(transcript.bytes() <= target);
        }
        let opening = transcript.opening();
        prop_assert!(opening.contains("open card: buy milk"));
        prop_assert!(opening.contains("instruction: check all products"));
        prop_assert_eq!(transcript.system(), "rules and charter");
        every_answer_has_its_call(&transcript);
        if steps > 0 {
            let newest = format!("c{}", steps - 1);
            let found = transcript.entries().iter().any(|e| matches!(e, Entry::Model(r) if r.calls[0].id == newest));
            prop_assert!(found, "the newest step stays");
        }
    }
}
