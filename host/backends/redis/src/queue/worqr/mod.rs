//! One queue on the keys and channels of npm `worqr` 1.2.3, as its producer and as its worker. A
//! task is a payload and nothing else. A delivery lasts as long as its worker lives and keeps it.

mod wire;
mod worker;

use super::link::RedisConnections;
use super::notifier::Notifier;
use super::turns::{self, LongAnswerTurns};
use super::{item_errors, script};
use dispatcher_core::clock;
use dispatcher_core::memory::Budget;
use dispatcher_core::message::{Loss, Message, Outcome, OutgoingMessage, Receipt};
use dispatcher_core::queue::{
    Ask, Delays, Depth, ErrorKind, Identity, ItemError, MessageLimits, PurgeStep, Queue,
    QueueError, QueueFacts, ReceivedMessages, VISIBILITY_CEILING,
};
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use md5::{Digest, Md5};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use worker::{Inner, LIFE, PendingReceive, WorqrProcess, live};

/// The interval of looking for tasks without a notification: the package does not announce returned
/// tasks.
const LOOK: Duration = Duration::from_secs(1);

/// The bytes of a task that are read at once to compute its digest.
const PART: usize = 1_000_000;

/// One open queue, and this process as a worker of it.
pub struct WorqrQueue {
    inner: Arc<Inner>,
    losses: tokio::sync::Mutex<mpsc::UnboundedReceiver<Vec<Loss>>>,
    joining: tokio::sync::Mutex<()>,
    beating: OnceLock<Task<()>>,
    turns: LongAnswerTurns,
    /// The bytes that the process may hold.
    budget: Option<Arc<Budget>>,
}

impl WorqrQueue {
    /// Creates a queue under the package's prefix.
    pub fn new(
        identity: Identity,
        (prefix, name): (&str, &str),
        dead_letter_queue: Option<String>,
        lines: RedisConnections,
    ) -> Self {
        let (notifier, losses) = Notifier::new();
        Self {
            inner: Arc::new(Inner {
                identity,
                prefix: prefix.to_owned(),
                name: name.to_owned(),
                dead_letter_queue,
                lines,
                notifier,
                state: Mutex::default(),
            }),
            losses: tokio::sync::Mutex::new(losses),
            joining: tokio::sync::Mutex::default(),
            beating: OnceLock::new(),
            turns: LongAnswerTurns::default(),
            budget: None,
        }
    }

    /// Limits the queue to a process that may hold the bytes of `budget`.
    #[must_use]
    pub fn within(self, budget: Option<Arc<Budget>>) -> Self {
        Self { budget, ..self }
    }

    /// Returns the worker's name; registers a worker if there is none. `None` if the queue was left
    /// since `visit`.
    async fn join(&self, visit: u64) -> Result<Option<Arc<str>>, QueueError> {
        let inner = &self.inner;
        if let Some(id) = inner.lock().id.clone() {
            return Ok(Some(id));
        }
        let _one_at_a_time = self.joining.lock().await;
        {
            let state = inner.lock();
            if state.leaves != visit {
                return Ok(None);
            }
            if let Some(id) = state.id.clone() {
                return Ok(Some(id));
            }
        }
        let channel = |what: &str| format!("{}_{}_{what}", inner.prefix, inner.name);
        inner
            .lines
            .link
            .listen(&channel("work"), &inner.notifier)
            .await?;
        // Before there is a worker: a worker without heartbeats must not take anything.
        if self.beating.get().is_none() {
            let (cancels, cancelled) = Notifier::of_tasks();
            let link = &inner.lines.link;
            link.listen(&channel("cancel"), &cancels).await?;
            let inner = Arc::downgrade(inner);
            self.beating
                .get_or_init(|| tasks::spawn(live(inner, cancels, cancelled)));
        }
        let id: Arc<str> = uuid::Uuid::new_v4().to_string().into();
        let sent = clock::now();
        let mut call = script::WORQR_JOIN.key(&inner.prefix);
        call.arg(&*id).arg(&inner.name);
        inner.lock().begun = Some(id.clone());
        inner.lines.urgent.run::<()>(&call).await?;
        {
            let mut state = inner.lock();
            state.begun = None;
            state.id = Some(id.clone());
            state.lives_until = sent + LIFE;
        }
        Ok(Some(id))
    }

