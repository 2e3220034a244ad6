//! `answer`: a person's answer to a question of the agent's.

use anyhow::bail;
use cicada_crds::cycle::TriggerKind;
use cicada_store::{INBOX_VERSION, InboxMessage};
use jiff::Timestamp;
use serde_json::{Value as Json, json};

use super::memory::ledger_rows;
use super::messages::ask_for_cycle;
use crate::args::{AnswerArgs, Format};
use crate::exit::{Missing, UsageError};
use crate::output::{Grid, note};

/// More questions than an agent may ask in years.
const QUESTIONS_MAX: usize = 100_000;

/// Runs the command.
pub(super) async fn run(args: AnswerArgs) -> anyhow::Result<()> {
    let store = args.target.open().await?;
    let sql = "SELECT request_id, question, options_json, state, answer, created_at, expires_at \
               FROM human_requests ORDER BY created_at";
    let questions = ledger_rows(&store, sql, QUESTIONS_MAX).await?;
    let Some(id) = &args.request else { return list(&questions, args.output) };
    let Some(question) = questions.iter().find(|q| q["request_id"] == id.as_str()) else {
        bail!(Missing(format!(
            "no question {id}; cicadactl answer {} lists the open ones",
            args.target.agent
        )));
    };
    if question["state"] == "answered" {
        bail!("question {id} was answered: {}", question["answer"].as_str().unwrap_or_default());
    }
    let Some(text) = &args.answer else {
        return list(std::slice::from_ref(question), args.output);
    };
    let answer = chosen(text, &options(question))?;
    let (namespace, name) = args.target.names()?;
    let message = InboxMessage {
        version: INBOX_VERSION,
        // One for each question: a second answer finds the first one's object.
        id: format!("answer-{id}"),
        channel: "cli".into(),
        from: args.from,
        to: None,
        subject: None,
        body: answer.clone(),
        conversation_id: None,
        peer: None,
        answers: Some(id.clone()),
        attachments: None,
        payload: None,
        at: Timestamp::now(),
    };
    if !store.put_message(&message).await? {
        bail!("an answer to {id} is in the inbox already; the first one counts");
    }
    let place = &args.target.place;
    let said = ask_for_cycle(place, &namespace, &name, &message.hash(), TriggerKind::HumanReply).await?;
    note(&format!("{id}: {answer}; {said}"));
    Ok(())
}

fn options(question: &Json) -> Vec<String> {
    question["options_json"].as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The option of this number, or the text as it is.
fn chosen(text: &str, options: &[String]) -> anyhow::Result<String> {
    if text.trim().is_empty() {
        bail!(UsageError("the answer is empty".into()));
    }
    if options.is_empty() || options.iter().any(|option| option == text) {
        return Ok(text.to_owned());
    }
    match text.parse::<usize>() {
        Ok(number) => match number.checked_sub(1).and_then(|n| options.get(n)) {
            Some(option) => Ok(option.clone()),
            None => bail!(UsageError(format!("there is no option {number}: 1 to {} are", options.len()))),
        },
        Err(_) => Ok(text.to_owned()),
    }
}

fn list(questions: &[Json], output: Format) -> anyhow::Result<()> {
    let mut grid = Grid::new(&["question", "asked", "until", "text", "options"]);
    for q in questions.iter().filter(|q| q["state"] != "answered") {
        let options: Vec<String> =
            options(q).iter().enumerate().map(|(n, option)| format!("{}: {option}", n + 1)).collect();
        grid.push([
            q["request_id"].clone(),
            q["created_at"].clone(),
            q["expires_at"].clone(),
            q["question"].clone(),
            json!(options.join("; ")),
        ]);
    }
    if grid.rows.is_empty() {
        note("no open questions");
    }
    grid.print(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_chosen_by_number_or_text_and_free_text_is_kept() {
        let options = ["yes".to_owned(), "no".to_owned(), "7".to_owned()];
        for (text, wanted) in [("1", "yes"), ("no", "no"), ("7", "7"), ("Not yet", "Not yet")] {
            assert_eq!(chosen(text, &options).unwrap(), wanted);
        }
        assert_eq!(chosen("12", &[]).unwrap(), "12");
        for wrong in ["0", "4", " "] {
            assert!(chosen(wrong, &options).unwrap_err().is::<UsageError>(), "{wrong}");
        }
    }
}
