//! Drives one shared instance: owns its store, starts every attempt passed to it, and ends with it.
//! Does not keep its plugin alive.

use super::{Seat, SharedInstances};
use crate::admission;
use crate::admission::FULL;
use crate::capability::caller;
use crate::guest::{Guest, GuestSettings};
use crate::runtime::Inner;
use crate::underway::{SharedAttempt, Underway};
use crate::world::contract;
use crate::{attempt, failure_reason, limits, report};
use dispatcher_core::clock;
use dispatcher_core::handler::Attempt;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use tokio::sync::mpsc::UnboundedReceiver;
use wasmtime::component::{Accessor, AccessorTask};
use wasmtime::{PoolConcurrencyLimitError, Store, StoreContextMut, UpdateDeadline};

/// The parts from which an instance is created. They do not keep the plugin alive.
#[derive(Clone)]
pub(crate) struct Recipe {
    pub(crate) runtime: Arc<Inner>,
    pub(crate) settings: Arc<GuestSettings>,
    pub(crate) pre: contract::ExportsPre,
}

/// Gives up an instance's seat in its plugin when the instance ends for any reason.
struct SeatGuard {
    shared: Weak<SharedInstances>,
    instance: u64,
    /// The attempts that the instance receives.
    jobs: UnboundedReceiver<SharedAttempt>,
    /// The attempts that it received and did not begin.
    untouched: Vec<SharedAttempt>,
}

impl Drop for SeatGuard {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let untouched = std::mem::take(&mut self.untouched);
            shared.left(self.instance, untouched, &mut self.jobs);
        }
    }
}

/// Runs the instance until its end. Polled on the guest pool; yields the thread at every epoch
/// tick.
pub(super) async fn drive(shared: Weak<SharedInstances>, recipe: Recipe, seat: Seat) {
    let Seat {
        instance,
        jobs,
        end,
    } = seat;
    // Declared first and so dropped last: the seat is free when the store is gone.
    let mut leaving = SeatGuard {
        shared: shared.clone(),
        instance,
        jobs,
        untouched: Vec::new(),
    };
    let runtime = Arc::clone(&recipe.runtime);
    let life = async {
        tokio::select! {
            biased;
            // No caller waits for anything that the instance may still do.
            () = end.cancelled() => Vec::new(),
            untouched = live(&shared, &recipe, instance, &mut leaving.jobs) => untouched,
        }
    };
    let untouched = runtime.host(life).await;
    leaving.untouched = untouched;
}

/// Runs an instance from its creation to its end. Answers the attempts that the guest was given,
/// and returns the others.
async fn live(
    shared: &Weak<SharedInstances>,
    recipe: &Recipe,
    instance: u64,
    jobs: &mut UnboundedReceiver<SharedAttempt>,
) -> Vec<SharedAttempt> {
    let Some(first) = jobs.recv().await else {
        return Vec::new();
    };
    let limit = attempt::limit(&first.attempt);
    // Declared before the store and so dropped after it.
    let Some(_permit) = recipe.runtime.admit(&first.attempt).await else {
        let verdicts = admission::turned_away(&first.attempt, FULL);
        let _ = first.answer.send(verdicts);
        return Vec::new();
    };
    let (mut store, made) = make(recipe, &first.attempt).await;
    let exports = match made {
        Ok(exports) => exports,
        Err(error) => {
            let why = failure_reason::of_birth(&error, store.data(), limit);
            report::broke(&error, store.data(), &first.attempt, &why);
            let verdicts = attempt::retry_all(&first.attempt, why);
            let _ = first.answer.send(verdicts);
            return Vec::new();
        }
    };
    if let Some(underway) = store.data_mut().underway() {
        underway.born();
    }
    let mut first = Some(first);
    let ended = store
        .run_concurrent(async |accessor| -> wasmtime::Result<()> {
            loop {
                let next = match first.take() {
                    Some(job) => Some(job),
                    None => poll_fn(|context| next(accessor, jobs, context)).await,
                };
                let Some(job) = next else {
                    return Ok(());
                };
                if job.answer.is_closed() {
                    // Abandoned before the guest received it.
                    if let Some(shared) = shared.upgrade() {
                        shared.ended(instance, job.id, 0);
                    }
                    continue;
                }
                let call = SharedCall {
                    shared: shared.clone(),
                    exports,
                    instance,
                    id: job.id,
                    attempt: Arc::clone(&job.attempt),
                };
                underway(accessor, |underway| underway.take(job));
                accessor.spawn(call)?;
            }
        })
        .await;
    store.data().end();
    let Err(error) = ended.and_then(|ended| ended) else {
        return Vec::new();
    };
    fail(&mut store, &error)
}

