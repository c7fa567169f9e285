//! What the workers, the spawners and the pool hold together. It must not know how a worker
//! chooses its next task.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release},
};

use super::{
    live::LiveTasks,
    park::Parking,
    sync::{AtomicBool, AtomicUsize, Injector, Steal, Stealer},
    task::{PoolTask, Returned},
};

/// Enough that a spawn and the end of a stolen task seldom meet at one lock; loom, which would
/// try every order of every lock, makes do with one.
const SHARDS_PER_WORKER: usize = if cfg!(loom) { 1 } else { 8 };

/// Plain counts, never used to decide: the standard library's also under loom.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) steals: AtomicU64,
    pub(super) parks: AtomicU64,
    pub(super) panics: AtomicU64,
    /// All spawns, which take the shards of the live tasks in turn.
    pub(super) spawns: AtomicU64,
}

pub(super) struct PoolShared {
    pub(super) injector: Injector<Arc<PoolTask>>,
    pub(super) stealers: Box<[Stealer<Arc<PoolTask>>]>,
    pub(super) live: LiveTasks,
    pub(super) parking: Parking,
    pub(super) counters: Counters,
    /// Workers stop, whatever is left.
    pub(super) stop: AtomicBool,
    /// Nobody waits for the workers: the last one drops what is left.
    pub(super) abandoned: AtomicBool,
    /// Workers that may still poll.
    pub(super) working: AtomicUsize,
}

impl PoolShared {
    pub(super) fn new(stealers: Box<[Stealer<Arc<PoolTask>>]>) -> Self {
        let workers = stealers.len();
        Self {
            injector: Injector::new(),
            stealers,
            live: LiveTasks::new(workers * SHARDS_PER_WORKER),
            parking: Parking::new(workers),
            counters: Counters::default(),
            stop: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            working: AtomicUsize::new(workers),
        }
    }

    /// Queues from outside the workers.
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

    /// Refuses spawns, and has the workers stop: at once, or when all tasks are over.
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

    /// Takes out what is unfinished, once closed and with no worker left.
    pub(super) fn collect(&self) -> Vec<Returned> {
        let left = self
            .live
            .drain()
            .iter()
            .filter_map(|task| task.take())
            .collect();
        // A spawner may outlive the pool: it need not keep the queues' empty tasks alive.
        while !matches!(self.injector.steal(), Steal::Empty) {}
        left
    }
}
