//! What all parts of the operator share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource,
    runtime::events::{Recorder, Reporter},
};

use crate::{config::Config, health::Health, index::Index, lease::Holder, metrics::Metrics, queue::Queue};

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
    /// Events.
    pub recorder: Recorder,
    /// The Lease.
    pub lease: Holder,
    /// Namespaces that are watched; empty = all.
    pub namespaces: Vec<String>,
}

impl Context {
    /// With an empty index.
    pub fn new(
        client: Client,
        config: Config,
        lease: Holder,
        identity: &str,
        namespaces: Vec<String>,
    ) -> Self {
        let reporter = Reporter {
            controller: crate::FIELD_MANAGER.into(),
            instance: Some(identity.to_owned()).filter(|i| !i.is_empty()),
        };
        Self {
            recorder: Recorder::new(client.clone(), reporter),
            client,
            config,
            index: Mutex::default(),
            queue: Queue::default(),
            health: Health::default(),
            metrics: Metrics::default(),
            lease,
            namespaces,
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
