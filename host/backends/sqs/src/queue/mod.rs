//! Amazon SQS. The only place that names its SDK; knows no other backend.

mod address;
pub mod attempts;
mod batch;
mod calls;
mod convert;
mod dead;
mod entry_errors;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod open;
mod send;
mod settle;

pub use open::{Encryption, Sqs};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use calls::ReceiveCall;
use dispatcher_aws as aws;
use dispatcher_aws::SdkConfig;
use dispatcher_aws::direct::DirectClient;
use dispatcher_aws::failure::{About, CallName};
use dispatcher_core::clock;
use dispatcher_core::memory::Budget;
use dispatcher_core::message::{Message, Outcome, Outgoing, Receipt};
use dispatcher_core::queue::{
    Ask, Delays, Depth, Identity, ItemError, MessageLimits, PurgeStep, Queue, QueueError, Received,
};
use send::SendEntry;
use settle::SAFE_CEILING_S;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Maximum entries of one call (SQS quotas).
const BATCH: usize = 10;
/// Maximum bytes of one message (SQS developer guide, message quotas).
const LONGEST_MESSAGE: u64 = 1_048_576;

/// The longest delay of a message (SendMessage in the SQS API reference).
const LONGEST_DELAY: Duration = Duration::from_secs(900);

/// The longest long poll (SQS quotas), in seconds.
const LONGEST_WAIT_S: u16 = 20;

/// The longest visibility timeout, in seconds.
const LONGEST_VISIBILITY_S: u16 = 43_200;

/// How messages are received, deleted and extended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientKind {
    /// Without the SDK's orchestration; see `dispatcher_aws::direct`.
    #[default]
    Direct,
    /// Each call through the SDK.
    Sdk,
}

/// The clients for one region and endpoint. Two of the SDK, since they differ in patience: an
/// extension that hangs as long as a long poll may would lose the lease.
#[derive(Debug)]
struct Clients {
    control: Client,
    polls: Client,
    kind: ClientKind,
    /// Known once the SDK has made a call.
    direct: OnceLock<DirectClient>,
    /// The endpoint, or the region where the SDK finds it; for messages.
    place: String,
    has_region: bool,
}

impl Clients {
    fn of(config: &SdkConfig, kind: ClientKind) -> Self {
        Self {
            control: Client::new(config),
            polls: Client::new(&aws::for_long_polls(config)),
            kind,
            direct: OnceLock::new(),
            place: aws::place(config, "SQS"),
            has_region: config.region().is_some(),
        }
    }

    /// The client that makes calls directly, if they are to be made so.
    fn direct(&self) -> Option<&DirectClient> {
        match self.kind {
            ClientKind::Sdk => None,
            ClientKind::Direct => self.direct.get(),
        }
    }
}

/// One queue as a place to call.
#[derive(Debug)]
struct QueueTarget {
    /// As the configuration writes it.
    name: String,
    url: String,
    fifo: bool,
    content_deduplication: bool,
    clients: Arc<Clients>,
}

