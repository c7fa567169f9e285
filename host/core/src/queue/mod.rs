//! The port to queues: few methods that take batches and return a result for every item. Knows no
//! backend; each backend is a crate in `host/backends` and the only place that names its library.

pub mod origin;
pub mod prefix;
pub mod sharing;

use crate::clock;
use crate::clock::BootInstant;
pub use crate::error_kind::{CallError as QueueError, ErrorKind};
use crate::memory::HeldBytes;
use crate::message::{Loss, Message, Outcome, OutgoingMessage, Receipt, SendSpan};
use crate::telemetry::events::Reason;
use crate::telemetry::metrics::durations::SentMessages;
use crate::telemetry::trace::Tracer;
use sharing::{SharingRules, TenantBacklog};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The longest time that a message may stay invisible after a receive, extensions included: SQS's
/// 12 hours (SQS developer guide, "visibility timeout"). It holds for every backend.
pub const VISIBILITY_CEILING: Duration = Duration::from_secs(43_200);

/// The attribute of a dead letter that contains the reason.
pub const DEAD_LETTER_REASON: &str = "dispatcher-dead-letter-reason";
/// The attribute of a dead letter that names its original queue, as `Message::source` does.
pub const DEAD_LETTER_SOURCE: &str = "dispatcher-dead-letter-source";
/// The attribute that counts how often a message was moved back from a dead-letter queue.
pub const REDRIVEN: &str = "dispatcher-redriven";
/// The system attribute in which SQS names the queue that its redrive policy moved a message from.
pub const POLICY_SOURCE: &str = "DeadLetterQueueSourceArn";

/// The properties of an open queue.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The name of the queue in the configuration, without its weight.
    pub name: String,
    /// The ARN, or the backend's own name for the queue.
    pub source: String,
    /// The visibility timeout if the route does not set one.
    pub visibility: Duration,
    /// The maximum number of messages of one `receive`, and of items of one `extend`, `settle` or
    /// `send`.
    pub batch: usize,
    /// The longest `wait` of one `receive`.
    pub longest_wait: Duration,
    /// The shortest `wait` after which an answer can be `drained`. A short poll of SQS proves
    /// nothing; one of the local queue proves that the queue is empty.
    pub proof_wait: Duration,
    /// Whether messages of one group must be handled one at a time and in order.
    pub ordered_groups: bool,
    /// Whether the queue drops a message if it got the same deduplication id within the last
    /// minutes.
    pub deduplicates: bool,
    /// Whether `Outcome::DeadLetter` has a target.
    pub dead_letters: bool,
    /// The number of receives after which the backend's own redrive policy dead-letters a message.
    pub most_receives: Option<u32>,
    /// Whether `Outcome::DeadLetter` goes to the target of that policy if the route names no
    /// dead-letter queue.
    pub redrive_target: bool,
}

/// A request for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The maximum number of messages, except for `GroupShare::Spread`; 1 to `Identity::batch`.
    pub max: usize,
    /// The visibility timeout of the received messages, from their delivery; 0 s to 12 h.
    pub visibility: Duration,
    /// The time to wait for the first message; at most `Identity::longest_wait`.
    pub wait: Duration,
    /// Whether to deliver the most recently sent messages first, instead of the queue's usual
    /// choice. Messages of one group stay in order. A backend that cannot choose, such as SQS,
    /// ignores this.
    pub newest_first: bool,
    /// The number of messages of one group. A backend that cannot choose ignores this: SQS tries to
    /// return as many as possible, Redis returns one.
    pub groups: GroupShare,
    /// Whether to deliver one message even if the process already holds its maximum of bytes.
    pub overdraw: bool,
    /// Whether the caller expects the queue to be empty. Thousands of such calls wait at the same
    /// time, so none of them reserves bytes for the messages that it may bring.
    pub idle: bool,
}

