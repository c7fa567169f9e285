//! The world's queues as the program sees them: its port, with a network between. Decides which
//! calls are lost, late or refused, and nothing about their effect.

use super::limits::{self, key_attribute};
use super::network::{ExtendCall, Passage};
use super::receives::Want;
use super::{NONE, Sim, World};
use crate::circumstances::MetCircumstances;
use crate::scenario::Flavour;
use dispatcher_core::clock;
use dispatcher_core::message::{Attribute, Message, Outcome, OutgoingMessage, Receipt};
use dispatcher_core::queue::sharing::SharingRules;
use dispatcher_core::queue::{
    Ask, Depth, ErrorKind, Identity, ItemError, Queue, QueueError, QueueFacts, ReceivedMessages,
};
use dispatcher_sqs::queue::attempts::LostReceives;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How long a call is waited for: two tries at the SDK's timeout.
const PATIENCE: Duration = Duration::from_secs(20);
/// How much longer than their wait polls are waited for.
const POLL_PATIENCE: Duration = Duration::from_secs(40);

/// The attribute in which a message says its group.
pub(crate) const TAG: &str = "customer";

/// The attribute in which a message says how much it takes of limits.
pub(crate) const SIZE: &str = "size";

/// The attributes in which a message says its tenant and its priority.
pub(crate) const TENANT: &str = "tenant";
pub(crate) const PRIORITY: &str = "priority";

/// One queue as one process has opened it.
pub(crate) struct Port {
    pub sim: Sim,
    pub life: usize,
    pub queue: usize,
    pub identity: Identity,
    lost: LostReceives,
}

impl Port {
    pub(crate) fn new(sim: &Sim, life: usize, queue: usize, identity: Identity) -> Self {
        Self {
            sim: sim.clone(),
            life,
            queue,
            identity,
            lost: LostReceives::default(),
        }
    }

    /// A call begins. A process that is gone makes none.
    async fn begin(&self, what: &'static str, of: Vec<usize>) -> Passage {
        if self.sim.lock().is_gone(self.life) {
            std::future::pending::<()>().await;
        }
        let mut world = self.sim.lock();
        world.note(what, self.life, self.queue, of);
        world.passage(self.queue)
    }

    /// Runs what the server does, which continues when nobody waits for it any more; `None` without
    /// an answer.
    async fn remote<T: Send + 'static>(
        &self,
        passage: Passage,
        patience: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        if passage.arrives {
            tokio::spawn(async move {
                sleep(passage.to).await;
                let value = work.await;
                sleep(passage.back).await;
                if passage.answered {
                    // The process may be gone.
                    let _ = answer.send(value);
                } else {
                    sleep(patience).await;
                }
            });
        } else {
            sleep(patience).await;
            return None;
        }
        tokio::select! {
            biased;
            value = answered => value.ok(),
            () = sleep(patience) => None,
        }
    }

    /// The entries of an extension or a settlement, one after the other.
    async fn entries<T: Send + 'static>(
        &self,
        passage: Passage,
        items: Vec<T>,
        apply: impl Fn(&mut World, &T) -> Result<(), ItemError> + Send + 'static,
    ) -> Vec<Result<(), ItemError>> {
        let count = items.len();
        if passage.throttled {
            sleep(passage.to).await;
            return vec![Err(ItemError::Transient("too many requests".into())); count];
        }
        let sim = self.sim.clone();
        let work = async move {
            let mut world = sim.lock();
            let mut one = |item: &T| {
                let often = world.scenario.faults.entry;
                if world.roll(often, MetCircumstances::FailedEntry) {
                    Err(ItemError::Transient("this entry failed".into()))
                } else {
                    apply(&mut world, item)
                }
            };
            let answers = items.iter().map(&mut one).collect();
            if passage.repeated {
                items.iter().map(one).collect()
            } else {
                answers
            }
        };
        let answer = self.remote(passage, PATIENCE, work).await;
        answer.unwrap_or_else(|| vec![Err(ItemError::Transient("no answer".into())); count])
    }

    fn message(&self, world: &World, delivery: usize) -> Message {
        let one = &world.deliveries[delivery];
        let stored = &world.messages[one.message];
        let tag = stored
            .tag
            .map(|tag| Attribute::text(TAG, format!("t{tag}")));
        let keys = world.keys(one.message).into_iter();
        let keys = keys.map(|(limit, key)| Attribute::text(key_attribute(limit), key.to_string()));
        let tenant = stored.tenant.map(|tenant| (TENANT, tenant.to_string()));
        let priority = stored.priority.map(|number| (PRIORITY, number.to_string()));
        let turn = tenant.into_iter().chain(priority);
        let turn = turn.map(|(name, value)| Attribute::text(name, value));
        let size = world.scenario.fleet.as_ref();
        let size = size.map(|_| Attribute::text(SIZE, limits::size(one.message).to_string()));
        Message {
            id: format!("m{}", one.message),
            queue: self.identity.name.clone(),
            body: String::new(),
            source: self.identity.source.clone(),
            receipt: Receipt(delivery.to_string()),
            receive_count: one.count,
            sent_at: Some(stored.sent),
            first_received_at: None,
            group: stored.group.map(|group| group.to_string()),
            system_attributes: Vec::new(),
            attributes: tag
                .into_iter()
                .chain(keys)
                .chain(size)
                .chain(turn)
                .collect(),
            body_md5: None,
            attributes_md5: None,
            unreadable: None,
        }
    }

    /// Asks the queue for messages.
    async fn ask(
        &self,
        passage: Passage,
        want: Want,
        wait: Duration,
        hurry: Option<CancellationToken>,
    ) -> Result<Vec<usize>, QueueError> {
        let over = wait.is_zero() && self.sim.lock().is_over_the_limit(self.queue);
        if over {
            self.sim.lock().met.insert(MetCircumstances::OverLimit);
        }
        if passage.throttled || over {
            sleep(passage.to).await;
            let why = if over {
                "OverLimit"
            } else {
                "too many requests"
            };
            return Err(failed(ErrorKind::Transient, why));
        }
        let work = poll(self.sim.clone(), want, wait, hurry);
        let answer = self.remote(passage, POLL_PATIENCE + wait, work).await;
        answer.ok_or_else(|| failed(ErrorKind::Unreachable, "no answer"))
    }
}

