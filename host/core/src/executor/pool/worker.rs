//! One guest thread: chooses the task that it polls next, and where a wake puts a task. It must not
//! depend on what a task's future does.

use std::{
    cell::RefCell,
    iter, ptr,
    rc::Rc,
    sync::{
        Arc,
        atomic::Ordering::{AcqRel, Acquire},
    },
};

use fastrand::Rng;

use super::{
    shared::PoolShared,
    sync::{Deque, Steal, contain, thread_local},
    task::{PollResult, PoolTask},
};

/// The number of polls after which a worker with tasks checks the injector: rare enough to cost
/// nothing, and no divisor of the powers of two in which tasks tend to come.
const INJECTOR_INTERVAL: u32 = 61;

thread_local! {
    // Not `const`: loom has no const form.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's has no const form")]
    static CURRENT: RefCell<Option<Rc<Local>>> = RefCell::new(None);
}

/// The state that a wake on a worker's own thread can reach.
struct Local {
    /// First in, first out: a task that wakes itself goes behind all others.
    deque: Deque<Arc<PoolTask>>,
    shared: Arc<PoolShared>,
    index: usize,
}

/// Puts a task that was just woken or spawned into the deque of this thread's worker, or into the
/// injector if this thread is outside the task's pool. Does nothing if the pool is gone.
pub(super) fn enqueue(task: Arc<PoolTask>) {
    match current(task.home.as_ptr()) {
        Some(local) => {
            local.deque.push(task);
            local.shared.parking.notify();
        }
        None => {
            if let Some(shared) = task.home.upgrade() {
                shared.inject(task);
            }
        }
    }
}

/// Whether this thread is a worker of `shared`.
pub(super) fn is_inside(shared: &Arc<PoolShared>) -> bool {
    current(Arc::as_ptr(shared)).is_some()
}

fn current(shared: *const PoolShared) -> Option<Rc<Local>> {
    // A thread that is ending may have lost its locals: then it counts as outside.
    let local = CURRENT
        .try_with(|current| current.borrow().clone())
        .ok()
        .flatten();
    local.filter(|local| ptr::eq(Arc::as_ptr(&local.shared), shared))
}

pub(super) struct PoolWorker {
    local: Rc<Local>,
    rng: Rng,
    tick: u32,
    /// Whether it is counted among the searchers.
    searching: bool,
    /// Whether the last task woke itself. A task in the injector comes before its next turn.
    yielded: bool,
}

impl PoolWorker {
    /// The body of one thread: works until the pool is closed.
    pub(super) fn work(deque: Deque<Arc<PoolTask>>, shared: Arc<PoolShared>, index: usize) {
        let local = Rc::new(Local {
            deque,
            shared,
            index,
        });
        CURRENT.with(|current| current.replace(Some(Rc::clone(&local))));
        let rng = Rng::with_seed(index as u64);
        let mut worker = Self {
            local,
            rng,
            tick: 0,
            searching: false,
            yielded: false,
        };
        while !worker.shared().must_stop() {
            match worker.next().or_else(|| worker.search()) {
                Some(task) => {
                    worker.end_search();
                    worker.run(task);
                }
                None => worker.sleep(),
            }
        }
        CURRENT.with(|current| current.replace(None));
        worker.leave();
    }

    fn shared(&self) -> &PoolShared {
        &self.local.shared
    }

    fn run(&mut self, task: Arc<PoolTask>) {
        match task.run() {
            PollResult::Suspended => {}
            PollResult::Yielded => self.requeue(task),
            PollResult::Ended { panics } => {
                PoolShared::count(&self.shared().counters.panics, panics);
                if self.shared().live.remove(task.slot) {
                    self.shared().parking.notify_all();
                }
            }
        }
    }

    /// Puts a task that woke itself behind all others of this worker; now and then behind all of
    /// the injector, from which the next worker that yields takes it. Otherwise, futures that never
    /// wait and share a worker with many others would get less time forever.
    fn requeue(&mut self, task: Arc<PoolTask>) {
        let Local { deque, shared, .. } = &*self.local;
        if deque.is_empty() {
            // Needs no wake-up: it is this worker's next task, or gives way to an injected one, for
            // which a sleeper was woken when it came.
            deque.push(task);
            self.yielded = true;
        } else if self.tick.is_multiple_of(INJECTOR_INTERVAL) {
            shared.inject(task);
        } else {
            deque.push(task);
            shared.parking.notify();
            self.yielded = true;
        }
    }

    /// Returns the next task without searching other workers.
    fn next(&mut self) -> Option<Arc<PoolTask>> {
        self.tick = self.tick.wrapping_add(1);
        let Local { deque, shared, .. } = &*self.local;
        if std::mem::take(&mut self.yielded) || self.tick.is_multiple_of(INJECTOR_INTERVAL) {
            let injected = until_sure(|| shared.injector.steal());
            if injected.is_some() {
                return injected;
            }
        }
        deque
            .pop()
            .or_else(|| until_sure(|| shared.injector.steal_batch_and_pop(deque)))
    }

    /// Takes half of a random victim's tasks, and returns one of them.
    fn search(&mut self) -> Option<Arc<PoolTask>> {
        if !self.searching {
            self.searching = true;
            self.shared().parking.begin_search();
        }
        let Local {
            deque,
            shared,
            index,
        } = &*self.local;
        let victims = shared.stealers.len();
        let first = self.rng.usize(..victims);
        let task = (0..victims)
            .map(|offset| (first + offset) % victims)
            .filter(|victim| victim != index)
            .find_map(|victim| until_sure(|| shared.stealers[victim].steal_batch_and_pop(deque)));
        if task.is_some() {
            PoolShared::count(&shared.counters.steals, 1);
        }
        task
    }

    /// Ends a search that found a task. Another worker continues searching if there is more.
    fn end_search(&mut self) {
        let shared = self.shared();
        if self.searching && shared.parking.end_search() && shared.has_work() {
            shared.parking.notify();
        }
        self.searching = false;
    }

    fn sleep(&mut self) {
        let shared = self.shared();
        let slept = shared
            .parking
            .sleep(self.local.index, || shared.has_work() || shared.must_stop());
        PoolShared::count(&shared.counters.parks, u64::from(slept));
    }

    fn leave(self) {
        while self.local.deque.pop().is_some() {}
        let shared = self.shared();
        if shared.working.fetch_sub(1, AcqRel) == 1 && shared.abandoned.load(Acquire) {
            for future in shared.collect() {
                let panicked = contain(|| drop(future)).is_none();
                PoolShared::count(&shared.counters.panics, u64::from(panicked));
            }
        }
    }
}

/// Repeats a steal for as long as another thread interferes with it.
fn until_sure<T>(mut steal: impl FnMut() -> Steal<T>) -> Option<T> {
    iter::repeat_with(&mut steal)
        .find(|stolen| !stolen.is_retry())?
        .success()
}
