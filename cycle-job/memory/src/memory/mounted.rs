//! What a worker has mounted, as its parent keeps it: for a process that replaces it, and to send only what
//! has changed.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::child::{WorkerError, line};
use crate::mounts::{Edit, Image, Mount, MountEdit, MountPolicy, Mounts};
use crate::value::Row;
use crate::worker::{Clear, MemoryRequest, MountRows};

/// Bytes of rows in one request, so that neither side holds all of them twice.
const CHUNK: usize = 256 << 10;

/// A request as it goes over the pipe.
type Line = Arc<[u8]>;

/// The mounts of a worker.
#[derive(Debug, Default)]
pub(super) struct Mounted {
    /// The running process has them.
    pub(super) live: bool,
    /// The agent's edits, from committed batches.
    pub(super) edits: Vec<MountEdit>,
    policy: MountPolicy,
    tables: BTreeMap<String, Vec<Sent>>,
    image: Image,
    hasher: RandomState,
}

/// A row as it was sent.
#[derive(Debug)]
struct Sent {
    key: String,
    hash: u64,
    json: Arc<RawValue>,
}

/// Requests, and the file that one of them reads.
#[derive(Debug, Default)]
pub(super) struct ToSend {
    pub(super) lines: Vec<Line>,
    pub(super) image: Image,
}

impl Mounted {
    /// Takes new rows over; gives the requests that bring the process there.
    pub(super) fn take_over(&mut self, mounts: &Mounts) -> Result<ToSend, WorkerError> {
        self.policy = mounts.policy.clone();
        let live = std::mem::replace(&mut self.live, true);
        if !mounts.image.tables.is_empty() {
            self.image = mounts.image.clone();
            self.tables.retain(|table, _| !mounts.image.tables.contains(table));
        }
        let mut lines = vec![];
        for (table, rows) in &mounts.tables {
            let old = self.tables.remove(table).filter(|_| live);
            let new = self.sent(table, rows, old.as_deref().unwrap_or_default())?;
            lines.extend(match old {
                Some(old) => difference(table, &old, &new)?,
                None => whole(table, &new)?,
            });
            self.tables.insert(table.clone(), new);
        }
        self.frame(lines, mounts.image.clone())
    }

    /// The requests that bring a new process there.
    pub(super) fn all(&self) -> Result<ToSend, WorkerError> {
        let mut lines = vec![];
        for (table, rows) in &self.tables {
            lines.extend(whole(table, rows)?);
        }
        self.frame(lines, self.image.clone())
    }

    fn frame(&self, rows: Vec<Line>, image: Image) -> Result<ToSend, WorkerError> {
        let mut lines = vec![];
        if !image.tables.is_empty() {
            lines.push(line(&MemoryRequest::MountImage { tables: image.tables.clone() })?);
        }
        lines.push(line(&MemoryRequest::MountBegin { policy: Box::new(self.policy.clone()) })?);
        lines.extend(rows);
        lines.push(line(&MemoryRequest::MountEnd { edits: self.edits.clone() })?);
        Ok(ToSend { lines, image })
    }

    /// Rows as they are sent; what is as it was is not written again.
    fn sent(&self, table: &str, rows: &[Row], old: &[Sent]) -> Result<Vec<Sent>, WorkerError> {
        let key = Mount::find(table).map_or(0, Mount::key_index);
        let known: BTreeMap<&str, &Sent> = old.iter().map(|sent| (sent.key.as_str(), sent)).collect();
        let sent = |row: &Row| {
            let hash = self.hasher.hash_one(row);
            let key = row.get(key).map(crate::Value::display).unwrap_or_default();
            let json = match known.get(key.as_str()).filter(|sent| sent.hash == hash) {
                Some(sent) => Arc::clone(&sent.json),
                None => serde_json::value::to_raw_value(row)
                    .map_err(|source| WorkerError::Protocol { source })?
                    .into(),
            };
            Ok(Sent { key, hash, json })
        };
        rows.iter().map(sent).collect()
    }
}

