//! Instances that run many concurrent attempts: decides which attempt goes into which instance,
//! when an instance is created and when it takes no more. The driver, not this module, uses the
//! stores.

mod driver;
mod spare;

use crate::admission::{self, Spare};
use crate::attempt;
use crate::reuse::Reuse;
use crate::runtime::Spawn;
use crate::underway::SharedAttempt;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::handler::Attempt;
use dispatcher_core::message::{FailureReason, Message, Verdict};
use dispatcher_core::telemetry::trace;
pub(super) use driver::Recipe;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// The default limits of reuse of a shared instance.
const SERVICE: Reuse = Reuse {
    count: 100_000,
    age: Duration::from_secs(3600),
    memory: usize::MAX,
};

/// The multiple of its messages' bytes that a guest needs to work on them.
const MEMORY_PER_BYTE: usize = 4;

/// The reason for turning an attempt away.
const FULL: &str = "no instance of the plugin has capacity: all hold their maximum of attempts, or of message bytes";

/// The settings by which the instances of one plugin are shared.
#[derive(Debug, Clone, Copy)]
pub(super) struct SharingSettings {
    /// The maximum number of attempts in one instance.
    pub(super) concurrency: usize,
    /// The maximum number of instances that take attempts. As many others may be ending.
    pub(super) instances: usize,
    /// The limits of reuse of each instance.
    pub(super) reuse: Option<Reuse>,
}

/// The shared instances of one plugin.
pub(super) struct SharedInstances {
    this: Weak<SharedInstances>,
    concurrency: usize,
    instances: usize,
    max_memory: usize,
    reuse: Reuse,
    recipe: Recipe,
    spawn: Spawn,
    state: Mutex<SharedState>,
}

#[derive(Default)]
struct SharedState {
    /// The last ID given to an attempt or an instance.
    next: u64,
    /// The attempts that wait for room, in the order of their arrival.
    queue: BTreeMap<u64, SharedAttempt>,
    /// The attempts in instances.
    placed: HashMap<u64, PlacedInstances>,
    /// All live instances, including those that take no more attempts.
    instances: Vec<Instance>,
}

struct PlacedInstances {
    instance: u64,
    bytes: usize,
    /// Whether no caller waits for it any longer, although the guest still works on it.
    abandoned: bool,
}

struct Instance {
    id: u64,
    /// The channel to its driver; `None` once the instance takes no more attempts. The driver ends
    /// when it has answered all of them.
    jobs: Option<UnboundedSender<SharedAttempt>>,
    /// The number of attempts in it, including abandoned ones.
    under_way: usize,
    abandoned: usize,
    /// The bytes of their messages.
    bytes: usize,
    /// The number of attempts that it has been given.
    served: u64,
    born: BootInstant,
    /// Ends it at once.
    end: CancellationToken,
}

/// The values that the driver of an instance is given.
struct Seat {
    instance: u64,
    jobs: UnboundedReceiver<SharedAttempt>,
    end: CancellationToken,
}

