//! The world around the program: what the queues hold, what was delivered, what handlers do, what
//! was seen to happen. One lock; no rule of the program lives here but in `checks`.

pub(crate) mod ages;
pub(crate) mod checks;
pub(crate) mod ends;
pub(crate) mod events;
pub(crate) mod handler;
pub(crate) mod limit_store;
pub(crate) mod limits;
pub(crate) mod network;
pub(crate) mod port;
pub(crate) mod receives;
pub(crate) mod records;
pub(crate) mod server;
pub(crate) mod starts;
pub(crate) mod tenants;
pub(crate) mod turns;
pub(crate) mod views;

use crate::circumstances::MetCircumstances;
use crate::scenario::{Flavour, Scenario};
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::job::Job;
use dispatcher_core::scheduler::permits::Permits;
use dispatcher_core::scheduler::shared::SharedScheduler;
pub(crate) use events::{Broken, Calls, Event};
use fastrand::Rng;
use limits::Limits;
use receives::{GivenMessages, KnownReceive};
use records::ArrivingMessages;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tenants::TenantTurns;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use views::{RequestedReceive, View};

/// The world, shared by all that live in it.
#[derive(Clone)]
pub(crate) struct Sim(Arc<Mutex<World>>);

impl Sim {
    pub(crate) fn new(world: World) -> Self {
        Self(Arc::new(Mutex::new(world)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything there is.
pub(crate) struct World {
    pub scenario: Arc<Scenario>,
    pub rng: Rng,
    pub messages: Vec<QueuedMessage>,
    pub deliveries: Vec<SimulatedDelivery>,
    /// Processes, each start a new one.
    pub lives: Vec<Life>,
    /// Attempts under way, by number.
    pub attempts: BTreeMap<usize, LiveAttempt>,
    pub attempted: usize,
    /// Deliveries that a process may have and has not told of.
    pub open: Vec<usize>,
    /// Faults are on, and since when they are as they are.
    pub troubled: bool,
    pub trouble_changed: BootInstant,
    pub closed: bool,
    /// Faults are over for good and handlers are done with everything.
    pub quiet: bool,
    /// When all processes stood still last.
    pub suspended: Option<BootInstant>,
    /// How long in all.
    pub stood: Duration,
    /// Deliveries that were delivered anew while they were worked on, and when.
    pub suspects: Vec<(usize, BootInstant)>,
    /// How many ids receives have had.
    pub ids: u64,
    /// What receives with an id have brought.
    pub told: BTreeMap<u64, KnownReceive>,
    /// Of limits that hold for all processes together.
    pub limits: Limits,
    /// What each queue has given the tenants that share it.
    pub given: GivenMessages,
    /// What the store knows as done, and until when: it outlives every process.
    pub records: BTreeMap<usize, Timestamp>,
    pub trace: Vec<Event>,
    pub broken: Vec<Broken>,
    /// One per queue: it may hold something that it did not.
    pub notifiers: Vec<Arc<Notify>>,
    /// Something happened.
    pub happened: Arc<Notify>,
    pub calls: Calls,
    /// What the world did that not every world does.
    pub met: BTreeSet<MetCircumstances>,
}

/// A message at its queue.
#[derive(Debug, Clone)]
pub(crate) struct QueuedMessage {
    pub queue: usize,
    /// Of its queue.
    pub group: Option<u16>,
    /// In itself, for routes with `group_by`.
    pub tag: Option<u16>,
    /// The tenant and the priority that it names.
    pub tenant: Option<u16>,
    pub priority: Option<u8>,
    pub sent: Timestamp,
    pub visible: BootInstant,
    /// The newest delivery, whose receipt counts.
    pub latest: Option<usize>,
    pub receives: u32,
    pub gone: Option<Gone>,
    /// Why it was dead-lettered.
    pub dead_lettered: Option<String>,
    /// An attempt was done with it.
    pub done: bool,
    /// A queue was told to delete it since it was too old.
    pub shed: bool,
    /// Attempts begun.
    pub tries: u32,
}

/// How a message left its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gone {
    Deleted(BootInstant),
    /// By the backend's own policy.
    Redriven,
}

/// One delivery of one message.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedDelivery {
    pub message: usize,
    pub life: usize,
    pub handed: BootInstant,
    /// The same, or when it was delivered again.
    pub renewed: BootInstant,
    /// It was delivered under the id of an earlier receive, whether or not that brought anything.
    pub again: bool,
    /// It was released.
    pub released: bool,
    /// Its receipt was used: it is not delivered again.
    pub changed: bool,
    /// When the queue makes it visible again, as far as this delivery goes.
    pub until: BootInstant,
    /// The same, but for what the process itself asked for when it gave the message back.
    pub leased: BootInstant,
    pub count: u32,
    /// The process cannot be blamed for what it believes of its lease.
    pub misled: bool,
    /// When the answer reached the process.
    pub reached: Option<BootInstant>,
    /// From then on it is too old to be started.
    pub expires: BootInstant,
    /// From then on it goes before others.
    pub hastens: BootInstant,
    /// The store said that it was done.
    pub known: bool,
    /// In order; the last speaks.
    pub tried: Vec<Trial>,
    /// What the queue was told.
    pub told: Option<String>,
    /// It was released without an attempt, and there was a reason that nobody can help.
    pub excused: bool,
    /// What came of it last.
    pub confirmed: bool,
    pub extensions: u32,
    /// When the last call was made that is known to have kept it.
    pub heard: BootInstant,
    /// Calls under way that extend it, as the process knows.
    pub extending: u32,
    /// Since when the process knows that its last word did not take effect, and may retry.
    pub unheard: Option<BootInstant>,
    /// An extension was refused for good.
    pub refused: bool,
}

/// One attempt at a delivery.
#[derive(Debug, Clone)]
pub(crate) struct Trial {
    pub began: BootInstant,
    pub ended: Option<(BootInstant, WorldAnswer)>,
}

/// What became of a message in an attempt, the order of its group considered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WorldAnswer {
    Done,
    Retry(Option<Duration>),
    Reject,
    /// Busy or closed: it is to be held.
    Kept,
    /// An earlier one of its group was not done.
    Behind,
    /// The handler was stopped, or it panicked.
    Cut,
    /// It was stopped because permits ended that could not be renewed.
    Revoked,
    /// Its lease was lost before the answer.
    Fenced,
}

/// An running attempt.
#[derive(Debug, Clone)]
pub(crate) struct LiveAttempt {
    pub life: usize,
    pub queue: usize,
    pub deliveries: Vec<usize>,
    /// Set for each once its answer does not count.
    pub lost: Vec<CancellationToken>,
}

impl LiveAttempt {
    /// Whether it is at work on this delivery and has not been told to leave it.
    pub(crate) fn is_on(&self, delivery: usize) -> bool {
        let mut pairs = self.deliveries.iter().zip(&self.lost);
        pairs.any(|(&one, lost)| one == delivery && !lost.is_cancelled())
    }
}

/// One process from its start to its end.
pub(crate) struct Life {
    pub dead: bool,
    pub died: BootInstant,
    pub stopping: bool,
    /// It was asked to stop when faults were over.
    pub stops_in_quiet: bool,
    /// Until then a stop waits for outstanding receives.
    pub patient_until: BootInstant,
    pub views: Vec<View>,
    pub room: Option<Permits>,
    pub scheduler: Option<Arc<SharedScheduler<Job>>>,
    pub turns: TenantTurns,
    /// What it was done with, and when.
    pub done: BTreeMap<usize, BootInstant>,
    /// What it asked for under an id.
    pub asked: BTreeMap<u64, RequestedReceive>,
    /// What it has put on the dead-letter queue, as the adapter remembers.
    pub dead_lettered: BTreeSet<usize>,
    /// Tokens left of each queue's rate, and since when.
    pub tokens: Vec<(f64, BootInstant)>,
    /// What it had deleted since it was too old.
    pub shed: BTreeSet<usize>,
    /// When each queue said that it held nothing more.
    pub drained: Vec<Vec<BootInstant>>,
    /// What was received and is being looked up.
    pub arriving: Option<ArrivingMessages>,
    /// The store has failed it.
    pub unremembered: bool,
    /// An entry of a settlement failed once: retries are held beyond the room.
    pub retried: bool,
    /// Since when each queue is paused.
    pub paused: Vec<Option<BootInstant>>,
    /// Whether each ever was.
    pub was_paused: Vec<bool>,
    /// Whether a new version of its route ever took the place of another.
    pub was_reloaded: bool,
    /// The most attempts that an operator allows, and since when.
    pub limit: Option<(usize, BootInstant)>,
    /// It cannot reach the store of limits.
    pub parted: bool,
    /// When it began to read limits last, and when the store was read.
    pub asked_limits: BootInstant,
    pub read_limits: BootInstant,
    /// The calls of the store that were not answered in time since one changed records.
    pub limits_in_vain: u32,
    /// A request was carried out for which it had waited no longer.
    pub wrote_limits_late: bool,
}
/// No process, or no queue, in an event.
pub(crate) const NONE: usize = usize::MAX;

impl World {
    pub(crate) fn new(scenario: Arc<Scenario>) -> Self {
        let queues = scenario.queues.len();
        Self {
            rng: Rng::with_seed(scenario.seed),
            messages: Vec::new(),
            deliveries: Vec::new(),
            lives: Vec::new(),
            attempts: BTreeMap::new(),
            attempted: 0,
            open: Vec::new(),
            troubled: false,
            trouble_changed: BootInstant::default(),
            closed: false,
            quiet: false,
            suspended: None,
            stood: Duration::ZERO,
            suspects: Vec::new(),
            ids: 0,
            told: BTreeMap::new(),
            limits: Limits::default(),
            given: GivenMessages::default(),
            records: BTreeMap::new(),
            trace: Vec::new(),
            broken: Vec::new(),
            notifiers: (0..queues).map(|_| Arc::default()).collect(),
            happened: Arc::default(),
            calls: Calls::default(),
            met: BTreeSet::new(),
            scenario,
        }
    }

