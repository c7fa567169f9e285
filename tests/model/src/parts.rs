//! Models of the pool's two protocols by themselves, in the pool's own code: the state of a task,
//! and the parking of workers. Small enough for wider bounds than the whole pool allows.

use std::sync::Arc;

use loom::{
    cell::Cell,
    model::Builder,
    sync::{
        Notify,
        atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed},
    },
    thread,
};

#[path = "../../../host/core/src/executor/pool/park.rs"]
#[allow(dead_code, reason = "the pool uses all of it")]
mod park;
#[path = "../../../host/core/src/executor/pool/state.rs"]
mod state;
#[path = "../../../host/core/src/executor/pool/sync.rs"]
#[allow(dead_code, unused_imports, reason = "the pool uses all of it")]
mod sync;

use self::{park::ParkedWorkers, state::PoolState};

fn check(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

/// A task with a queue that counts, and is drained by whoever looks.
struct Task {
    state: PoolState,
    queued: AtomicUsize,
    written: [AtomicUsize; 2],
    polls: Cell<usize>,
    seen: Cell<usize>,
}

impl Task {
    fn wake(&self, waker: usize) {
        self.written[waker].store(1, Relaxed);
        if self.state.wake() {
            assert_eq!(self.queued.fetch_add(1, AcqRel), 0, "queued twice");
        }
    }

    fn take(&self) -> bool {
        self.queued
            .fetch_update(AcqRel, Acquire, |count| count.checked_sub(1))
            .is_ok()
    }

    fn run(&self) {
        self.state.begin();
        self.polls.set(self.polls.get() + 1);
        self.seen.set(
            self.written
                .iter()
                .map(|written| written.load(Relaxed))
                .sum(),
        );
        if self.state.suspend() {
            assert_eq!(self.queued.fetch_add(1, AcqRel), 0, "queued twice");
        }
    }
}

/// Two wakers and a worker, unbounded: after the last wake comes a poll that sees all they wrote.
#[test]
fn every_wake_is_followed_by_a_poll_that_sees_it() {
    check(None, || {
        let task = Arc::new(Task {
            state: PoolState::queued(),
            queued: AtomicUsize::new(1),
            written: [AtomicUsize::new(0), AtomicUsize::new(0)],
            polls: Cell::new(0),
            seen: Cell::new(0),
        });
        let wakers: Vec<_> = (0..2)
            .map(|waker| {
                let task = Arc::clone(&task);
                thread::spawn(move || task.wake(waker))
            })
            .collect();
        // Runs beside the wakers, then whatever they left behind.
        while task.take() {
            task.run();
        }
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
        while task.take() {
            task.run();
        }
        assert_eq!(task.seen.get(), 2);
        assert!(task.polls.get() <= 3);
    });
}

/// Two workers and a wake: never two polls at once, which the cells would tell.
#[test]
fn two_workers_never_poll_at_once() {
    check(None, || {
        let task = Arc::new(Task {
            state: PoolState::queued(),
            queued: AtomicUsize::new(1),
            written: [AtomicUsize::new(0), AtomicUsize::new(1)],
            polls: Cell::new(0),
            seen: Cell::new(0),
        });
        let run = |task: &Task| {
            while task.take() {
                task.run();
            }
        };
        let threads = [
            thread::spawn({
                let task = Arc::clone(&task);
                move || run(&task)
            }),
            thread::spawn({
                let task = Arc::clone(&task);
                move || task.wake(0)
            }),
        ];
        run(&task);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        run(&task);
        assert_eq!(task.seen.get(), 2);
    });
}

/// After its end a task is never queued again.
#[test]
fn wake_after_completion_does_nothing() {
    check(None, || {
        let state = Arc::new(PoolState::queued());
        state.begin();
        let waker = Arc::clone(&state);
        let outside = thread::spawn(move || waker.wake());
        state.finish();
        assert!(!outside.join().unwrap() && !state.wake());
    });
}

/// Items are a bare count, and a worker's loop is the pool's without the tasks.
struct Yard {
    parking: ParkedWorkers,
    items: AtomicUsize,
    taken: AtomicUsize,
    /// Rung by the worker that takes the last item.
    all: Notify,
    wanted: usize,
}

impl Yard {
    fn new(workers: usize, wanted: usize) -> Arc<Self> {
        let counts = || AtomicUsize::new(0);
        let parking = ParkedWorkers::new(workers);
        Arc::new(Self {
            parking,
            items: counts(),
            taken: counts(),
            all: Notify::new(),
            wanted,
        })
    }

    fn push(&self) {
        self.items.fetch_add(1, AcqRel);
        self.parking.notify();
    }

    fn has_work(&self) -> bool {
        self.items.load(Acquire) > 0
    }

    /// Searches and sleeps until it has an item; then blocks until all are taken, so that a worker
    /// left asleep beside an item is a deadlock.
    fn work(&self, worker: usize) {
        self.parking.begin_search();
        while self
            .items
            .fetch_update(AcqRel, Acquire, |count| count.checked_sub(1))
            .is_err()
        {
            self.parking.sleep(worker, || self.has_work());
        }
        if self.parking.end_search() && self.has_work() {
            self.parking.notify();
        }
        if self.taken.fetch_add(1, AcqRel) + 1 == self.wanted {
            self.all.notify();
        }
    }
}

/// One worker against one push, unbounded.
#[test]
fn push_is_seen_by_a_parking_worker() {
    check(None, || {
        let yard = Yard::new(1, 1);
        let worker = Arc::clone(&yard);
        let worker = thread::spawn(move || worker.work(0));
        yard.push();
        yard.all.wait();
        worker.join().unwrap();
    });
}

/// Two workers that each take one item for good, against two pushes: neither item may stay.
#[test]
fn no_worker_sleeps_while_an_item_waits() {
    check(Some(3), || {
        let yard = Yard::new(2, 2);
        let workers: Vec<_> = (0..2)
            .map(|number| {
                let yard = Arc::clone(&yard);
                thread::spawn(move || yard.work(number))
            })
            .collect();
        yard.push();
        yard.push();
        yard.all.wait();
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
    });
}
