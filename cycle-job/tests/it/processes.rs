//! The processes of a cycle, as the kernel shows them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The word after `worker` in the command line of each process that `parent` has started.
pub(crate) fn workers(parent: u32) -> BTreeMap<String, u32> {
    let kind = |pid: u32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        let mut words = line.split('\0').skip_while(|word| *word != "worker");
        Some((words.nth(1)?.to_owned(), pid))
    };
    all().into_iter().filter(|process| process.parent == parent).filter_map(|p| kind(p.pid)).collect()
}

struct Process {
    pid: u32,
    parent: u32,
    /// Most RAM that it has had, in bytes, by the kernel's own mark: nothing between two looks is missed. None
    /// for one that has ended.
    peak: Option<u64>,
}

fn all() -> Vec<Process> {
    let process = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        let field = |key: &str| Some(status.lines().find_map(|line| line.strip_prefix(key))?.trim());
        let peak = field("VmHWM:").and_then(|peak| peak.strip_suffix(" kB")?.parse::<u64>().ok());
        Some(Process { pid, parent: field("PPid:")?.parse().ok()?, peak: peak.map(|peak| peak * 1024) })
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(process).collect()
}

/// Watches the RAM of a process and of all that it starts.
pub(crate) struct Peaks {
    ended: Arc<AtomicBool>,
    watch: JoinHandle<BTreeMap<u32, u64>>,
}

impl Peaks {
    pub(crate) fn of(root: u32) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let watch = std::thread::spawn(move || {
            let mut peaks = BTreeMap::from([(root, 0)]);
            while !end.load(Ordering::Acquire) {
                for process in all() {
                    let is_ours = peaks.contains_key(&process.pid) || peaks.contains_key(&process.parent);
                    // The last word counts: before its exec a child shows the memory of its parent.
                    if let Some(peak) = process.peak.filter(|_| is_ours) {
                        peaks.insert(process.pid, peak);
                    }
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            peaks
        });
        Self { ended, watch }
    }

    /// The most bytes of each process.
    pub(crate) fn end(self) -> Vec<u64> {
        self.ended.store(true, Ordering::Release);
        self.watch.join().unwrap().into_values().collect()
    }
}
