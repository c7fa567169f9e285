//! The registry of all live tasks, so that a close can also return those that only a waker refers
//! to. It must not depend on queues or threads.
//!
//! The registry is split into shards, each behind its own lock that is held for a few instructions.
//! The lock also orders a spawn and a close: a shard is open or closed.

use std::sync::{
    Arc,
    atomic::Ordering::{AcqRel, Acquire},
};

use super::{
    sync::{AtomicUsize, Mutex, MutexGuard, lock},
    task::PoolTask,
};

/// A task's place: shard and index in the shard.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    shard: usize,
    index: usize,
}

#[derive(Default)]
struct Shard {
    tasks: Vec<Option<Arc<PoolTask>>>,
    free: Vec<usize>,
    closed: bool,
}

impl Shard {
    fn len(&self) -> usize {
        self.tasks.len() - self.free.len()
    }
}

pub(super) struct LiveTasks {
    shards: Box<[Mutex<Shard>]>,
    /// The number of shards that are closed and empty; they stay so.
    ended: AtomicUsize,
}

/// A permit to add one task. No close can happen while it is held.
pub(super) struct SubmitPermit<'a> {
    shard: MutexGuard<'a, Shard>,
    number: usize,
}

impl SubmitPermit<'_> {
    pub(super) fn fill(mut self, make: impl FnOnce(Slot) -> Arc<PoolTask>) -> Arc<PoolTask> {
        let index = self.shard.free.pop().unwrap_or_else(|| {
            self.shard.tasks.push(None);
            self.shard.tasks.len() - 1
        });
        let task = make(Slot {
            shard: self.number,
            index,
        });
        self.shard.tasks[index] = Some(Arc::clone(&task));
        task
    }
}

impl LiveTasks {
    pub(super) fn new(shards: usize) -> Self {
        let shards = (0..shards).map(|_| Mutex::new(Shard::default())).collect();
        Self {
            shards,
            ended: AtomicUsize::new(0),
        }
    }

    /// Reserves room for one task in the shard that `hint` selects. Returns `None` once closed.
    pub(super) fn admit(&self, hint: usize) -> Option<SubmitPermit<'_>> {
        let number = hint % self.shards.len();
        let shard = lock(&self.shards[number]);
        (!shard.closed).then_some(SubmitPermit { shard, number })
    }

    /// Forgets a task that is over. Returns `true` if it was the last one of a closed pool.
    pub(super) fn remove(&self, slot: Slot) -> bool {
        let mut shard = lock(&self.shards[slot.shard]);
        let task = shard.tasks[slot.index].take();
        shard.free.push(slot.index);
        let ended = shard.closed && shard.len() == 0;
        drop(shard);
        drop(task);
        ended && self.ended.fetch_add(1, AcqRel) + 1 == self.shards.len()
    }

    /// Closes all shards, so that no more tasks are admitted.
    pub(super) fn close(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let ended = !shard.closed && shard.len() == 0;
            shard.closed = true;
            drop(shard);
            if ended {
                self.ended.fetch_add(1, AcqRel);
            }
        }
    }

    /// Whether all shards are closed and empty.
    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Acquire) == self.shards.len()
    }

    /// Takes out every task. Call it once closed and with no worker left.
    pub(super) fn drain(&self) -> Vec<Arc<PoolTask>> {
        self.shards
            .iter()
            .flat_map(|shard: &Mutex<Shard>| {
                let mut shard = lock(shard);
                shard.free.clear();
                std::mem::take(&mut shard.tasks)
            })
            .flatten()
            .collect()
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }
}