    /// A process starts.
    pub(crate) fn born(&mut self) -> usize {
        let now = clock::now();
        let view = View::new(now);
        let queues = self.scenario.queues.len();
        self.lives.push(Life {
            dead: false,
            died: BootInstant::default(),
            stopping: false,
            stops_in_quiet: false,
            patient_until: BootInstant::from_boot(Duration::MAX),
            views: vec![view; queues],
            room: None,
            scheduler: None,
            turns: TenantTurns::default(),
            done: BTreeMap::new(),
            asked: BTreeMap::new(),
            dead_lettered: BTreeSet::new(),
            tokens: vec![(f64::MAX, now); queues],
            shed: BTreeSet::new(),
            drained: vec![Vec::new(); queues],
            arriving: None,
            unremembered: false,
            retried: false,
            paused: vec![None; queues],
            was_paused: vec![false; queues],
            was_reloaded: false,
            limit: None,
            parted: false,
            asked_limits: now,
            read_limits: now,
            limits_in_vain: 0,
            wrote_limits_late: false,
        });
        let life = self.lives.len() - 1;
        self.note("start", life, NONE, vec![]);
        life
    }

    /// An operator pauses a queue in one process, or resumes it.
    pub(crate) fn operator_pauses(&mut self, life: usize, queue: usize, paused: bool) {
        let words = if paused { "is paused" } else { "is resumed" };
        self.note(words, life, queue, vec![]);
        let one = &mut self.lives[life];
        one.was_paused[queue] |= paused;
        one.paused[queue] = paused.then(clock::now);
        if paused {
            self.met.insert(MetCircumstances::Paused);
        }
    }