/// A receive that somebody waits for; however that ends, the world hears of it.
struct WaitGuard<'a>(Option<&'a Port>);

impl WaitGuard<'_> {
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        if let Some(port) = self.0 {
            port.sim.lock().is_left(port.life, port.queue);
        }
    }
}

/// The delivery that a receipt is for.
pub(crate) fn delivery(receipt: &Receipt) -> usize {
    receipt.0.parse().expect("receipts are numbers here")
}

pub(crate) async fn sleep(time: Duration) {
    clock::sleep_until(Some(clock::now() + time)).await;
}

/// A poll at the server: returns with messages, or when its time is up.
async fn poll(
    sim: Sim,
    want: Want,
    wait: Duration,
    hurry: Option<CancellationToken>,
) -> Vec<usize> {
    let ends = clock::now() + wait;
    let blind = {
        let mut world = sim.lock();
        let often = world.scenario.faults.blind;
        world.roll(often, MetCircumstances::BlindPoll)
    };
    loop {
        let (notifier, next) = {
            let mut world = sim.lock();
            let taken = if blind { Vec::new() } else { world.take(want) };
            let now = clock::now();
            let hurried = hurry.as_ref().is_some_and(CancellationToken::is_cancelled);
            if !taken.is_empty() || ends <= now || hurried {
                return taken;
            }
            let notifier = world.notifiers[want.queue].clone();
            (notifier, world.next_visible(want.queue, now))
        };
        let next = next.filter(|_| !blind).map_or(ends, |next| next.min(ends));
        let hurried = async {
            match &hurry {
                Some(hurry) => hurry.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = hurried => {}
            () = notifier.notified() => {}
            () = clock::sleep_until(Some(next)) => {}
        }
    }
}

fn failed(kind: ErrorKind, message: &str) -> QueueError {
    let message = message.to_owned();
    QueueError { kind, message }
}

#[async_trait::async_trait]
impl Queue for Port {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn facts(&self) -> QueueFacts {
        let sim = self.sim.lock();
        QueueFacts {
            ends_waits: sim.flavour(self.queue).is_exact(),
            shares_out: sim.scenario.shares_out(self.queue),
            ..QueueFacts::default()
        }
    }

    async fn receive(
        &self,
        ask: Ask,
        hurry: &CancellationToken,
    ) -> Result<ReceivedMessages, QueueError> {
        self.sim.lock().check_asks(self.life, self.queue);
        self.sim.lock().check_rules(self.life, self.queue);
        self.sim
            .lock()
            .check_asks_for_few(self.life, self.queue, ask.max);
        let passage = self
            .begin("asks", vec![ask.max, usize::from(!ask.wait.is_zero())])
            .await;
        self.sim.lock().calls.receive += 1;
        let flavour = self.sim.lock().flavour(self.queue);
        let attempt = (flavour == Flavour::Fifo).then(|| {
            let fresh = || self.sim.lock().fresh_id().to_string();
            self.lost.next(ask.max, fresh, clock::now())
        });
        let id = attempt
            .as_ref()
            .map(|one| one.id.parse().expect("ids are numbers here"));
        let want = Want {
            queue: self.queue,
            life: self.life,
            max: attempt.as_ref().map_or(ask.max, |one| one.max),
            visibility: ask.visibility,
            attempt: id,
            again: attempt.as_ref().is_some_and(|one| !one.is_first_try()),
            newest_first: ask.newest_first,
            samples: !flavour.is_exact() && ask.wait.is_zero(),
        };
        self.sim.lock().note_receive(self.life, self.queue, id);
        let waited_for = WaitGuard(Some(self));
        let called = clock::now();
        let hurry = flavour.is_exact().then(|| hurry.clone());
        let answer = self.ask(passage, want, ask.wait, hurry).await;
        waited_for.ended();
        let mut world = self.sim.lock();
        let taken = match answer {
            Ok(taken) => taken,
            Err(error) => {
                world.not_reached(self.life, self.queue, id);
                if let Some(attempt) = attempt {
                    self.lost.failed(attempt, error.kind);
                }
                return Err(error);
            }
        };
        // An exact queue looks at everything, but gives of a group only the first.
        let looked = flavour.is_exact() || !ask.wait.is_zero();
        let news = attempt.is_none_or(|one| one.is_first_try());
        let drained = news && looked && taken.len() < want.max;
        let late = clock::now().since(called + ask.wait) > ask.visibility / 4;
        if late && flavour.is_far() {
            // When it was delivered cannot be told.
            taken
                .iter()
                .for_each(|&one| world.deliveries[one].misled = true);
        }
        world.answered(self.life, self.queue, &taken, drained, &ask);
        let handed = taken.first().map(|&one| world.deliveries[one].handed);
        let messages = taken.iter().map(|&one| self.message(&world, one));
        Ok(ReceivedMessages {
            messages: messages.collect(),
            drained,
            taken: handed.filter(|_| !flavour.is_far()),
            ..ReceivedMessages::default()
        })
    }

    fn share_out(&self, sharing: &Arc<SharingRules>) {
        self.sim.lock().told_rules(self.life, self.queue, sharing);
    }

    async fn extend(&self, items: &[(Receipt, Duration)]) -> Vec<Result<(), ItemError>> {
        let items: Vec<_> = items
            .iter()
            .map(|(one, time)| (delivery(one), *time))
            .collect();
        let passage = self
            .begin("asks to extend", items.iter().map(|item| item.0).collect())
            .await;
        {
            let mut world = self.sim.lock();
            world.calls.extend += 1;
            for (one, _) in &items {
                world.deliveries[*one].extensions += 1;
                world.check_extension(*one);
            }
        }
        let asked: Vec<usize> = items.iter().map(|item| item.0).collect();
        let called = clock::now();
        let _under_way = ExtendCall::of(&self.sim, &asked);
        let answers = self
            .entries(passage, items, |world, (one, time)| {
                let often = world.scenario.faults.refused_extension;
                if world.roll(often, MetCircumstances::RefusedExtension) {
                    Err(ItemError::Refused("not extended".into()))
                } else {
                    world.extend(*one, *time)
                }
            })
            .await;
        let mut world = self.sim.lock();
        for (one, answer) in asked.into_iter().zip(&answers) {
            if answer.is_ok() {
                world.deliveries[one].heard = called;
            }
            world.deliveries[one].refused |= matches!(answer, Err(ItemError::Refused(_)));
        }
        answers
    }

    async fn settle(&self, items: &[(Message, Outcome)]) -> Vec<Result<(), ItemError>> {
        let items: Vec<_> = items
            .iter()
            .map(|(message, outcome)| (delivery(&message.receipt), outcome.clone()))
            .collect();
        let mut passage = self
            .begin("asks to settle", items.iter().map(|item| item.0).collect())
            .await;
        {
            let mut world = self.sim.lock();
            world.calls.settle += 1;
            world.slows(&mut passage);
            world.check_settle_call(self.life, self.queue, &items);
        }
        let told: Vec<usize> = items.iter().map(|item| item.0).collect();
        let answers = self
            .entries(passage, items, |world, (one, outcome)| {
                world.settle(*one, outcome)
            })
            .await;
        let mut world = self.sim.lock();
        for (one, answer) in told.into_iter().zip(&answers) {
            world.deliveries[one].confirmed = answer.is_ok();
            let passing = matches!(answer, Err(ItemError::Transient(_)));
            world.deliveries[one].unheard = passing.then(clock::now);
            if let Err(error) = answer {
                let note = error.to_string();
                world.note_with("is not heard", self.life, self.queue, vec![one], note);
                world.lives[self.life].retried = true;
            }
        }
        answers
    }

    async fn send(&self, items: &[OutgoingMessage]) -> Vec<Result<String, ItemError>> {
        vec![Err(ItemError::Refused("nobody sends here".into())); items.len()]
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        Ok(Depth::default())
    }

    async fn peek(&self, _max: usize) -> Result<Vec<Message>, QueueError> {
        self.sim.lock().note("peeks", self.life, NONE, vec![]);
        Ok(Vec::new())
    }
}