impl QueueTarget {
    fn call(&self, step: &'static str) -> CallName<'_> {
        CallName {
            step,
            about: About::Queue(&self.name),
            place: &self.clients.place,
        }
    }
}

/// An open queue of SQS.
#[derive(Debug)]
pub struct SqsQueue {
    identity: Identity,
    target: QueueTarget,
    /// The route's dead-letter queue or, on a FIFO queue, the target of its redrive policy.
    dead_letter: Option<QueueTarget>,
    /// The ARN of the target of its redrive policy.
    redrive_target: Option<String>,
    dead_lettered: dead::DeadLetteredIds,
    lost: attempts::LostReceives,
    own_delay: Duration,
    /// The bytes that the process may hold.
    budget: Option<Arc<Budget>>,
}

impl SqsQueue {
    /// The same for a process that may hold so many bytes.
    #[must_use]
    pub fn within(self, budget: Option<Arc<Budget>>) -> Self {
        Self { budget, ..self }
    }
}

impl Sqs {
    /// Opens a queue by name, URL or ARN, and the queue that its dead letters go to: for a FIFO queue
    /// where none is named, the target of its redrive policy, if that can be opened. Errors name
    /// the step: `Missing` (and then `names` tells which queues there are), `Denied`,
    /// `Unreachable`, `Transient`, `Refused` (no region; or its own dead-letter queue).
    pub async fn open(
        &self,
        name: &str,
        dead_letter: Option<&str>,
    ) -> Result<SqsQueue, QueueError> {
        let found = self.find(name).await?;
        let dead_letter_queue = match dead_letter {
            Some(name) => Some(self.find(name).await?),
            None => None,
        };
        if let Some(dead_letter_queue) = &dead_letter_queue
            && dead_letter_queue.source == found.source
        {
            return Err(dead_letter_queue
                .target
                .call("opening the dead-letter queue")
                .refused("a queue cannot be its own dead-letter queue; wanted another one"));
        }
        let own = match (&dead_letter_queue, &found.redrive.target) {
            (None, Some(target)) if found.target.fifo => self.redrive_target(name, target).await,
            _ => None,
        };
        Ok(SqsQueue {
            identity: Identity {
                name: name.to_owned(),
                source: found.source,
                visibility: found.visibility,
                batch: BATCH,
                longest_wait: Duration::from_secs(LONGEST_WAIT_S.into()),
                proof_wait: Duration::from_secs(1),
                ordered_groups: found.target.fifo,
                dead_letters: dead_letter_queue.is_some(),
                most_receives: found.redrive.most_receives,
                redrive_target: own.is_some(),
            },
            target: found.target,
            dead_letter: dead_letter_queue
                .map(|dead_letter_queue| dead_letter_queue.target)
                .or(own),
            redrive_target: found.redrive.target,
            dead_lettered: dead::DeadLetteredIds::default(),
            lost: attempts::LostReceives::default(),
            own_delay: found.own_delay,
            budget: None,
        })
    }
}

/// For how many messages of the largest size there is room; for one in any case, else a queue that is
/// polled for long would keep others from being polled at all.
fn affordable(free: u64, max: usize) -> usize {
    let fit = usize::try_from(free / LONGEST_MESSAGE).unwrap_or(usize::MAX);
    fit.clamp(1, max)
}

impl Sqs {
    /// The target of a FIFO queue's redrive policy, if it can be opened. Without it SQS dead-letters
    /// by its policy alone, and with a message that fails what waits behind it in its group.
    async fn redrive_target(&self, queue: &str, target: &str) -> Option<QueueTarget> {
        match self.find(target).await {
            Ok(found) => Some(found.target),
            Err(error) => {
                tracing::warn!(
                    queue,
                    target_arn = target,
                    %error,
                    "cannot open the target of the queue's redrive policy; messages behind a failing one of their group may be dead-lettered without an attempt"
                );
                None
            }
        }
    }
}

#[async_trait::async_trait]
impl Queue for SqsQueue {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn url(&self) -> Option<&str> {
        Some(&self.target.url)
    }

    /// 15 minutes, and nothing on FIFO queues (SendMessage in the SQS API reference).
    fn delays(&self) -> Delays {
        if self.target.fifo {
            return Delays::NONE;
        }
        Delays {
            longest: LONGEST_DELAY,
            longest_in_group: LONGEST_DELAY,
            longest_scheduled: LONGEST_DELAY,
            ..Delays::ANY
        }
    }

    async fn would_take(&self, item: &Outgoing) -> Result<(), ItemError> {
        if self.target.fifo && item.group.is_none() {
            return Err(ItemError::Refused(format!(
                "`{}` is a FIFO queue; wanted a message group",
                self.identity.name
            )));
        }
        if item.body.is_empty() {
            let why = "SQS accepts no empty message; wanted a body";
            return Err(ItemError::Refused(why.to_owned()));
        }
        Ok(())
    }

    fn dead_letter_queue(&self) -> Option<String> {
        let target = self.dead_letter.as_ref()?;
        Some(target.name.clone())
    }

    fn redrive_policy_target(&self) -> Option<String> {
        self.redrive_target.clone()
    }

    /// On a FIFO queue no message has its own delay (SendMessage in the SQS API reference).
    fn own_delay(&self) -> Duration {
        match self.target.fifo {
            true => self.own_delay,
            false => Duration::ZERO,
        }
    }

    /// SQS does not hear of a poll that was cut.
    fn ends_waits(&self) -> bool {
        false
    }

    /// A long poll asks every server of SQS and a short one only some, so only a long poll that
    /// brought fewer than asked is taken as proof that there was no more. There is no hurry here:
    /// SQS does not hear of a poll that was cut, and would hand its messages to nobody.
    async fn receive(&self, ask: Ask, _: &CancellationToken) -> Result<Received, QueueError> {
        let budget = self.budget.as_ref();
        let max = ask.max.clamp(1, BATCH);
        let max = budget.map_or(max, |budget| affordable(budget.free(), max));
        // SQS cannot be asked by bytes: until it answers, the call counts with the most it may bring.
        let reserving = budget.filter(|_| !ask.idle);
        let reserved = reserving.map(|budget| budget.take(max as u64 * LONGEST_MESSAGE));
        let wait = convert::seconds(ask.wait, LONGEST_WAIT_S);
        let fresh = || uuid::Uuid::new_v4().to_string();
        let attempt = self
            .target
            .fifo
            .then(|| self.lost.next(max, fresh, clock::now()));
        let max = attempt.as_ref().map_or(max, |attempt| attempt.max);
        let call = ReceiveCall {
            max: i32::try_from(max).expect("at most ten"),
            visibility_s: convert::seconds(ask.visibility, LONGEST_VISIBILITY_S),
            wait_s: wait,
            attempt: attempt.as_ref().map(|attempt| attempt.id.clone()),
        };
        let deliveries = match self.target.receive(call).await {
            Ok(deliveries) => deliveries,
            Err(error) => {
                if let Some(attempt) = attempt {
                    self.lost.failed(attempt, error.kind);
                }
                return Err(error);
            }
        };
        let news = attempt.is_none_or(|attempt| attempt.is_first_try());
        let drained = news && wait > 0 && deliveries.len() < max;
        let Identity { name, source, .. } = &self.identity;
        let count = deliveries.len();
        let messages: Vec<Message> = deliveries
            .into_iter()
            .filter_map(|delivery| convert::message(delivery, name, source))
            .collect();
        if messages.len() < count {
            let messages = count - messages.len();
            tracing::error!(
                queue = name,
                messages,
                "messages without id or receipt handle ignored; SQS redelivers them"
            );
        }
        let held = budget.map(|budget| {
            let bytes = messages.iter().map(Message::held_bytes);
            bytes.map(|bytes| budget.take(bytes)).collect()
        });
        drop(reserved);
        Ok(Received {
            messages,
            drained,
            held: held.unwrap_or_default(),
            ..Received::default()
        })
    }

