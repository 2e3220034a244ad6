//! Watches: from events of the API server to the index and the queue.
//!
//! Pods are not watched, not even their metadata: a Job's status has `ready`, `terminating`, `failed` and
//! `succeeded`, which is all that a decision needs while it runs. A pod is read where only it can say more: once when
//! its Job has ended, and once a minute while it does not start. With ten thousand agents a watch of pods would be
//! most of what the operator hears.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use cicada_crds::{AgentCycle, PersistentAgent};
use cicada_operator_core::job::PURPOSE_LABEL;
use futures::{StreamExt as _, TryStreamExt as _, future::BoxFuture};
use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Namespace};
use kube::{
    Api, Resource, ResourceExt as _,
    core::{DeserializeGuard, PartialObjectMeta},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;

use crate::{
    act::tell_of_stray,
    context::Context,
    index::{Key, Kind, stray},
    namespaces,
};

/// Changes that come together are looked at together.
pub(crate) const SETTLE: Duration = Duration::from_millis(50);

/// Objects in one answer: what a page leaves behind in the heap is worth more than the requests.
const PAGE: u32 = 200;

fn config(context: &Context) -> watcher::Config {
    watcher::Config::default().timeout(context.watch_timeout).page_size(PAGE)
}

/// All watches with their names; each runs until the process ends.
pub fn start(context: &Arc<Context>) -> Vec<(String, BoxFuture<'static, ()>)> {
    let scopes: Vec<Option<String>> = match context.namespaces.as_slice() {
        [] => vec![None],
        some => some.iter().cloned().map(Some).collect(),
    };
    let mut all: Vec<(String, BoxFuture<'static, ()>)> = vec![];
    for scope in scopes {
        let name =
            |kind: &str| scope.as_ref().map_or_else(|| kind.to_owned(), |ns| format!("{kind} in {ns}"));
        for kind in ["agents", "cycles", "jobs"] {
            context.health.watch_started(&name(kind));
        }
        all.push((name("agents"), Box::pin(agents(context.clone(), scope.clone(), name("agents")))));
        all.push((name("cycles"), Box::pin(cycles(context.clone(), scope.clone(), name("cycles")))));
        all.push((name("jobs"), Box::pin(jobs(context.clone(), scope.clone(), name("jobs")))));
    }
    if context.namespaces.is_empty() {
        context.health.watch_started("namespaces");
        all.push(("namespaces".into(), Box::pin(all_namespaces(context.clone()))));
    } else {
        all.push(("ends of namespaces".into(), Box::pin(namespaces::follow_ends(context.clone()))));
    }
    all
}

fn api<K>(context: &Context, scope: Option<&str>) -> Api<K>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
{
    match scope {
        Some(namespace) => Api::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    }
}

async fn agents(context: Arc<Context>, scope: Option<String>, name: String) {
    let api: Api<DeserializeGuard<PersistentAgent>> = api(&context, scope.as_deref());
    let stream = watcher(api, config(&context)).default_backoff();
    follow(
        &context,
        Kind::Agent,
        scope.as_deref(),
        &name,
        stream,
        |guard| {
            let (key, agent) = readable(&context, "PersistentAgent", guard);
            agent.map(|agent| context.index().put_agent(agent));
            Some(key)
        },
        |guard| {
            let key = Key::new(&guard.namespace().unwrap_or_default(), &guard.name_any());
            context.index().remove_agent(&key, guard.uid().as_deref(), Timestamp::now());
            Some(key)
        },
    )
    .await;
}

async fn cycles(context: Arc<Context>, scope: Option<String>, name: String) {
    let api: Api<DeserializeGuard<AgentCycle>> = api(&context, scope.as_deref());
    let stream = watcher(api, config(&context)).default_backoff();
    follow(
        &context,
        Kind::Cycle,
        scope.as_deref(),
        &name,
        stream,
        |guard| {
            let (_, cycle) = readable(&context, "AgentCycle", guard);
            Some(context.index().put_cycle(&cycle?, Timestamp::now()))
        },
        |guard| {
            let key = Key::new(&guard.namespace().unwrap_or_default(), &guard.name_any());
            context.index().remove_cycle(&key, &guard.uid().unwrap_or_default(), Timestamp::now())
        },
    )
    .await;
}

async fn jobs(context: Arc<Context>, scope: Option<String>, name: String) {
    let api: Api<Job> = api(&context, scope.as_deref());
    let stream = watcher(api, config(&context).labels(PURPOSE_LABEL)).default_backoff();
    follow(
        &context,
        Kind::Job,
        scope.as_deref(),
        &name,
        stream,
        |job| {
            if let Some(why) = stray(&job)
                && context.index().note_stray(&job)
            {
                tell_of_stray(&context, &job, &why);
                return None;
            }
            context.index().put_job(&job)
        },
        |job| {
            let key = Key::new(&job.namespace().unwrap_or_default(), &job.name_any());
            context.index().remove_job(&key, &job.uid().unwrap_or_default(), Timestamp::now())
        },
    )
    .await;
}

/// An object, if it can be read. One bad object never stops the watch (argo-workflows#14047); it is reported
/// where it stops.
fn readable<K: Resource<DynamicType = ()>>(
    context: &Context,
    kind: &str,
    guard: DeserializeGuard<K>,
) -> (Key, Option<K>)
where
    DeserializeGuard<K>: Resource<DynamicType = ()>,
{
    let key = Key::new(&guard.namespace().unwrap_or_default(), &guard.name_any());
    let object = guard.0.inspect_err(|e| {
        context.metrics.error("undecodable");
        tracing::error!(kind, object = %key, error = %e.error, "an object can't be read; it is left alone");
    });
    (key, object.ok())
}

fn failed(context: &Context, name: &str, error: &watcher::Error) {
    use watcher::Error as E;
    context.metrics.error("watch");
    // A namespace in which the operator has no rights must not stop the others; a restart would not help.
    if matches!(error, E::InitialListFailed(kube::Error::Api(s)) | E::WatchStartFailed(kube::Error::Api(s)) if s.is_forbidden())
    {
        context.health.watch_forbidden(name);
        tracing::error!(watch = name, error = %error, "a watch is forbidden: check the operator's roles");
        return;
    }
    context.health.watch_failed(name);
    tracing::warn!(watch = name, error = %error, "a watch failed and is retried");
}

/// Feeds the index from one watch, and the queue with the agents that are concerned.
async fn follow<K>(
    context: &Context,
    kind: Kind,
    scope: Option<&str>,
    name: &str,
    stream: impl futures::Stream<Item = Result<Event<K>, watcher::Error>>,
    put: impl Fn(K) -> Option<Key>,
    remove: impl Fn(K) -> Option<Key>,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut stream = std::pin::pin!(stream);
    while let Some(event) = stream.next().await {
        let touched = match event {
            Ok(Event::Init) => {
                context.index().begin_list(kind, scope);
                None
            }
            Ok(Event::InitApply(object)) => {
                put(object).into_iter().for_each(|key| context.queue.add_first_look(key, SETTLE));
                None
            }
            Ok(Event::InitDone) => {
                let gone = context.index().end_list(kind, scope);
                for key in gone {
                    context.queue.add(key, SETTLE);
                }
                context.health.watch_listed(name);
                None
            }
            Ok(Event::Apply(object)) => {
                context.health.watch_alive(name);
                put(object)
            }
            Ok(Event::Delete(object)) => {
                context.health.watch_alive(name);
                remove(object)
            }
            Err(error) => {
                failed(context, name, &error);
                None
            }
        };
        if let Some(key) = touched {
            context.queue.add(key, SETTLE);
        }
    }
}

/// Holds and ends of namespaces.
async fn all_namespaces(context: Arc<Context>) {
    let api = Api::<PartialObjectMeta<Namespace>>::all(context.client.clone());
    let stream = watcher(api, config(&context)).default_backoff();
    let mut stream = std::pin::pin!(stream);
    loop {
        match stream.try_next().await {
            Ok(Some(Event::InitApply(ns) | Event::Apply(ns))) => namespaces::note(&context, &ns),
            Ok(Some(Event::Delete(ns))) => namespaces::forget(&context, &ns.name_any()),
            Ok(Some(Event::InitDone)) => context.health.watch_listed("namespaces"),
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => failed(&context, "namespaces", &error),
        }
    }
}
