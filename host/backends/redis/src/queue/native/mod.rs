//! One queue in the native format: every call is one script. Leases and delays use only the
//! server's clock.

mod browse;
mod terms;

use super::doubts::LostClaims;
use super::endings::{self, EndingBatch, RedisEnd};
use super::link::{Link, RedisConnections};
use super::notifier::Notifier;
use super::turns::{self, LongAnswerTurns};
use super::wire::{self, ClaimAnswer};
use super::worker::RedisWorker;
use super::{item_errors, keys, script};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::memory::Budget;
use dispatcher_core::message::{Loss, Message, Outcome, OutgoingMessage, Receipt};
use dispatcher_core::queue::sharing::{MOST_COUNTED, SharingRules, TenantBacklog};
use dispatcher_core::queue::{
    Ask, BrowseCursor, BrowsePage, Delays, Depth, ErrorKind, Identity, ItemError, PurgeStep, Queue,
    QueueError, QueueFacts, ReceivedMessages, VISIBILITY_CEILING,
};
use dispatcher_core::schedule::LOOK_INTERVAL;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terms::{ClaimTerms, CurrentTerms};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The interval of looking for messages without a notification, since a notification may be lost.
const LOOK: Duration = Duration::from_secs(5);

/// The dead-letter queue of a queue.
pub struct DeadLetterQueue {
    /// The bare name.
    pub name: String,
    /// The prefix of its keys.
    pub base: String,
}

/// One open queue.
pub struct NativeQueue {
    identity: Identity,
    name: String,
    base: String,
    suffix: String,
    dead_letter_queue: Option<DeadLetterQueue>,
    lines: RedisConnections,
    worker: Arc<RedisWorker>,
    registry: String,
    notifier: Arc<Notifier>,
    losses: tokio::sync::Mutex<mpsc::UnboundedReceiver<Vec<Loss>>>,
    doubts: LostClaims,
    turns: LongAnswerTurns,
    terms: CurrentTerms,
    sent: AtomicBool,
    dead_lettered: AtomicBool,
    /// The bytes that the process may hold.
    budget: Option<Arc<Budget>>,
}

impl NativeQueue {
    /// Creates a queue whose keys begin with `base`. Keys that belong to no queue begin with
    /// `registry`.
    pub fn new(
        (identity, name, base): (Identity, String, String),
        dead_letter_queue: Option<DeadLetterQueue>,
        (lines, worker): (RedisConnections, Arc<RedisWorker>),
        registry: String,
    ) -> Self {
        let (notifier, losses) = Notifier::new();
        worker.add_notifier(&base, &notifier);
        Self {
            identity,
            name,
            suffix: keys::id_suffix(&base),
            base,
            dead_letter_queue,
            lines,
            worker,
            registry,
            notifier,
            losses: tokio::sync::Mutex::new(losses),
            doubts: LostClaims::default(),
            turns: LongAnswerTurns::default(),
            terms: CurrentTerms::default(),
            sent: AtomicBool::new(false),
            dead_lettered: AtomicBool::new(false),
            budget: None,
        }
    }

    /// Limits the queue to a process that may hold the bytes of `budget`.
    #[must_use]
    pub fn within(self, budget: Option<Arc<Budget>>) -> Self {
        Self { budget, ..self }
    }

