//! The port to queues: few methods, batch first, a result for every item. Knows no backend; each is
//! a crate in `host/backends` and the only place that names its library.

use crate::clock;
use crate::clock::BootInstant;
pub use crate::error_kind::{CallError as QueueError, ErrorKind};
use crate::memory::HeldBytes;
use crate::message::{Loss, Message, Outcome, Outgoing, Receipt, SendSpan};
use crate::telemetry::events::Reason;
use crate::telemetry::metrics::durations::SentMessages;
use crate::telemetry::trace::Tracer;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The longest that a message may stay invisible after a receive, extensions included: SQS's
/// 12 hours (SQS developer guide, "visibility timeout"). Every backend keeps to it.
pub const VISIBILITY_CEILING: Duration = Duration::from_secs(43_200);

/// The attribute of a dead letter that says why it is one.
pub const DEAD_LETTER_REASON: &str = "dispatcher-dead-letter-reason";
/// The attribute of a dead letter that names where it came from, as `Message::source` does.
pub const DEAD_LETTER_SOURCE: &str = "dispatcher-dead-letter-source";
/// The attribute of a message that counts how often it was moved back from a dead-letter queue.
pub const REDRIVEN: &str = "dispatcher-redriven";
/// The system attribute in which SQS names the queue that its redrive policy took a message from.
pub const POLICY_SOURCE: &str = "DeadLetterQueueSourceArn";

/// What is known about a queue once it is open.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its name in the configuration, without its weight.
    pub name: String,
    /// The ARN, or the backend's own name.
    pub source: String,
    /// How long a received message stays invisible unless extended, when the route does not say.
    pub visibility: Duration,
    /// Maximum messages of one `receive`, and items of one `extend`, `settle` or `send`.
    pub batch: usize,
    /// The longest `wait` of one `receive`.
    pub longest_wait: Duration,
    /// The shortest `wait` after which an answer can be `drained`: a short poll of SQS proves
    /// nothing, one of the local queue proves all.
    pub proof_wait: Duration,
    /// Whether messages of one group must be handled one at a time and in order.
    pub ordered_groups: bool,
    /// Whether `Outcome::DeadLetter` has somewhere to go.
    pub dead_letters: bool,
    /// The backend's own redrive policy dead-letters a message after this many receives.
    pub most_receives: Option<u32>,
    /// Whether `Outcome::DeadLetter` goes to the target of that policy where the route names no
    /// dead-letter queue.
    pub redrive_target: bool,
}

/// A request for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Maximum number of messages, except for `GroupShare::Spread`; 1 to `Identity::batch`.
    pub max: usize,
    /// How long what is received stays invisible, from the moment it is delivered; 0 s to 12 h.
    pub visibility: Duration,
    /// How long to wait for the first message; at most `Identity::longest_wait`.
    pub wait: Duration,
    /// Whether to deliver first what was sent last, of all that can be received, and not what
    /// the queue would give by itself. What must be in order within its group stays so. A backend
    /// that cannot choose does as it always does: SQS.
    pub newest_first: bool,
    /// How many messages of one group. A backend that cannot choose does as it always does: SQS
    /// tries to return as many as possible, Redis one.
    pub groups: GroupShare,
    /// Whether to deliver one message even if the process holds as many bytes as it may.
    pub overdraw: bool,
    /// Whether the queue is believed to hold nothing. Thousands of such calls wait at once: none of
    /// them keeps bytes free for what it might bring.
    pub idle: bool,
}

/// How many messages of one group a receive brings where groups are kept in order. Those that it
/// brings are in order, and nothing more of the group is delivered until all of them are deleted
/// or visible again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupShare {
    /// One.
    #[default]
    One,
    /// One of each group that has any. If these are fewer than asked for, there is nothing else to
    /// deliver: then later messages of the same groups, too, at most this many beyond `Ask::max`.
    Spread(usize),
    /// As many as possible of one group before those of the next, as SQS does.
    Fill,
}

impl Ask {
    /// One message, for half a minute, without waiting.
    pub const PLAIN: Self = Self {
        max: 1,
        visibility: Duration::from_secs(30),
        wait: Duration::ZERO,
        newest_first: false,
        groups: GroupShare::One,
        overdraw: false,
        idle: false,
    };
}

