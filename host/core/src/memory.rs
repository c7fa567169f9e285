//! Limits the bytes of messages that the process holds: those received and not yet settled, of all
//! queues together. Does not depend on queues.

use parking_lot::Mutex;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Notify;

/// The divisor of the memory that a process may use: by default it holds messages up to that part.
/// A body exists several times while it is handled: in the file's cache, on its way and in the
/// handler.
const PART: u64 = 8;
/// The minimum budget in bytes: an SQS message would not fit into less.
pub const LEAST: u64 = 2 * 1024 * 1024;

/// The budget of one process.
#[derive(Debug)]
pub struct Budget {
    capacity: u64,
    state: Mutex<BudgetState>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct BudgetState {
    used: u64,
    /// Whether a message holds bytes beyond the capacity so that work can continue.
    overdrawn: bool,
}

impl Budget {
    /// Creates a budget of this many bytes, at least `LEAST`.
    pub fn new(capacity: u64) -> Arc<Self> {
        Arc::new(Self {
            capacity: capacity.max(LEAST),
            state: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// Returns the maximum bytes at once, which is also the size of the largest message that can be
    /// handled.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, BudgetState> {
        // The state is plain numbers, which a panic cannot leave half changed.
        self.state.lock()
    }

    /// Returns the number of bytes that are free now.
    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.state().used)
    }

    /// Takes this many bytes if they are free.
    pub fn try_take(self: &Arc<Self>, bytes: u64) -> Option<HeldBytes> {
        let mut state = self.state();
        let fits = state.used + bytes <= self.capacity;
        fits.then(|| self.count(&mut state, bytes, false))
    }

    /// Takes this many bytes, free or not: the message is here already, or may come regardless.
    pub fn take(self: &Arc<Self>, bytes: u64) -> HeldBytes {
        self.count(&mut self.state(), bytes, false)
    }

    /// Takes this many bytes beyond the capacity, unless another message does: messages that wait
    /// behind one must not block it by using up the bytes.
    pub fn overdraw(self: &Arc<Self>, bytes: u64) -> Option<HeldBytes> {
        let mut state = self.state();
        (!state.overdrawn).then(|| self.count(&mut state, bytes, true))
    }

    fn count(self: &Arc<Self>, state: &mut BudgetState, bytes: u64, overdrawn: bool) -> HeldBytes {
        state.used += bytes;
        state.overdrawn |= overdrawn;
        HeldBytes {
            _share: Arc::new(BudgetShare {
                budget: Arc::clone(self),
                bytes,
                overdrawn,
            }),
        }
    }

    /// Waits until this many bytes are free.
    pub async fn available(&self, bytes: u64) {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            // Enable before the check: otherwise bytes freed in between would be missed.
            freed.as_mut().enable();
            if self.free() >= bytes {
                return;
            }
            freed.await;
        }
    }
}

/// The bytes of a held message; released when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct HeldBytes {
    _share: Arc<BudgetShare>,
}

#[derive(Debug)]
struct BudgetShare {
    budget: Arc<Budget>,
    bytes: u64,
    overdrawn: bool,
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        state.used -= self.bytes;
        if self.overdrawn {
            state.overdrawn = false;
        }
        drop(state);
        self.budget.freed.notify_waiters();
    }
}

/// Returns the budget of a process that may use this much memory; unlimited if no limit is known.
pub fn default_budget(limit: Option<u64>) -> u64 {
    limit.map_or(u64::MAX, |limit| (limit / PART).max(LEAST))
}

/// Returns how much memory this process may use: the lowest limit of its control groups (version 1
/// or 2), or the machine's memory. `None` if the system reports neither.
pub fn limit() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .as_deref()
        .and_then(total_memory);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&groups, Path::new("/sys/fs/cgroup"))
        .into_iter()
        .filter_map(|file| group_limit(&fs::read_to_string(file).ok()?));
    limits.chain(machine).min()
}

/// Returns the files that may contain a limit, from the content of `/proc/self/cgroup`. In a
/// container the path there may be the host's, which is not visible inside; then the visible root
/// is used.
fn limit_files(groups: &str, root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (root, name) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            list if list.split(',').any(|one| one == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let own = root.join(path.trim_start_matches('/'));
        let above = own.ancestors().take_while(|path| path.starts_with(&root));
        files.extend(above.map(|group| group.join(name)));
    }
    files
}

/// Parses such a file: a number of bytes, or `max` for no limit. Version 1 writes a number for no
/// limit that is greater than any machine's memory.
fn group_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Returns the machine's memory in bytes from the text of `/proc/meminfo`.
fn total_memory(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn finding_04_bytes_are_reserved_up_to_the_capacity_and_released() {
        let budget = Budget::new(4 * MIB);
        let first = budget.try_take(3 * MIB).expect("it fits");
        assert!(budget.try_take(2 * MIB).is_none());
        assert_eq!(budget.free(), MIB);
        let clone = first.clone();
        drop(first);
        assert_eq!(budget.free(), MIB, "a clone still holds them");
        drop(clone);
        assert_eq!(budget.free(), 4 * MIB);
    }

    #[test]
    fn finding_04_one_message_at_a_time_may_exceed_the_capacity() {
        let budget = Budget::new(4 * MIB);
        let _all = budget.take(4 * MIB);
        let beyond = budget.overdraw(MIB).expect("nobody else does");
        assert!(budget.overdraw(1).is_none());
        drop(beyond);
        assert!(budget.overdraw(1).is_some());
    }

    #[tokio::test]
    async fn finding_04_waiter_for_bytes_is_woken() {
        let budget = Budget::new(4 * MIB);
        let held = budget.take(4 * MIB);
        let mut waiting = std::pin::pin!(budget.available(MIB));
        let first = std::future::poll_fn(|context| {
            std::task::Poll::Ready(waiting.as_mut().poll(context).is_pending())
        });
        assert!(first.await);
        drop(held);
        waiting.await;
    }

    fn named(groups: &str) -> Vec<String> {
        let files = limit_files(groups, Path::new("/sys/fs/cgroup"));
        files
            .iter()
            .map(|file| file.display().to_string())
            .collect()
    }

    #[test]
    fn finding_04_memory_limits_of_both_cgroup_versions_are_read() {
        assert_eq!(
            named("0::/a/b\n"),
            [
                "/sys/fs/cgroup/a/b/memory.max",
                "/sys/fs/cgroup/a/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(
            named("5:cpu,cpuacct:/x\n4:memory:/docker/1\n"),
            [
                "/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes"
            ]
        );
        assert_eq!(named("garbage\n"), [""; 0]);
        assert_eq!(group_limit("268435456\n"), Some(256 * MIB));
        assert_eq!(group_limit("max\n"), None);
        assert_eq!(
            total_memory("MemTotal:  2048 kB\nMemFree: 1 kB\n"),
            Some(2 * MIB)
        );
    }

    #[test]
    fn default_memory_is_a_share_of_the_limit_with_a_minimum() {
        assert_eq!(default_budget(Some(256 * MIB)), 32 * MIB);
        assert_eq!(default_budget(Some(MIB)), LEAST);
        assert_eq!(default_budget(None), u64::MAX);
    }
}