    /// Claims messages once, without waiting.
    async fn claim(&self, ask: Ask, bytes: u64) -> Result<ClaimAnswer, QueueError> {
        let worker = self.worker.join(&self.name, &self.base).await?;
        let number = self.doubts.number();
        let doubts = self.doubts.take(&worker);
        let list: String = doubts.iter().map(|claim| format!("{claim},")).collect();
        let largest = super::largest(self.budget.as_ref());
        let terms = self.terms.next();
        let mut call = if terms.is_shared {
            script::CLAIM_SHARED.key(&self.base)
        } else {
            script::CLAIM.key(&self.base)
        };
        call.arg(&*worker)
            .arg(number)
            .arg(ask.max)
            .arg(wire::ms(ask.visibility))
            .arg(if ask.newest_first { "newest" } else { "oldest" })
            .arg(list)
            .arg(bytes)
            .arg(largest)
            .arg(terms.known.word());
        if terms.is_shared {
            call.arg(&terms.of.arguments);
        }
        let answer = self
            .lines
            .link
            .run::<Vec<redis::Value>>(&call)
            .await
            .inspect_err(|error| {
                let this = item_errors::is_doubtful(error).then_some(number);
                self.doubts.add(&worker, doubts.iter().copied().chain(this));
            })?;
        let claimed = wire::claimed(&answer, &self.identity.name, largest)
            .ok_or_else(|| item_errors::unexpected_answer(self.lines.link.place(), "a claim"))?;
        let is_news = self.terms.note(&terms, &claimed);
        match &claimed {
            ClaimAnswer::Stranger => self.worker.lose(&worker),
            ClaimAnswer::RulesGone if is_news => tracing::warn!(
                queue = self.identity.name,
                "rules of tenants and priorities replaced or lost; the queue delivers without them \
                 until a process with them starts"
            ),
            ClaimAnswer::Nothing(_) | ClaimAnswer::Again | ClaimAnswer::RulesGone => {}
            ClaimAnswer::Messages { messages, .. } => {
                let receipts = messages.iter().map(|message| message.receipt.clone());
                if !self.worker.took(&worker, &self.base, receipts) {
                    return Ok(ClaimAnswer::Stranger);
                }
            }
        }
        Ok(claimed)
    }

    /// Returns the answer with these messages, of which `held` is reserved.
    fn received(
        &self,
        messages: Vec<Message>,
        (drained, overdue): (bool, usize),
        taken: BootInstant,
    ) -> ReceivedMessages {
        let held = self.budget.as_ref().map(|budget| {
            let bytes = messages.iter().map(Message::held_bytes);
            bytes.map(|bytes| budget.take(bytes)).collect()
        });
        ReceivedMessages {
            held: held.unwrap_or_default(),
            drained,
            messages,
            taken: Some(taken),
            overdue,
            ..ReceivedMessages::default()
        }
    }