    /// A process replaces its route by a new version. What the earlier one has not started goes
    /// back, as at a pause.
    pub(crate) fn operator_reloads(&mut self, life: usize, patient_until: BootInstant) {
        self.note("is reloaded", life, NONE, vec![]);
        let one = &mut self.lives[life];
        one.was_paused.fill(true);
        one.was_reloaded = true;
        // A version that still receives is not waited for any longer than before.
        one.patient_until = if clock::now() < one.patient_until {
            one.patient_until.min(patient_until)
        } else {
            patient_until
        };
        self.met.insert(MetCircumstances::Reloaded);
    }

    /// An operator sets the most attempts of one process.
    pub(crate) fn operator_limits(&mut self, life: usize, attempts: usize) {
        self.note_with("is limited", life, NONE, vec![], attempts.to_string());
        self.lives[life].limit = Some((attempts, clock::now()));
        self.met.insert(MetCircumstances::Limited);
    }

    /// It is gone.
    pub(crate) fn dies(&mut self, life: usize, how: &'static str) {
        self.met.insert(if how == "crashes" {
            MetCircumstances::Crash
        } else {
            MetCircumstances::Stop
        });
        self.leaves_permits(life);
        self.lives[life].dead = true;
        self.lives[life].died = clock::now();
        self.note(how, life, NONE, vec![]);
        // Nothing of it runs any more; what it drops is not to be heard of.
        self.attempts.retain(|_, live| live.life != life);
    }