/// The number of messages of one group that a receive brings if the queue keeps groups in order.
/// These messages are in order. The queue delivers later messages of the group once all of them are
/// deleted. If one of them becomes visible again, the queue may deliver it again as soon as all
/// messages before it are deleted or visible, even if later ones are in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupShare {
    /// One message.
    #[default]
    One,
    /// One message of each group. If these are fewer than requested, the queue has no other groups
    /// to deliver; then later messages of the same groups follow, at most this many beyond
    /// `Ask::max`.
    Spread(usize),
    /// As many messages as possible of one group before those of the next, as SQS does.
    Fill,
}

impl Ask {
    /// A request for one message, invisible for 30 seconds, without waiting.
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

/// Returns messages in the order in which they must go back to their queue: those with a group come
/// last to first, because a queue that keeps groups in order may deliver the first message of a
/// group as soon as it is back.
pub fn last_first<T>(items: Vec<T>, is_grouped: impl Fn(&T) -> bool) -> impl Iterator<Item = T> {
    let (grouped, alone): (Vec<T>, Vec<T>) = items.into_iter().partition(is_grouped);
    alone.into_iter().chain(grouped.into_iter().rev())
}

/// The answer to an `Ask`.
#[derive(Debug, Clone, Default)]
pub struct ReceivedMessages {
    /// The messages in the queue's order, or newest first if requested and supported.
    pub messages: Vec<Message>,
    /// Whether the backend has searched everywhere and had no more messages to receive.
    pub drained: bool,
    /// The time at which the messages were delivered, if the backend knows it.
    pub taken: Option<BootInstant>,
    /// The bytes that each message takes of the process's budget, if there is one; in the same
    /// order.
    pub held: Vec<HeldBytes>,
    /// The size of the next message in bytes, if that many are not free: other messages must be
    /// settled first.
    pub short_of: Option<u64>,
    /// The messages that the backend dead-lettered instead of delivering them and has not reported
    /// before.
    pub dead_lettered: Vec<DeadLettered>,
    /// How many of the messages went before others because they had waited for the longest wait of
    /// their priority.
    pub overdue: usize,
}

/// A message that a receive moved to a dead-letter queue instead of delivering it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLettered {
    /// The message's id.
    pub id: String,
    /// The number of times that it was received.
    pub receive_count: u32,
    /// The name of the dead-letter queue.
    pub to: String,
    /// The reason.
    pub reason: Reason,
    /// The number of receives that the backend's redrive policy permits, if that policy moved the
    /// message.
    pub max_receive_count: Option<u32>,
}

/// The number of messages in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Depth {
    /// Messages that could be received now.
    pub waiting: u64,
    /// Messages that were received and are invisible.
    pub in_flight: u64,
    /// Messages that were sent or released with a delay.
    pub delayed: u64,
    /// The age of the oldest message that is not in flight, if the backend reports it.
    pub oldest: Option<Duration>,
}

/// The error of one item of a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    /// The receipt is no longer valid: it expired, or the message no longer exists.
    #[error("the receipt is no longer valid: {0}")]
    Gone(String),
    /// The message was cancelled and is not delivered again.
    #[error("the message was cancelled")]
    Cancelled,
    /// A temporary failure: the same item may be retried.
    #[error("{0}")]
    Transient(String),
    /// A permanent failure: the item can never succeed as it is.
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

/// Returns the `error.type` of a whole call: that of the first item that failed.
pub fn first_failure<T>(results: &[Result<T, ItemError>]) -> Option<&'static str> {
    let mut failures = results.iter().filter_map(|result| result.as_ref().err());
    failures.next().map(ItemError::label)
}

/// Returns whether a call failed as a whole: all of its items failed. A cancelled message is an
/// answer, not a failure.
pub fn all_failed<T>(results: &[Result<T, ItemError>]) -> bool {
    !results.is_empty()
        && results.iter().all(|result: &Result<T, ItemError>| {
            let error = result.as_ref().err();
            error.is_some_and(|error| !matches!(error, ItemError::Cancelled))
        })
}

