//! `proposals`: what agents propose about themselves, for people to decide.

use anyhow::{Context, bail};
use cicada_contract::plan::APPROVAL_HASH_MIN;
use cicada_contract::text::sha256_hex;
use cicada_crds::PersistentAgent;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value as Json, json};

use super::claim::confirm;
use super::memory::ledger_rows;
use crate::args::{DecideArgs, ProposalsArgs, ProposalsCommand, Target};
use crate::exit::Missing;
use crate::local::desk::{self, Desk};
use crate::output::{Grid, line, note, yaml};
use crate::target::did_you_mean;

/// Annotation by which a person approves: `<id>-<hash>`.
const APPROVE: &str = "cicada.dev/approve";
/// Annotation by which a person rejects: `<id>-<hash>`.
const REJECT: &str = "cicada.dev/reject";
/// Decisions that one annotation holds.
const DECISIONS_KEPT: usize = 10;
/// More than any ledger keeps.
const PROPOSALS_MAX: usize = 100_000;

/// Runs the command.
pub(super) async fn run(args: ProposalsArgs) -> anyhow::Result<()> {
    match args.command {
        ProposalsCommand::List { target, all, output } => {
            let mut grid = Grid::new(&["proposal", "kind", "state", "made", "hash", "summary"]);
            for p in read(&target).await?.iter().filter(|p| all || p["state"] == "open") {
                let text = |key: &str| p[key].clone();
                grid.push([
                    text("id"),
                    text("kind"),
                    text("state"),
                    text("created_at"),
                    json!(short_hash(p)),
                    text("summary"),
                ]);
            }
            if grid.rows.is_empty() {
                note(if all {
                    "no proposals"
                } else {
                    "no open proposals; --all shows those that were decided"
                });
            }
            grid.print(output.format)
        }
        ProposalsCommand::Show { target, id, manifest } => {
            let proposal = find(&target, &id).await?;
            if manifest {
                return line(&commit(&proposal)?);
            }
            show(&target, &proposal).await
        }
        ProposalsCommand::Approve(args) => decide(&args, true).await,
        ProposalsCommand::Reject(args) => decide(&args, false).await,
    }
}

/// Proposals and changed MCP tools, as the ledger has them, under the names of both.
async fn read(target: &Target) -> anyhow::Result<Vec<Json>> {
    let store = target.open().await?;
    let sql = "SELECT proposal_id AS id, kind, state, created_at, base_hash, content_hash, content, summary FROM proposals \
               UNION ALL SELECT name, 'tool', 'open', changed_at, hash, changed_hash, '', \
               'the MCP tool is not what it was at first use' FROM mcp_tools WHERE changed_hash IS NOT NULL \
               ORDER BY created_at";
    ledger_rows(&store, sql, PROPOSALS_MAX).await
}

async fn find(target: &Target, id: &str) -> anyhow::Result<Json> {
    let all = read(target).await?;
    let known: Vec<String> = all.iter().filter_map(|p| p["id"].as_str().map(str::to_owned)).collect();
    let found = all.into_iter().find(|p| p["id"] == id);
    found.ok_or_else(|| {
        Missing(format!(
            "no proposal {id}{}; cicadactl proposals list {} --all shows them",
            did_you_mean(id, &known),
            target.agent
        ))
        .into()
    })
}

fn short_hash(proposal: &Json) -> String {
    let hash = proposal["content_hash"].as_str().unwrap_or_default();
    hash.get(..APPROVAL_HASH_MIN).unwrap_or(hash).to_owned()
}

/// What a person writes to decide about this content and no other.
fn token(proposal: &Json) -> String {
    format!("{}-{}", proposal["id"].as_str().unwrap_or_default(), short_hash(proposal))
}

/// What to put into the manifest in place of an approval.
fn commit(proposal: &Json) -> anyhow::Result<String> {
    let spec = if proposal["kind"] == "charter" {
        json!({"charter": proposal["content"]})
    } else {
        json!({"approvals": [token(proposal)]})
    };
    yaml(&json!({"spec": spec}))
}

async fn show(target: &Target, proposal: &Json) -> anyhow::Result<()> {
    let text = |key: &str| proposal[key].as_str().unwrap_or_default();
    line(&format!("proposal   {}", text("id")))?;
    line(&format!("kind       {}", text("kind")))?;
    line(&format!("state      {}", text("state")))?;
    line(&format!("made       {}", text("created_at")))?;
    line(&format!("approve by {}", token(proposal)))?;
    if text("kind") != "charter" {
        return line(&cicada_contract::text::printable(text("summary")));
    }
    let manifest = target.manifest().await?;
    let Some(charter) = manifest.map(|agent| agent.spec.charter.unwrap_or_default()) else {
        line("")?;
        return line(text("content"));
    };
    if sha256_hex(&charter) != text("base_hash") {
        note("the manifest was edited after the proposal was made: it can't be approved any more");
    }
    line("")?;
    for (sign, changed) in lines(&charter, text("content")) {
        line(&format!("{sign} {}", cicada_contract::text::printable(changed)))?;
    }
    Ok(())
}

