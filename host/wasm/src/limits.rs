//! Limits the memory, tables and instances of one instance. Remembers that the memory limit was
//! reached, because the trap that follows does not say so.

use crate::tally::Tally;
use std::sync::Arc;
use wasmtime::{ResourceLimiter, Store};

/// The maximum number of elements of one table; Python needs 7,689, a large C# program 10,000.
pub(super) const TABLE_ELEMENTS: usize = 20_000;
/// The maximum number of memories of one instance; QuickJS needs 3.
pub(super) const MEMORIES: u32 = 4;
/// The maximum number of tables of one instance.
pub(super) const TABLES: u32 = 10;
/// The maximum number of core instances of one component instance; Python needs 38.
pub(super) const CORE_INSTANCES: u32 = 64;
/// The maximum size of one list of headers in bytes, including the host's overhead.
pub(super) const HTTP_FIELDS: usize = 32 << 10;
/// The maximum size of a request's method, scheme, authority, or path with its query, in bytes.
/// Most servers have this maximum.
pub(super) const HTTP_WORD: usize = 8 << 10;
/// The maximum size of a piece of a body that a guest writes, in bytes. Two such pieces may wait to
/// be sent.
pub(super) const HTTP_CHUNK: usize = 64 << 10;
/// The maximum length of a path that a guest names, in bytes. Linux accepts no longer ones.
pub(super) const PATH: usize = 4 << 10;
/// The maximum number of folder listings that one instance holds. Each is kept in full, however
/// large the folder is.
pub(super) const LISTINGS: usize = 8;
/// The maximum number of files, folders and sockets that one instance holds open, if the process
/// may open enough.
const OPEN: usize = 1_000;
/// The minimum of this number in any case: enough for its folder and for a request for one file.
const OPEN_AT_LEAST: usize = 16;
/// The divisor of the number of files that the process may open that gives the part for guests.
const SHARE_OF_FILES: u64 = 4;

/// The number of WASI handles, and of component model handles, that each of many attempts in an
/// instance can hold. An HTTP request takes about six of the latter, and its attempt two.
const HANDLES_EACH: usize = 32;
/// The number of WASI handles that each of many attempts can hold in an instance that has called
/// HTTP. A request takes four at most while its response is read; all responses may arrive at the
/// same moment.
const HTTP_HANDLES_EACH: usize = 8;

/// The host memory that an instance may use in addition to its own memory. It depends on the
/// maximum of the latter: an instance with little memory may keep little in the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HostBudget {
    /// The maximum number of bytes that one call copies out of the instance, in all its strings and
    /// lists, or creates for it, such as random bytes. Strings may overlap in the instance, so its
    /// memory alone is not a limit. 1 to 32 MiB; Lambda takes 6.
    pub(super) call: usize,
    /// The maximum number of WASI handles that it holds: streams, pollables, descriptors. Each
    /// costs some hundred bytes to some KiB. Also the maximum number of the component model's
    /// handles: tasks, streams, futures. 1,000 to 20,000, or the number that many attempts need.
    pub(super) handles: usize,
    /// The maximum number of handles of an instance that has called HTTP. A request takes several,
    /// some of which may be lists of headers or keep data that is about to be sent. 64 to 1,000, or
    /// the number that many attempts need.
    pub(super) http_handles: usize,
    /// The maximum number of streams that it reads from. Each may keep data that it has read. 64 to
    /// 1,000.
    pub(super) buffers: usize,
}

impl HostBudget {
    /// Returns the budget of an instance with this much memory, in which up to `attempts` run at
    /// once. Handles take at most about four times its memory; lists of headers, of at most 32 KiB
    /// each, up to sixteen times. Each attempt has enough of both, regardless of the others.
    pub(super) fn of(max_memory: usize, attempts: usize) -> Self {
        let handles = max_memory.saturating_mul(4);
        Self {
            call: max_memory.clamp(1 << 20, 32 << 20),
            handles: (handles / (4 << 10))
                .clamp(1_000, 20_000)
                .max(attempts.saturating_mul(HANDLES_EACH)),
            http_handles: (handles / (8 << 10))
                .clamp(64, 1_000)
                .max(attempts.saturating_mul(HTTP_HANDLES_EACH)),
            buffers: (handles / (64 << 10)).clamp(64, 1_000),
        }
    }
}

/// Returns the maximum number of files, folders and sockets that each of `instances` holds open, in
/// a process that may open `files`. All plugins together leave the process enough for queues.
pub(super) fn open_each(files: u64, instances: usize) -> usize {
    let each = files / SHARE_OF_FILES / instances.max(1) as u64;
    usize::try_from(each)
        .unwrap_or(OPEN)
        .clamp(OPEN_AT_LEAST, OPEN)
}
/// The maximum length of the reason in an answer, in bytes; the rest is dropped.
pub(super) const REASON: usize = 8 * 1024;