/// The answer to an `Ask`.
#[derive(Debug, Clone, Default)]
pub struct Received {
    /// In the queue's order, or the newest first where that was asked for and can be done.
    pub messages: Vec<Message>,
    /// The backend has looked everywhere and held nothing more that could be received.
    pub drained: bool,
    /// When the messages were delivered, where the backend knows.
    pub taken: Option<BootInstant>,
    /// The bytes that the messages take of the process's budget, if it has one; in their order.
    pub held: Vec<HeldBytes>,
    /// The next message has this many bytes, which are not free: others must be settled first.
    pub short_of: Option<u64>,
    /// What the backend dead-lettered instead of handing it out, as far as it was not reported before.
    pub dead_lettered: Vec<DeadLettered>,
}

/// A message that a receive moved to a dead-letter queue instead of handing it out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLettered {
    /// The message's id.
    pub id: String,
    /// How often it had been received.
    pub receive_count: u32,
    /// The queue that it was moved to, by its name.
    pub to: String,
    /// Why.
    pub reason: Reason,
    /// The receives that the backend's redrive policy permits, where that policy moved it.
    pub max_receive_count: Option<u32>,
}

/// How many messages a queue holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Depth {
    /// Could be received now.
    pub waiting: u64,
    /// Received and invisible.
    pub in_flight: u64,
    /// Sent with a delay, or released to come back later.
    pub delayed: u64,
    /// Age of the oldest message that is not in flight, if the backend reports it.
    pub oldest: Option<Duration>,
}

/// One item of a call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    /// The receipt is no longer valid: it expired, or the message is gone.
    #[error("the receipt is no longer valid: {0}")]
    Gone(String),
    /// The message was cancelled: it is not delivered again.
    #[error("the message was cancelled")]
    Cancelled,
    /// May pass; the same item may be retried.
    #[error("{0}")]
    Transient(String),
    /// Will never succeed as it is.
    #[error("{0}")]
    Refused(String),
}

impl ItemError {
    /// The value of `error.type`, in spans and metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Gone(_) => "gone",
            Self::Cancelled => "cancelled",
            Self::Transient(_) => "transient",
            Self::Refused(_) => "refused",
        }
    }
}

/// Why the first of these items failed that did, as `error.type` of the whole call.
pub fn first_failure<T>(results: &[Result<T, ItemError>]) -> Option<&'static str> {
    let mut failures = results.iter().filter_map(|result| result.as_ref().err());
    failures.next().map(ItemError::label)
}

/// Whether a call failed as a whole: all of its items did. That a message was cancelled is an answer.
pub fn all_failed<T>(results: &[Result<T, ItemError>]) -> bool {
    let is_failed = |result: &Result<T, ItemError>| {
        let error = result.as_ref().err();
        error.is_some_and(|error| !matches!(error, ItemError::Cancelled))
    };
    !results.is_empty() && results.iter().all(is_failed)
}

/// Sends to a queue as `Queue::send` does, and counts what was sent.
pub async fn send_counted(
    queue: &dyn Queue,
    items: &[Outgoing],
    sent: &SentMessages,
) -> Vec<Result<String, ItemError>> {
    let called = clock::now();
    let (answers, calls) = queue.send_with_calls(items).await;
    let errors: Vec<_> = answers
        .iter()
        .map(|answer| answer.as_ref().err().map(ItemError::label))
        .collect();
    let name = &queue.identity().name;
    sent.record(name, calls, clock::now().since(called), &errors);
    answers
}

/// Sends as `send_counted` does, as a span: for nobody's attempt. `reason` is what is sent for.
pub async fn send_traced(
    queue: &dyn Queue,
    items: &mut [Outgoing],
    reason: &'static str,
    sent: &SentMessages,
    tracer: &Tracer,
) -> Vec<Result<String, ItemError>> {
    let span = SendSpan::begin(tracer, items);
    let answers = send_counted(queue, items, sent).await;
    if let Some(span) = span {
        let failures = answers.iter().filter_map(|answer| answer.as_ref().err());
        let failures: Vec<_> = failures
            .map(|error| (error.label(), error.to_string()))
            .collect();
        span.end(&queue.identity().name, reason, &failures);
    }
    answers
}

/// How long a queue can delay a message by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delays {
    /// The longest delay of one message; zero where none can be delayed.
    pub longest: Duration,
    /// The longest delay of a message with a group; zero as well where it would delay its group.
    pub longest_in_group: Duration,
    /// The longest delay of a scheduled message: one that people may list and cancel until it is due.
    pub longest_scheduled: Duration,
    /// Whether a plugin's message goes to the queue at once, whatever its delay and group.
    pub takes_any: bool,
    /// Whether a delayed message can be listed and cancelled while it waits in the queue.
    pub listed: bool,
}

