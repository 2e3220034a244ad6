//! All resource numbers of a cycle, computed in one place so that pod, plan and workers agree.

use serde::{Deserialize, Serialize};

/// One mebibyte.
pub const MIB: u64 = 1 << 20;

/// What a cycle needs, in bytes and seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// SQLite's hard heap limit in the memory worker.
    pub memory_heap: u64,
    /// SQLite's hard heap limit in the ledger worker.
    pub ledger_heap: u64,
    /// RLIMIT_AS of the memory worker.
    pub memory_address_space: u64,
    /// RLIMIT_AS of the ledger worker.
    pub ledger_address_space: u64,
    /// Memory limit (and request) of the container.
    pub container_memory: u64,
    /// `sizeLimit` of the working emptyDir.
    pub disk: u64,
    /// Ephemeral storage request and limit of the container.
    pub ephemeral_storage: u64,
    /// Default `terminationGracePeriodSeconds`.
    pub grace_seconds: u64,
}

/// Numbers for a memory of at most `size_limit` bytes, a ledger of at most `ledger_size_limit` and
/// `files` bytes of files.
///
/// - Temporary tables and sorts live on SQLite's heap, so it follows the size limit: an index on a
///   wide column needed 1.3 times the file in our measurements.
/// - The container's limit lies above both children's, so that a child meets its own limit first and
///   fails as a statement, not as a killed pod.
/// - The disk holds each file, its write-ahead log and its archive: three times the size limits.
pub fn resources(size_limit: u64, ledger_size_limit: u64, files: u64) -> Resources {
    let memory_heap = (2 * size_limit).max(128 * MIB);
    let ledger_heap = 128 * MIB;
    let memory_address_space = memory_heap + 128 * MIB;
    let ledger_address_space = ledger_heap + 128 * MIB;
    let disk = 3 * (size_limit + ledger_size_limit) + files + 128 * MIB;
    Resources {
        memory_heap,
        ledger_heap,
        memory_address_space,
        ledger_address_space,
        container_memory: memory_address_space + ledger_address_space + 128 * MIB,
        disk,
        ephemeral_storage: disk + 64 * MIB,
        // 30 s for the orderly end and 1 s for each 20 MiB to upload; 600 s is what drains tolerate.
        grace_seconds: (30 + (size_limit + ledger_size_limit) / (20 * MIB)).min(600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_meets_its_limit_before_the_container() {
        for mib in [1, 64, 256, 1024, 10_240] {
            let r = resources(mib * MIB, 256 * MIB, 0);
            assert!(r.memory_heap < r.memory_address_space);
            assert!(r.memory_address_space + r.ledger_address_space < r.container_memory);
        }
    }

    #[test]
    fn the_default_agent_fits_one_gibibyte() {
        assert_eq!(resources(256 * MIB, 256 * MIB, 0).container_memory, 1024 * MIB);
        assert_eq!(resources(256 * MIB, 256 * MIB, 0).grace_seconds, 55);
    }
}
