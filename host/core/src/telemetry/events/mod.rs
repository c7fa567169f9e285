//! The events of messages: the end of a delivery, and a failed Lambda function. Each is one log
//! line and one count, emitted only here. The text is fixed; all variable parts are in fields.
//! `host/docs/events.md` lists the events, and a test compares it with this file.

pub mod kind;
pub mod outcomes;

use super::counters::Counters;
use super::metrics::meter::Meter;
use super::trace::{ActiveSpan, SpanContext, within};
use crate::clock::Timestamp;
pub(crate) use kind::EventCounts;
pub use kind::{EventKind, LONGEST_REASON, Reason, ReasonKind, bounded};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The target of these log lines, for filters: `info,message=debug` shows every message that is
/// done.
pub const TARGET: &str = "message";

/// One delivery of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivery<'a> {
    /// The message's id.
    pub id: &'a str,
    /// The id before the message was first copied, if it was.
    pub first_id: Option<&'a str>,
    /// The number of receives, this one included.
    pub receive_count: u32,
    /// The duration of the last attempt, if one was made.
    pub took: Option<Duration>,
    /// The span of the last attempt, if attempts are traced; its ids are in the log line.
    pub trace: Option<SpanContext>,
}

/// The end of one delivery, or of several deliveries of one queue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MessageEvent<'a> {
    /// See `EventKind::Done`.
    Done { of: Delivery<'a> },
    /// See `EventKind::Retried`.
    Retried {
        of: Delivery<'a>,
        attempt: u32,
        delay: Duration,
        reason: &'a Reason,
    },
    /// See `EventKind::DeadLettered`. `to`: the dead-letter queue, if the backend reports it;
    /// `dead_letter_id`: the message's id there, if it is another.
    DeadLettered {
        of: Delivery<'a>,
        attempts: u32,
        to: Option<&'a str>,
        dead_letter_id: Option<&'a str>,
        reason: &'a Reason,
    },
    /// See `EventKind::DeadLetteredByPolicy`. `to`: the target of the policy.
    DeadLetteredByPolicy {
        of: Delivery<'a>,
        max_receive_count: u32,
        to: Option<&'a str>,
        reason: &'a Reason,
    },
    /// See `EventKind::Shed`. `to`: the dead-letter queue.
    Shed {
        ids: &'a [&'a str],
        to: ShedTo<'a>,
        reason: &'a Reason,
    },
    /// See `EventKind::Filtered`. `to`: the dead-letter queue.
    Filtered {
        ids: &'a [&'a str],
        to: ShedTo<'a>,
        reason: &'a Reason,
    },
    /// See `EventKind::Cancelled`.
    Cancelled { of: Delivery<'a> },
    /// See `EventKind::Lost`. `handled`: whether the handler was done with the message.
    Lost { of: Delivery<'a>, handled: bool },
    /// See `EventKind::Abandoned`. `visible_at`: when the queue delivers the message again.
    Abandoned {
        of: Delivery<'a>,
        attempt: u32,
        may_have_been_handled: bool,
        visible_at: Timestamp,
        reason: &'a Reason,
    },
    /// See `EventKind::Released`.
    Released {
        ids: &'a [&'a str],
        reason: &'a Reason,
    },
    /// See `EventKind::Duplicate`.
    Duplicate { of: Delivery<'a> },
    /// See `EventKind::NotSettled`. `outcome`: `delete`, `release` or `dead-letter`; `wanted`: the
    /// event that settling would have caused; `visible_by`: the latest time at which the queue
    /// delivers the message again.
    NotSettled {
        of: Delivery<'a>,
        wanted: EventKind,
        outcome: &'static str,
        visible_by: Timestamp,
        error: &'a str,
    },
}

/// The destination of messages that were not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShedTo<'a> {
    /// The messages were deleted.
    Deleted,
    /// The messages went to the dead-letter queue of this name, if the backend reports it.
    DeadLetters(Option<&'a str>),
}

impl<'a> ShedTo<'a> {
    /// Returns the name for the log, if it is known.
    fn name(self) -> Option<&'a str> {
        match self {
            Self::Deleted => Some("deleted"),
            Self::DeadLetters(queue) => queue,
        }
    }
}

