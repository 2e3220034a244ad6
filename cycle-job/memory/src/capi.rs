//! SQLite's C interface where rusqlite has no safe wrapper: start-up of the library and the
//! pre-update hook, which sees every changed row (also of tables without rowid, of replaced rows and of
//! a DELETE without WHERE).
#![expect(unsafe_code, reason = "the hook is called by SQLite with raw pointers")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::rc::Rc;

use rusqlite::{Connection, ffi};

/// Rows changed in one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) inserted: u64,
    pub(crate) updated: u64,
    pub(crate) deleted: u64,
}

/// Counts by schema (`main`, `temp`) and table.
pub(crate) type ChangeLog = Rc<RefCell<BTreeMap<(String, String), Counts>>>;

/// Initialises the library before the sandbox closes: its random generator is seeded while
/// /dev/urandom can still be opened (later it would silently fall back to time and pid), and the heap
/// limit holds for every connection.
pub(crate) fn initialise(heap_limit: u64) {
    let mut seed = [0u8; 16];
    let limit = i64::try_from(heap_limit).unwrap_or(i64::MAX);
    // SAFETY: called once, before any connection and any thread; the buffer has the length given.
    unsafe {
        ffi::sqlite3_initialize();
        ffi::sqlite3_randomness(16, seed.as_mut_ptr().cast());
        ffi::sqlite3_hard_heap_limit64(limit);
    }
}

/// Counts changes of `connection` into `log` until the connection closes. The log must outlive it,
/// which the caller ensures by holding one clone beside the connection.
pub(crate) fn watch_changes(connection: &Connection, log: &ChangeLog) {
    let context = Rc::as_ptr(log).cast_mut().cast::<c_void>();
    // SAFETY: `context` points into an Rc that the owner of the connection keeps for the connection's
    // life; the connection is used from this thread only, so the callback never runs concurrently.
    unsafe { ffi::sqlite3_preupdate_hook(connection.handle(), Some(on_change), context) };
}

/// Runs `work` without counting, which also lets SQLite empty a table in one step.
pub(crate) fn unwatched<T>(connection: &Connection, log: &ChangeLog, work: impl FnOnce() -> T) -> T {
    // SAFETY: no callback and no context; both are set again below.
    unsafe { ffi::sqlite3_preupdate_hook(connection.handle(), None, std::ptr::null_mut()) };
    let done = work();
    watch_changes(connection, log);
    done
}

unsafe extern "C" fn on_change(
    context: *mut c_void,
    _: *mut ffi::sqlite3,
    operation: c_int,
    schema: *const c_char,
    table: *const c_char,
    _: i64,
    _: i64,
) {
    // SAFETY: SQLite passes the context of `watch_changes` and two NUL-terminated names that live during the call.
    let (log, schema, table) = unsafe {
        (
            &*context.cast::<RefCell<BTreeMap<(String, String), Counts>>>(),
            CStr::from_ptr(schema),
            CStr::from_ptr(table),
        )
    };
    // Only what lasts is counted; a mount of ten thousand rows is not.
    let Ok(mut log) = log.try_borrow_mut() else { return };
    if schema == c"temp" {
        return;
    }
    let key = (schema.to_string_lossy().into_owned(), table.to_string_lossy().into_owned());
    let counts = log.entry(key).or_default();
    match operation {
        ffi::SQLITE_INSERT => counts.inserted += 1,
        ffi::SQLITE_UPDATE => counts.updated += 1,
        _ => counts.deleted += 1,
    }
}
