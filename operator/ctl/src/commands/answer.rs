//! `answer`: a person's answer to a question of the agent's.

use std::collections::BTreeSet;

use anyhow::bail;
use cicada_crds::cycle::TriggerKind;
use cicada_store::{AgentStore, INBOX_VERSION, InboxError, InboxMessage, StoreError};
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
    let waiting = waiting(&store).await?;
    let Some(id) = &args.request else { return list(&questions, &waiting, args.output.format) };
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
        return list(std::slice::from_ref(question), &waiting, args.output.format);
    };
    let answer = chosen(text, &options(question))?;
    let (namespace, name) = args.target.names()?;
    // Nobody would ever read it otherwise.
    args.target.manifest().await?;
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
        attachments: vec![],
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

/// Questions whose answer is in the inbox: the next cycle takes it in.
async fn waiting(store: &AgentStore) -> anyhow::Result<BTreeSet<String>> {
    let mut answered = BTreeSet::new();
    for entry in store.list_inbox().await? {
        match store.get_inbox(&entry).await {
            Ok(message) => answered.extend(message.answers),
            // No message, which the next cycle puts into quarantine, or taken in meanwhile.
            Err(InboxError::Poison { .. } | InboxError::Store(StoreError::NotFound { .. })) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(answered)
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

fn list(questions: &[Json], waiting: &BTreeSet<String>, output: Format) -> anyhow::Result<()> {
    let mut grid = Grid::new(&["question", "asked", "until", "text", "options"]);
    let open: Vec<&Json> = questions.iter().filter(|q| q["state"] != "answered").collect();
    let is_waiting = |q: &Json| q["request_id"].as_str().is_some_and(|id| waiting.contains(id));
    for q in open.iter().filter(|q| !is_waiting(q)) {
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
    let answered = open.iter().filter(|q| is_waiting(q)).count();
    if answered > 0 {
        note(&format!("{answered} more are answered; the next cycle takes the answers in"));
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