    async fn extend(&self, items: &[(Receipt, Duration)]) -> Vec<Result<(), ItemError>> {
        let changes: Vec<(&Receipt, i32)> = items
            .iter()
            .map(|(receipt, time)| (receipt, convert::seconds(*time, SAFE_CEILING_S)))
            .collect();
        self.change_visibility(&changes).await
    }

    async fn settle(&self, items: &[(Message, Outcome)]) -> Vec<Result<(), ItemError>> {
        self.settle_all(items).await.0
    }

    async fn settle_with_calls(
        &self,
        items: &[(Message, Outcome)],
    ) -> (Vec<Result<(), ItemError>>, usize) {
        self.settle_all(items).await
    }

    async fn send(&self, items: &[Outgoing]) -> Vec<Result<String, ItemError>> {
        self.send_with_calls(items).await.0
    }

    async fn send_with_calls(&self, items: &[Outgoing]) -> (Vec<Result<String, ItemError>>, usize) {
        let parcels: Vec<SendEntry> = items
            .iter()
            .map(|item| SendEntry::of(item, &self.target))
            .collect();
        send::send(&self.target, &parcels).await
    }

    /// As SQS counts: approximately, about a minute late. It does not tell the oldest message.
    async fn depth(&self) -> Result<Depth, QueueError> {
        use QueueAttributeName as Name;
        let answer = self
            .target
            .clients
            .control
            .get_queue_attributes()
            .queue_url(&self.target.url)
            .attribute_names(Name::ApproximateNumberOfMessages)
            .attribute_names(Name::ApproximateNumberOfMessagesNotVisible)
            .attribute_names(Name::ApproximateNumberOfMessagesDelayed)
            .send()
            .await
            .map_err(|error| self.target.call("GetQueueAttributes").failed(&error))?;
        let attributes = answer.attributes.unwrap_or_default();
        let count = |name| attributes.get(&name).and_then(|n| n.parse().ok());
        Ok(Depth {
            waiting: count(Name::ApproximateNumberOfMessages).unwrap_or_default(),
            in_flight: count(Name::ApproximateNumberOfMessagesNotVisible).unwrap_or_default(),
            delayed: count(Name::ApproximateNumberOfMessagesDelayed).unwrap_or_default(),
            oldest: None,
        })
    }

    /// Ten attributes and 1 MiB (SQS quotas).
    fn limits(&self) -> MessageLimits {
        MessageLimits {
            attributes: Some(dead::MOST_ATTRIBUTES),
            bytes: Some(batch::MOST_BYTES),
        }
    }

    /// SQS answers for each entry of a batch by itself.
    fn sends_groups_in_order(&self) -> bool {
        false
    }

    async fn redrive_sources(&self) -> Result<Vec<String>, QueueError> {
        let answer = self
            .target
            .clients
            .control
            .list_dead_letter_source_queues()
            .queue_url(&self.target.url)
            .send()
            .await
            .map_err(|error| {
                self.target
                    .call("ListDeadLetterSourceQueues")
                    .failed(&error)
            })?;
        Ok(answer.queue_urls)
    }

    /// One call empties the whole queue, what is in flight included, within a minute; SQS takes one a
    /// minute and does not tell how many messages it was.
    async fn purge(&self) -> Result<PurgeStep, QueueError> {
        let call = self.target.clients.control.purge_queue();
        let purged = call.queue_url(&self.target.url).send().await;
        purged.map_err(|error| self.target.call("PurgeQueue").failed(&error))?;
        Ok(PurgeStep {
            removed: None,
            has_more: false,
        })
    }

    async fn peek(&self, _max: usize) -> Result<Vec<Message>, QueueError> {
        Err(self.target.call("peek").refused(
            "SQS cannot show messages without receiving them, which would hide them from their handlers and count as a delivery",
        ))
    }
}

#[cfg(test)]
mod tests;