/// The lines of both texts, in order: `-` only in the old one, `+` only in the new one.
fn lines<'a>(old: &'a str, new: &'a str) -> Vec<(char, &'a str)> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    // Lengths of the longest common rest; charters have some hundred lines at most.
    let mut rest = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            rest[i][j] =
                if old[i] == new[j] { rest[i + 1][j + 1] + 1 } else { rest[i + 1][j].max(rest[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, vec![]);
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            out.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && rest[i + 1][j] >= rest[i][j + 1]) {
            out.push(('-', old[i]));
            i += 1;
        } else {
            out.push(('+', new[j]));
            j += 1;
        }
    }
    out
}

async fn decide(args: &DecideArgs, approve: bool) -> anyhow::Result<()> {
    let target = &args.target;
    let (namespace, name) = target.names()?;
    if !target.place.is_cluster() && target.place.local.is_none() {
        desk::required(None, "a decision")?;
    }
    let proposal = find(target, &args.id).await?;
    let state = proposal["state"].as_str().unwrap_or_default();
    if state != "open" {
        bail!("proposal {} is {state}; nothing was changed", args.id);
    }
    let agent = target.manifest().await?.unwrap_or_else(|| PersistentAgent::new(&name, Default::default()));
    let charter = agent.spec.charter.clone().unwrap_or_default();
    if approve && proposal["kind"] == "charter" && proposal["base_hash"] != sha256_hex(&charter).as_str() {
        bail!(
            "the manifest was edited after proposal {} was made: an edit wins; commit what you want of it (proposals show --manifest)",
            args.id
        );
    }
    let (key, other, verb) = if approve { (APPROVE, REJECT, "approve") } else { (REJECT, APPROVE, "reject") };
    let token = token(&proposal);
    let summary = cicada_contract::text::printable(proposal["summary"].as_str().unwrap_or_default());
    confirm(&format!("{verb} {token} of {namespace}/{name} ({summary})?"), args.yes)?;
    let desk = match &target.place.local {
        Some(dir) if !target.place.is_cluster() => Some(Desk::new(dir)?),
        _ => None,
    };
    let given = match &desk {
        Some(desk) => desk.annotations(&namespace, Some(&name)),
        None => agent.metadata.annotations.clone().unwrap_or_default(),
    };
    let added = with(given.get(key), &token);
    // The last word counts: an earlier one to the contrary goes.
    let rest = given.get(other).map(|list| without(list, &token));
    if let Some(desk) = &desk {
        desk.annotate(&namespace, Some(&name), key, Some(&added))?;
        if let Some(rest) = &rest {
            desk.annotate(&namespace, Some(&name), other, rest.as_deref())?;
        }
    } else {
        let mut annotations = json!({key: added});
        if let Some(rest) = rest {
            annotations[other] = json!(rest);
        }
        let agents: Api<PersistentAgent> = Api::namespaced(target.place.client().await?, &namespace);
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        agents
            .patch(&name, &PatchParams::default(), &patch)
            .await
            .with_context(|| format!("can't annotate {namespace}/{name}"))?;
    }
    note(&format!("{key}: {added} on {namespace}/{name}; the next cycle takes it in"));
    Ok(())
}

fn items(list: &str) -> Vec<&str> {
    list.split(|c: char| c == ',' || c.is_whitespace()).filter(|item| !item.is_empty()).collect()
}

/// The annotation with one more decision. Those that a cycle has taken in change nothing any more, so only
/// the newest are kept.
fn with(list: Option<&String>, token: &str) -> String {
    let mut all = items(list.map_or("", String::as_str));
    all.retain(|item| *item != token);
    all.push(token);
    all[all.len().saturating_sub(DECISIONS_KEPT)..].join(",")
}

/// The annotation without a decision; None if nothing is left of it.
fn without(list: &str, token: &str) -> Option<String> {
    let mut all = items(list);
    all.retain(|item| *item != token);
    (!all.is_empty()).then(|| all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_each_line_once() {
        let signs: String =
            lines("a\nb\nc", "a\nx\nc\nd").iter().map(|(sign, text)| format!("{sign}{text} ")).collect();
        assert_eq!(signs, " a -b +x  c +d ");
        assert_eq!(lines("", "a"), [('+', "a")]);
        assert_eq!(lines("a", ""), [('-', "a")]);
    }

    #[test]
    fn decisions_stand_beside_each_other_and_the_last_word_counts() {
        assert_eq!(with(None, "a-1"), "a-1");
        assert_eq!(with(Some(&"a-1, b-2".into()), "a-1"), "b-2,a-1");
        assert_eq!(items(&with(Some(&(0..20).map(|n| format!("p-{n},")).collect()), "a-1")).len(), 10);
        assert_eq!(without("a-1, b-2", "a-1").as_deref(), Some("b-2"));
        assert_eq!(without("a-1", "a-1"), None);
    }

    #[test]
    fn a_decision_names_the_content_that_was_seen() {
        let proposal = json!({"id": "charter-1a2b3c4d", "kind": "charter", "content_hash": "0123456789abcdef", "content": "Be kind.\n"});
        assert_eq!(token(&proposal), "charter-1a2b3c4d-0123456789");
        assert!(commit(&proposal).unwrap().contains("charter: "), "{}", commit(&proposal).unwrap());
        let tool = json!({"id": "crm.find", "kind": "tool", "content_hash": "0123456789abcdef"});
        assert!(commit(&tool).unwrap().contains("crm.find-0123456789"));
    }
}