    /// Whether a process was ended at this very moment: what it still does is undone, since its
    /// parts end one after the other here. Anything later is a fault.
    pub(crate) fn is_gone(&mut self, life: usize) -> bool {
        let Life { dead, died, .. } = self.lives[life];
        if dead && died + self.moment() < clock::now() {
            self.fails("works-when-gone", format!("process {life}"));
        }
        dead
    }

    pub(crate) fn note(&mut self, what: &'static str, life: usize, queue: usize, of: Vec<usize>) {
        self.note_with(what, life, queue, of, String::new());
    }

    pub(crate) fn note_with(
        &mut self,
        what: &'static str,
        life: usize,
        queue: usize,
        of: Vec<usize>,
        note: String,
    ) {
        let at = clock::now();
        self.check_suspects(at);
        self.trace.push(Event {
            at,
            what,
            life,
            queue,
            of,
            note,
        });
        self.happened.notify_waiters();
    }

    /// A rule did not hold.
    pub(crate) fn fails(&mut self, rule: &'static str, why: String) {
        self.note_with("BROKEN", NONE, NONE, vec![], format!("{rule}: {why}"));
        let at = clock::now();
        self.broken.push(Broken { rule, at, why });
    }

    pub(crate) fn flavour(&self, queue: usize) -> Flavour {
        self.scenario.queues[queue].flavour
    }

    pub(crate) fn is_ordered(&self, queue: usize) -> bool {
        self.flavour(queue).orders_groups() && !self.scenario.shares_groups()
    }

    /// So often in a thousand, while faults are on; noted if so.
    pub(crate) fn roll(&mut self, in_a_thousand: u32, what: MetCircumstances) -> bool {
        let so = self.troubled && in_a_thousand > 0 && self.rng.u32(0..1_000) < in_a_thousand;
        if so {
            self.met.insert(what);
        }
        so
    }

    pub(crate) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.rng.u64(micros(least)..=micros(most)))
    }

    /// Whether the queue keeps this delivery's message for it.
    pub(crate) fn is_kept(&self, delivery: usize, now: BootInstant) -> bool {
        let one = &self.deliveries[delivery];
        let message = &self.messages[one.message];
        message.latest == Some(delivery) && message.gone.is_none() && one.until > now
    }

    /// Whether a process would be right to believe what it was told about its lease.
    pub(crate) fn is_honest(&self, delivery: usize) -> bool {
        let one = &self.deliveries[delivery];
        !one.misled && self.suspended.is_none_or(|at| at < one.handed)
    }
}