impl MessageEvent<'_> {
    /// Returns the kind of the event.
    pub(crate) const fn kind(&self) -> EventKind {
        match self {
            Self::Done { .. } => EventKind::Done,
            Self::Retried { .. } => EventKind::Retried,
            Self::DeadLettered { .. } => EventKind::DeadLettered,
            Self::DeadLetteredByPolicy { .. } => EventKind::DeadLetteredByPolicy,
            Self::Shed { .. } => EventKind::Shed,
            Self::Filtered { .. } => EventKind::Filtered,
            Self::Cancelled { .. } => EventKind::Cancelled,
            Self::Lost { .. } => EventKind::Lost,
            Self::Abandoned { .. } => EventKind::Abandoned,
            Self::Released { .. } => EventKind::Released,
            Self::Duplicate { .. } => EventKind::Duplicate,
            Self::NotSettled { .. } => EventKind::NotSettled,
        }
    }

    /// Returns the span of the attempt, if the event is about one.
    fn trace(&self) -> Option<SpanContext> {
        match self {
            Self::Done { of }
            | Self::Duplicate { of }
            | Self::Cancelled { of }
            | Self::Lost { of, .. }
            | Self::Abandoned { of, .. }
            | Self::NotSettled { of, .. }
            | Self::Retried { of, .. }
            | Self::DeadLettered { of, .. }
            | Self::DeadLetteredByPolicy { of, .. } => of.trace,
            Self::Released { .. } | Self::Shed { .. } | Self::Filtered { .. } => None,
        }
    }

    /// Returns the reason, if the event has one, and the number of messages.
    fn reason_and_messages(&self) -> (Option<ReasonKind>, usize) {
        match self {
            Self::Retried { reason, .. }
            | Self::Abandoned { reason, .. }
            | Self::DeadLettered { reason, .. }
            | Self::DeadLetteredByPolicy { reason, .. } => (Some(reason.kind), 1),
            Self::Shed { ids, reason, .. }
            | Self::Filtered { ids, reason, .. }
            | Self::Released { ids, reason, .. } => (Some(reason.kind), ids.len()),
            Self::Done { .. }
            | Self::Cancelled { .. }
            | Self::Lost { .. }
            | Self::Duplicate { .. }
            | Self::NotSettled { .. } => (None, 1),
        }
    }
}

/// Emits the events of one queue's messages.
#[derive(Debug)]
pub(crate) struct MessageEvents {
    queue: String,
    counters: Arc<Counters>,
    meter: Arc<Meter>,
}

impl MessageEvents {
    /// Makes the emitter for a queue, by its name in the configuration.
    pub(crate) fn new(queue: &str, counters: Arc<Counters>, meter: Arc<Meter>) -> Self {
        Self {
            queue: queue.to_owned(),
            counters,
            meter,
        }
    }

    /// Logs and counts one event.
    pub(crate) fn emit(&self, event: MessageEvent<'_>) {
        self.count(&event);
        let mut attempt = event.trace().map(ActiveSpan::of);
        within(&mut attempt, || self.log(event));
    }

    fn count(&self, event: &MessageEvent<'_>) {
        let Self {
            counters, meter, ..
        } = self;
        meter.outcomes.note(&self.queue, event);
        let (reason, messages) = event.reason_and_messages();
        meter.events.add(event.kind(), reason, messages);
        if reason.is_some_and(ReasonKind::is_of_a_stop) {
            counters.messages_abandoned.many(messages);
        }
        match event {
            MessageEvent::Done { .. } => {
                counters.done.one();
                meter.done.one();
            }
            MessageEvent::Retried { .. } => counters.retried.one(),
            MessageEvent::DeadLettered { .. } => {
                counters.dead.one();
                meter.dead.one();
            }
            MessageEvent::DeadLetteredByPolicy { .. } => {
                counters.dead.one();
                counters.dead_by_redrive_policy.one();
                meter.dead.one();
            }
            MessageEvent::Shed { to, .. } => {
                counters.shed.many(messages);
                meter.shed.many(messages);
                if matches!(to, ShedTo::DeadLetters(_)) {
                    counters.dead.many(messages);
                    meter.dead.many(messages);
                }
            }
            MessageEvent::Filtered { to, .. } => {
                counters.filtered.many(messages);
                if matches!(to, ShedTo::DeadLetters(_)) {
                    counters.dead.many(messages);
                    meter.dead.many(messages);
                }
            }
            MessageEvent::Cancelled { .. } => counters.cancelled.one(),
            MessageEvent::Lost { .. } => {
                counters.lost.one();
                meter.lost.one();
            }
            // The reason counts it; after its last receive, the redrive policy moves the message.
            MessageEvent::Abandoned { .. } => {}
            MessageEvent::Released { .. } => counters.returned.many(messages),
            MessageEvent::Duplicate { .. } => counters.recognised.one(),
            MessageEvent::NotSettled { .. } => counters.not_settled.one(),
        }
    }

