//! The guest threads: a work-stealing pool that polls futures. It must not depend on what they do
//! (guests, jobs, tokio, the clock) nor on the rest of the crate, so that it compiles alone.
//!
//! - **Queues**: one deque per worker, first in, first out, and one injector. A wake or a spawn on
//!   a worker's own thread goes to that worker's deque, any other to the injector. An idle worker
//!   takes a batch from the injector, or half of a random victim's deque.
//! - **Fairness**: a future that wakes itself, as a guest does at every epoch tick, goes behind all
//!   tasks of its worker and behind one task of the injector; at every 61st poll it goes behind all
//!   of the injector, so that such futures spread. Without a yield, a worker checks the injector
//!   every 61 polls.
//! - **Sleep**: an idle worker sleeps in the kernel. Work wakes at most one sleeper, which wakes
//!   the next if it finds more than it can run. Work stays in a queue while a worker sleeps only
//!   for the time that a wake-up takes.
//! - **Wakes**: a future is never polled by two threads at once, is polled at least once after
//!   every wake, and sees in that poll everything that the waker wrote before. Wakers may outlive
//!   the pool.
//! - **Panics**: a panic in a future's poll or drop ends that future, and is counted.
//! - **Spawn and close**: every future is run, returned by the close, or handed back by the spawn.

mod live;
mod park;
mod shared;
mod state;
mod sync;
mod task;
mod worker;

#[cfg(all(test, not(loom)))]
mod tests;

use std::{
    error::Error,
    fmt, io,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, Release},
    },
};

pub(crate) use self::task::ReturnedFuture;
use self::{
    park::MAX_WORKERS,
    shared::PoolShared,
    sync::{Builder, Deque, JoinHandle, contain},
    task::PoolTask,
    worker::PoolWorker,
};

/// The way in which a pool ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolShutdown {
    /// Runs every future to its end; waits as long as that takes.
    Finish,
    /// Waits for the outstanding polls, and returns every unfinished future.
    Return,
}

/// The error of a spawn on a closed pool. Holds the refused future.
pub struct ClosedPool<F>(pub F);

impl<F> fmt::Debug for ClosedPool<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed(..)")
    }
}

impl<F> fmt::Display for ClosedPool<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the pool is closed")
    }
}

impl<F> Error for ClosedPool<F> {}

/// Counts of one pool. Each is exact by itself, but they are not read at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The number of futures that were spawned and are not over.
    pub live: usize,
    /// The approximate number of tasks in the injector and the deques.
    pub queued: usize,
    /// The number of times that a worker took tasks from another, since the start.
    pub steals: u64,
    /// The number of times that a worker slept and was woken, since the start.
    pub parks: u64,
    /// The number of panics in futures, since the start.
    pub panics: u64,
}

/// The threads. Dropping the pool closes it with [`PoolShutdown::Return`] and drops the returned
/// futures. If one of its own futures drops it, the drop does not wait: the pool ends when the
/// outstanding polls have returned.
pub struct Pool {
    shared: Arc<PoolShared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `workers` threads named `name-0`, `name-1` and so on.
    ///
    /// # Errors
    /// Returns the system's error if it refuses a thread, and `InvalidInput` for more than 65,535
    /// workers.
    pub fn start(workers: NonZeroUsize, name: &str) -> io::Result<Self> {
        if workers.get() > MAX_WORKERS {
            let why = format!("pool {name}: {workers} workers, wanted at most {MAX_WORKERS}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let deques: Vec<_> = (0..workers.get()).map(|_| Deque::new_fifo()).collect();
        let shared = Arc::new(PoolShared::new(deques.iter().map(Deque::stealer).collect()));
        let mut pool = Self {
            shared,
            threads: Vec::with_capacity(workers.get()),
        };
        for (index, deque) in deques.into_iter().enumerate() {
            let shared = Arc::clone(&pool.shared);
            pool.threads.push(
                Builder::new()
                    .name(format!("{name}-{index}"))
                    .spawn(move || PoolWorker::work(deque, shared, index))?,
            );
        }
        Ok(pool)
    }

    /// Returns a handle that spawns futures; it keeps no thread alive.
    pub fn spawner(&self) -> Spawner {
        Spawner {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Refuses new futures, ends the threads as `how` specifies, and returns the unfinished
    /// futures: none after [`PoolShutdown::Finish`].
    ///
    /// # Panics
    /// Panics if one of the pool's own futures calls it, because it would wait for itself.
    pub fn close(mut self, how: PoolShutdown) -> Vec<ReturnedFuture> {
        let inside = worker::is_inside(&self.shared);
        assert!(!inside, "a pool cannot be closed by one of its own futures");
        self.end(how)
    }

    /// Returns a snapshot for metrics.
    pub fn stats(&self) -> Stats {
        let PoolShared {
            injector,
            stealers,
            live,
            counters,
            ..
        } = &*self.shared;
        Stats {
            live: live.len(),
            queued: injector.len() + stealers.iter().map(|stealer| stealer.len()).sum::<usize>(),
            steals: counters.steals.load(Relaxed),
            parks: counters.parks.load(Relaxed),
            panics: counters.panics.load(Relaxed),
        }
    }

    fn end(&mut self, how: PoolShutdown) -> Vec<ReturnedFuture> {
        self.shared.close(how == PoolShutdown::Return);
        for thread in self.threads.drain(..) {
            // Panics of futures are contained, so this would be a panic of the pool itself. Even
            // then the tasks are safe in the registry.
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "a worker of the pool panicked");
        }
        self.shared.collect()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if worker::is_inside(&self.shared) {
            self.shared.abandoned.store(true, Release);
            self.shared.close(true);
        } else if !self.threads.is_empty() {
            for future in self.end(PoolShutdown::Return) {
                contain(|| drop(future));
            }
        }
    }
}

/// A handle that spawns futures on a [`Pool`], from any thread.
#[derive(Clone)]
pub struct Spawner {
    shared: Arc<PoolShared>,
}

impl Spawner {
    /// Spawns `future`; the pool polls it to its end.
    ///
    /// # Errors
    /// Returns [`ClosedPool`] with the future, once the pool is closed.
    pub fn spawn<F>(&self, future: F) -> Result<(), ClosedPool<F>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let spawned = self.shared.counters.spawns.fetch_add(1, Relaxed);
        let hint = usize::try_from(spawned).unwrap_or_default();
        let future = Box::new(future);
        let Some(entry) = self.shared.live.admit(hint) else {
            return Err(ClosedPool(*future));
        };
        let home = Arc::downgrade(&self.shared);
        let task = entry.fill(|slot| PoolTask::new(Box::into_pin(future), home, slot));
        worker::enqueue(task);
        Ok(())
    }
}
