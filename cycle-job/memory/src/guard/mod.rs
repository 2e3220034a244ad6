//! What the agent's SQL may do: an allow-list asked by SQLite's compiler for every action
//! ([`authorize`]), names ([`names`]), and a look at the schema after each statement that changed it
//! ([`schema`]), because a rename shows the authorizer only the old name.

mod authorize;
pub(crate) mod limits;
pub(crate) mod names;
pub(crate) mod schema;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;
use rusqlite::hooks::{AuthContext, Authorization};

/// The switch between the platform's own statements and the agent's, and what the compiler was asked
/// about the last statement. Shared with the authorizer, which lives inside the connection.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    agent: AtomicBool,
    read_only: AtomicBool,
    data_statement: AtomicBool,
    seen: Mutex<Seen>,
}

/// What compiling one statement showed.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    /// Why it was refused.
    pub(crate) reason: Option<String>,
    /// It changes the schema.
    pub(crate) schema: bool,
    /// Editable mounts that it writes.
    pub(crate) mounts: bool,
    /// Durable tables that it drops, with their rows once they were counted.
    pub(crate) dropped: Vec<(String, u64)>,
    /// Tables that it reads or writes.
    pub(crate) used: Vec<String>,
}

impl Guard {
    /// Puts a guard on `connection`; the platform's mode is on.
    pub(crate) fn install(connection: &mut Connection) -> rusqlite::Result<Arc<Self>> {
        let guard = Arc::new(Self::default());
        let inside = Arc::clone(&guard);
        connection.authorizer(Some(move |context: AuthContext<'_>| inside.decide(&context)))?;
        // Asked by the mounts' checks, which are for the agent's edits and not for the platform's refresh.
        let asked = Arc::clone(&guard);
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY;
        connection.create_scalar_function("cicada_agent", 0, flags, move |_| {
            Ok(asked.agent.load(Ordering::Relaxed))
        })?;
        Ok(guard)
    }

    /// Runs `work` with the agent's rights. Statements must be prepared inside and never cached: SQLite
    /// asks when a statement is compiled, so one compiled with the platform's rights would keep them.
    pub(crate) fn as_agent<T>(
        &self,
        read_only: bool,
        data_statement: bool,
        work: impl FnOnce() -> T,
    ) -> (T, Seen) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Seen::default();
        self.read_only.store(read_only, Ordering::Relaxed);
        self.data_statement.store(data_statement, Ordering::Relaxed);
        self.agent.store(true, Ordering::Relaxed);
        let done = work();
        self.agent.store(false, Ordering::Relaxed);
        (done, std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Runs `work` with the platform's rights in the middle of [`Self::as_agent`].
    pub(crate) fn as_platform<T>(&self, work: impl FnOnce() -> T) -> T {
        self.agent.store(false, Ordering::Relaxed);
        let done = work();
        self.agent.store(true, Ordering::Relaxed);
        done
    }

    /// Tables that the statement just compiled drops.
    pub(crate) fn dropped(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.dropped.iter().map(|(name, _)| name.clone()).collect()
    }

    fn decide(&self, context: &AuthContext<'_>) -> Authorization {
        if !self.agent.load(Ordering::Relaxed) {
            return Authorization::Allow;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let rights = authorize::Rights {
            read_only: self.read_only.load(Ordering::Relaxed),
            data_statement: self.data_statement.load(Ordering::Relaxed),
        };
        match authorize::rule(context, rights, &mut seen) {
            Ok(()) => Authorization::Allow,
            Err(reason) => {
                seen.reason.get_or_insert(reason);
                Authorization::Deny
            }
        }
    }
}
