//! A store that fails on demand, around a real one. For tests of everything above the seam.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;

use crate::store::{
    BucketFacts, Condition, Downloaded, ETag, Object, ObjectMeta, ObjectStore, Result, StoreError,
};

/// What happens to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The caller gets `answer`; nothing took effect.
    Before(Answer),
    /// It took effect; the caller gets `answer` all the same.
    After(Answer),
    /// The caller gets `answer`; a write takes effect when [`FaultyStore::land`] is called.
    Late(Answer),
    /// The process dies before the call: this and every later call fails.
    DieBefore,
    /// The process dies after the call took effect and before its answer: every later call fails.
    DieAfter,
}

/// What a caller gets in place of the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// No answer in time.
    Timeout,
    /// Status 503.
    Unavailable,
    /// Status 409.
    Conflict,
    /// Status 403.
    Unauthorized,
}

impl Answer {
    fn error(self, operation: &'static str, key: &str) -> StoreError {
        let unavailable = |what: &str| StoreError::Unavailable {
            operation,
            key: key.into(),
            what: what.into(),
            source: None,
        };
        match self {
            Self::Timeout => unavailable("no answer in time"),
            Self::Unavailable => unavailable("status 503"),
            Self::Conflict => StoreError::Conflict { key: key.into() },
            Self::Unauthorized => StoreError::Unauthorized {
                location: "faulty".into(),
                reason: "AccessDenied".into(),
                source: None,
            },
        }
    }
}

/// A write that was answered and has not happened yet.
#[derive(Debug)]
enum Pending {
    Put(String, Bytes, Condition),
    Upload(String, Bytes, Condition),
    Delete(String),
}

/// A store that fails on demand.
#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn ObjectStore>,
    /// By number of the call, from 1, over all operations.
    faults: Mutex<BTreeMap<u64, Fault>>,
    calls: AtomicU64,
    dead: std::sync::atomic::AtomicBool,
    pending: Mutex<Vec<Pending>>,
    log: Mutex<Vec<String>>,
}

impl FaultyStore {
    /// Around `inner`, with no faults yet.
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self {
            inner,
            faults: Mutex::default(),
            calls: AtomicU64::new(0),
            dead: false.into(),
            pending: Mutex::default(),
            log: Mutex::default(),
        }
    }

    /// Call `number` (1 = the first one ever) will meet `fault`.
    pub fn fail(&self, number: u64, fault: Fault) {
        lock(&self.faults).insert(number, fault);
    }

    /// Takes back the faults that no call has met.
    pub fn heal(&self) {
        lock(&self.faults).clear();
    }

    /// The next call will meet `fault`.
    pub fn fail_next(&self, fault: Fault) {
        self.fail(self.calls() + 1, fault);
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// `operation key` of each call so far.
    pub fn log(&self) -> Vec<String> {
        lock(&self.log).clone()
    }

    /// Lets the late writes land, in their order; gives what each one met.
    pub async fn land(&self) -> Vec<Result<()>> {
        let pending = std::mem::take(&mut *lock(&self.pending));
        let mut landed = vec![];
        for write in pending {
            landed.push(match write {
                Pending::Put(key, bytes, condition) | Pending::Upload(key, bytes, condition) => {
                    self.inner.put(&key, bytes, condition).await.map(|_| ())
                }
                Pending::Delete(key) => self.inner.delete(&key).await,
            });
        }
        landed
    }

    fn begin(&self, operation: &'static str, key: &str) -> Result<Option<Fault>> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        lock(&self.log).push(format!("{operation} {key}"));
        if self.dead.load(Ordering::SeqCst) {
            return Err(died(operation, key));
        }
        let fault = lock(&self.faults).remove(&number);
        match fault {
            Some(Fault::Before(answer)) => Err(answer.error(operation, key)),
            Some(Fault::DieBefore) => {
                self.dead.store(true, Ordering::SeqCst);
                Err(died(operation, key))
            }
            other => Ok(other),
        }
    }

    fn end<T>(
        &self,
        fault: Option<Fault>,
        operation: &'static str,
        key: &str,
        result: Result<T>,
    ) -> Result<T> {
        match fault {
            Some(Fault::After(answer) | Fault::Late(answer)) => Err(answer.error(operation, key)),
            Some(Fault::DieAfter) => {
                self.dead.store(true, Ordering::SeqCst);
                Err(died(operation, key))
            }
            _ => result,
        }
    }

    fn later(&self, write: Pending) {
        lock(&self.pending).push(write);
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn get(&self, key: &str) -> Result<Object> {
        let fault = self.begin("get", key)?;
        let result = self.inner.get(key).await;
        self.end(fault, "get", key, result)
    }

    async fn download(&self, key: &str, file: &Path, max_bytes: u64) -> Result<Downloaded> {
        let fault = self.begin("download", key)?;
        let result = self.inner.download(key, file, max_bytes).await;
        self.end(fault, "download", key, result)
    }

    async fn put(&self, key: &str, bytes: Bytes, condition: Condition) -> Result<ETag> {
        let fault = self.begin("put", key)?;
        if let Some(Fault::Late(answer)) = fault {
            self.later(Pending::Put(key.into(), bytes, condition));
            return Err(answer.error("put", key));
        }
        let result = self.inner.put(key, bytes, condition).await;
        self.end(fault, "put", key, result)
    }

    async fn upload(&self, key: &str, file: &Path, condition: Condition) -> Result<ETag> {
        let fault = self.begin("upload", key)?;
        if let Some(Fault::Late(answer)) = fault {
            let bytes = tokio::fs::read(file).await;
            let bytes = bytes.map_err(|source| StoreError::LocalFile { path: file.into(), source })?;
            self.later(Pending::Upload(key.into(), bytes.into(), condition));
            return Err(answer.error("upload", key));
        }
        let result = self.inner.upload(key, file, condition).await;
        self.end(fault, "upload", key, result)
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let fault = self.begin("delete", key)?;
        if let Some(Fault::Late(answer)) = fault {
            self.later(Pending::Delete(key.into()));
            return Err(answer.error("delete", key));
        }
        let result = self.inner.delete(key).await;
        self.end(fault, "delete", key, result)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>> {
        let fault = self.begin("list", prefix)?;
        let result = self.inner.list(prefix).await;
        self.end(fault, "list", prefix, result)
    }

    async fn sweep(&self, prefix: &str, before: Timestamp) -> Result<usize> {
        let fault = self.begin("sweep", prefix)?;
        let result = self.inner.sweep(prefix, before).await;
        self.end(fault, "sweep", prefix, result)
    }

    async fn facts(&self) -> BucketFacts {
        self.inner.facts().await
    }

    fn needs_probe(&self) -> bool {
        self.inner.needs_probe()
    }

    fn location(&self) -> String {
        self.inner.location()
    }
}

/// Not retryable: a dead process makes no second call.
fn died(operation: &'static str, key: &str) -> StoreError {
    StoreError::Refused { operation, key: key.into(), code: "the process died".into(), source: None }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
