//! The run part: what belongs to one cycle.

use cicada_contract::Attachment;
use cicada_contract::plan::{
    CycleIdentity, Expect, Mode, PLAN_VERSION, PlanMessage, PlanRun, Trigger, TriggerKind,
};
use cicada_contract::text::sha256_hex;
use cicada_crds::{AgentCycle, PersistentAgent, cycle};
use jiff::Timestamp;

use crate::{
    approvals,
    decide::OWN_PREFIX,
    peers::{self, PeerView},
};

/// What the Job of this lead is for.
pub fn mode(agent: &PersistentAgent, lead: &AgentCycle) -> Mode {
    if let Some(restore) = &lead.spec.restore {
        return Mode::Restore { snapshot: restore.snapshot.clone() };
    }
    let own = is_owned_by(lead, agent.metadata.uid.as_deref().unwrap_or_default());
    let triggers = &lead.spec.triggers;
    let delivery =
        own && !triggers.is_empty() && triggers.iter().all(|t| t.kind == cycle::TriggerKind::Delivery);
    // What lies in the inbox needs a whole cycle; an outbox alone does not.
    let inbox = agent.status.as_ref().and_then(|s| s.delivery.as_ref()).and_then(|d| d.inbox).unwrap_or(0);
    if delivery && inbox == 0 { Mode::Delivery } else { Mode::Cycle }
}

/// The run part: the lead's triggers, instructions and messages, then those of the cycles that joined it.
///
/// `cycles` starts with the lead. `own_uid` is the UID of the agent, by which its operator's own cycles
/// are told from people's; `there` are the peers of the agent that are there.
pub fn plan_run(
    agent: &PersistentAgent,
    cycles: &[&AgentCycle],
    there: &[PeerView],
    config_sha256: &str,
) -> PlanRun {
    let own_uid = agent.metadata.uid.as_deref().unwrap_or_default();
    let lead = cycles.first();
    let mut run = PlanRun {
        version: PLAN_VERSION,
        config_sha256: config_sha256.to_owned(),
        cycle: CycleIdentity {
            name: lead.and_then(|c| c.metadata.name.clone()).unwrap_or_default(),
            uid: lead.and_then(|c| c.metadata.uid.clone()).unwrap_or_default(),
        },
        triggers: vec![],
        instructions: vec![],
        messages: vec![],
        approvals: approvals::approvals(agent),
        unreachable_peers: peers::unreachable(agent, there),
        expect: expect(agent),
        mode: lead.map_or(Mode::Cycle, |lead| mode(agent, lead)),
    };
    for cycle in cycles {
        run.triggers.extend(triggers(agent, cycle, is_owned_by(cycle, own_uid)));
        for trigger in &cycle.spec.triggers {
            let schedule = trigger
                .schedule
                .as_ref()
                .and_then(|name| agent.spec.schedules.iter().find(|s| &s.name == name));
            run.instructions
                .extend(schedule.and_then(|s| s.instruction.clone()).filter(|_| is_owned_by(cycle, own_uid)));
        }
        run.instructions.extend(cycle.spec.instruction.clone());
        run.messages.extend(cycle.spec.message.as_ref().map(|m| message(cycle, m)));
    }
    run.instructions.dedup();
    run
}

/// What status knows of the store; nothing before the first report.
pub fn expect(agent: &PersistentAgent) -> Expect {
    let memory = agent.status.as_ref().and_then(|s| s.memory.as_ref());
    Expect { snapshot: memory.and_then(|m| m.snapshot.clone()), epoch: memory.and_then(|m| m.epoch) }
}

/// True if the operator made this cycle for the agent of this UID.
pub fn is_owned_by(cycle: &AgentCycle, agent_uid: &str) -> bool {
    let owners = cycle.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().any(|o| o.controller == Some(true) && o.uid == agent_uid)
}

fn triggers(agent: &PersistentAgent, cycle: &AgentCycle, own: bool) -> Vec<Trigger> {
    let given = if cycle.spec.triggers.is_empty() {
        vec![cycle::CycleTrigger::default()]
    } else {
        cycle.spec.triggers.clone()
    };
    let of_cycle = (!own).then(|| content_key(cycle));
    given
        .iter()
        .enumerate()
        .map(|(index, t)| Trigger {
            kind: kind(t.kind),
            schedule: t.schedule.clone(),
            slot: t.slot,
            token: t.token.clone(),
            handled_key: match &of_cycle {
                Some(key) => (index == 0).then(|| key.clone()),
                None => own_key(agent, t),
            },
        })
        .collect()
}

/// Key of a request that somebody else made: its name and its content, never its UID, so that the same
/// manifest applied to an empty cluster starts nothing twice.
fn content_key(cycle: &AgentCycle) -> String {
    let spec = serde_json::to_string(&cycle.spec).unwrap_or_default();
    let namespace = cycle.metadata.namespace.as_deref().unwrap_or_default();
    format!("cycle/{namespace}/{}/{}", cycle.metadata.name.as_deref().unwrap_or_default(), sha256_hex(spec))
}

/// Key of what the operator itself took up; None for a cron slot, which never repeats.
fn own_key(agent: &PersistentAgent, trigger: &cycle::CycleTrigger) -> Option<String> {
    if let Some(token) = &trigger.token {
        return Some(format!("token/{token}"));
    }
    let name = trigger.schedule.as_ref()?;
    let own = agent.status.iter().flat_map(|s| &s.agent_schedules);
    let own_once = own
        .filter(|s| s.schedule.parse::<Timestamp>().is_ok())
        .any(|s| name.strip_prefix(OWN_PREFIX) == Some(s.key.as_str()));
    let once = own_once || agent.spec.schedules.iter().any(|s| &s.name == name && s.at.is_some());
    once.then(|| format!("at/{name}/{}", trigger.slot.unwrap_or(Timestamp::UNIX_EPOCH)))
}

fn kind(from: cycle::TriggerKind) -> TriggerKind {
    match from {
        cycle::TriggerKind::Schedule => TriggerKind::Schedule,
        cycle::TriggerKind::Request => TriggerKind::Request,
        cycle::TriggerKind::Message => TriggerKind::Message,
        cycle::TriggerKind::Peer => TriggerKind::Peer,
        cycle::TriggerKind::Commitment => TriggerKind::Commitment,
        cycle::TriggerKind::HumanReply => TriggerKind::HumanReply,
        cycle::TriggerKind::Delivery => TriggerKind::Delivery,
    }
}

fn message(cycle: &AgentCycle, from: &cycle::CycleMessage) -> PlanMessage {
    PlanMessage {
        id: cycle.metadata.uid.clone().unwrap_or_default(),
        channel: from.channel.clone().unwrap_or_else(|| "cycle".into()),
        from: from.from.clone().unwrap_or_default(),
        subject: from.subject.clone(),
        body: from.body.clone(),
        attachments: from.attachments.iter().map(attachment).collect(),
        at: cycle.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0),
    }
}

/// Bytes that a message takes in a plan.
pub(crate) fn message_bytes(of: &cycle::CycleMessage) -> usize {
    let attachments = of.attachments.iter().map(|a| attachment(a).text_bytes()).sum::<usize>();
    of.body.len() + of.subject.as_ref().map_or(0, String::len) + attachments
}

fn attachment(from: &cycle::Attachment) -> Attachment {
    Attachment {
        name: from.name.clone(),
        content_type: from.content_type.clone(),
        size: from.size,
        url: from.url.clone(),
    }
}
