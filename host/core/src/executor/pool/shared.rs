//! The state that the workers, the spawners and the pool share. It must not depend on how a worker
//! chooses its next task.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release},
};

use super::{
    live::LiveTasks,
    park::ParkedWorkers,
    sync::{AtomicBool, AtomicUsize, Injector, Steal, Stealer},
    task::{PoolTask, ReturnedFuture},
};

/// The number of shards per worker: enough that a spawn and the end of a stolen task seldom contend
/// for one lock. Under loom it is one, because loom tries every order of every lock.
const SHARDS_PER_WORKER: usize = if cfg!(loom) { 1 } else { 8 };

/// Counters that never influence a decision. They use the standard library's atomics even under
/// loom.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) steals: AtomicU64,
    pub(super) parks: AtomicU64,
    pub(super) panics: AtomicU64,
    /// The number of spawns. Each spawn uses the next shard of the live tasks.
    pub(super) spawns: AtomicU64,
}

pub(super) struct PoolShared {
    pub(super) injector: Injector<Arc<PoolTask>>,
    pub(super) stealers: Box<[Stealer<Arc<PoolTask>>]>,
    pub(super) live: LiveTasks,
    pub(super) parking: ParkedWorkers,
    pub(super) counters: Counters,
    /// Whether workers stop even if tasks are left.
    pub(super) stop: AtomicBool,
    /// Whether no thread waits for the workers, so that the last one drops the tasks that are left.
    pub(super) abandoned: AtomicBool,
    /// The number of workers that may still poll.
    pub(super) working: AtomicUsize,
}

impl PoolShared {
    pub(super) fn new(stealers: Box<[Stealer<Arc<PoolTask>>]>) -> Self {
        let workers = stealers.len();
        Self {
            injector: Injector::new(),
            stealers,
            live: LiveTasks::new(workers * SHARDS_PER_WORKER),
            parking: ParkedWorkers::new(workers),
            counters: Counters::default(),
            stop: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            working: AtomicUsize::new(workers),
        }
    }

    /// Queues a task from outside the workers.
    pub(super) fn inject(&self, task: Arc<PoolTask>) {
        self.injector.push(task);
        self.parking.notify();
    }

    pub(super) fn has_work(&self) -> bool {
        !self.injector.is_empty() || self.stealers.iter().any(|stealer| !stealer.is_empty())
    }

    pub(super) fn must_stop(&self) -> bool {
        self.stop.load(Acquire) || self.live.is_over()
    }

    /// Refuses spawns, and stops the workers at once or when all tasks are over.
    pub(super) fn close(&self, at_once: bool) {
        self.live.close();
        if at_once {
            self.stop.store(true, Release);
        }
        self.parking.notify_all();
    }

    pub(super) fn count(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Relaxed);
    }

    /// Takes out the unfinished futures. Call it once closed and with no worker left.
    pub(super) fn collect(&self) -> Vec<ReturnedFuture> {
        let left = self
            .live
            .drain()
            .iter()
            .filter_map(|task| task.take())
            .collect();
        // A spawner may outlive the pool: do not let it keep the empty tasks in the queues alive.
        while !matches!(self.injector.steal(), Steal::Empty) {}
        left
    }
}
