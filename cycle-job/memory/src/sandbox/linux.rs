//! Landlock for files and network, seccomp for system calls.

use std::collections::BTreeMap;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

pub(super) fn restrict_files(directory: &Path, read: Option<&Path>) -> Result<bool, landlock::RulesetError> {
    let abi = ABI::V6;
    let Ok(beneath) = PathFd::new(directory) else { return Ok(false) };
    let here = AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::MakeReg
        | AccessFs::RemoveFile
        | AccessFs::Truncate;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?
        .add_rule(PathBeneath::new(beneath, here))?;
    if let Some(read) = read.and_then(|path| PathFd::new(path).ok()) {
        rules = rules.add_rule(PathBeneath::new(read, AccessFs::ReadFile | AccessFs::ReadDir))?;
    }
    let status = rules.restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Calls that SQLite, the allocator and the standard library make in a running worker, for glibc and
/// musl. No socket, exec, clone, ptrace, ioctl or prctl.
#[rustfmt::skip]
const ALLOWED: &[i64] = &[
    libc::SYS_read, libc::SYS_write, libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_readv,
    libc::SYS_writev, libc::SYS_lseek, libc::SYS_openat, libc::SYS_close, libc::SYS_fstat,
    libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_fsync,
    libc::SYS_fdatasync, libc::SYS_ftruncate, libc::SYS_fallocate, libc::SYS_unlinkat, libc::SYS_fchmod,
    libc::SYS_fchown, libc::SYS_readlinkat, libc::SYS_getcwd, libc::SYS_getdents64, libc::SYS_brk,
    libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_futex, libc::SYS_getpid,
    libc::SYS_gettid, libc::SYS_geteuid, libc::SYS_getuid, libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep, libc::SYS_nanosleep, libc::SYS_gettimeofday, libc::SYS_getrandom,
    libc::SYS_sched_yield, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_ppoll, libc::SYS_restart_syscall,
];

/// The older twins that only this architecture has.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_unlink,
    libc::SYS_readlink,
    libc::SYS_poll,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[i64] = &[];

pub(super) fn restrict_calls() -> Option<()> {
    let equal = |index, value: u64| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value).ok()
    };
    let rule = |conditions| SeccompRule::new(conditions).ok();
    let mut calls: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().chain(ALLOWED_HERE).map(|call| (*call, vec![])).collect();
    let mut locks = vec![];
    for command in [libc::F_SETLK, libc::F_GETLK, libc::F_SETLKW, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL]
    {
        locks.push(rule(vec![equal(1, u64::try_from(command).ok()?)?])?);
    }
    calls.insert(libc::SYS_fcntl, locks);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let exec = u64::try_from(libc::PROT_EXEC).ok()?;
        let none = SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(exec), 0).ok()?;
        calls.insert(call, vec![rule(vec![none])?]);
    }
    // abort() raises a signal in its own process: the parent then sees signal 6 and not 31.
    let own = vec![equal(0, u64::from(std::process::id()))?, equal(2, u64::try_from(libc::SIGABRT).ok()?)?];
    calls.insert(libc::SYS_tgkill, vec![rule(own)?]);
    let filter = SeccompFilter::new(
        calls,
        SeccompAction::KillProcess,
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into().ok()?,
    )
    .ok()?;
    let program = BpfProgram::try_from(filter).ok()?;
    seccompiler::apply_filter(&program).ok()
}