    /// Adds a queue to the set of all queues, once.
    async fn enter(&self, name: &str, entered: &AtomicBool) -> Result<(), QueueError> {
        if entered.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut call = script::ENTER.key(&self.registry);
        let link = self.lines.link.of(&self.registry);
        link.run::<()>(call.arg(name)).await?;
        entered.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Runs `call` with every item whose receipt is valid, and puts its answers in their places.
    async fn each(
        &self,
        line: &Link,
        call: &redis::ScriptInvocation<'_>,
        mut answers: Vec<Result<(), ItemError>>,
    ) -> Vec<Result<(), ItemError>> {
        let open = answers.iter().filter(|answer| answer.is_ok()).count();
        if open == 0 {
            return answers;
        }
        let numbers = match line.run::<Vec<i64>>(call).await {
            Ok(numbers) if numbers.len() == open => numbers,
            Ok(_) => {
                let error = item_errors::unexpected_answer(line.place(), "a batch");
                return item_errors::all(&error, answers.len());
            }
            Err(error) => {
                let places = answers.iter_mut().filter(|answer| answer.is_ok());
                places.for_each(|place| *place = Err(item_errors::item(&error)));
                return answers;
            }
        };
        let places = answers.iter_mut().filter(|answer| answer.is_ok());
        for (place, number) in places.zip(numbers) {
            *place = wire::answer(number);
        }
        answers
    }

    /// Ends the deliveries of one call.
    async fn end(&self, part: &EndingBatch<'_>) -> Vec<Result<(), ItemError>> {
        let mut call = script::SETTLE.key(&self.base);
        let dead_letter_queue = self.dead_letter_queue.as_ref();
        call.arg(dead_letter_queue.map_or("", |dead_letter_queue| dead_letter_queue.base.as_str()));
        for alike in part
            .ends
            .chunk_by(|(_, one), (_, next)| one.ends_like(next))
        {
            let [(_, first), ..] = alike else { continue };
            call.arg(alike.len()).arg(first.count).arg(first.letter);
            call.arg(&first.with);
            for (_, end) in alike {
                call.arg(end.id);
            }
        }
        let answers = vec![Ok(()); part.ends.len()];
        if !part.long {
            return self.each(&self.lines.urgent, &call, answers).await;
        }
        let _turn = self.lines.turn().await;
        self.each(&self.lines.link, &call, answers).await
    }

    /// Sends the messages of one call.
    async fn send_batch(
        &self,
        items: &[OutgoingMessage],
    ) -> Result<Vec<Result<String, ItemError>>, QueueError> {
        let mut call = script::SEND.key(&self.base);
        call.arg(&self.suffix);
        let mut answers = Vec::with_capacity(items.len());
        for item in items {
            answers.push(wire::sendable(item).map(|attributes| {
                let group = item.group.as_ref().map(|group| format!("={group}"));
                call.arg(&item.body)
                    .arg(attributes)
                    .arg(wire::ms(item.delay))
                    .arg(group.unwrap_or_default());
                String::new()
            }));
        }
        let open = answers.iter().filter(|answer| answer.is_ok()).count();
        if open == 0 {
            return Ok(answers);
        }
        let _turn = match items.iter().map(wire::weight).sum::<usize>() {
            ..=turns::SHORT => None,
            _ => Some(self.lines.turn().await),
        };
        let ids: Vec<String> = self.lines.link.run(&call).await?;
        if ids.len() != open {
            return Err(item_errors::unexpected_answer(
                self.lines.link.place(),
                "a send",
            ));
        }
        let places = answers.iter_mut().filter_map(|answer| answer.as_mut().ok());
        places.zip(ids).for_each(|(place, id)| *place = id);
        Ok(answers)
    }
}

#[async_trait::async_trait]
impl Queue for NativeQueue {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn facts(&self) -> QueueFacts {
        QueueFacts {
            // A delayed message in the queue delays the rest of its group and cannot be listed. So a
            // scheduled message waits beside the queue until it is due within two looks at the store
            // of schedules.
            delays: Delays {
                longest_in_group: Duration::ZERO,
                longest_scheduled: LOOK_INTERVAL * 2,
                takes_any: true,
                ..Delays::ANY
            },
            can_browse: true,
            finds_by_id: true,
            shares_out: true,
            ..QueueFacts::default()
        }
    }

    fn dead_letter_queue(&self) -> Option<String> {
        let dead_letter_queue = self.dead_letter_queue.as_ref()?;
        Some(format!("redis:{}", dead_letter_queue.name))
    }

    fn share_out(&self, sharing: &Arc<SharingRules>) {
        if self.terms.replace(ClaimTerms::of(sharing)) {
            self.notifier.notify();
        }
    }

    async fn backlogs(&self, tenants: &[String]) -> Result<Vec<TenantBacklog>, QueueError> {
        self.count_backlogs(tenants).await
    }

