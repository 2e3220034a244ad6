//! Console: one line on standard output.

use std::io::Write;

use cicada_contract::text::printable;
use cicada_memory::ledger::OutboxRow;
use cicada_store::DeliveryOutcome;

use crate::channel::Sent;

/// Prints a message.
pub(super) fn send(row: &OutboxRow) -> Sent {
    let message = &row.message;
    let subject = message.subject.as_deref().map(|s| format!("{s}: ")).unwrap_or_default();
    let line = format!("to {}: {subject}{}", message.to, message.body);
    match writeln!(std::io::stdout().lock(), "{}", printable(&line)) {
        Ok(()) => Sent { outcome: DeliveryOutcome::Sent, detail: None },
        Err(error) => Sent { outcome: DeliveryOutcome::Deferred, detail: Some(error.kind().to_string()) },
    }
}
