//! Amazon SQS. The only place that names its SDK; knows no other backend.

mod address;
pub mod attempts;
mod batch;
mod calls;
mod convert;
mod counts;
mod dead;
mod entry_errors;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod open;
mod send;
mod settle;

pub use open::{Encryption, Sqs};

use address::Address;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use calls::ReceiveCall;
use dispatcher_aws as aws;
use dispatcher_aws::SdkConfig;
use dispatcher_aws::failure::{About, CallName};
use dispatcher_core::clock;
use dispatcher_core::memory::Budget;
use dispatcher_core::message::{Message, Outcome, OutgoingMessage, Receipt};
use dispatcher_core::queue::{
    Ask, Delays, Depth, Identity, ItemError, MessageLimits, PurgeStep, Queue, QueueError,
    QueueFacts, ReceivedMessages,
};
use send::SendEntry;
use settle::SAFE_CEILING_S;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The maximum number of entries in one call (SQS quotas).
const BATCH: usize = 10;
/// The maximum size of one message in bytes (SQS developer guide, message quotas).
const LONGEST_MESSAGE: u64 = 1_048_576;

/// The longest delay of a message (SendMessage in the SQS API reference).
const LONGEST_DELAY: Duration = Duration::from_secs(900);

/// The longest long poll (SQS quotas), in seconds.
const LONGEST_WAIT_S: u16 = 20;

/// The longest visibility timeout, in seconds.
const LONGEST_VISIBILITY_S: u16 = 43_200;

/// The clients for one region and endpoint. The two SDK clients have different timeouts: an
/// extension that may take as long as a long poll would lose the lease.
#[derive(Debug)]
struct Clients {
    control: Client,
    polls: Client,
    /// The endpoint, or the region if the SDK derives the endpoint; for error messages.
    place: String,
    has_region: bool,
}

impl Clients {
    fn of(config: &SdkConfig) -> Self {
        Self {
            control: Client::new(config),
            polls: Client::new(&aws::for_long_polls(config)),
            place: aws::place(config, "SQS"),
            has_region: config.region().is_some(),
        }
    }
}

/// The target of calls to one queue.
#[derive(Debug)]
struct QueueTarget {
    /// The queue's name in the configuration.
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

/// An open SQS queue.
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
    missing_counts: counts::MissingCounts,
    own_delay: Duration,
    /// The memory budget of the process.
    budget: Option<Arc<Budget>>,
}

impl SqsQueue {
    async fn attributes(
        &self,
        names: &[QueueAttributeName],
    ) -> Result<HashMap<QueueAttributeName, String>, QueueError> {
        let answer = self
            .target
            .clients
            .control
            .get_queue_attributes()
            .queue_url(&self.target.url)
            .set_attribute_names(Some(names.to_vec()))
            .send()
            .await
            .map_err(|error| self.target.call("GetQueueAttributes").failed(&error))?;
        Ok(answer.attributes.unwrap_or_default())
    }

    /// Sets the memory budget of the process.
    #[must_use]
    pub fn within(self, budget: Option<Arc<Budget>>) -> Self {
        Self { budget, ..self }
    }
}

impl Sqs {
    /// Opens a queue by name, URL or ARN, and its dead-letter queue. For a FIFO queue without a
    /// configured dead-letter queue, that is the target of its redrive policy, if it can be opened.
    /// An error is `Invalid` if there is no region or the queue is its own dead-letter queue, and
    /// `NotFound` names the existing queues; else it has the kind of the failed call.
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
            (None, Some(target)) if found.target.fifo => {
                // It is in the same region.
                let target = match Address::of(name).own_endpoint() {
                    Some(endpoint) => address::at_endpoint(endpoint.origin, target),
                    None => target.clone(),
                };
                self.redrive_target(name, &target).await
            }
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
                deduplicates: found.target.fifo,
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
            missing_counts: counts::MissingCounts::default(),
            own_delay: found.own_delay,
            budget: None,
        })
    }
}

/// Returns for how many messages of the largest size there is room, but at least one: otherwise, a
/// queue with a long poll would keep all other queues from being polled.
fn affordable(free: u64, max: usize) -> usize {
    let fit = usize::try_from(free / LONGEST_MESSAGE).unwrap_or(usize::MAX);
    fit.clamp(1, max)
}

impl Sqs {
    /// Opens the target of a FIFO queue's redrive policy, if possible. Without it, only SQS's own
    /// policy dead-letters messages, and messages behind a failing one in its group may be
    /// dead-lettered without an attempt.
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

    fn facts(&self) -> QueueFacts {
        // Messages of FIFO queues have no delay of their own (SendMessage in the SQS API reference).
        let (delays, own_delay) = if self.target.fifo {
            (Delays::NONE, self.own_delay)
        } else {
            let delays = Delays {
                longest: LONGEST_DELAY,
                longest_in_group: LONGEST_DELAY,
                longest_scheduled: LONGEST_DELAY,
                ..Delays::ANY
            };
            (delays, Duration::ZERO)
        };
        QueueFacts {
            delays,
            own_delay,
            // SQS does not notice that the client closed a poll.
            ends_waits: false,
            // SQS quotas.
            limits: MessageLimits {
                attributes: Some(dead::MOST_ATTRIBUTES),
                bytes: Some(batch::MOST_BYTES),
            },
            // SQS accepts or refuses each entry of a batch separately.
            sends_groups_in_order: false,
            ..QueueFacts::default()
        }
    }

