//! Limits for a program and all that it starts, where the machine lets us make them: a control group
//! for memory, a file system for space. Knows no test.

use crate::child::Program;
use crate::skip::skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Whether a file system may be mounted in a new name space; says so where it may not.
pub fn may_mount() -> bool {
    let tried = Command::new("unshare")
        .args(["-Urm", "mount", "-t", "tmpfs", "none", "/mnt"])
        .output();
    let may = tried.is_ok_and(|tried| tried.status.success());
    if !may {
        skip("a test file system needs a name space in which it may be mounted");
    }
    may
}

/// A control group with a limit. Removed when dropped, once nothing runs in it any more.
#[derive(Debug)]
pub struct MemoryLimit {
    group: PathBuf,
}

impl MemoryLimit {
    /// Makes one below the group of this process, or beside it. `None` where that cannot be done, as in
    /// most containers; says so.
    pub fn new(bytes: u64) -> Option<Self> {
        let made = Self::make(bytes);
        made.inspect_err(|why| skip(&format!("a memory limit needs a control group ({why})")))
            .ok()
    }

    fn make(bytes: u64) -> Result<Self, String> {
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let (own, limit, swap) = own_group(&groups).ok_or("no memory controller is mounted")?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("dispatcher-test-{}-{number}", std::process::id());
        let group = own.join(name);
        fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
        let made = Self { group };
        let file = made.group.join(limit);
        fs::write(&file, bytes.to_string())
            .map_err(|error| format!("{}: {error}", file.display()))?;
        // Where there is swap it must not take what the limit keeps out.
        let _ = fs::write(made.group.join(swap.0), swap.1(bytes));
        Ok(made)
    }

    /// The program inside the group.
    pub fn run(&self, program: Program) -> Program {
        let members = self.group.join("cgroup.procs");
        program.after(&format!("echo $$ > '{}'", members.display()))
    }
}

/// How the file for swap is called and what it wants.
type Swap = (&'static str, fn(u64) -> String);

/// The group of this process and the names of its limits, of version 1 or 2.
fn own_group(groups: &str) -> Option<(PathBuf, &'static str, Swap)> {
    let of = |controller: &str| {
        let line = groups.lines().find(|line| line.contains(controller))?;
        line.splitn(3, ':')
            .nth(2)
            .map(|path| path.trim_start_matches('/').to_owned())
    };
    if let Some(path) = of(":memory:") {
        let group = Path::new("/sys/fs/cgroup/memory").join(path);
        let swap: Swap = ("memory.memsw.limit_in_bytes", |bytes| bytes.to_string());
        return Some((group, "memory.limit_in_bytes", swap));
    }
    let own = Path::new("/sys/fs/cgroup").join(of("0::")?);
    let swap: Swap = ("memory.swap.max", |_| "0".to_owned());
    // A group with processes has none with limits below it, but for the first of all.
    let has_memory = |group: &&Path| {
        let controllers = fs::read_to_string(group.join("cgroup.subtree_control"));
        controllers.is_ok_and(|names| names.contains("memory"))
    };
    let group = own.ancestors().take(2).find(has_memory)?;
    Some((group.to_owned(), "memory.max", swap))
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // A group with a process that has not been waited for cannot be removed; it does no harm.
        let _ = fs::remove_dir(&self.group);
    }
}