impl SharedInstances {
    pub(super) fn new(
        sharing: SharingSettings,
        max_memory: usize,
        recipe: Recipe,
        spawn: Spawn,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            concurrency: sharing.concurrency,
            instances: sharing.instances.max(1),
            max_memory,
            reuse: sharing.reuse.unwrap_or(SERVICE),
            recipe,
            spawn,
            state: Mutex::default(),
        })
    }

    /// Runs one attempt in the first instance that has room, as soon as there is one. An attempt
    /// that has waited for a quarter of its time is turned away as busy: the remaining time might
    /// be too little for its work, and the remedy is fewer attempts at once.
    pub(super) async fn handle(&self, attempt: Arc<Attempt>) -> Vec<Verdict> {
        let bytes = attempt.messages.iter().map(size).sum();
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut state = self.state();
            state.next += 1;
            let id = state.next;
            let job = SharedAttempt {
                id,
                attempt: Arc::clone(&attempt),
                span: trace::active(),
                answer,
                bytes,
            };
            state.queue.insert(id, job);
            id
        };
        self.place();
        let mut waiting = AnswerWaiter {
            shared: self,
            id,
            answered: Some(answered),
        };
        let Some(answered) = &mut waiting.answered else {
            unreachable!("taken below");
        };
        let answer = match self.late(id, &attempt) {
            None => answered.await,
            Some(late) => tokio::select! {
                biased;
                answer = &mut *answered => answer,
                () = late => {
                    self.turn_away(id);
                    answered.await
                }
            },
        };
        waiting.answered = None;
        answer.unwrap_or_else(|_| {
            let why = FailureReason::Host("its instance ended without an answer".into());
            attempt::retry_all(&attempt, why)
        })
    }

    /// Returns a timer that ends when an attempt has waited too long for room, or `None` if it does
    /// not wait.
    fn late(&self, id: u64, attempt: &Attempt) -> Option<Pin<Box<clock::Sleep>>> {
        self.state().queue.get(&id)?;
        let late = admission::patience(attempt);
        let sleep = clock::sleep_on(self.recipe.runtime.io.handle(), late);
        Some(Box::pin(sleep))
    }

    /// Answers an attempt as not begun, if it still waits for room.
    fn turn_away(&self, id: u64) {
        let job = self.state().queue.remove(&id);
        if let Some(SharedAttempt {
            attempt, answer, ..
        }) = job
        {
            let verdicts = admission::turned_away(&attempt, FULL);
            drop(attempt); // so that the receiver of the answer can own it alone
            let _ = answer.send(verdicts);
            // A smaller attempt behind it may find room.
            self.place();
        }
    }

    /// Gives waiting attempts to instances, in order, as long as there is room.
    fn place(&self) {
        let mut seats = Vec::new();
        {
            let mut state = self.state();
            let now = clock::now();
            while let Some((_, job)) = state.queue.first_key_value() {
                let bytes = job.bytes;
                let Some(at) = self.instance_for(&mut state, bytes, now).or_else(|| {
                    let seat = self.seat(&mut state, now)?;
                    seats.push(seat);
                    Some(state.instances.len() - 1)
                }) else {
                    break;
                };
                state.give(at);
            }
        }
        // Outside of the lock: a closed pool drops the driver, and that drop needs the lock.
        for seat in seats {
            let driver = driver::drive(self.this.clone(), self.recipe.clone(), seat);
            (self.spawn)(Box::pin(driver));
        }
    }

    /// Returns the index of the first instance with capacity for this many bytes. Instances at
    /// their reuse limit take no more attempts.
    fn instance_for(
        &self,
        state: &mut SharedState,
        bytes: usize,
        now: BootInstant,
    ) -> Option<usize> {
        for instance in &mut state.instances {
            if instance.served >= self.reuse.count || now.since(instance.born) >= self.reuse.age {
                instance.jobs = None;
            }
        }
        let mut instances = state.instances.iter();
        instances.position(|instance| {
            let total = instance.bytes.saturating_add(bytes);
            let fits = instance.under_way == 0
                || (instance.under_way < self.concurrency
                    && total.saturating_mul(MEMORY_PER_BYTE) <= self.max_memory);
            instance.jobs.is_some() && fits
        })
    }

    /// Starts one more instance, if allowed. Retired instances do not count until there are too
    /// many of them: an abandoned attempt may stay for as long as its function runs.
    fn seat(&self, state: &mut SharedState, now: BootInstant) -> Option<Seat> {
        let all = &state.instances;
        let taking = all.iter().filter(|one| one.jobs.is_some()).count();
        if taking >= self.instances || all.len() >= self.instances.saturating_mul(2) {
            return None;
        }
        state.next += 1;
        let (sender, jobs) = unbounded_channel();
        let seat = Seat {
            instance: state.next,
            jobs,
            end: CancellationToken::new(),
        };
        state.instances.push(Instance {
            id: seat.instance,
            jobs: Some(sender),
            under_way: 0,
            abandoned: 0,
            bytes: 0,
            served: 0,
            born: now,
            end: seat.end.clone(),
        });
        Some(seat)
    }

    /// Ends an attempt that the guest has answered. Its instance has `memory` bytes of memory.
    fn ended(&self, instance: u64, id: u64, memory: usize) {
        {
            let mut state = self.state();
            let placed = state.placed.remove(&id);
            let mut instances = state.instances.iter_mut();
            let instance = instances.find(|one| one.id == instance);
            if let (Some(placed), Some(instance)) = (placed, instance) {
                instance.under_way -= 1;
                instance.bytes -= placed.bytes;
                instance.abandoned -= usize::from(placed.abandoned);
                if memory > self.reuse.memory {
                    instance.jobs = None;
                }
                instance.end_if_forsaken();
            }
        }
        self.place();
        if self.recipe.runtime.admission.is_wanted() {
            self.let_go();
        }
    }

    /// Removes an instance that has ended. The attempts that it did not begin wait again in their
    /// old places: those that it received, and those that are still on the way to it.
    fn left(
        &self,
        instance: u64,
        untouched: Vec<SharedAttempt>,
        coming: &mut UnboundedReceiver<SharedAttempt>,
    ) {
        let mut forgotten = Vec::new();
        let mut again = Vec::new();
        {
            let mut state = self.state();
            state.placed.retain(|_, placed| placed.instance != instance);
            // This drops the sender, so no attempt arrives after those that are taken out now.
            state.instances.retain(|one| one.id != instance);
            let coming = std::iter::from_fn(|| coming.try_recv().ok());
            for job in untouched.into_iter().chain(coming) {
                if job.answer.is_closed() {
                    forgotten.push(job)
                } else {
                    again.push(job.id);
                    state.queue.insert(job.id, job);
                }
            }
        }
        drop(forgotten);
        self.place();
        // An attempt that was placed before may have no timer for a further wait, so it is turned
        // away if it finds no room now.
        for id in again {
            self.turn_away(id);
        }
    }

    /// Abandons an attempt for which no caller waits any longer. A guest's task cannot be stopped
    /// from outside, so its instance takes no more attempts and ends when all others in it are
    /// done.
    fn abandon(&self, id: u64) {
        let mut state = self.state();
        let SharedState {
            placed, instances, ..
        } = &mut *state;
        if let Some(placed) = placed.get_mut(&id) {
            placed.abandoned = true;
            let mut instances = instances.iter_mut();
            if let Some(instance) = instances.find(|one| one.id == placed.instance) {
                instance.jobs = None;
                instance.abandoned += 1;
                instance.end_if_forsaken();
            }
        }
        let waited = state.queue.remove(&id);
        drop(state);
        drop(waited);
    }

    fn state(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock()
    }
}