    /// Ends the worker here and on the server, and returns what it holds. With `only_idle`, does so
    /// only if it holds nothing. A call whose answer was lost is repeated once.
    async fn depart(&self, only_idle: bool) -> Result<(), QueueError> {
        let _no_join_meanwhile = self.joining.lock().await;
        for worker in self.inner.retire(only_idle) {
            if self.inner.end(&worker).await.is_err() {
                self.inner.end(&worker).await?;
            }
        }
        Ok(())
    }

    async fn take(
        &self,
        max: usize,
        bytes: u64,
        visibility: Duration,
        visit: u64,
    ) -> Result<wire::TakeAnswer, QueueError> {
        let inner = &self.inner;
        let Some(worker) = self.join(visit).await? else {
            return Ok(wire::TakeAnswer::Stranger);
        };
        // UUIDs of version 7 sort in the order of their creation.
        let id = |_| format!("{}_{}", inner.name, uuid::Uuid::now_v7());
        let asked = PendingReceive::new(inner, (0..max).map(id).collect());
        let sent = clock::now();
        let mut call = script::WORQR_TAKE.key(&inner.prefix);
        call.arg(&inner.name).arg(&*worker);
        let largest = super::largest(self.budget.as_ref());
        call.arg(bytes).arg(largest).arg(asked.ids());
        let answer: Vec<redis::Value> = inner.lines.link.run(&call).await?;
        let taken = wire::taken(&answer, &inner.identity.name, largest)
            .ok_or_else(|| item_errors::unexpected_answer(inner.lines.link.place(), "a dequeue"))?;
        match &taken {
            wire::TakeAnswer::Stranger => inner.fail(&worker),
            wire::TakeAnswer::Messages {
                messages, digests, ..
            } => {
                let mut state = inner.lock();
                if state.id.as_ref() != Some(&worker) {
                    return Ok(wire::TakeAnswer::Stranger);
                }
                for (message, digest) in messages.iter().zip(digests) {
                    let held = WorqrProcess {
                        digest: digest.clone(),
                        until: sent + visibility.min(VISIBILITY_CEILING),
                    };
                    state.held.insert(message.id.clone(), held);
                }
            }
            wire::TakeAnswer::Nothing(_) => {}
        }
        Ok(taken)
    }

    /// Returns the digest that names the lock of a process's task. A task that was too large to be
    /// held is read in parts.
    async fn digest(&self, process: &str) -> Result<String, QueueError> {
        let inner = &self.inner;
        if let Some(held) = inner.lock().held.get(process)
            && let Some(digest) = &held.digest
        {
            return Ok(digest.clone());
        }
        let mut md5 = Md5::new();
        let mut first = 1;
        loop {
            let mut call = script::WORQR_PART.key(&inner.prefix);
            call.arg(process).arg(first).arg(first + PART - 1);
            let part: Vec<u8> = inner.lines.link.run(&call).await?;
            if part.is_empty() {
                return Ok(wire::hexadecimal(md5));
            }
            md5.update(&part);
            first += PART;
        }
    }
}

#[async_trait::async_trait]
impl Queue for WorqrQueue {
    fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    fn facts(&self) -> QueueFacts {
        QueueFacts {
            // The package has no delays, so scheduled messages wait in the store.
            delays: Delays {
                longest_in_group: Duration::ZERO,
                longest_scheduled: Duration::ZERO,
                ..Delays::ANY
            },
            // A message of the package is a body and nothing else.
            limits: MessageLimits {
                attributes: Some(0),
                bytes: None,
            },
            ..QueueFacts::default()
        }
    }

    fn dead_letter_queue(&self) -> Option<String> {
        let name = self.inner.dead_letter_queue.as_ref()?;
        Some(format!("redis:{name}"))
    }

    async fn would_take(&self, item: &OutgoingMessage) -> Result<(), ItemError> {
        if item.group.is_none() && item.attributes.is_empty() {
            return Ok(());
        }
        Err(ItemError::Refused(format!(
            "`{}` is a queue of npm worqr, whose messages have neither attributes nor groups",
            self.inner.identity.name
        )))
    }

