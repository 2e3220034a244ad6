//! collect: removes what no snapshot in HEAD needs and nobody can publish any more.

use cicada_store::DroppedBlob;

use crate::context::Context;
use crate::phase::acquire::Claim;
use crate::shutdown::Stop;

/// Collects after the last write of HEAD. What can't be removed now is removed by a later cycle, so
/// nothing here fails one; and a cycle that was told to stop leaves it.
pub async fn collect(cx: &Context, claim: &mut Claim, dropped: &[DroppedBlob]) {
    if cx.shutdown.requested() == Some(Stop::Signal) {
        return;
    }
    match claim.writer.collect(dropped, cx.now()).await {
        Ok(done) => {
            tracing::debug!(objects = done.removed.len(), bytes = done.freed, later = done.later, "collected")
        }
        Err(error) => {
            tracing::warn!(error = crate::failure::chain(&error), "could not collect; a later cycle will")
        }
    }
}