    fn url(&self) -> Option<&str> {
        Some(&self.target.url)
    }

    async fn would_take(&self, item: &OutgoingMessage) -> Result<(), ItemError> {
        if self.target.fifo && item.group.is_none() {
            return Err(ItemError::Refused(format!(
                "`{}` is a FIFO queue; wanted a message group",
                self.identity.name
            )));
        }
        if item.body.is_empty() {
            let why = "SQS does not accept an empty message; wanted a body";
            return Err(ItemError::Refused(why.to_owned()));
        }
        Ok(())
    }

    fn dead_letter_queue(&self) -> Option<String> {
        let target = self.dead_letter.as_ref()?;
        Some(target.name.clone())
    }

    fn dead_letter_id(&self, id: &str) -> Option<String> {
        self.dead_lettered.copy_of(id)
    }

    fn redrive_policy_target(&self) -> Option<String> {
        self.redrive_target.clone()
    }

    /// A long poll queries all servers of SQS, a short poll only some. So only a long poll that
    /// returned fewer messages than requested proves that the queue has no more. `_hurry` is
    /// ignored: SQS does not notice that the client closed a poll, and would deliver messages to the
    /// closed connection, where they would stay invisible.
    async fn receive(
        &self,
        ask: Ask,
        _hurry: &CancellationToken,
    ) -> Result<ReceivedMessages, QueueError> {
        let budget = self.budget.as_ref();
        let max = ask.max.clamp(1, BATCH);
        let max = budget.map_or(max, |budget| affordable(budget.free(), max));
        // A receive cannot be limited by bytes. Until SQS answers, the call reserves the largest
        // size that the response may have. Idle polls reserve nothing, since thousands may wait.
        let reserving = if !ask.idle { budget } else { None };
        let reserved = reserving.map(|budget| budget.take(max as u64 * LONGEST_MESSAGE));
        let wait = convert::seconds(ask.wait, LONGEST_WAIT_S);
        let attempt = self.target.fifo.then(|| {
            self.lost
                .next(max, || uuid::Uuid::new_v4().to_string(), clock::now())
        });
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
        if self.missing_counts.is_first(&deliveries) {
            tracing::warn!(
                queue = name,
                "the queue's server reports no receive counts: max-attempts is never reached"
            );
        }
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
        Ok(ReceivedMessages {
            messages,
            drained,
            held: held.unwrap_or_default(),
            ..ReceivedMessages::default()
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

    async fn send(&self, items: &[OutgoingMessage]) -> Vec<Result<String, ItemError>> {
        self.send_with_calls(items).await.0
    }

    async fn send_with_calls(
        &self,
        items: &[OutgoingMessage],
    ) -> (Vec<Result<String, ItemError>>, usize) {
        let parcels: Vec<SendEntry> = items
            .iter()
            .map(|item| SendEntry::of(item, &self.target))
            .collect();
        send::send(&self.target, &parcels).await
    }

    /// Returns the counts of SQS, which are approximate and about a minute late. SQS does not
    /// report the oldest message.
    async fn depth(&self) -> Result<Depth, QueueError> {
        use QueueAttributeName as Name;
        let names = [
            Name::ApproximateNumberOfMessages,
            Name::ApproximateNumberOfMessagesNotVisible,
            Name::ApproximateNumberOfMessagesDelayed,
        ];
        let attributes = self.attributes(&names).await?;
        let count = |name| attributes.get(&name).and_then(|n| n.parse().ok());
        let Some(waiting) = count(Name::ApproximateNumberOfMessages) else {
            let words = "its answer does not contain ApproximateNumberOfMessages";
            return Err(self.target.call("GetQueueAttributes").unclear(words));
        };
        Ok(Depth {
            waiting,
            in_flight: count(Name::ApproximateNumberOfMessagesNotVisible).unwrap_or_default(),
            delayed: count(Name::ApproximateNumberOfMessagesDelayed).unwrap_or_default(),
            oldest: None,
        })
    }

    async fn retention(&self) -> Result<Option<Duration>, QueueError> {
        let names = [QueueAttributeName::MessageRetentionPeriod];
        let attributes = self.attributes(&names).await?;
        let seconds = attributes
            .get(&QueueAttributeName::MessageRetentionPeriod)
            .and_then(|seconds| seconds.parse().ok());
        Ok(seconds.map(Duration::from_secs))
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
        let Some(own) = Address::of(&self.target.name).own_endpoint() else {
            return Ok(answer.queue_urls);
        };
        let urls = answer.queue_urls.iter();
        Ok(urls
            .map(|url| address::at_endpoint(own.origin, url))
            .collect())
    }

    /// Empties the whole queue with one call, including messages in flight, within a minute. SQS
    /// allows one such call per minute and does not report the number of messages.
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
