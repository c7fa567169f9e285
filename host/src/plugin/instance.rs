//! One live instance: its store, its exports, and the idle ones of a plugin that reuses them.

use super::Reuse;
use super::guest::{Guest, Settings};
use super::mishap::Stopped;
use super::world::{Exports, ExportsPre};
use super::{Attempt, limits, runtime::Inner};
use crate::clock::{self, Moment};
use crate::message::Verdict;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wasmtime::{PoolConcurrencyLimitError, Store, StoreContextMut, UpdateDeadline};

/// An instance that has not trapped.
pub(super) struct Live {
    pub(super) store: Store<Guest>,
    exports: Exports,
    attempts: u64,
    born: Moment,
}

/// An instance that could not be made, and the store that remembers why.
pub(super) struct Stillborn {
    pub(super) error: wasmtime::Error,
    pub(super) store: Store<Guest>,
}

impl Live {
    /// Makes an instance for this attempt.
    pub(super) async fn make(
        pre: &ExportsPre,
        settings: &Arc<Settings>,
        attempt: &Arc<Attempt>,
    ) -> Result<Self, Box<Stillborn>> {
        let guest = Guest::new(Arc::clone(settings), Arc::clone(attempt));
        let mut store = Store::new(pre.engine(), guest);
        store.limiter(|guest| &mut guest.limits);
        limits::apply(&mut store);
        store.epoch_deadline_callback(at_tick);
        store.set_epoch_deadline(1);
        match pre.instantiate(&mut store).await {
            Ok(exports) => Ok(Self {
                store,
                exports,
                attempts: 0,
                born: Moment::default(),
            }),
            Err(error) => Err(Box::new(Stillborn { error, store })),
        }
    }

    /// Runs the attempt that the instance was made for or was given with `begin`.
    pub(super) async fn call(&mut self, attempt: &Attempt) -> wasmtime::Result<Vec<Verdict>> {
        self.attempts += 1;
        self.exports.call(&mut self.store, attempt).await
    }

    fn begin(&mut self, attempt: &Arc<Attempt>) {
        self.store.set_epoch_deadline(1);
        self.store.data_mut().begin(Arc::clone(attempt));
    }
}

/// Called when the guest has computed for a tick: it yields, or is stopped.
fn at_tick(store: StoreContextMut<'_, Guest>) -> wasmtime::Result<UpdateDeadline> {
    let guest = store.data();
    if guest.is_cancelled() {
        return Err(Stopped::Cancelled.into());
    }
    if guest
        .deadline()
        .is_some_and(|deadline| clock::now() >= deadline)
    {
        return Err(Stopped::Deadline.into());
    }
    Ok(UpdateDeadline::Yield(1))
}

/// The instances of one plugin that wait for their next attempt.
pub(super) struct Idle {
    reuse: Reuse,
    waiting: Mutex<Vec<Live>>,
}

impl Idle {
    /// None yet; they will be kept as long as `reuse` allows.
    pub(super) fn new(reuse: Reuse) -> Self {
        Self {
            reuse,
            waiting: Mutex::new(Vec::new()),
        }
    }

    /// The instance that was used last, if there is one young enough.
    pub(super) fn take(&self, attempt: &Arc<Attempt>) -> Option<Live> {
        loop {
            let mut live = self.waiting().pop()?;
            if self.is_young(&live) {
                live.begin(attempt);
                return Some(live);
            }
        }
    }

    /// Keeps an instance that has answered, unless it has served its time.
    pub(super) fn give(&self, mut live: Live) {
        if live.born == Moment::default() {
            live.born = clock::now();
        }
        let memory = live.store.data().limits.memory();
        if live.attempts < self.reuse.count && memory <= self.reuse.memory && self.is_young(&live) {
            self.waiting().push(live);
        }
    }

    /// Throws all of them away, for their room. Whether there were any.
    pub(super) fn clear(&self) -> bool {
        let old = std::mem::take(&mut *self.waiting());
        !old.is_empty()
    }

    fn is_young(&self, live: &Live) -> bool {
        clock::now().since(live.born) < self.reuse.age
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Live>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fresh instance. When the pool is full, idle instances of all plugins make room for it.
pub(super) async fn fresh(
    runtime: &Inner,
    pre: &ExportsPre,
    settings: &Arc<Settings>,
    attempt: &Arc<Attempt>,
) -> Result<Live, Box<Stillborn>> {
    match Live::make(pre, settings, attempt).await {
        Err(stillborn) if stillborn.error.is::<PoolConcurrencyLimitError>() => {
            drop(stillborn);
            runtime.clear_idle();
            Live::make(pre, settings, attempt).await
        }
        made => made,
    }
}
