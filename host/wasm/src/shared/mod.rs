//! Instances that run many concurrent attempts: which attempt goes into which instance, when one is
//! created and when it takes no more. Never touches a store; that is the driver's.

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
use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// The default lifetime of a shared instance.
const SERVICE: Reuse = Reuse {
    count: 100_000,
    age: Duration::from_secs(3600),
    memory: usize::MAX,
};

/// A guest that works on messages needs about this many times their bytes.
const MEMORY_PER_BYTE: usize = 4;

/// Why an attempt is turned away.
const FULL: &str = "no instance of the plugin has capacity: all hold their maximum of attempts, or of message bytes";

/// How the instances of one plugin are shared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sharing {
    /// Maximum attempts in one instance.
    pub(super) concurrency: usize,
    /// Maximum instances that take attempts. As many may be ending besides.
    pub(super) instances: usize,
    /// How long each serves.
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
    /// The id that the next attempt, or instance, gets.
    next: u64,
    /// Attempts that wait for room, in the order of their arrival.
    queue: BTreeMap<u64, SharedAttempt>,
    /// Attempts in instances.
    placed: HashMap<u64, Placed>,
    /// All that are alive, those that take no more included.
    instances: Vec<Instance>,
}

struct Placed {
    instance: u64,
    bytes: usize,
    /// Nobody waits for it any longer, and the guest still works on it.
    abandoned: bool,
}

struct Instance {
    id: u64,
    /// To its driver. None once it takes no more; the driver ends when it has answered all.
    jobs: Option<UnboundedSender<SharedAttempt>>,
    /// Attempts in it, abandoned ones included.
    under_way: usize,
    abandoned: usize,
    /// Bytes of their messages.
    bytes: usize,
    /// Attempts that it has been given.
    served: u64,
    born: BootInstant,
    /// Ends it at once.
    end: CancellationToken,
}

/// What the driver of an instance is handed.
struct Seat {
    instance: u64,
    jobs: UnboundedReceiver<SharedAttempt>,
    end: CancellationToken,
}

impl SharedInstances {
    pub(super) fn new(
        sharing: Sharing,
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

    /// Runs one attempt in whichever instance has room for it, when one has. One that waited for room
    /// for a quarter of its time is turned away as busy: what is left might be too little to do its
    /// work, and fewer attempts at once are the cure.
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

    /// Ends when an attempt has waited too long for room. None if it waits for none.
    fn late(&self, id: u64, attempt: &Attempt) -> Option<Pin<Box<clock::Sleep>>> {
        self.state().queue.get(&id)?;
        let late = admission::patience(attempt);
        let sleep = clock::sleep_on(self.recipe.runtime.io.handle(), late);
        Some(Box::pin(sleep))
    }

    /// Answers that an attempt was not begun, if it still waits for room.
    fn turn_away(&self, id: u64) {
        let job = self.state().queue.remove(&id);
        if let Some(SharedAttempt {
            attempt, answer, ..
        }) = job
        {
            let verdicts = admission::turned_away(&attempt, FULL);
            drop(attempt); // so that whoever is answered may have it for itself
            let _ = answer.send(verdicts);
            // A smaller one behind it may find room.
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
        // Outside of the lock: a pool that is closed drops the driver, and its drop needs the lock.
        for seat in seats {
            let driver = driver::drive(self.this.clone(), self.recipe.clone(), seat);
            (self.spawn)(Box::pin(driver));
        }
    }

    /// The first instance with capacity for this many bytes. Those at their reuse limit take no
    /// more.
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
        let fits = |instance: &Instance| {
            let total = instance.bytes.saturating_add(bytes);
            instance.under_way == 0
                || (instance.under_way < self.concurrency
                    && total.saturating_mul(MEMORY_PER_BYTE) <= self.max_memory)
        };
        let mut instances = state.instances.iter();
        instances.position(|instance| instance.jobs.is_some() && fits(instance))
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

    /// The guest has answered an attempt; its instance has this many bytes of memory.
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

    /// An instance is gone. What it was handed and did not begin waits again, at its old place:
    /// what it took of it and what is still on the way.
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
            // The door is shut, so nothing comes after what is taken out now.
            state.instances.retain(|one| one.id != instance);
            let coming = std::iter::from_fn(|| coming.try_recv().ok());
            for job in untouched.into_iter().chain(coming) {
                match job.answer.is_closed() {
                    true => forgotten.push(job),
                    false => {
                        again.push(job.id);
                        state.queue.insert(job.id, job);
                    }
                }
            }
        }
        drop(forgotten);
        self.place();
        // Nobody sees to it that one that was placed before does not wait too long.
        for id in again {
            self.turn_away(id);
        }
    }

    /// Nobody waits for this attempt any longer. A guest's task cannot be stopped from outside, so
    /// its instance takes no more and ends when all others in it are done.
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedState {
    /// Gives the attempt that waits longest to an instance that has room.
    fn give(&mut self, at: usize) {
        let Some((id, job)) = self.queue.pop_first() else {
            return;
        };
        let instance = &mut self.instances[at];
        let placed = Placed {
            instance: instance.id,
            bytes: job.bytes,
            abandoned: false,
        };
        instance.under_way += 1;
        instance.served += 1;
        instance.bytes += job.bytes;
        self.placed.insert(id, placed);
        // A driver that is ending hands back what it is sent, or drops it, which is an answer too.
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

/// Somebody waits for an attempt's answer; dropped before it came, the attempt is abandoned.
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

/// Bytes of a message, as the guest will hold it.
fn size(message: &Message) -> usize {
    let system = message.system_attributes.iter();
    let system = system.map(|(name, value)| name.len() + value.len());
    dispatcher_core::message::bytes(&message.body, &message.attributes)
        + message.receipt.0.len()
        + message.id.len()
        + system.sum::<usize>()
}