/// Sends to a queue as `Queue::send` does, and counts what was sent.
pub async fn send_counted(
    queue: &dyn Queue,
    items: &[OutgoingMessage],
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

/// Sends as `send_counted` does, and records a span that belongs to no attempt. `reason` is the
/// purpose of the messages.
pub async fn send_traced(
    queue: &dyn Queue,
    items: &mut [OutgoingMessage],
    reason: &'static str,
    sent: &SentMessages,
    tracer: &Tracer,
) -> Vec<Result<String, ItemError>> {
    let span = SendSpan::begin(tracer, items);
    let answers = send_counted(queue, items, sent).await;
    if let Some(span) = span {
        let failures: Vec<_> = answers
            .iter()
            .filter_map(|answer| answer.as_ref().err())
            .map(|error| (error.label(), error.to_string()))
            .collect();
        span.end(&queue.identity().name, reason, &failures);
    }
    answers
}

/// The delays that a queue supports by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delays {
    /// The longest delay of one message; zero if the queue cannot delay messages.
    pub longest: Duration,
    /// The longest delay of a message with a group; also zero if the delay would hold up the group.
    pub longest_in_group: Duration,
    /// The longest delay of a scheduled message, which people can list and cancel until it is due.
    pub longest_scheduled: Duration,
    /// Whether a plugin's message goes to the queue immediately, regardless of its delay and group.
    pub takes_any: bool,
    /// Whether a delayed message can be listed and cancelled while it waits in the queue.
    pub listed: bool,
}

impl Delays {
    /// Any delay; delayed messages cannot be listed.
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

/// A position in a queue between two pages of `Queue::browse`. Only its own backend can read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowseCursor(pub String);

/// A page of the waiting messages of a queue.
#[derive(Debug, Clone, Default)]
pub struct BrowsePage {
    /// The messages with their receives so far. Their receipts are only for `receive_these`. May be
    /// empty even if there is a next page.
    pub messages: Vec<Message>,
    /// The start of the next page; `None` at the end of the queue.
    pub next: Option<BrowseCursor>,
}

/// The result of one step of `Queue::purge`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PurgeStep {
    /// The number of messages removed, if the backend reports it.
    pub removed: Option<u64>,
    /// Whether another step may remove more.
    pub has_more: bool,
}

/// The limits of one message, if the backend has limits that other backends lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageLimits {
    /// The maximum number of attributes that the sender sets.
    pub attributes: Option<usize>,
    /// The maximum number of bytes of body and attributes, as `message::bytes` counts them.
    pub bytes: Option<usize>,
}

/// The facts of an open queue that say what it can do. They never change while it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFacts {
    /// The delays that the queue supports.
    pub delays: Delays,
    /// The delay that the queue adds to every message, if messages cannot have their own
    /// delay.
    pub own_delay: Duration,
    /// Whether a waiting `receive` ends soon after its `hurry` is set.
    pub ends_waits: bool,
    /// Whether a `receive` reports the messages that the redrive policy moves because their last
    /// receive was never answered.
    pub reports_redrives: bool,
    /// Whether the queue can list waiting messages without receiving them: `browse`, `browse_end`
    /// and `receive_these`.
    pub can_browse: bool,
    /// The limits of one message.
    pub limits: MessageLimits,
    /// Whether one `send` never stores a message of a group without the messages of that group
    /// before it in the call.
    pub sends_groups_in_order: bool,
    /// Whether the queue can find a waiting message by its id without reading all others:
    /// `find_waiting`.
    pub finds_by_id: bool,
    /// Whether the queue delivers by the rules that `share_out` sets.
    pub shares_out: bool,
}

impl Default for QueueFacts {
    fn default() -> Self {
        Self {
            delays: Delays::ANY,
            own_delay: Duration::ZERO,
            ends_waits: true,
            reports_redrives: false,
            can_browse: false,
            limits: MessageLimits::default(),
            sends_groups_in_order: true,
            finds_by_id: false,
            shares_out: false,
        }
    }
}