    async fn receive(
        &self,
        ask: Ask,
        hurry: &CancellationToken,
    ) -> Result<ReceivedMessages, QueueError> {
        if ask.newest_first {
            return Err(QueueError {
                kind: ErrorKind::Invalid,
                message: format!(
                    "`{}`: the worqr format delivers only the oldest first",
                    self.inner.identity.name
                ),
            });
        }
        let max = ask.max.clamp(1, self.inner.identity.batch);
        let until = clock::now() + ask.wait.min(self.inner.identity.longest_wait);
        let mut notifications = self.inner.notifier.notifications.subscribe();
        let visit = self.inner.lock().leaves;
        loop {
            notifications.mark_unchanged();
            if self.inner.lock().leaves != visit {
                return Ok(ReceivedMessages::default());
            }
            let turn = tokio::select! {
                biased;
                turn = self.turns.next(&self.inner.lines) => turn,
                () = hurry.cancelled() => return Ok(ReceivedMessages::default()),
            };
            let at = clock::now();
            // One message is taken regardless of its size.
            let (most, budget) = (super::wire::CALL as u64, self.budget.as_ref());
            let bytes = budget.map_or(most, |budget| budget.free().min(most));
            let reserved = budget.map(|budget| budget.take(bytes));
            let taken = self.take(max, bytes, ask.visibility, visit).await;
            drop(turn);
            let brought = taken.as_ref().ok();
            self.turns.note(brought.map(wire::TakeAnswer::messages));
            let soonest = match taken? {
                wire::TakeAnswer::Messages { messages, more, .. } => {
                    let held = budget.map(|budget| {
                        let bytes = messages.iter().map(Message::held_bytes);
                        bytes.map(|bytes| budget.take(bytes)).collect()
                    });
                    drop(reserved);
                    return Ok(ReceivedMessages {
                        held: held.unwrap_or_default(),
                        drained: !more && messages.len() < max,
                        messages,
                        taken: Some(at),
                        ..ReceivedMessages::default()
                    });
                }
                wire::TakeAnswer::Stranger => continue,
                wire::TakeAnswer::Nothing(soonest) => soonest,
            };
            drop(reserved);
            let now = clock::now();
            if now < until && !hurry.is_cancelled() {
                let look = soonest
                    .unwrap_or(LOOK)
                    .clamp(Duration::from_millis(1), LOOK);
                tokio::select! {
                    _ = notifications.changed() => continue,
                    () = clock::sleep_until(Some(until.min(now + look))) => continue,
                    () = hurry.cancelled() => {}
                }
            }
            return Ok(ReceivedMessages {
                drained: true,
                ..ReceivedMessages::default()
            });
        }
    }

    /// Extends deliveries. A process lasts as long as its worker, which releases those that are no
    /// longer extended. The answers say which still belong to this worker, as of the last
    /// heartbeat.
    async fn extend(&self, items: &[(Receipt, Duration)]) -> Vec<Result<(), ItemError>> {
        let now = clock::now();
        let mut state = self.inner.lock();
        let held = items.iter().map(|(receipt, more)| {
            let held = state.held.get_mut(&receipt.0).ok_or_else(wire::gone)?;
            held.until = now + (*more).min(VISIBILITY_CEILING);
            Ok(())
        });
        held.collect()
    }

