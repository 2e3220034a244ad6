//! What must hold after a run, by the tools that a person would take.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use cicada_store::ArchiveRef;

use super::World;

impl World {
    /// What must hold after every run.
    pub(super) async fn check(&mut self) {
        let Some(head) = self.head().await else {
            assert!(self.acknowledged.is_empty());
            return;
        };
        assert!(head.epoch >= self.epoch, "the epoch went down");
        self.epoch = head.epoch;
        let Some(current) = head.current() else {
            assert!(self.acknowledged.is_empty(), "{:?}", self.acknowledged);
            return;
        };
        let noted = match &current.memory {
            None => vec![],
            Some(archive) => {
                let file = self.unpack(archive).await;
                assert_eq!(sqlite(&file, "PRAGMA integrity_check"), ["ok"]);
                let mounts = "SELECT name FROM sqlite_schema WHERE name LIKE '\\_\\_%' ESCAPE '\\'";
                assert_eq!(sqlite(&file, mounts), Vec::<String>::new());
                let table = "SELECT count(*) FROM sqlite_schema WHERE name = 'noted'";
                if sqlite(&file, table) == ["1"] {
                    sqlite(&file, "SELECT body FROM noted ORDER BY n")
                } else {
                    vec![]
                }
            }
        };
        for body in &self.acknowledged {
            assert!(noted.contains(body), "{body} was acknowledged and is lost: {noted:?}");
        }
        assert!(noted.starts_with(&self.noted), "the memory went back from {:?} to {noted:?}", self.noted);
        let distinct: BTreeSet<_> = noted.iter().collect();
        assert_eq!(distinct.len(), noted.len(), "a message was handled twice: {noted:?}");
        self.noted = noted;
        let received = self.stand_ins.received();
        let again =
            received.iter().enumerate().find(|(n, r)| received[..*n].iter().any(|e| e.body == r.body));
        assert!(again.is_none(), "{again:?} left twice\n{}", self.last_logs.join("\n\n"));
        let _ = std::fs::remove_dir_all(self.agent.dir.path().join(format!("attempt-{}", self.attempts)));
    }

    /// Everything that left is in the ledger, and what did not leave is known to be on its way.
    pub(super) async fn check_outbox(&mut self) {
        let head = self.head().await.unwrap();
        let file = self.unpack(head.current().unwrap().ledger.as_ref().unwrap()).await;
        let outbox: BTreeMap<String, String> = sqlite(
            &file,
            "SELECT body || '|' || message_id || ' ' || state FROM outbox WHERE channel <> 'Peer'",
        )
        .iter()
        .map(|line| line.split_once('|').unwrap())
        .map(|(body, rest)| (body.to_owned(), rest.to_owned()))
        .collect();
        let received = self.stand_ins.received();
        for message in &received {
            let row = outbox.get(&message.body);
            assert!(
                row.is_some_and(|row| row.starts_with(&message.key)),
                "{message:?} left and is not in the ledger: {outbox:?}"
            );
        }
        for (body, row) in &outbox {
            let (id, state) = row.split_once(' ').unwrap();
            let claimed =
                self.direct.list_outbox().await.unwrap().get(id).is_some_and(|d| !d.claims.is_empty());
            let left = received.iter().any(|message| message.body == *body);
            assert!(left || claimed || state == "unknown", "{body} ({row}) never left");
        }
        *self.counts.entry("messages out".into()).or_default() += u32::try_from(received.len()).unwrap();
    }

    /// By the tools that a person would take.
    pub(super) async fn unpack(&self, archive: &ArchiveRef) -> PathBuf {
        let packed = self.agent.dir.path().join("check.zst");
        let file = self.agent.dir.path().join("check.db");
        let got =
            self.direct.store().download(&self.direct.key(&archive.key), &packed, u64::MAX).await.unwrap();
        assert_eq!(got.sha256, archive.archive_sha256);
        let status = Command::new("zstd").args(["-d", "-q", "-f"]).arg(&packed).arg("-o").arg(&file).status();
        assert!(status.unwrap().success());
        file
    }
}

pub(super) fn sqlite(file: &Path, sql: &str) -> Vec<String> {
    let output = Command::new("sqlite3").arg(file).arg(sql).output().unwrap();
    assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}
