//! Tracks which workers search and which sleep, and wakes sleepers. It must not depend on what is
//! searched.
//!
//! The protocol loses no wake-up: a producer makes its work visible, passes a fence, then reads the
//! counts; a worker changes the counts, passes a fence, then checks all work. One of the two sees
//! the other. While a worker searches, a producer wakes no other: a searcher that finds work or
//! falls asleep checks again, and wakes another if there is more.

use std::sync::{PoisonError, atomic::Ordering::Relaxed, atomic::Ordering::SeqCst};

use super::sync::{AtomicUsize, Condvar, Mutex, fence, lock};

const SEARCHER: usize = 1;
const SLEEPER: usize = 1 << 16;
const SEARCHERS: usize = SLEEPER - 1;

/// The maximum number of workers that the counts have room for.
pub(super) const MAX_WORKERS: usize = SEARCHERS;

pub(super) struct ParkedWorkers {
    /// The number of searching workers in the low 16 bits, of sleeping ones above.
    counts: AtomicUsize,
    /// The sleeping workers. The last to fall asleep is woken first, because its caches are the
    /// warmest. A worker sleeps exactly while it is in this list, so no token can be lost and no
    /// foreign `unpark` can wake it.
    sleepers: Mutex<Vec<usize>>,
    condvars: Box<[Condvar]>,
}

impl ParkedWorkers {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            counts: AtomicUsize::new(0),
            sleepers: Mutex::new(Vec::with_capacity(workers)),
            condvars: (0..workers).map(|_| Condvar::new()).collect(),
        }
    }

    /// Wakes one sleeper to search, unless a worker already searches. Call it after work became
    /// visible.
    pub(super) fn notify(&self) {
        fence(SeqCst);
        let counts = self.counts.load(Relaxed);
        if counts & SEARCHERS != 0 || counts < SLEEPER {
            return;
        }
        let mut sleepers = lock(&self.sleepers);
        if self.counts.load(Relaxed) & SEARCHERS != 0 {
            return;
        }
        if let Some(worker) = sleepers.pop() {
            self.counts.fetch_sub(SLEEPER - SEARCHER, Relaxed);
            drop(sleepers);
            self.condvars[worker].notify_one();
        }
    }

    /// Wakes every sleeper to search.
    pub(super) fn notify_all(&self) {
        let mut sleepers = lock(&self.sleepers);
        self.counts
            .fetch_sub(sleepers.len() * (SLEEPER - SEARCHER), Relaxed);
        for worker in sleepers.drain(..) {
            self.condvars[worker].notify_one();
        }
    }

    pub(super) fn begin_search(&self) {
        self.counts.fetch_add(SEARCHER, Relaxed);
    }

    /// Ends a search. Returns `true` if no other worker searches: then the caller must check all
    /// work, and call [`notify`](Self::notify) if there is any.
    pub(super) fn end_search(&self) -> bool {
        let last = self.counts.fetch_sub(SEARCHER, Relaxed) & SEARCHERS == SEARCHER;
        fence(SeqCst);
        last
    }

    /// Puts a searcher to sleep until it is woken, unless `stay` returns that there is work after
    /// all. Afterwards it searches again. Returns `true` if it slept.
    pub(super) fn sleep(&self, worker: usize, stay: impl FnOnce() -> bool) -> bool {
        let mut sleepers = lock(&self.sleepers);
        self.counts.fetch_add(SLEEPER - SEARCHER, Relaxed);
        fence(SeqCst);
        if stay() {
            self.counts.fetch_sub(SLEEPER - SEARCHER, Relaxed);
            return false;
        }
        sleepers.push(worker);
        while sleepers.contains(&worker) {
            sleepers = self.condvars[worker]
                .wait(sleepers)
                .unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}
