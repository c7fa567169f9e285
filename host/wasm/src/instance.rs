//! One live instance: its store, its exports, its slot, how it is created and when it is stopped.
//! Does not depend on other instances.

use crate::admission::{self, FULL, Permit};
use crate::attempt::AttemptStop;
use crate::capability::caller::Caller;
use crate::guest::{Guest, GuestSettings};
use crate::limits;
use crate::runtime::Inner;
use crate::world::{Exports, ExportsPre};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::handler::Attempt;
use dispatcher_core::message::Verdict;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use wasmtime::{PoolConcurrencyLimitError, Store, StoreContextMut, UpdateDeadline};

/// An instance that has not trapped.
pub(super) struct LiveInstance {
    pub(super) store: Store<Guest>,
    exports: Exports,
    /// The number of attempts that it has been given.
    pub(super) attempts: u64,
    /// The end of its first attempt; the zero time before that.
    pub(super) born: BootInstant,
    /// Declared last and so dropped last: the slot is free when the store is gone.
    _permit: Permit,
}

/// An instance that could not be created, with the store that holds the cause.
pub(super) struct InstantiationError {
    pub(super) error: wasmtime::Error,
    pub(super) store: Store<Guest>,
    /// Dropped last, as in a live instance.
    _permit: Permit,
}

/// The reason why there is no instance.
pub(super) enum NotInstantiated {
    /// No slot was free in time.
    Full(&'static str),
    /// The guest or the host failed.
    Stillborn(Box<InstantiationError>),
}

impl LiveInstance {
    /// Creates an instance in the slot of `permit`. Its guest is stopped at `until` in any case.
    pub(super) async fn make(
        pre: &ExportsPre,
        permit: Permit,
        until: BootInstant,
        guest: impl Fn() -> Guest,
    ) -> Result<Self, Box<InstantiationError>> {
        loop {
            let mut guest = guest();
            let budget = guest.settings().budget();
            let opened = guest.open().await;
            let mut store = Store::new(pre.engine(), guest);
            store.limiter(|guest| &mut guest.limits);
            limits::apply(&mut store, budget);
            store.epoch_deadline_callback(at_tick);
            store.set_epoch_deadline(1);
            let made = match opened {
                Ok(()) => pre.instantiate(&mut store).await,
                Err(error) => Err(error.into()),
            };
            let error = match made {
                Ok(exports) => {
                    return Ok(Self {
                        store,
                        exports,
                        attempts: 0,
                        born: BootInstant::default(),
                        _permit: permit,
                    });
                }
                Err(error) => error,
            };
            if !error.is::<PoolConcurrencyLimitError>() || clock::now() >= until {
                return Err(Box::new(InstantiationError {
                    error,
                    store,
                    _permit: permit,
                }));
            }
            drop(store);
            admission::soon().await;
        }
    }

    /// Runs the attempt for which the instance was created, or which `begin` gave it.
    pub(super) async fn call(&mut self, attempt: &Attempt) -> wasmtime::Result<Vec<Verdict>> {
        self.attempts += 1;
        self.exports.call(&mut self.store, attempt).await
    }

    /// Whether no task that it began is still running. Such a task would continue in the next
    /// attempt, under the name of that attempt.
    pub(super) async fn is_quiet(&mut self) -> bool {
        let quiet = self.store.run_concurrent(async |accessor| {
            poll_fn(|context| Poll::Ready(accessor.poll_no_interesting_tasks(context))).await
        });
        quiet.await.is_ok_and(|quiet| quiet.is_ready())
    }

    /// Gives it an attempt for which it was not created.
    pub(super) fn begin(&mut self, attempt: &Arc<Attempt>) {
        self.store.set_epoch_deadline(1);
        self.store.data_mut().begin(Arc::clone(attempt));
    }
}

/// The number of ticks for which an attempt computes before it first yields. Most attempts end
/// before: their instances then live one after the other, and not all at once.
const TICKS_BEFORE_YIELD: u32 = 8;

/// Called when the guest has computed for a tick. The guest goes on, yields or is stopped.
fn at_tick(mut store: StoreContextMut<'_, Guest>) -> wasmtime::Result<UpdateDeadline> {
    let ticks = store.data_mut().count_tick();
    let guest = store.data();
    if guest.is_cancelled() {
        return Err(AttemptStop::Cancelled.into());
    }
    if guest
        .deadline()
        .is_some_and(|deadline| clock::now() >= deadline)
    {
        return Err(AttemptStop::Deadline.into());
    }
    Ok(if ticks < TICKS_BEFORE_YIELD {
        UpdateDeadline::Continue(1)
    } else {
        UpdateDeadline::Yield(1)
    })
}

/// Creates a fresh instance when there is a slot for it.
pub(super) async fn fresh(
    runtime: &Inner,
    pre: &ExportsPre,
    settings: &Arc<GuestSettings>,
    attempt: &Arc<Attempt>,
) -> Result<LiveInstance, NotInstantiated> {
    let permit = runtime
        .admit(attempt)
        .await
        .ok_or(NotInstantiated::Full(FULL))?;
    let made = LiveInstance::make(pre, permit, attempt.deadline.get(), || {
        Guest::new(Arc::clone(settings), Arc::clone(attempt))
    })
    .await;
    made.map_err(NotInstantiated::Stillborn)
}
