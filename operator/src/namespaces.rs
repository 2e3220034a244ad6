//! Namespaces: their holds, and their end.
//!
//! With rights in the whole cluster they are watched. In namespaced mode a namespace can be read, but not watched:
//! once a minute for its hold, and each second while one of its agents has our finalizer. Kubernetes deletes what
//! is in a namespace, our Role included, five seconds after the namespace was marked; until then the finalizers
//! must be off, or the namespace would wait for an operator that has no right there any more.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cicada_operator_core::HOLD;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _, core::PartialObjectMeta};

use crate::context::Context;
use crate::watch::SETTLE;

/// Time between two looks at a namespace that must not end unseen: a fraction of the five seconds.
const LOOK: Duration = Duration::from_secs(1);

/// What is known of namespaces beside their holds.
#[derive(Debug, Default)]
pub struct Namespaces {
    ending: Mutex<HashSet<String>>,
}

impl Namespaces {
    /// It is being deleted.
    pub fn is_ending(&self, namespace: &str) -> bool {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner).contains(namespace)
    }

    /// Notes whether it is being deleted; true if that is new.
    fn note_end(&self, namespace: &str, ends: bool) -> bool {
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        if ends { ending.insert(namespace.to_owned()) } else { ending.remove(namespace) }
    }
}

/// Takes in a namespace, and looks at its agents if it changed.
pub fn note(context: &Context, namespace: &PartialObjectMeta<Namespace>) {
    let name = namespace.name_any();
    let reason = namespace.annotations().get(HOLD).cloned();
    let ends = namespace.metadata.deletion_timestamp.is_some();
    let mut index = context.index();
    index.set_namespace_uid(&name, namespace.uid());
    // Both are noted, whatever the first says.
    if index.set_hold(&name, reason) | context.spaces.note_end(&name, ends) {
        index.keys().into_iter().filter(|k| *k.namespace == *name).for_each(|k| context.queue.add(k, SETTLE));
    }
}

/// It has gone.
pub fn forget(context: &Context, name: &str) {
    context.spaces.note_end(name, false);
}

async fn read(context: &Context, name: &str) {
    match Api::<Namespace>::all(context.client.clone()).get_metadata_opt(name).await {
        Ok(Some(namespace)) => note(context, &namespace),
        Ok(None) => forget(context, name),
        Err(error) => tracing::warn!(namespace = %name, error = %error, "a namespace could not be read"),
    }
}

/// In namespaced mode: all of them, once.
pub async fn read_all(context: &Context) {
    for name in &context.namespaces {
        read(context, name).await;
    }
}

/// In namespaced mode: those that must not end unseen, as long as the process lives.
pub async fn follow_ends(context: Arc<Context>) {
    loop {
        tokio::time::sleep(LOOK).await;
        for name in &context.namespaces {
            let matters = { context.index().has_kept_agents(name) };
            if matters && context.lease.may_act() {
                read(&context, name).await;
            }
        }
    }
}