impl Delays {
    /// Any delay, of which nobody can list what waits.
    pub const ANY: Self = Self {
        longest: Duration::MAX,
        longest_in_group: Duration::MAX,
        longest_scheduled: Duration::MAX,
        takes_any: false,
        listed: false,
    };

    /// No delay.
    pub const NONE: Self = Self {
        longest: Duration::ZERO,
        longest_in_group: Duration::ZERO,
        longest_scheduled: Duration::ZERO,
        takes_any: false,
        listed: false,
    };
}

/// A place in a queue between two pages of `Queue::browse`. Opaque to all but its own backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowseCursor(pub String);

/// A part of what waits in a queue.
#[derive(Debug, Clone, Default)]
pub struct BrowsePage {
    /// With the receives so far. Their receipts serve `receive_these` and nothing else. May be empty
    /// although there is a next page.
    pub messages: Vec<Message>,
    /// Where the next page begins; `None` at the end of the queue.
    pub next: Option<BrowseCursor>,
}

/// What one step of `Queue::purge` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PurgeStep {
    /// How many messages it removed, where the backend tells.
    pub removed: Option<u64>,
    /// Whether another step may remove more.
    pub has_more: bool,
}

/// The most that one message may have, where the backend has a limit that other backends lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageLimits {
    /// Attributes of the sender's.
    pub attributes: Option<usize>,
    /// Bytes of body and attributes, as `message::bytes` counts them.
    pub bytes: Option<usize>,
}

