//! Who searches and who sleeps, and how a sleeper is woken. It must not know what is searched.
//!
//! The protocol that loses no wake-up: a producer makes its work visible, passes a fence, then
//! looks at the counts; a worker changes the counts, passes a fence, then looks at all work. One of
//! the two sees the other. While anybody searches, a producer wakes nobody: a searcher that finds
//! work or falls asleep looks again, and hands over when there is more.

use std::sync::{PoisonError, atomic::Ordering::Relaxed, atomic::Ordering::SeqCst};

use super::sync::{AtomicUsize, Condvar, Mutex, fence, lock};

const SEARCHER: usize = 1;
const SLEEPER: usize = 1 << 16;
const SEARCHERS: usize = SLEEPER - 1;

/// Maximum workers that the counts have room for.
pub(super) const MAX_WORKERS: usize = SEARCHERS;

pub(super) struct Parking {
    /// Searching workers in the low 16 bits, sleeping ones above.
    counts: AtomicUsize,
    /// The last to fall asleep is woken first: its caches are the warmest. To be in here is to be
    /// asleep, so no token can be lost and no foreign `unpark` can wake.
    sleepers: Mutex<Vec<usize>>,
    condvars: Box<[Condvar]>,
}

impl Parking {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            counts: AtomicUsize::new(0),
            sleepers: Mutex::new(Vec::with_capacity(workers)),
            condvars: (0..workers).map(|_| Condvar::new()).collect(),
        }
    }

    /// Wakes one sleeper into searching, unless somebody searches already. To be called after work
    /// became visible.
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

    /// Wakes every sleeper into searching.
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

    /// `true` when nobody searches any more: then the caller must look at all work, and
    /// [`notify`](Self::notify) when there is any.
    pub(super) fn end_search(&self) -> bool {
        let last = self.counts.fetch_sub(SEARCHER, Relaxed) & SEARCHERS == SEARCHER;
        fence(SeqCst);
        last
    }

    /// A searcher falls asleep until it is woken, unless `stay` says that there is work after all.
    /// Afterwards it searches again. `true` when it slept.
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
