//! Counts the instances of a plugin and their memory. Does not depend on its callers.

use dispatcher_core::handler::Usage;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// The instances of a plugin, or of all its versions if they share this.
#[derive(Default)]
pub struct Tally {
    instances: AtomicUsize,
    /// The bytes in all their memories.
    memory: AtomicUsize,
    /// The sets of idle instances, by version.
    idle: Mutex<Vec<Weak<dyn IdleInstances>>>,
}

/// A set of idle instances.
pub(crate) trait IdleInstances: Send + Sync {
    /// Returns the number of instances, and the bytes in their memories.
    fn usage(&self) -> (usize, usize);
}

impl Tally {
    /// Returns the current usage. The values are read one by one, so they may be slightly off while
    /// instances change.
    pub(crate) fn usage(&self) -> Usage {
        let idle: Vec<Arc<dyn IdleInstances>> = {
            let all = self.idle.lock();
            all.iter().filter_map(Weak::upgrade).collect()
        };
        let usages = idle.iter().map(|idle| idle.usage());
        let (count, bytes) = usages.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        Usage {
            running: self.instances.load(Relaxed).saturating_sub(count),
            running_memory: self.memory.load(Relaxed).saturating_sub(bytes),
            idle: count,
            idle_memory: bytes,
        }
    }

    /// Adds a set of idle instances.
    pub(super) fn watch(&self, idle: Weak<dyn IdleInstances>) {
        let mut all = self.idle.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(idle);
    }

    /// Counts a new instance, which has no memory yet.
    pub(super) fn came(&self) {
        self.instances.fetch_add(1, Relaxed);
    }

    /// Subtracts an instance with this much memory.
    pub(super) fn left(&self, memory: usize) {
        self.instances.fetch_sub(1, Relaxed);
        self.shrank(memory);
    }

    /// Counts this much more memory of an instance.
    pub(super) fn grew(&self, memory: usize) {
        self.memory.fetch_add(memory, Relaxed);
    }

    /// Subtracts memory that was counted, for example because an instance did not get it.
    pub(super) fn shrank(&self, memory: usize) {
        self.memory.fetch_sub(memory, Relaxed);
    }
}

impl std::fmt::Debug for Tally {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Tally({:?})", self.usage())
    }
}