    async fn receive(
        &self,
        ask: Ask,
        hurry: &CancellationToken,
    ) -> Result<ReceivedMessages, QueueError> {
        if ask.visibility > VISIBILITY_CEILING {
            return Err(QueueError {
                kind: ErrorKind::Invalid,
                message: format!(
                    "`{}`: a visibility of {:?} is too long, wanted 0 s to 12 h",
                    self.identity.name, ask.visibility
                ),
            });
        }
        let ask = Ask {
            max: ask.max.clamp(1, self.identity.batch),
            wait: ask.wait.min(self.identity.longest_wait),
            ..ask
        };
        let until = clock::now() + ask.wait;
        let mut notifications = self.notifier.notifications.subscribe();
        if !ask.wait.is_zero() {
            self.lines
                .link
                .listen(&keys::wake_channel(&self.base), &self.notifier)
                .await?;
        }
        loop {
            notifications.mark_unchanged();
            let turn = tokio::select! {
                biased;
                turn = self.turns.next(&self.lines) => turn,
                () = hurry.cancelled() => return Ok(ReceivedMessages::default()),
            };
            let taken = clock::now();
            // One message is claimed regardless of its size.
            let (most, budget) = (wire::CALL as u64, self.budget.as_ref());
            let bytes = budget.map_or(most, |budget| budget.free().min(most));
            let reserved = budget.map(|budget| budget.take(bytes));
            let claimed = self.claim(ask, bytes).await;
            drop(turn);
            self.turns
                .note(claimed.as_ref().ok().map(ClaimAnswer::messages));
            let soonest = match claimed? {
                ClaimAnswer::Messages {
                    messages,
                    more,
                    overdue,
                } => {
                    let drained = !more && messages.len() < ask.max;
                    return Ok(self.received(messages, (drained, overdue), taken));
                }
                // Without a wait, the answer says whether the queue has a message.
                ClaimAnswer::Again
                    if hurry.is_cancelled() || (!ask.wait.is_zero() && clock::now() >= until) =>
                {
                    return Ok(ReceivedMessages::default());
                }
                ClaimAnswer::Again | ClaimAnswer::RulesGone | ClaimAnswer::Stranger => continue,
                ClaimAnswer::Nothing(soonest) => soonest,
            };
            drop(reserved);
            let now = clock::now();
            let over = now >= until || hurry.is_cancelled();
            if !over {
                let soonest = soonest.unwrap_or(LOOK);
                let look = soonest.clamp(Duration::from_millis(1), LOOK);
                let at: BootInstant = until.min(now + look);
                tokio::select! {
                    _ = notifications.changed() => continue,
                    () = clock::sleep_until(Some(at)) => continue,
                    () = hurry.cancelled() => {}
                }
            }
            return Ok(ReceivedMessages {
                drained: true,
                ..ReceivedMessages::default()
            });
        }
    }

    async fn extend(&self, items: &[(Receipt, Duration)]) -> Vec<Result<(), ItemError>> {
        let mut call = script::EXTEND.key(&self.base);
        call.arg(wire::ms(VISIBILITY_CEILING));
        let mut answers = Vec::with_capacity(items.len());
        for (receipt, more) in items {
            answers.push(wire::delivery(receipt).map(|(id, count)| {
                call.arg(id).arg(count).arg(wire::ms(*more));
            }));
        }
        let answers = self.each(&self.lines.urgent, &call, answers).await;
        let over = items
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| matches!(answer, Err(ItemError::Gone(_) | ItemError::Cancelled)));
        self.worker
            .ended(&self.base, over.map(|((receipt, _), _)| receipt));
        answers
    }

    async fn settle(&self, items: &[(Message, Outcome)]) -> Vec<Result<(), ItemError>> {
        let mut ends = Vec::with_capacity(items.len());
        let mut dead_letters = false;
        let mut answers = Vec::with_capacity(items.len());
        for (message, outcome) in items {
            let dead_lettering = matches!(outcome, Outcome::DeadLetter(_));
            if dead_lettering && self.dead_letter_queue.is_none() {
                let why = format!("`{}` has no dead-letter queue", self.identity.name);
                answers.push(Err(ItemError::Refused(why)));
                continue;
            }
            let end = RedisEnd::of(message, outcome, &self.identity.name);
            answers.push(end.map(|end| {
                dead_letters |= dead_lettering;
                ends.push((answers.len(), end));
            }));
        }
        if let (true, Some(dead_letter_queue)) = (dead_letters, &self.dead_letter_queue)
            && let Err(error) = self
                .enter(&dead_letter_queue.name, &self.dead_lettered)
                .await
        {
            return item_errors::all(&error, items.len());
        }
        for part in endings::parts(ends) {
            let told = self.end(&part).await;
            let places = part.ends.iter().map(|(place, _)| *place);
            places.zip(told).for_each(|(at, told)| answers[at] = told);
        }
        let over = items.iter().zip(&answers).filter(|(_, answer)| {
            !matches!(answer, Err(ItemError::Transient(_) | ItemError::Refused(_)))
        });
        let receipts = over.map(|((message, _), _)| &message.receipt);
        self.worker.ended(&self.base, receipts);
        answers
    }