/// One open queue. All calls may run at once and are safe to drop, save `receive`: a dropped
/// receive may have taken messages that nobody will hear of until they are visible again.
#[async_trait::async_trait]
pub trait Queue: Send + Sync + 'static {
    /// What is known about the queue. Cheap.
    fn identity(&self) -> &Identity;

    /// Its URL, if it is a queue of SQS. Cheap.
    fn url(&self) -> Option<&str> {
        None
    }

    /// How long it can delay a message. Cheap.
    fn delays(&self) -> Delays {
        Delays::ANY
    }

    /// What the queue delays every message by, where a message cannot say otherwise. Cheap.
    fn own_delay(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether a `receive` that waits for messages ends soon once its `hurry` is set. Cheap.
    fn ends_waits(&self) -> bool {
        true
    }

    /// The queue that `Outcome::DeadLetter` moves messages to, by its name, where there is one. Cheap.
    fn dead_letter_queue(&self) -> Option<String> {
        None
    }

    /// The queue that the backend's own redrive policy moves messages to: an ARN, or the backend's name
    /// for it. Cheap.
    fn redrive_policy_target(&self) -> Option<String> {
        None
    }

    /// Whether a `receive` reports what that policy moves because nobody answered for its last
    /// receive. Cheap.
    fn reports_redrives(&self) -> bool {
        false
    }

    /// Takes up to `ask.max` messages and makes them invisible for `ask.visibility`. Waits up to
    /// `ask.wait` for the first; not any longer once `hurry` is set, where the backend can end a
    /// wait without losing what it might bring. No messages is not an error.
    async fn receive(&self, ask: Ask, hurry: &CancellationToken) -> Result<Received, QueueError>;

    /// Keeps deliveries invisible for the given time from now; at most `Identity::batch` items
    /// and at most what the ceiling of 12 hours leaves. One answer per item, in order.
    async fn extend(&self, items: &[(Receipt, Duration)]) -> Vec<Result<(), ItemError>>;

    /// Ends deliveries; at most `Identity::batch` items. One answer per item, in order. Settling
    /// the same delivery with the same outcome again is harmless.
    async fn settle(&self, items: &[(Message, Outcome)]) -> Vec<Result<(), ItemError>>;

    /// As `settle`, with how many calls to the backend it took, where that may be more than one.
    async fn settle_with_calls(
        &self,
        items: &[(Message, Outcome)],
    ) -> (Vec<Result<(), ItemError>>, usize) {
        (self.settle(items).await, 1)
    }

    /// Sends; at most `Identity::batch` items. `Ok` is the new message's id and means that it
    /// survives a crash. One answer per item, in order.
    async fn send(&self, items: &[Outgoing]) -> Vec<Result<String, ItemError>>;

    /// As `send`, with how many calls to the backend it took, where that may be more than one.
    async fn send_with_calls(&self, items: &[Outgoing]) -> (Vec<Result<String, ItemError>>, usize) {
        (self.send(items).await, 1)
    }

    /// Whether a message could be sent, as far as the queue can tell without sending it: an error is
    /// the very one that `send` would give.
    async fn would_take(&self, _item: &Outgoing) -> Result<(), ItemError> {
        Ok(())
    }

    /// How much the queue holds.
    async fn depth(&self) -> Result<Depth, QueueError>;

    /// The next messages without receiving them; `ErrorKind::Invalid` where the backend cannot.
    async fn peek(&self, max: usize) -> Result<Vec<Message>, QueueError>;

    /// Whether it can list what waits without receiving it: `browse`, `browse_end` and
    /// `receive_these`. Cheap.
    fn can_browse(&self) -> bool {
        false
    }

    /// The most that one message may have. Cheap.
    fn limits(&self) -> MessageLimits {
        MessageLimits::default()
    }

    /// Whether one `send` never stores a message of a group without those of the group that stand
    /// before it in the call. Cheap.
    fn sends_groups_in_order(&self) -> bool {
        true
    }

    /// The queues whose redrive policies name this one as their dead-letter queue, as `QueueName`s
    /// are written. Empty where the backend has no such policies.
    async fn redrive_sources(&self) -> Result<Vec<String>, QueueError> {
        Ok(Vec::new())
    }

    /// Lists what waits, without receiving it: neither what is in flight nor what is delayed. Begins
    /// after `after`, or with the oldest message; goes from old to new, and within a group in its
    /// order. At most `max` messages, fewer where they are large. A message that waits during a whole
    /// walk over the pages is in one of them; one that goes back to where it waited, because its
    /// delivery ended, is not listed a second time.
    async fn browse(
        &self,
        _after: Option<&BrowseCursor>,
        _max: usize,
    ) -> Result<BrowsePage, QueueError> {
        Err(not_listed(self.identity()))
    }

    /// A cursor at the end of the queue as it is now: `browse` lists after it what comes later.
    async fn browse_end(&self) -> Result<BrowseCursor, QueueError> {
        Err(not_listed(self.identity()))
    }

    /// Receives those of these messages of a page that still wait, as `receive` would, in their order;
    /// at most `Identity::batch`. Leaves out what does not wait any more, and what cannot be received
    /// before others of its group are settled.
    async fn receive_these(
        &self,
        _listed: &[Receipt],
        _visibility: Duration,
    ) -> Result<Vec<Message>, QueueError> {
        Err(not_listed(self.identity()))
    }

    /// Whether it finds a message that waits by its id without a walk over all others: `find_waiting`.
    /// Cheap.
    fn finds_by_id(&self) -> bool {
        false
    }

    /// The message of this id as `browse` would list it, if it waits.
    async fn find_waiting(&self, _id: &str) -> Result<Option<Message>, QueueError> {
        Err(QueueError {
            kind: ErrorKind::Invalid,
            message: format!("`{}` cannot find a message by its id", self.identity().name),
        })
    }

    /// Removes the message of this id that waits for its time: for a delay that its sender or a retry
    /// gave it, so that `browse` does not list it. False if none does, and where the backend cannot
    /// find one by its id.
    async fn cancel_delayed(&self, _id: &str) -> Result<bool, QueueError> {
        Ok(false)
    }

    /// Removes some of what waits or is delayed, or all of it; wholly or not at all. What is in flight
    /// stays with its holder, save on SQS, which removes it as well.
    async fn purge(&self) -> Result<PurgeStep, QueueError> {
        Err(QueueError {
            kind: ErrorKind::Invalid,
            message: format!(
                "`{}` cannot be emptied: its backend has no such operation",
                self.identity().name
            ),
        })
    }

    /// The next deliveries that the backend has taken away before their time, or may have:
    /// cancelled, or given to others because this process missed its heartbeat. May name
    /// deliveries that are no longer held. Never ready if a backend does no such thing; safe to
    /// drop.
    async fn lost(&self) -> Vec<Loss> {
        std::future::pending().await
    }
}

/// The error of a queue that cannot be listed.
fn not_listed(queue: &Identity) -> QueueError {
    QueueError {
        kind: ErrorKind::Invalid,
        message: format!(
            "`{}` cannot list its messages without receiving them",
            queue.name
        ),
    }
}
