//! What all parts of the operator share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource,
    runtime::events::{Recorder, Reporter},
};

use crate::{
    args::RunArgs, config::Config, foreign::Foreign, health::Health, index::Index, lease::Holder,
    metrics::Metrics, namespaces::Namespaces, queue::Queue, said::Said, schema::Schema,
};

/// What all parts of the operator share.
pub struct Context {
    /// Client of the API server.
    pub client: Client,
    /// Configuration.
    pub config: Config,
    /// What the watches have seen.
    index: Mutex<Index>,
    /// What is to be looked at.
    pub queue: Queue,
    /// Signs of life.
    pub health: Health,
    /// Numbers.
    pub metrics: Metrics,
    /// Events on the operator itself.
    pub recorder: Recorder,
    /// Events on agents.
    pub said: Said,
    /// The Lease.
    pub lease: Holder,
    /// Namespaces that are watched; empty = all.
    pub namespaces: Vec<String>,
    /// Which namespaces are being deleted.
    pub spaces: Namespaces,
    /// Seconds after which each watch is begun anew.
    pub watch_timeout: u32,
    /// Name of this instance: namespace and name of its Lease.
    pub instance: String,
    /// Agents of other instances are worked on, too.
    pub share: bool,
    /// What is known of other instances.
    pub foreign: Foreign,
    /// Fields that the served definitions lack.
    pub schema: Schema,
}

impl Context {
    /// With an empty index.
    pub fn new(
        client: Client,
        kube_config: kube::Config,
        config: Config,
        args: &RunArgs,
        identity: &str,
    ) -> Self {
        let instance = &args.instance;
        let lease = Holder::new(client.clone(), kube_config, &instance.namespace, &instance.lease, identity);
        let reporter = Reporter {
            controller: crate::FIELD_MANAGER.into(),
            instance: Some(identity.to_owned()).filter(|i| !i.is_empty()),
        };
        let recorder = Recorder::new(client.clone(), reporter);
        Self {
            said: Said::default(),
            recorder,
            client,
            config,
            index: Mutex::default(),
            queue: Queue::default(),
            health: Health::default(),
            metrics: Metrics::default(),
            lease,
            namespaces: instance.namespaces(),
            spaces: Namespaces::default(),
            watch_timeout: args.watch_timeout,
            instance: instance.name(),
            share: args.share,
            foreign: Foreign::default(),
            schema: Schema::default(),
        }
    }

    /// The index. Never held across an await.
    pub fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Client of one kind in one namespace.
    pub fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(
        &self,
        namespace: &str,
    ) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("config", &self.config)
            .field("namespaces", &self.namespaces)
            .finish_non_exhaustive()
    }
}