/// Answers all attempts in the instance after a trap or a lack of memory. Returns those that the
/// guest was not given.
fn fail(store: &mut Store<Guest>, error: &wasmtime::Error) -> Vec<SharedAttempt> {
    let Some(mut underway) = store.data_mut().underway().map(std::mem::take) else {
        return Vec::new();
    };
    let guest = store.data();
    let (queue, message_ids, limit) = underway.place();
    let why = failure_reason::of(error, guest, limit);
    report::of_instance(error, guest, queue, message_ids, &why);
    underway.fail(|limit| failure_reason::of(error, guest, limit))
}

/// Creates a store and the instance in it, or returns the reason why there is none. The caller
/// holds a permit.
async fn make(
    recipe: &Recipe,
    attempt: &Arc<Attempt>,
) -> (Store<Guest>, wasmtime::Result<contract::Exports>) {
    loop {
        let (store, made) = try_to_make(recipe, attempt).await;
        match made {
            Err(error)
                if error.is::<PoolConcurrencyLimitError>()
                    && !attempt.deadline.is_over(clock::now()) =>
            {
                drop(store);
                admission::soon().await;
            }
            made => return (store, made),
        }
    }
}

async fn try_to_make(
    recipe: &Recipe,
    attempt: &Arc<Attempt>,
) -> (Store<Guest>, wasmtime::Result<contract::Exports>) {
    let underway = Underway::born_for(Arc::clone(attempt));
    let mut guest = Guest::shared(Arc::clone(&recipe.settings), underway);
    let opened = guest.open().await;
    let mut store = Store::new(recipe.pre.engine(), guest);
    store.limiter(|guest| &mut guest.limits);
    limits::apply(&mut store, recipe.settings.budget());
    store.epoch_deadline_callback(at_tick);
    store.set_epoch_deadline(1);
    let made = match opened {
        Ok(()) => recipe.pre.instantiate(&mut store).await,
        Err(error) => Err(error.into()),
    };
    (store, made)
}

/// Called when the guest has computed for a tick. The guest yields or is stopped.
fn at_tick(mut store: StoreContextMut<'_, Guest>) -> wasmtime::Result<UpdateDeadline> {
    // `None` while an instance is created.
    let task = caller::task_of(&mut store);
    if let Some(underway) = store.data_mut().underway() {
        underway.tick(task, clock::now())?;
    }
    Ok(UpdateDeadline::Yield(1))
}

/// Returns the next attempt, or `None` when no more will come and none is running. The event loop
/// polls this whenever the guest has yielded the thread, so the end of an attempt needs no separate
/// waker.
fn next(
    accessor: &Accessor<Guest>,
    jobs: &mut UnboundedReceiver<SharedAttempt>,
    context: &mut Context<'_>,
) -> Poll<Option<SharedAttempt>> {
    let idle = underway(accessor, |underway| {
        underway.rests();
        underway.is_empty()
    });
    match jobs.poll_recv(context) {
        Poll::Ready(None) if !idle => Poll::Pending,
        poll => poll,
    }
}

fn underway<T: Default>(accessor: &Accessor<Guest>, look: impl FnOnce(&mut Underway) -> T) -> T {
    accessor.with(|mut access| {
        let underway = access.data_mut().underway();
        underway.map(look).unwrap_or_default()
    })
}

/// One attempt in the instance, as a task of its event loop.
struct SharedCall {
    shared: Weak<SharedInstances>,
    exports: contract::Exports,
    instance: u64,
    id: u64,
    attempt: Arc<Attempt>,
}

impl AccessorTask<Guest> for SharedCall {
    /// Runs the attempt. An error is a trap, and ends the event loop. The engine's task has room
    /// for the future twice, and thousands may wait; an `async fn` would also keep its parameters.
    fn run(self, accessor: &Accessor<Guest>) -> impl Future<Output = wasmtime::Result<()>> + Send {
        let Self {
            shared,
            exports,
            instance,
            id,
            attempt,
        } = self;
        async move {
            let mut verdicts = accessor
                .with(|mut access| {
                    let begun = exports.begin(&mut access, accessor, &attempt)?;
                    if let Some(underway) = access.data_mut().underway() {
                        underway.begun(id, begun.task);
                    }
                    wasmtime::error::Ok(begun.verdicts)
                })?
                .await?;
            let (job, memory) = accessor.with(|mut access| {
                let guest = access.data_mut();
                guest.explain(&attempt, &mut verdicts);
                guest.ended(id)
            });
            drop(attempt); // so that the receiver of the answer can own it alone
            // Free the place first, so that the next attempt finds it.
            if let Some(shared) = shared.upgrade() {
                shared.ended(instance, id, memory);
            }
            if let Some(SharedAttempt {
                attempt, answer, ..
            }) = job
            {
                drop(attempt);
                let _ = answer.send(verdicts);
            }
            Ok(())
        }
    }
}