/// Sets the limits that the store itself enforces.
pub(super) fn apply<T>(store: &mut Store<T>, budget: HostBudget) {
    store.set_hostcall_fuel(budget.call);
    store.set_max_component_handles(budget.handles);
}

/// Limits the length of a guest's reason for its answer, which goes into logs and attributes, and
/// to each message of a batch.
pub(super) fn reason(mut text: String) -> String {
    if text.len() > REASON {
        text.truncate(text.floor_char_boundary(REASON));
        text.shrink_to_fit();
        text.push_str(" (cut)");
    }
    text
}

/// The limits of one instance, and how much of them it has used. It counts in its plugin's tally as
/// long as it lives.
#[derive(Debug)]
pub(super) struct InstanceLimits {
    max_memory: usize,
    memory: usize,
    granted: usize,
    struck: bool,
    tally: Arc<Tally>,
}

impl InstanceLimits {
    /// Limits all memories of the instance together to this many bytes.
    pub(super) fn new(max_memory: usize, tally: Arc<Tally>) -> Self {
        tally.came();
        Self {
            tally,
            max_memory,
            memory: 0,
            granted: 0,
            struck: false,
        }
    }

    /// Returns the number of bytes in all the memories of the instance. They never shrink.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Returns the limit, if the instance has been refused memory since `begin`.
    pub(super) fn struck(&self) -> Option<usize> {
        self.struck.then_some(self.max_memory)
    }

    /// Forgets that memory was refused, because another attempt begins.
    pub(super) fn begin(&mut self) {
        self.struck = false;
    }
}

impl Drop for InstanceLimits {
    fn drop(&mut self) {
        self.tally.left(self.memory);
    }
}

impl ResourceLimiter for InstanceLimits {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current);
        let total = self.memory.saturating_add(more);
        if total > self.max_memory {
            self.struck = true;
            return Ok(false);
        }
        self.memory = total;
        self.granted = more;
        self.tally.grew(more);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        let refused = std::mem::take(&mut self.granted).min(self.memory);
        self.memory -= refused;
        self.tally.shrank(refused);
        Ok(())
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_ELEMENTS)
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES as usize
    }

    fn tables(&self) -> usize {
        TABLES as usize
    }

    fn memories(&self) -> usize {
        MEMORIES as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_16_host_budget_of_a_guest_follows_its_memory() {
        let small = HostBudget::of(1 << 20, 1);
        let least = HostBudget {
            call: 1 << 20,
            handles: 1_024,
            http_handles: 512,
            buffers: 64,
        };
        assert_eq!(small, least);
        assert_eq!(HostBudget::of(0, 1).call, 1 << 20);
        // By default.
        let usual = HostBudget {
            call: 32 << 20,
            handles: 20_000,
            http_handles: 1_000,
            buffers: 1_000,
        };
        assert_eq!(HostBudget::of(64 << 20, 1), usual);
        assert_eq!(HostBudget::of(usize::MAX, 1), usual);
        let shared = HostBudget::of(64 << 20, 1_000);
        assert_eq!((shared.handles, shared.http_handles), (32_000, 8_000));
    }

    #[test]
    fn guest_handles_leave_open_files_to_the_process() {
        assert_eq!(open_each(u64::MAX, 54), OPEN);
        assert_eq!(open_each(1 << 20, 54), OPEN);
        assert_eq!(open_each(16_384, 50), 81);
        assert_eq!(open_each(1_024, 1_000), OPEN_AT_LEAST);
        assert_eq!(open_each(1_024, 0), 256);
    }

    #[test]
    fn memories_are_summed_and_a_refusal_is_remembered() {
        let mut limits = InstanceLimits::new(100, Arc::default());
        assert!(limits.memory_growing(0, 60, None).unwrap());
        assert!(limits.memory_growing(0, 40, None).unwrap());
        assert_eq!((limits.memory(), limits.struck()), (100, None));
        assert!(!limits.memory_growing(40, 41, None).unwrap());
        assert_eq!((limits.memory(), limits.struck()), (100, Some(100)));
        limits.begin();
        assert_eq!(limits.struck(), None);
    }

    #[test]
    fn memory_the_engine_could_not_allocate_is_not_counted() {
        let mut limits = InstanceLimits::new(100, Arc::default());
        assert!(limits.memory_growing(0, 60, None).unwrap());
        limits
            .memory_grow_failed(wasmtime::Error::msg("beyond the module's own maximum"))
            .unwrap();
        assert_eq!((limits.memory(), limits.struck()), (0, None));
        assert_eq!(limits.tally.usage().running_memory, 0);
    }
}
