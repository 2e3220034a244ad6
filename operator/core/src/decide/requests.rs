//! Cycles that are asked for: by a token, an annotation, a restore, or what waits for delivery.

use cicada_contract::FailureClass;
use cicada_crds::{
    AgentCycleSpec,
    cycle::{AgentRef, CycleRestore, CycleTrigger, TriggerKind},
};

use super::{Action, Step};
use crate::{RUN_NOW, gate, names};

/// Longest token of a request that is kept.
const TOKEN_MAX: usize = 120;

impl Step<'_> {
    pub(super) fn create_cycle(
        &mut self,
        name: String,
        triggers: Vec<CycleTrigger>,
        restore: Option<String>,
    ) {
        let spec = AgentCycleSpec {
            agent_ref: AgentRef { name: self.agent_name().to_owned() },
            triggers,
            restore: restore.map(|snapshot| CycleRestore { snapshot }),
            ..AgentCycleSpec::default()
        };
        self.actions.push(Action::CreateCycle { name, spec: Box::new(spec) });
    }

    /// Cycles for spec.runToken, the annotation run-now, memory.restoreFrom and pending deliveries.
    pub(super) fn create_requests(&mut self) {
        let agent = self.seen.agent;
        let token =
            agent.spec.run_token.clone().filter(|t| self.status.last_handled_run_token.as_ref() != Some(t));
        if let Some(token) = token {
            let before = self.actions.len();
            self.create_request("run-token", &token, TriggerKind::Request, None);
            if self.actions.len() == before {
                self.status.last_handled_run_token = Some(token);
            }
        }
        let annotation = agent.metadata.annotations.as_ref().and_then(|a| a.get(RUN_NOW));
        let wanted = annotation.map(|v| cicada_contract::text::cut(v, TOKEN_MAX)).filter(|v| !v.is_empty());
        if let Some(token) = wanted.filter(|t| self.status.last_handled_run_now.as_ref() != Some(t)) {
            let before = self.actions.len();
            self.create_request("run-now", &token, TriggerKind::Request, None);
            if self.actions.len() == before {
                self.status.last_handled_run_now = Some(token);
            }
        }
        let restore = agent.spec.memory.as_ref().and_then(|m| m.restore_from.clone());
        // The manifest names one that is not there: nothing comes of asking again before it is edited.
        let refused = gate::stall_of_cycle(self).is_some_and(|(c, _)| c == FailureClass::SnapshotMissing);
        if let Some(restore) = restore.filter(|_| !refused) {
            let token = format!("{}/{}", restore.snapshot, restore.token.unwrap_or_default());
            let applied = self.status.memory.as_ref().and_then(|m| m.applied_restore.clone());
            if applied.as_deref() != Some(token.as_str()) {
                self.create_request("restore", &token, TriggerKind::Request, Some(restore.snapshot));
            }
        }
        self.create_delivery();
    }

    fn create_delivery(&mut self) {
        let Some(delivery) = self.status.delivery.clone() else { return };
        let Some(next) = delivery.next else { return };
        if next > self.now {
            self.look_again_at(next);
            return;
        }
        let epoch = self.status.memory.as_ref().and_then(|m| m.epoch).unwrap_or_default();
        let token = format!("{epoch}-{}", delivery.attempts.unwrap_or_default());
        self.create_request("delivery", &token, TriggerKind::Delivery, None);
    }

    /// Creates the cycle of a request unless it is there. One that is there was created by an earlier step.
    fn create_request(&mut self, kind: &str, token: &str, trigger: TriggerKind, restore: Option<String>) {
        let name = names::request_cycle(self.agent_name(), self.agent_uid(), kind, token);
        if self.seen.cycles.iter().any(|c| c.name == name) {
            return;
        }
        // The kind keeps equal tokens of annotation and spec apart in the store's list of handled requests.
        let token = if kind == "run-token" { token.to_owned() } else { format!("{kind}:{token}") };
        let trigger = CycleTrigger { kind: trigger, token: Some(token), ..CycleTrigger::default() };
        self.create_cycle(name, vec![trigger], restore);
    }
}
