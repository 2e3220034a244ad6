//! What reports say of the memory, and looks into the store without a cycle: once for an agent whose status
//! has no memory and that no schedule will wake soon, and once after its store has moved.

use cicada_contract::{
    CycleReport, FailureClass,
    report::{CycleResult, MemoryReport},
};
use cicada_crds::status::MemoryStatus;
use jiff::{SignedDuration, Timestamp};

use crate::{
    active::FIRST_LOOK,
    conditions::{self, Wanted},
    cycle_status::{line, number},
    decide::{Action, Step},
    gate::{self, Gate},
    observed::{LookView, ReportJob},
    plan::{store_config, store_location},
};

/// An agent without schedules is looked at after this long: a folder often brings its first cycle along.
const LOOK_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// Where the manifest (or the operator's default) now has the memory.
pub(crate) fn location(step: &Step<'_>) -> Option<String> {
    store_config(&step.seen.agent.spec, step.seen.defaults).ok().map(|store| store_location(&store))
}

/// The location in status and the one that the manifest names, where they differ and a memory is left behind.
pub(crate) fn moved(step: &Step<'_>) -> Option<(String, String)> {
    let memory = step.status.memory.as_ref()?;
    let (from, snapshot, to) = (memory.store.clone()?, memory.snapshot.as_ref()?, location(step)?);
    let annotations = step.seen.agent.metadata.annotations.as_ref();
    let accepted = annotations.and_then(|a| a.get(crate::ACCEPT_MEMORY_LOSS)) == Some(snapshot);
    (from != to && !accepted).then_some((from, to))
}

/// Takes in what a cycle's report says of the memory.
pub(crate) fn take_up(step: &mut Step<'_>, report: &CycleReport, at: Timestamp) {
    let (generation, now) = (step.status.observed_generation, step.now);
    if report.class == Some(FailureClass::StoreRefused) {
        let unsafe_ = Wanted::new("StoreSafe", false, FailureClass::StoreRefused.reason(), &report.message);
        conditions::apply(&mut step.status.conditions, unsafe_, generation, now);
    }
    let Some(memory) = &report.memory else { return };
    // The manifest may have been edited while the cycle ran: it worked where it was started.
    let started = step.status.active_cycle.as_ref().and_then(|a| a.store.clone());
    let store = started.or_else(|| location(step));
    set_memory(step, memory, store, at);
    let safe = Wanted::new("StoreSafe", true, "ConditionalWrites", "");
    for wanted in [persisted(report, memory), safe] {
        conditions::apply(&mut step.status.conditions, wanted, generation, now);
    }
    if memory.adopted {
        let message = "the store had the memory of an earlier agent of this name";
        let adopted = Wanted::new("MemoryAdopted", true, "Adopted", message);
        conditions::apply(&mut step.status.conditions, adopted, generation, now);
        step.note(false, "MemoryAdopted", message.into(), None);
    }
}

/// Whether the work of the last cycle is in the memory. A failed cycle leaves a snapshot too, with its
/// ledger and the memory as it was.
fn persisted(report: &CycleReport, memory: &MemoryReport) -> Wanted {
    let (persisted, reason) = match report.result {
        CycleResult::Done => (true, "Persisted"),
        CycleResult::AlreadyHandled => (true, "AlreadyHandled"),
        CycleResult::Failed if memory.counted && memory.snapshot != memory.before => (true, "Interrupted"),
        CycleResult::Failed => (false, "NotPersisted"),
    };
    Wanted::new("LastCyclePersisted", persisted, reason, "")
}

fn set_memory(step: &mut Step<'_>, memory: &MemoryReport, store: Option<String>, at: Timestamp) {
    let before = step.status.memory.take().unwrap_or_default();
    let tables = memory.tables.or(before.tables);
    let summary = memory.snapshot.as_ref().map(|_| summary(memory.size, tables.unwrap_or(0)));
    step.status.memory = Some(MemoryStatus {
        store,
        snapshot: memory.snapshot.as_ref().map(|name| line(name, 128)),
        epoch: Some(number(memory.epoch)),
        size: Some(number(memory.size)),
        archive_size: Some(number(memory.archive_size)),
        tables,
        persisted_at: memory
            .persisted_at
            .and_then(|s| Timestamp::from_second(s).ok())
            .or(before.persisted_at),
        checked_at: Some(at),
        looked: None,
        applied_restore: before.applied_restore,
        seeded_from: memory.seeded_from.as_ref().map(|from| line(from, 256)),
        summary,
    });
}

fn summary(bytes: u64, tables: u32) -> String {
    let size = cicada_contract::text::bytes(bytes);
    format!("{size}, {tables} {}", if tables == 1 { "table" } else { "tables" })
}

/// Looks where a look is due, and takes up what one has found.
pub(crate) fn look(step: &mut Step<'_>, gate: Option<&Gate>) {
    if let Some(look) = step.seen.look {
        return match &look.found {
            ReportJob::Running => step.look_again_at(step.now + FIRST_LOOK),
            ReportJob::Ended(_) if look.deleting => {}
            ReportJob::Ended(report) => looked(step, look, report.as_ref().as_ref()),
        };
    }
    if !step.seen.environment.looks || step.seen.environment.full {
        return;
    }
    let due = match moved(step) {
        Some((_, to)) => {
            let stands = gate.is_some_and(|g| g.reason == gate::STORE_MOVED);
            let looked = step.status.memory.as_ref().and_then(|m| m.looked.as_ref());
            (stands && looked != Some(&to)).then_some(step.now)
        }
        None => first_look(step, gate),
    };
    match due {
        Some(at) if at <= step.now => {
            step.actions.push(Action::StartLook);
            step.again = true;
        }
        Some(at) => step.look_again_at(at),
        None => {}
    }
}

/// A cycle reads the store anyway: only who has none ahead is looked for.
fn first_look(step: &Step<'_>, gate: Option<&Gate>) -> Option<Timestamp> {
    let known = step.status.last_cycle.is_some() || step.status.memory.is_some();
    let wakes = !step.seen.agent.spec.schedules.is_empty() || !step.waiting().is_empty();
    let created = step.seen.agent.metadata.creation_timestamp.as_ref().map_or(step.now, |t| t.0);
    (!known && !wakes && gate.is_none()).then_some(created + LOOK_AFTER)
}

fn looked(step: &mut Step<'_>, look: &LookView, report: Option<&CycleReport>) {
    let (now, to) = (step.now, location(step));
    let found = report.and_then(|r| r.memory.as_ref());
    let known = step.status.memory.clone().unwrap_or_default();
    match found {
        // Nothing of ours is expected yet, or what is there is at least as new as what was left behind.
        Some(memory) if known.snapshot.is_none() || Some(memory.epoch) >= known.epoch => {
            set_memory(step, memory, to, now);
        }
        _ => {
            let memory = step.status.memory.get_or_insert_default();
            memory.checked_at = Some(now);
            memory.looked = to.filter(|_| known.snapshot.is_some());
        }
    }
    step.actions.push(Action::DeleteJob { name: look.name.clone(), uid: look.uid.clone() });
    step.again = true;
}