/// All rows of a table.
fn whole(table: &str, rows: &[Sent]) -> Result<Vec<Line>, WorkerError> {
    requests(table, Clear::All, &rows.iter().map(|sent| &*sent.json).collect::<Vec<_>>())
}

/// What leads from one set of rows to another. An editable mount is always sent as a whole: its rows are
/// also what the agent's edits are compared with.
fn difference(table: &str, old: &[Sent], new: &[Sent]) -> Result<Vec<Line>, WorkerError> {
    let by_key = |rows: &[Sent]| -> BTreeMap<String, u64> {
        rows.iter().map(|sent| (sent.key.clone(), sent.hash)).collect()
    };
    let (before, after) = (by_key(old), by_key(new));
    let read_only = Mount::find(table).is_some_and(|m| m.edit == Edit::ReadOnly);
    if !read_only || before.len() < old.len() || after.len() < new.len() {
        return whole(table, new);
    }
    let gone: Vec<String> = before
        .iter()
        .filter(|(key, hash)| after.get(*key) != Some(*hash))
        .map(|(key, _)| key.clone())
        .collect();
    let rows: Vec<&RawValue> =
        new.iter().filter(|sent| before.get(&sent.key) != Some(&sent.hash)).map(|sent| &*sent.json).collect();
    if gone.is_empty() && rows.is_empty() {
        return Ok(vec![]);
    }
    requests(table, Clear::Keys(gone), &rows)
}

fn requests(table: &str, mut clear: Clear, rows: &[&RawValue]) -> Result<Vec<Line>, WorkerError> {
    let mut lines = vec![];
    let mut rest = rows;
    while lines.is_empty() || !rest.is_empty() {
        let mut bytes = 0;
        let fits = |row: &&&RawValue| {
            let fits = bytes < CHUNK;
            bytes += row.get().len();
            fits
        };
        let (now, later) = rest.split_at(rest.iter().take_while(fits).count());
        lines.push(line(&MountRows::MountRows { table, clear: std::mem::take(&mut clear), rows: now })?);
        rest = later;
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;

    fn mounts(table: &str, rows: Vec<Row>) -> Mounts {
        Mounts { tables: BTreeMap::from([(table.to_owned(), rows)]), ..Mounts::default() }
    }

    fn lines(sent: &ToSend) -> Vec<String> {
        let rows = sent.lines.iter().map(|l| String::from_utf8_lossy(l).trim().to_owned());
        rows.filter(|l| l.contains("MountRows")).collect()
    }

    #[test]
    fn only_what_changed_in_a_read_only_mount_is_sent_again() {
        let mut mounted = Mounted::default();
        let row = |id: &str, n: i64| vec![Value::from(id), Value::Int(n)];
        let first = mounts("__files", vec![row("a", 1), row("b", 1), row("c", 1)]);
        assert!(
            lines(&mounted.take_over(&first).unwrap())[0]
                .contains(r#""All","rows":[["a",1],["b",1],["c",1]]"#)
        );
        assert!(lines(&mounted.take_over(&first).unwrap()).is_empty());
        let next = mounts("__files", vec![row("b", 2), row("c", 1), row("d", 1)]);
        let sent = lines(&mounted.take_over(&next).unwrap());
        assert_eq!(sent.len(), 1);
        assert!(sent[0].contains(r#"{"Keys":["a","b"]},"rows":[["b",2],["d",1]]"#), "{sent:?}");
        assert!(lines(&mounted.all().unwrap())[0].contains(r#""All","rows":[["b",2],["c",1],["d",1]]"#));
        mounted.live = false;
        assert!(lines(&mounted.take_over(&next).unwrap())[0].contains("All"), "a new process has none");
    }

    #[test]
    fn an_editable_mount_is_always_sent_whole() {
        let mut mounted = Mounted::default();
        let cards = mounts("__kanban_cards", vec![vec!["c1".into()]]);
        for _ in 0..2 {
            assert!(lines(&mounted.take_over(&cards).unwrap())[0].contains("All"));
        }
    }
}
