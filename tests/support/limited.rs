//! Limits for a program and all that it starts, where the machine lets us make them: a control group
//! for memory, a file system for space. Knows no test.

use crate::child::Program;
use crate::servers::caches_folder;
use crate::skip::skip;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Lets the kernel swap to a file of `$2` bytes in the folder `$1` until standard input ends, which it
/// does however the test binary ends. If the group `$3` is still there by then, its test was killed:
/// this kills what runs in the group and removes it.
const SWAP_UNTIL_STDIN_ENDS: &str = r#"
trap '' HUP INT TERM
PATH=$PATH:/usr/sbin:/sbin
umask 077
file=$1/file
fallocate -l "$2" "$file" && mkswap "$file" >/dev/null && swapon "$file" && echo on
exec 1>&-
cat >/dev/null
for try in 1 2 3 4 5 6 7 8 9; do
  [ -d "$3" ] || break
  kill -9 $(cat "$3/cgroup.procs")
  rmdir "$3" || sleep 0.2
done 2>/dev/null
swapoff "$file" 2>/dev/null
rm -rf "$1"
"#;

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
    /// The shell that ends the swap with its standard input.
    swap: Option<Child>,
}

impl MemoryLimit {
    /// Makes one below the group of this process, or beside it. `None` where that cannot be done, as in
    /// most containers; says so.
    pub fn new(bytes: u64) -> Option<Self> {
        let made = Self::make(bytes, true);
        made.inspect_err(|why| skip(&format!("a memory limit needs a control group ({why})")))
            .ok()
    }

    /// Makes one that swaps what exceeds the limit, to a file of so many bytes. All processes of the
    /// machine may swap to it meanwhile. `None` where that cannot be done, as without root; says so.
    pub fn with_swap(bytes: u64, swap: u64) -> Option<Self> {
        let made = Self::make(bytes, false).and_then(|made| made.swapping(swap));
        made.inspect_err(|why| skip(&format!("swap needs root and a control group ({why})")))
            .ok()
    }

    fn make(bytes: u64, is_final: bool) -> Result<Self, String> {
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let (own, limit, swap) = own_group(&groups).ok_or("no memory controller is mounted")?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("dispatcher-test-{}-{number}", std::process::id());
        let group = own.join(name);
        fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
        let made = Self { group, swap: None };
        let file = made.group.join(limit);
        fs::write(&file, bytes.to_string())
            .map_err(|error| format!("{}: {error}", file.display()))?;
        if is_final {
            // Where there is swap it must not take what the limit keeps out.
            let _ = fs::write(made.group.join(swap.0), swap.1(bytes));
        }
        Ok(made)
    }

    fn swapping(mut self, bytes: u64) -> Result<Self, String> {
        let folder = tempfile::tempdir_in(caches_folder()).map_err(|error| error.to_string())?;
        let mut shell = Command::new("sh")
            .args(["-c", SWAP_UNTIL_STDIN_ENDS, "swap"])
            // The shell removes it.
            .arg(folder.keep())
            .arg(bytes.to_string())
            .arg(&self.group)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let output = shell.stdout.take().ok_or("the shell has no output")?;
        self.swap = Some(shell);
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        read.map_err(|error| error.to_string())?;
        match line.trim() {
            "on" => Ok(self),
            _ => Err("fallocate, mkswap or swapon failed".to_owned()),
        }
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
        if let Some(mut shell) = self.swap.take() {
            drop(shell.stdin.take());
            let _ = shell.wait();
        }
    }
}