    async fn send(&self, items: &[OutgoingMessage]) -> Vec<Result<String, ItemError>> {
        if let Err(error) = self.enter(&self.name, &self.sent).await {
            return item_errors::all(&error, items.len());
        }
        let mut answers = Vec::with_capacity(items.len());
        for batch in wire::batches(items) {
            match self.send_batch(batch).await {
                Ok(sent) => answers.extend(sent),
                Err(error) => {
                    // Later messages must not overtake it.
                    let left = items.len() - answers.len();
                    answers.extend(item_errors::all(&error, left));
                    break;
                }
            }
        }
        answers
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        let call = script::DEPTH.key(&self.base);
        let numbers: Vec<i64> = self.lines.link.run(&call).await?;
        let [waiting, in_flight, delayed, oldest] = numbers[..] else {
            return Err(item_errors::unexpected_answer(
                self.lines.link.place(),
                "the depth",
            ));
        };
        let count = |number: i64| u64::try_from(number).unwrap_or_default();
        Ok(Depth {
            waiting: count(waiting),
            in_flight: count(in_flight),
            delayed: count(delayed),
            oldest: u64::try_from(oldest).ok().map(Duration::from_millis),
        })
    }

    async fn peek(&self, max: usize) -> Result<Vec<Message>, QueueError> {
        let mut call = script::PEEK.key(&self.base);
        let largest = super::largest(self.budget.as_ref());
        call.arg(max).arg(wire::CALL).arg(largest);
        let _turn = self.lines.turn().await;
        let answer: Vec<redis::Value> = self.lines.link.run(&call).await?;
        match wire::claimed(&answer, &self.identity.name, largest) {
            Some(ClaimAnswer::Messages { mut messages, .. }) => {
                for message in &mut messages {
                    message.receipt = Receipt(String::new());
                }
                Ok(messages)
            }
            Some(ClaimAnswer::Nothing(_)) => Ok(Vec::new()),
            _ => Err(item_errors::unexpected_answer(
                self.lines.link.place(),
                "a peek",
            )),
        }
    }

    async fn browse(
        &self,
        after: Option<&BrowseCursor>,
        max: usize,
    ) -> Result<BrowsePage, QueueError> {
        self.list(after, max).await
    }

    async fn browse_end(&self) -> Result<BrowseCursor, QueueError> {
        self.end_of_list().await
    }

    /// Receives chosen messages. Only the first waiting message of a group can be received.
    async fn receive_these(
        &self,
        listed: &[Receipt],
        visibility: Duration,
    ) -> Result<Vec<Message>, QueueError> {
        self.take_listed(listed, visibility.min(VISIBILITY_CEILING))
            .await
    }

    async fn find_waiting(&self, id: &str) -> Result<Option<Message>, QueueError> {
        self.find(id).await
    }

    async fn purge(&self) -> Result<PurgeStep, QueueError> {
        self.remove_some().await
    }

    async fn lost(&self) -> Vec<Loss> {
        match self.losses.lock().await.recv().await {
            Some(losses) => {
                let receipts = losses.iter().map(|loss| &loss.receipt);
                self.worker.ended(&self.base, receipts);
                losses
            }
            None => std::future::pending().await,
        }
    }
}