    async fn settle(&self, items: &[(Message, Outcome)]) -> Vec<Result<(), ItemError>> {
        let inner = &self.inner;
        let Some(worker) = inner.lock().id.clone() else {
            return items.iter().map(|_| Err(wire::gone())).collect();
        };
        let mut call = inner.finish(&worker);
        let mut answers = Vec::with_capacity(items.len());
        for (message, outcome) in items {
            let (letter, delay) = match outcome {
                Outcome::Delete => ("d", Duration::ZERO),
                Outcome::Release(after) => ("r", *after),
                Outcome::DeadLetter(_) if inner.dead_letter_queue.is_none() => {
                    let why = format!("`{}` has no dead-letter queue", inner.identity.name);
                    answers.push(Err(ItemError::Refused(why)));
                    continue;
                }
                Outcome::DeadLetter(_) => ("b", Duration::ZERO),
            };
            let digest = match letter {
                // The lock of a released task stays.
                "r" => String::new(),
                _ => match self.digest(&message.receipt.0).await {
                    Ok(digest) => digest,
                    Err(error) => {
                        answers.push(Err(item_errors::item(&error)));
                        continue;
                    }
                },
            };
            call.arg(&message.receipt.0).arg(letter);
            call.arg(super::wire::ms(delay)).arg(digest);
            answers.push(Ok(()));
        }
        let open = answers.iter().filter(|answer| answer.is_ok()).count();
        if open == 0 {
            return answers;
        }
        let numbers = match inner.lines.urgent.run::<Vec<i64>>(&call).await {
            Ok(numbers) => numbers,
            Err(error) => return item_errors::all(&error, items.len()),
        };
        let mut state = inner.lock();
        let places = items
            .iter()
            .zip(&mut answers)
            .filter(|(_, answer)| answer.is_ok());
        for (((message, _), answer), number) in places.zip(numbers) {
            state.held.remove(&message.receipt.0);
            if number != 0 {
                *answer = Err(wire::gone());
            }
        }
        answers
    }

    async fn send(&self, items: &[OutgoingMessage]) -> Vec<Result<String, ItemError>> {
        let inner = &self.inner;
        let mut tasks = Vec::new();
        let mut answers: Vec<Result<String, ItemError>> = Vec::with_capacity(items.len());
        for item in items {
            answers.push(wire::sendable(item).map(|()| {
                tasks.push(item.body.as_str());
                uuid::Uuid::now_v7().to_string()
            }));
        }
        if tasks.is_empty() {
            return answers;
        }
        let mut pipe = redis::pipe();
        pipe.atomic();
        pipe.lpush(format!("{}:queues:{}", inner.prefix, inner.name), &tasks)
            .ignore();
        let channel = format!("{}_{}_work", inner.prefix, inner.name);
        pipe.publish(channel, tasks.len()).ignore();
        let _turn = match tasks.iter().map(|task| task.len()).sum::<usize>() {
            ..=turns::SHORT => None,
            _ => Some(inner.lines.turn().await),
        };
        match inner.lines.link.pipe::<()>(&pipe).await {
            Ok(()) => answers,
            Err(error) => item_errors::all(&error, items.len()),
        }
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        let inner = &self.inner;
        let key = |what: &str| format!("{}:{what}:{}", inner.prefix, inner.name);
        let mut pipe = redis::pipe();
        pipe.llen(key("queues")).scard(key("workingProcesses"));
        pipe.zcard(key("dispatcher:released"));
        let (waiting, working, delayed): (u64, u64, u64) = inner.lines.link.pipe(&pipe).await?;
        Ok(Depth {
            waiting,
            in_flight: working.saturating_sub(delayed),
            delayed,
            oldest: None,
        })
    }

    async fn peek(&self, max: usize) -> Result<Vec<Message>, QueueError> {
        let inner = &self.inner;
        let last = isize::try_from(max).unwrap_or(isize::MAX);
        let mut pipe = redis::pipe();
        pipe.lrange(format!("{}:queues:{}", inner.prefix, inner.name), -last, -1);
        let _turn = inner.lines.turn().await;
        let (tasks,): (Vec<redis::Value>,) = inner.lines.link.pipe(&pipe).await?;
        let tasks = tasks.iter().rev();
        Ok(tasks
            .map(|task| wire::message(String::new(), task, 0, &inner.identity.name))
            .collect())
    }

    async fn purge(&self) -> Result<PurgeStep, QueueError> {
        let inner = &self.inner;
        let mut call = script::WORQR_PURGE.key(&inner.prefix);
        call.arg(&inner.name).arg(super::PURGED_AT_ONCE);
        let (removed, has_more): (u64, u8) = inner.lines.link.run(&call).await?;
        Ok(PurgeStep {
            removed: Some(removed),
            has_more: has_more == 1,
        })
    }

    async fn leave(&self) -> Result<(), QueueError> {
        self.depart(false).await
    }

    async fn leave_if_idle(&self) -> Result<(), QueueError> {
        self.depart(true).await
    }

    async fn lost(&self) -> Vec<Loss> {
        match self.losses.lock().await.recv().await {
            Some(losses) => losses,
            None => std::future::pending().await,
        }
    }
}
