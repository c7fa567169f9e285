//! The events of messages, each as one log line and one count, emitted only here: the end of a
//! delivery, and a failed Lambda function. The text is fixed; everything variable is in fields.
//! `host/docs/events.md` lists them, and a test compares it with this file.

pub mod kind;
pub mod outcomes;

use super::counters::Counters;
use super::metrics::meter::Meter;
use super::trace::{ActiveSpan, SpanContext, within};
pub(crate) use kind::EventCounts;
pub use kind::{EventKind, LONGEST_REASON, Reason, ReasonKind, bounded};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The target of these lines, for filters: `info,message=debug` shows every message that is done.
pub const TARGET: &str = "message";

/// One delivery of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivery<'a> {
    /// The message's id.
    pub id: &'a str,
    /// How often the message was received, this time included.
    pub receive_count: u32,
    /// How long its last attempt took, if one was made.
    pub took: Option<Duration>,
    /// The span of its last attempt, where attempts are traced; its ids are in the line.
    pub trace: Option<SpanContext>,
}

/// How a delivery ended, or several of one queue together.
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
    /// See `EventKind::DeadLettered`. `to`: the dead-letter queue, if the backend reports it.
    DeadLettered {
        of: Delivery<'a>,
        attempts: u32,
        to: Option<&'a str>,
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
    /// See `EventKind::Lost`. `handled`: its handler was done with it.
    Lost { of: Delivery<'a>, handled: bool },
    /// See `EventKind::Released`. `trace`: the span of the attempt that was cut off, where there was
    /// one and attempts are traced.
    Released {
        ids: &'a [&'a str],
        reason: &'a Reason,
        trace: Option<SpanContext>,
    },
    /// See `EventKind::Duplicate`.
    Duplicate { of: Delivery<'a> },
    /// See `EventKind::NotSettled`. `outcome`: `delete`, `release` or `dead-letter`; `wanted`: how the
    /// delivery would have ended.
    NotSettled {
        of: Delivery<'a>,
        wanted: EventKind,
        outcome: &'static str,
        error: &'a str,
    },
}

/// Where messages went that were not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShedTo<'a> {
    /// Nowhere: they were deleted.
    Deleted,
    /// To the dead-letter queue of this name, if the backend reports it.
    DeadLetters(Option<&'a str>),
}

impl<'a> ShedTo<'a> {
    /// What the log calls it, if it is known.
    fn name(self) -> Option<&'a str> {
        match self {
            Self::Deleted => Some("deleted"),
            Self::DeadLetters(queue) => queue,
        }
    }
}

impl MessageEvent<'_> {
    /// Which event it is.
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
            Self::Released { .. } => EventKind::Released,
            Self::Duplicate { .. } => EventKind::Duplicate,
            Self::NotSettled { .. } => EventKind::NotSettled,
        }
    }

    /// The span of the attempt that it is about, where it is about one.
    fn trace(&self) -> Option<SpanContext> {
        match self {
            Self::Done { of }
            | Self::Duplicate { of }
            | Self::Cancelled { of }
            | Self::Lost { of, .. }
            | Self::NotSettled { of, .. }
            | Self::Retried { of, .. }
            | Self::DeadLettered { of, .. }
            | Self::DeadLetteredByPolicy { of, .. } => of.trace,
            Self::Released { trace, .. } => *trace,
            Self::Shed { .. } | Self::Filtered { .. } => None,
        }
    }

    /// Why, where the event has a reason, and of how many messages it is.
    fn reason_and_messages(&self) -> (Option<ReasonKind>, usize) {
        match self {
            Self::Retried { reason, .. }
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
    /// For a queue, by the name that the configuration gives it.
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
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                let (reason_kind, reason) = (reason.kind.label(), reason.text());
                line!(info, of, attempt, delay_ms, reason_kind, reason);
            }
            MessageEvent::DeadLettered {
                of,
                attempts,
                to,
                reason,
            } => {
                let (reason_kind, reason) = (reason.kind.label(), reason.text());
                line!(warn, of, attempts, to, reason_kind, reason);
            }
            MessageEvent::DeadLetteredByPolicy {
                of,
                max_receive_count,
                to,
                reason,
            } => {
                let (reason_kind, reason) = (reason.kind.label(), reason.text());
                line!(warn, of, max_receive_count, to, reason_kind, reason);
            }
            MessageEvent::Lost { of, handled } => line!(warn, of, handled),
            MessageEvent::NotSettled {
                of,
                wanted,
                outcome,
                error,
            } => {
                let (wanted, error) = (wanted.label(), &*bounded(error));
                line!(warn, of, wanted, outcome, error);
            }
            MessageEvent::Filtered { ids, to, reason } => {
                let (to, reason_kind) = (to.name(), reason.kind.label());
                let reason = reason.text();
                tracing::info!(target: TARGET, queue, messages = ids.len(), message_ids = %Ids(ids), to, reason_kind, reason, "{words}");
            }
            MessageEvent::Shed { ids, to, reason } => {
                let to = to.name();
                let (reason_kind, reason) = (reason.kind.label(), reason.text());
                tracing::warn!(target: TARGET, queue, messages = ids.len(), message_ids = %Ids(ids), to, reason_kind, reason, "{words}");
            }
            MessageEvent::Released { ids, reason, .. } => {
                let (reason_kind, reason) = (reason.kind.label(), reason.text());
                tracing::info!(target: TARGET, queue, messages = ids.len(), message_ids = %Ids(ids), reason_kind, reason, "{words}");
            }
        }
    }
}

/// Ids as a JSON array, which is what a log line's field of a list is made of; see `super::fields`.
struct Ids<'a, T>(&'a [T]);

impl<T: AsRef<str>> fmt::Display for Ids<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<&str> = self.0.iter().map(AsRef::as_ref).collect();
        let json = serde_json::to_string(&ids).map_err(|_| fmt::Error)?;
        out.write_str(&json)
    }
}

/// A scheduled message that cannot be read, and was moved to the dead jobs of its store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScheduledDeadLetter<'a> {
    pub queue: Option<&'a str>,
    pub job: &'a str,
    pub store: &'a str,
    pub reason: &'a Reason,
}

/// Logs and counts a scheduled message that cannot be read.
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

/// How an invocation of a Lambda function did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FunctionEvent {
    /// The function ran and reported an error.
    Failed,
    /// Nobody knows whether it ran.
    Unknown,
    /// Lambda refused the event.
    Refused,
}

impl FunctionEvent {
    /// All of them.
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
    /// The end of the function's own log; may have many lines.
    pub log: Option<&'a str>,
}

/// Logs an invocation that did not succeed: one line, whatever the error holds. Whoever invoked it
/// counts it.
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
