//! Counts the instances of a plugin and their memory. Knows nobody who reports to it.

use dispatcher_core::handler::Usage;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The instances of a plugin; of all its versions, where they share one.
#[derive(Default)]
pub struct Tally {
    instances: AtomicUsize,
    /// Bytes in all their memories.
    memory: AtomicUsize,
    /// Where those wait that work on nothing, by version.
    idle: Mutex<Vec<Weak<dyn IdleInstances>>>,
}

/// Where instances wait that work on nothing.
pub(crate) trait IdleInstances: Send + Sync {
    /// How many there are, and the bytes in their memories.
    fn usage(&self) -> (usize, usize);
}

impl Tally {
    /// Counted one by one, so what is asked while much happens may be off by what happened.
    pub(crate) fn usage(&self) -> Usage {
        let idle: Vec<Arc<dyn IdleInstances>> = {
            let all = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        let idle = idle.iter().map(|idle| idle.usage());
        let (count, bytes) = idle.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        Usage {
            running: self.instances.load(Relaxed).saturating_sub(count),
            running_memory: self.memory.load(Relaxed).saturating_sub(bytes),
            idle: count,
            idle_memory: bytes,
        }
    }

    /// Instances wait here from now on, too.
    pub(super) fn watch(&self, idle: Weak<dyn IdleInstances>) {
        let mut all = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(idle);
    }

    /// There is an instance more, with no memory yet.
    pub(super) fn came(&self) {
        self.instances.fetch_add(1, Relaxed);
    }

    /// An instance with so much memory is gone.
    pub(super) fn left(&self, memory: usize) {
        self.instances.fetch_sub(1, Relaxed);
        self.shrank(memory);
    }

    /// An instance has so much more memory.
    pub(super) fn grew(&self, memory: usize) {
        self.memory.fetch_add(memory, Relaxed);
    }

    /// An instance did not get so much of what was counted.
    pub(super) fn shrank(&self, memory: usize) {
        self.memory.fetch_sub(memory, Relaxed);
    }
}

impl std::fmt::Debug for Tally {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Tally({:?})", self.usage())
    }
}
