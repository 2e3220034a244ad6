//! What to do about what was found: each damage has its own next command.

use std::collections::BTreeSet;

/// What is wrong, as far as the way out of it differs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// HEAD belongs to this agent (`cluster/namespace/name`) and lies in the folder of another.
    Foreign(String),
    /// HEAD contradicts itself.
    Head,
    /// An older HEAD was put back: this snapshot is of a later epoch.
    OldHead(String),
    /// An archive of this snapshot, or one that it builds on.
    Snapshot(String),
    /// Large results or files that the ledger names.
    Blob,
    /// Something in the inbox is no message.
    Inbox,
    /// A claim or receipt that can't be decoded; its whole key.
    Outbox(String),
    /// A database that could not be looked into, though its bytes are those that were published.
    Unread,
}

/// What a memory has.
pub(super) struct Known<'a> {
    /// `namespace/name`.
    pub(super) agent: &'a str,
    pub(super) current: Option<&'a str>,
    /// All snapshots, oldest first.
    pub(super) snapshots: Vec<&'a str>,
    /// Those that were checked as a whole and passed.
    pub(super) sound: BTreeSet<&'a str>,
}

/// One line for each thing to do.
pub(super) fn advice(known: &Known<'_>, faults: &BTreeSet<Fault>) -> Vec<String> {
    let mut lines: Vec<String> = faults.iter().filter_map(|fault| of_one(known.agent, fault)).collect();
    let damaged: BTreeSet<&str> = faults
        .iter()
        .filter_map(|f| if let Fault::Snapshot(id) = f { Some(id.as_str()) } else { None })
        .collect();
    if !damaged.is_empty() {
        lines.insert(0, of_snapshots(known, &damaged));
    }
    lines
}

fn of_one(agent: &str, fault: &Fault) -> Option<String> {
    Some(match fault {
        Fault::Snapshot(_) => return None,
        Fault::Foreign(owner) => format!(
            "HEAD.json of {owner} was brought here by hand: take it away; \
             cicadactl copy NAMESPACE/NAME {agent} takes a memory to another agent"
        ),
        Fault::Head => "HEAD.json itself is wrong, which no command mends: \
                        bring the newest sound version of it back from the bucket's versions or a backup"
            .into(),
        Fault::OldHead(newer) => format!(
            "put the newer HEAD.json back, from the bucket's versions or a backup. Without one, take the archives of \
             {newer} out first, then accept the loss with the annotation cicada.dev/accept-memory-loss: {newer}"
        ),
        Fault::Blob => "the agent goes on without the lost results, and a restore does not help: \
                        bring the objects back from the bucket's versions or a backup if they matter"
            .into(),
        Fault::Inbox => {
            "the next cycle puts what is no message into quarantine; nothing is to be done".into()
        }
        Fault::Outbox(key) => {
            format!(
                "cycles fail as long as {key} is there: find out whether its message left, then remove the object"
            )
        }
        Fault::Unread => "what is unreadable may be of a later release: \
                          use the cicadactl of the release that wrote it"
            .into(),
    })
}

fn of_snapshots(known: &Known<'_>, damaged: &BTreeSet<&str>) -> String {
    let (agent, current) = (known.agent, known.current.unwrap_or_default());
    let names = damaged.iter().copied().collect::<Vec<_>>().join(", ");
    if !damaged.contains(current) {
        return format!(
            "the current snapshot {current} is not damaged, so cycles go on; {names} can't be restored any more"
        );
    }
    let left = || known.snapshots.iter().rev().copied().filter(|id| !damaged.contains(id));
    if let Some(id) = left().find(|id| known.sound.contains(id)) {
        return format!(
            "cicadactl diff {agent} {id} shows what lies after the newest sound snapshot, \
             cicadactl restore {agent} {id} goes back to it"
        );
    }
    match left().next() {
        Some(id) => format!(
            "cicadactl verify {agent} --all finds the newest sound snapshot; {id} may be it: \
             cicadactl restore {agent} {id} checks it as a whole and goes back to it"
        ),
        None => format!(
            "no other snapshot is left: bring the damaged objects back from the bucket's versions or a backup, \
             or give the agent another memory by cicadactl import {agent} FILE"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(sound: &[&'static str]) -> Known<'static> {
        Known {
            agent: "shop/clerk",
            current: Some("3-1-cc"),
            snapshots: vec!["1-1-aa", "2-1-bb", "3-1-cc"],
            sound: sound.iter().copied().collect(),
        }
    }

    #[test]
    fn each_damage_has_its_own_way_out() {
        let snapshots = |ids: &[&str]| ids.iter().map(|id| Fault::Snapshot((*id).into())).collect::<Vec<_>>();
        let cases: [(Vec<Fault>, &[&'static str], &str, &str); 11] = [
            (snapshots(&["3-1-cc"]), &["2-1-bb", "1-1-aa"], "restore shop/clerk 2-1-bb goes back", "--all"),
            (snapshots(&["3-1-cc", "2-1-bb"]), &["1-1-aa"], "restore shop/clerk 1-1-aa goes back", "2-1-bb"),
            (snapshots(&["3-1-cc"]), &[], "verify shop/clerk --all finds", "no other snapshot"),
            (snapshots(&["3-1-cc", "2-1-bb", "1-1-aa"]), &[], "import shop/clerk FILE", "restore"),
            (snapshots(&["1-1-aa"]), &["3-1-cc"], "1-1-aa can't be restored any more", "cicadactl restore"),
            (vec![Fault::Blob], &["3-1-cc"], "a restore does not help", "cicadactl"),
            (vec![Fault::Inbox], &["3-1-cc"], "nothing is to be done", "cicadactl"),
            (vec![Fault::Outbox("shop/clerk/outbox/a/claim-1".into())], &[], "remove the object", "restore"),
            (vec![Fault::Head], &[], "bring the newest sound version", "cicadactl"),
            (vec![Fault::OldHead("4-1-dd".into())], &[], "accept-memory-loss: 4-1-dd", "earlier"),
            (vec![Fault::Foreign("local/lab/x".into())], &[], "take it away", "restore"),
        ];
        for (faults, sound, words, never) in cases {
            let lines = advice(&known(sound), &faults.into_iter().collect());
            let [line] = lines.as_slice() else { panic!("{lines:?}") };
            assert!(line.contains(words) && !line.contains(never), "{words}: {line}");
        }
    }

    #[test]
    fn several_damages_have_a_line_each() {
        let faults = [Fault::Inbox, Fault::Blob, Fault::Snapshot("3-1-cc".into())];
        let lines = advice(&known(&[]), &faults.into_iter().collect());
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].contains("cicadactl"), "{lines:?}");
        assert_eq!(advice(&known(&[]), &BTreeSet::new()), [""; 0]);
    }
}