/// One open queue. All calls may run concurrently and are safe to drop, except `receive`: if it is
/// dropped, messages that it has taken are lost to this process until they become visible again.
#[async_trait::async_trait]
pub trait Queue: Send + Sync + 'static {
    /// Returns the properties of the queue. Cheap.
    fn identity(&self) -> &Identity;

    /// Returns the facts that say what the queue can do. Cheap.
    fn facts(&self) -> QueueFacts {
        QueueFacts::default()
    }

    /// Returns the URL if this is an SQS queue. Cheap.
    fn url(&self) -> Option<&str> {
        None
    }

    /// Returns the name of the queue that `Outcome::DeadLetter` moves messages to, if there is one.
    /// Cheap.
    fn dead_letter_queue(&self) -> Option<String> {
        None
    }

    /// Returns the id in the dead-letter queue of a message that `settle` has just dead-lettered,
    /// if it is not `id`. Cheap.
    fn dead_letter_id(&self, _id: &str) -> Option<String> {
        None
    }

    /// Returns the target of the backend's own redrive policy: an ARN, or the backend's name for
    /// the queue. Cheap.
    fn redrive_policy_target(&self) -> Option<String> {
        None
    }

    /// Returns how long the queue keeps a message, if the backend limits that.
    async fn retention(&self) -> Result<Option<Duration>, QueueError> {
        Ok(None)
    }

    /// Sets the rules by which later receives share the messages out, also those that wait already.
    /// Cheap: the queue keeps to them from its next call on, if its facts say `shares_out`.
    /// Others ignore them.
    fn share_out(&self, _sharing: &Arc<SharingRules>) {}

    /// Returns the waiting messages of these tenants, in their order; nothing on a queue that
    /// ignores `share_out`.
    async fn backlogs(&self, _tenants: &[String]) -> Result<Vec<TenantBacklog>, QueueError> {
        Ok(Vec::new())
    }

    /// Receives up to `ask.max` messages and makes them invisible for `ask.visibility`. Waits up to
    /// `ask.wait` for the first one. Once `hurry` is set, it stops waiting if the backend can end a
    /// wait without losing messages. Receiving no messages is not an error.
    async fn receive(
        &self,
        ask: Ask,
        hurry: &CancellationToken,
    ) -> Result<ReceivedMessages, QueueError>;

    /// Keeps deliveries invisible for the given time from now; at most `Identity::batch` items, and
    /// at most up to the ceiling of 12 hours. Returns one answer per item, in order.
    async fn extend(&self, items: &[(Receipt, Duration)]) -> Vec<Result<(), ItemError>>;

    /// Ends deliveries; at most `Identity::batch` items. Returns one answer per item, in order. It
    /// is harmless to settle the same delivery with the same outcome again.
    async fn settle(&self, items: &[(Message, Outcome)]) -> Vec<Result<(), ItemError>>;

    /// Settles as `settle` does, and returns the number of calls to the backend, for backends that
    /// may need more than one.
    async fn settle_with_calls(
        &self,
        items: &[(Message, Outcome)],
    ) -> (Vec<Result<(), ItemError>>, usize) {
        (self.settle(items).await, 1)
    }

    /// Sends messages; at most `Identity::batch` items. Returns one answer per item, in order. `Ok`
    /// has the id of the new message and means that the message survives a crash.
    async fn send(&self, items: &[OutgoingMessage]) -> Vec<Result<String, ItemError>>;

    /// Sends as `send` does, and returns the number of calls to the backend, for backends that may
    /// need more than one.
    async fn send_with_calls(
        &self,
        items: &[OutgoingMessage],
    ) -> (Vec<Result<String, ItemError>>, usize) {
        (self.send(items).await, 1)
    }

    /// Checks whether a message could be sent, as far as the queue can tell without sending it. An
    /// error is the one that `send` would return.
    async fn would_take(&self, _item: &OutgoingMessage) -> Result<(), ItemError> {
        Ok(())
    }

    /// Counts the messages of the queue.
    async fn depth(&self) -> Result<Depth, QueueError>;

    /// Returns the next messages without receiving them; `ErrorKind::Invalid` if the backend
    /// cannot.
    async fn peek(&self, max: usize) -> Result<Vec<Message>, QueueError>;

    /// Returns the queues whose redrive policies name this queue as their dead-letter queue, in the
    /// format of `QueueName`. Empty if the backend has no such policies.
    async fn redrive_sources(&self) -> Result<Vec<String>, QueueError> {
        Ok(Vec::new())
    }

    /// Lists waiting messages without receiving them: neither those in flight nor delayed ones.
    /// Begins after `after`, or with the oldest message, and goes from old to new, and in order
    /// within a group. Returns at most `max` messages, fewer if they are large. A message that
    /// waits during a whole walk over the pages is on one of them. A message that returns to its
    /// old position because its delivery ended is not listed a second time.
    async fn browse(
        &self,
        _after: Option<&BrowseCursor>,
        _max: usize,
    ) -> Result<BrowsePage, QueueError> {
        Err(not_listed(self.identity()))
    }

    /// Returns a cursor at the current end of the queue; `browse` lists the messages that come
    /// after it.
    async fn browse_end(&self) -> Result<BrowseCursor, QueueError> {
        Err(not_listed(self.identity()))
    }

    /// Receives the messages of a page that still wait, as `receive` would, in their order; at most
    /// `Identity::batch`. Leaves out messages that no longer wait, and those that cannot be
    /// received until others of their group are settled.
    async fn receive_these(
        &self,
        _listed: &[Receipt],
        _visibility: Duration,
    ) -> Result<Vec<Message>, QueueError> {
        Err(not_listed(self.identity()))
    }

    /// Returns the message with this id as `browse` would list it, if it waits.
    async fn find_waiting(&self, _id: &str) -> Result<Option<Message>, QueueError> {
        Err(QueueError {
            kind: ErrorKind::Invalid,
            message: format!("`{}` cannot find a message by its id", self.identity().name),
        })
    }

    /// Removes the message with this id if it is delayed: its sender or a retry gave it a delay, so
    /// `browse` does not list it. Returns false if there is none, or the backend cannot find one by
    /// its id.
    async fn cancel_delayed(&self, _id: &str) -> Result<bool, QueueError> {
        Ok(false)
    }

    /// Removes some or all of the waiting and delayed messages, atomically. Messages in flight stay
    /// with their receiver, except on SQS, which removes them too.
    async fn purge(&self) -> Result<PurgeStep, QueueError> {
        Err(QueueError {
            kind: ErrorKind::Invalid,
            message: format!(
                "`{}` cannot be emptied: its backend has no such operation",
                self.identity().name
            ),
        })
    }

    /// Signs this process off as a receiver of the queue and returns all messages that it still
    /// holds immediately. Used for a pause and for a stop. Ends a waiting `receive`; a later
    /// `receive` signs on again. Does nothing on backends whose receivers do not depend on each
    /// other.
    async fn leave(&self) -> Result<(), QueueError> {
        Ok(())
    }

    /// Does what `leave` does, unless messages are held or a receive is under way. For callers that
    /// have inspected a queue which other parts of this process may be using.
    async fn leave_if_idle(&self) -> Result<(), QueueError> {
        Ok(())
    }

    /// Returns the next deliveries that the backend has taken away, or may have taken away, before
    /// their time: because the message was cancelled, or given to another process after this one
    /// missed its heartbeat. May contain deliveries that are no longer held. Stays pending forever
    /// on backends that never do this; safe to drop.
    async fn lost(&self) -> Vec<Loss> {
        std::future::pending().await
    }
}

fn not_listed(queue: &Identity) -> QueueError {
    QueueError {
        kind: ErrorKind::Invalid,
        message: format!(
            "`{}` cannot list its messages without receiving them",
            queue.name
        ),
    }
}