    fn log(&self, event: MessageEvent<'_>) {
        let queue = self.queue.as_str();
        let words = event.kind().log_message();
        macro_rules! line {
            ($level:ident, $of:ident $(, $($field:tt)+)?) => {
                tracing::$level!(target: TARGET, queue, message_id = $of.id, receive_count = $of.receive_count, $($($field)+,)? "{words}")
            };
        }
        macro_rules! failed {
            ($level:ident, $of:ident, $why:ident, $($field:tt)+) => {{
                let (reason_kind, reason) = ($why.kind.label(), $why.text());
                line!($level, $of, $($field)+, reason_kind, reason)
            }};
        }
        match event {
            MessageEvent::Done { of } => line!(debug, of),
            MessageEvent::Duplicate { of } => line!(debug, of),
            MessageEvent::Cancelled { of } => line!(info, of),
            MessageEvent::Retried {
                of,
                attempt,
                delay,
                reason,
            } => {
                failed!(info, of, reason, attempt, delay_ms = whole_ms(delay));
            }
            MessageEvent::DeadLettered {
                of,
                attempts,
                to,
                dead_letter_id,
                reason,
            } => {
                let first_id = of.first_id;
                failed!(warn, of, reason, attempts, to, dead_letter_id, first_id);
            }
            MessageEvent::DeadLetteredByPolicy {
                of,
                max_receive_count,
                to,
                reason,
            } => {
                let first_id = of.first_id;
                failed!(warn, of, reason, max_receive_count, to, first_id);
            }
            MessageEvent::Lost { of, handled } => line!(warn, of, handled),
            MessageEvent::Abandoned {
                of,
                attempt,
                may_have_been_handled,
                visible_at,
                reason,
            } => {
                let ran_ms = of.took.map(whole_ms);
                failed!(warn, of, reason, attempt, ran_ms, may_have_been_handled, comes_again_at = %visible_at);
            }
            MessageEvent::NotSettled {
                of,
                wanted,
                outcome,
                visible_by,
                error,
            } => {
                let error = &*bounded(error);
                line!(warn, of, wanted = wanted.label(), outcome, comes_again_by = %visible_by, error);
            }
            MessageEvent::Filtered { ids, to, reason } => {
                let (to, reason_kind, reason) = (to.name(), reason.kind.label(), reason.text());
                tracing::info!(target: TARGET, queue, messages = ids.len(), message_ids = %Ids(ids), to, reason_kind, reason, "{words}");
            }
            MessageEvent::Shed { ids, to, reason } => {
                let (to, reason_kind, reason) = (to.name(), reason.kind.label(), reason.text());
                tracing::warn!(target: TARGET, queue, messages = ids.len(), message_ids = %Ids(ids), to, reason_kind, reason, "{words}");
            }
            MessageEvent::Released { ids, reason } => {
                let (reason_kind, reason) = (reason.kind.label(), reason.text());
                tracing::info!(target: TARGET, queue, messages = ids.len(), message_ids = %Ids(ids), reason_kind, reason, "{words}");
            }
        }
    }
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Ids as a JSON array, the format of a list in a field of a log line; see `super::fields`.
struct Ids<'a, T>(&'a [T]);

impl<T: AsRef<str>> fmt::Display for Ids<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<&str> = self.0.iter().map(AsRef::as_ref).collect();
        let json = serde_json::to_string(&ids).map_err(|_| fmt::Error)?;
        out.write_str(&json)
    }
}

/// A scheduled message that could not be read and was moved to the dead jobs of its store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScheduledDeadLetter<'a> {
    pub queue: Option<&'a str>,
    pub job: &'a str,
    pub store: &'a str,
    pub reason: &'a Reason,
}

/// Logs and counts a scheduled message that could not be read.
pub(crate) fn scheduled_dead_lettered(counters: &Counters, letter: &ScheduledDeadLetter<'_>) {
    let ScheduledDeadLetter {
        queue,
        job,
        store,
        reason,
    } = letter;
    counters.scheduled_dead.one();
    let (reason_kind, reason) = (reason.kind.label(), reason.text());
    tracing::warn!(target: TARGET, queue, job, store, reason_kind, reason, "scheduled message dead-lettered");
}

/// The way in which an invocation of a Lambda function failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FunctionEvent {
    /// The function ran and reported an error.
    Failed,
    /// It is unknown whether the function ran.
    Unknown,
    /// Lambda refused the event.
    Refused,
}

impl FunctionEvent {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::Failed, Self::Unknown, Self::Refused];

    /// The fields of its log line.
    pub const FIELDS: &[&str] = &[
        "plugin",
        "queue",
        "messages",
        "message_ids",
        "function",
        "version",
        "request_id",
        "error_type",
        "error",
        "log",
    ];

    /// The message of its log line.
    pub(crate) const fn log_message(self) -> &'static str {
        match self {
            Self::Failed => "function failed",
            Self::Unknown => "function outcome unknown",
            Self::Refused => "function refused event",
        }
    }
}

/// One invocation that did not succeed.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the fields are those of the log line")]
pub struct FunctionFailure<'a> {
    pub plugin: &'a str,
    pub queue: Option<&'a str>,
    pub message_ids: &'a [String],
    pub function: &'a str,
    pub version: Option<&'a str>,
    pub request_id: Option<&'a str>,
    pub error_type: Option<&'a str>,
    pub error: &'a str,
    /// The end of the function's own log, which may have many lines.
    pub log: Option<&'a str>,
}

/// Logs an invocation that did not succeed, always in one line. The caller counts it.
pub fn function_failed(event: FunctionEvent, failure: &FunctionFailure<'_>) {
    let FunctionFailure {
        plugin,
        queue,
        message_ids,
        function,
        version,
        request_id,
        error_type,
        error,
        log,
    } = failure;
    tracing::warn!(
        target: TARGET,
        plugin,
        queue,
        messages = message_ids.len(),
        message_ids = %Ids(message_ids),
        function,
        version,
        request_id,
        error_type,
        error,
        log,
        "{}",
        event.log_message()
    );
}

#[cfg(test)]
mod tests;
