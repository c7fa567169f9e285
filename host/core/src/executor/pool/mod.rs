//! The guest threads: a work-stealing pool that polls futures. It must not know what they do: no
//! guest, no job, no tokio, no clock; and nothing of the crate, so that it compiles alone.
//!
//! - **Queues**: one deque per worker, first in, first out, and one injector. A wake or a spawn on
//!   a worker's own thread goes to that worker's deque, any other to the injector. An idle worker
//!   takes a batch from the injector, or half of a random victim's deque.
//! - **Fairness**: a future that wakes itself, as a guest does at every epoch tick, goes behind all
//!   tasks of its worker and behind one task of the injector; at every 61st poll behind all of the
//!   injector, so that such futures spread. Without a yield the injector is looked at every 61 polls.
//! - **Sleep**: an idle worker sleeps in the kernel. Work wakes at most one sleeper, which wakes the
//!   next when it finds more than it can run. No work is in a queue while a worker sleeps, but
//!   for the time that a wake-up takes.
//! - **Wakes**: a future is never polled by two threads at once, polled at least once after every
//!   wake, and sees in that poll what the waker wrote before. Wakers may outlive the pool.
//! - **Panics**: one in a future's poll or drop ends that future, and is counted.
//! - **Spawn against close**: every future is run, returned by the close, or handed back by the
//!   spawn.

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

pub(crate) use self::task::Returned;
use self::{
    park::MAX_WORKERS,
    shared::PoolShared,
    sync::{Builder, Deque, JoinHandle, contain},
    task::PoolTask,
    worker::PoolWorker,
};

/// How a pool ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolShutdown {
    /// Runs every future to its end; waits as long as that takes.
    Finish,
    /// Lets the outstanding polls return, and returns every unfinished future.
    Return,
}

/// The pool is closed; the refused future comes back.
pub struct Closed<F>(pub F);

impl<F> fmt::Debug for Closed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed(..)")
    }
}

impl<F> fmt::Display for Closed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the pool is closed")
    }
}

impl<F> Error for Closed<F> {}

/// Counts of one pool, each exact by itself but not read at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Futures spawned and not over.
    pub live: usize,
    /// Tasks in the injector and the deques, about.
    pub queued: usize,
    /// Times a worker took tasks from another, since the start.
    pub steals: u64,
    /// Times a worker slept and was woken, since the start.
    pub parks: u64,
    /// Panics in futures, since the start.
    pub panics: u64,
}

/// The threads. Dropping it is a [`PoolShutdown::Return`] that drops what is returned; dropped by one of
/// its own futures, it ends when the outstanding polls have returned, and nobody waits for that.
pub struct Pool {
    shared: Arc<PoolShared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `workers` threads named `name-0`, `name-1` and so on.
    ///
    /// # Errors
    /// The system's when it refuses a thread; `InvalidInput` for more than 65,535 workers.
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
            let body = move || PoolWorker::work(deque, shared, index);
            pool.threads
                .push(Builder::new().name(format!("{name}-{index}")).spawn(body)?);
        }
        Ok(pool)
    }

    /// A handle that spawns; it keeps no thread alive.
    pub fn spawner(&self) -> Spawner {
        Spawner {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Refuses new futures, ends the threads as `how` says, and returns what is unfinished: nothing
    /// after [`PoolShutdown::Finish`].
    ///
    /// # Panics
    /// When one of the pool's own futures calls it, for that would wait for itself.
    pub fn close(mut self, how: PoolShutdown) -> Vec<Returned> {
        let inside = worker::is_inside(&self.shared);
        assert!(!inside, "a pool cannot be closed by one of its own futures");
        self.end(how)
    }

    /// A snapshot for metrics.
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

    fn end(&mut self, how: PoolShutdown) -> Vec<Returned> {
        self.shared.close(how == PoolShutdown::Return);
        for thread in self.threads.drain(..) {
            // Futures' panics are contained, so this would be the pool's own: the tasks are safe
            // in the registry all the same.
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

/// Spawns futures on a [`Pool`], from any thread.
#[derive(Clone)]
pub struct Spawner {
    shared: Arc<PoolShared>,
}

impl Spawner {
    /// Has the pool poll `future` to its end.
    ///
    /// # Errors
    /// [`Closed`] with the future, once the pool is closed.
    pub fn spawn<F>(&self, future: F) -> Result<(), Closed<F>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let spawned = self.shared.counters.spawns.fetch_add(1, Relaxed);
        let hint = usize::try_from(spawned).unwrap_or_default();
        let future = Box::new(future);
        let Some(entry) = self.shared.live.admit(hint) else {
            return Err(Closed(*future));
        };
        let home = Arc::downgrade(&self.shared);
        let task = entry.fill(|slot| PoolTask::new(Box::into_pin(future), home, slot));
        worker::enqueue(task);
        Ok(())
    }
}
