//! Removes plans that nothing needs any more: once an hour, ConfigMaps of ours that are not their agent's
//! newest, that no Job names, and that are an hour old.

use std::collections::{HashMap, HashSet};

use cicada_operator_core::job::AGENT_LABEL;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Preconditions},
    core::PartialObjectMeta,
};

use crate::{context::Context, index::Key};

/// A plan is left alone this long: its Job may not be in the index yet.
const AGE: SignedDuration = SignedDuration::from_hours(1);
/// Objects in one answer.
const PAGE: u32 = 500;

/// One plan.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stored {
    key: Key,
    uid: String,
    agent: String,
    created: Timestamp,
}

/// Looks at all plans and deletes those that nothing needs. Errors are logged: the next hour comes.
pub async fn tidy(context: &Context, now: Timestamp) {
    let scopes: Vec<Option<&str>> = match context.namespaces.as_slice() {
        [] => vec![None],
        some => some.iter().map(|n| Some(n.as_str())).collect(),
    };
    for scope in scopes {
        if let Err(error) = tidy_scope(context, scope, now).await {
            tracing::warn!(error = %error, "old plans could not be tidied away");
        }
    }
}

async fn tidy_scope(context: &Context, scope: Option<&str>, now: Timestamp) -> Result<(), kube::Error> {
    let api: Api<PartialObjectMeta<ConfigMap>> = match scope {
        Some(namespace) => Api::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    };
    let mut stored = vec![];
    let mut parameters = ListParams::default().labels(AGENT_LABEL).limit(PAGE);
    loop {
        let page = api.list(&parameters).await?;
        stored.extend(page.items.iter().map(|map| Stored {
            key: Key::new(&map.namespace().unwrap_or_default(), &map.name_any()),
            uid: map.uid().unwrap_or_default(),
            agent: map.labels().get(AGENT_LABEL).cloned().unwrap_or_default(),
            created: map.creation_timestamp().map_or(now, |t| t.0),
        }));
        match page.metadata.continue_.filter(|c| !c.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => break,
        }
    }
    let used = context.index().plans_in_use();
    for old in unneeded(stored, &used, now) {
        if !context.lease.may_act() {
            return Ok(());
        }
        let exact = DeleteParams::default()
            .preconditions(Preconditions { uid: Some(old.uid.clone()), resource_version: None });
        match context.api::<ConfigMap>(&old.key.namespace).delete(&old.key.name, &exact).await {
            Ok(_) => tracing::debug!(config_map = %old.key, "an old plan was deleted"),
            Err(kube::Error::Api(s)) if s.is_not_found() || s.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn unneeded(stored: Vec<Stored>, used: &HashSet<Key>, now: Timestamp) -> Vec<Stored> {
    let mut newest: HashMap<(std::sync::Arc<str>, String), Timestamp> = HashMap::new();
    for plan in &stored {
        let at = newest.entry((plan.key.namespace.clone(), plan.agent.clone())).or_insert(plan.created);
        *at = (*at).max(plan.created);
    }
    let is_newest = |p: &Stored| newest.get(&(p.key.namespace.clone(), p.agent.clone())) == Some(&p.created);
    stored.into_iter().filter(|p| !is_newest(p) && !used.contains(&p.key) && p.created + AGE <= now).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_plans_that_no_job_names_go() {
        let now: Timestamp = "2026-12-01T12:00:00Z".parse().unwrap();
        let plan = |name: &str, agent: &str, minutes: i64| Stored {
            key: Key::new("n", name),
            uid: name.into(),
            agent: agent.into(),
            created: now - SignedDuration::from_mins(minutes),
        };
        let stored = vec![
            plan("newest", "a", 100),
            plan("used", "a", 200),
            plan("unused", "a", 300),
            plan("young", "b", 10),
            plan("younger", "b", 5),
        ];
        let used = HashSet::from([Key::new("n", "used")]);
        let gone: Vec<_> = unneeded(stored, &used, now).into_iter().map(|p| p.uid).collect();
        assert_eq!(gone, ["unused"]);
    }
}