impl SharedState {
    /// Gives the attempt that has waited longest to an instance that has room.
    fn give(&mut self, at: usize) {
        let Some((id, job)) = self.queue.pop_first() else {
            return;
        };
        let instance = &mut self.instances[at];
        let placed = PlacedInstances {
            instance: instance.id,
            bytes: job.bytes,
            abandoned: false,
        };
        instance.under_way += 1;
        instance.served += 1;
        instance.bytes += job.bytes;
        self.placed.insert(id, placed);
        // A driver that is ending returns the attempt or drops it, which also answers it.
        if let Some(jobs) = &instance.jobs {
            let _ = jobs.send(job);
        }
    }
}

impl Instance {
    fn end_if_forsaken(&self) {
        if self.abandoned > 0 && self.abandoned == self.under_way {
            self.end.cancel();
        }
    }
}

/// A caller that waits for an attempt's answer. Dropping it before the answer abandons the attempt.
struct AnswerWaiter<'a> {
    shared: &'a SharedInstances,
    id: u64,
    answered: Option<oneshot::Receiver<Vec<Verdict>>>,
}

impl Drop for AnswerWaiter<'_> {
    fn drop(&mut self) {
        if self.answered.take().is_some() {
            self.shared.abandon(self.id);
        }
    }
}

/// Returns the bytes of a message, as the guest will hold it.
fn size(message: &Message) -> usize {
    let system = message
        .system_attributes
        .iter()
        .map(|(name, value)| name.len() + value.len());
    dispatcher_core::message::bytes(&message.body, &message.attributes)
        + message.receipt.0.len()
        + message.id.len()
        + system.sum::<usize>()
}
