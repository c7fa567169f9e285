//! The closed sets behind the events of a message: the event, the reason, and the counts. Metric
//! labels come only from here, so no text from a guest becomes a label.

use crate::telemetry::counters::Counter;
use crate::telemetry::escape::escape_control_characters;
use tracing::Level;

/// The way in which one delivery of a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// The message was handled and deleted.
    Done,
    /// The attempt failed, and the message was released to the queue.
    Retried,
    /// Dispatcher moved the message to the dead-letter queue.
    DeadLettered,
    /// The last permitted receive failed or ended without an answer: the queue's own redrive policy
    /// moves the message.
    DeadLetteredByPolicy,
    /// The message was older than `max-age` and was not started.
    Shed,
    /// No filter of the route matched the message, and it was not started.
    Filtered,
    /// The message was cancelled.
    Cancelled,
    /// The lease expired or was taken away before the message could be settled.
    Lost,
    /// A stop interrupted the attempt, and the message was released: it will be handled again.
    Abandoned,
    /// The message was released without an attempt.
    Released,
    /// The message had been handled before and was redelivered; it was deleted without an attempt.
    Duplicate,
    /// The queue did not accept the outcome of the message.
    NotSettled,
}

impl EventKind {
    /// All events, in the order of `host/docs/events.md`.
    pub const ALL: [Self; 12] = [
        Self::Done,
        Self::Retried,
        Self::DeadLettered,
        Self::DeadLetteredByPolicy,
        Self::Shed,
        Self::Filtered,
        Self::Cancelled,
        Self::Lost,
        Self::Abandoned,
        Self::Released,
        Self::Duplicate,
        Self::NotSettled,
    ];

    /// The message of its log line.
    pub(crate) const fn log_message(self) -> &'static str {
        match self {
            Self::Done => "message done",
            Self::Retried => "message retried",
            Self::DeadLettered => "message dead-lettered",
            Self::DeadLetteredByPolicy => "message dead-lettered by redrive policy",
            Self::Shed => "message shed",
            Self::Filtered => "message filtered",
            Self::Cancelled => "message cancelled",
            Self::Lost => "lease lost",
            Self::Abandoned => "message abandoned",
            Self::Released => "message released",
            Self::Duplicate => "duplicate dropped",
            Self::NotSettled => "message not settled",
        }
    }

    /// The level of its log line.
    pub const fn level(self) -> Level {
        match self {
            Self::Done | Self::Duplicate => Level::DEBUG,
            Self::Retried | Self::Filtered | Self::Cancelled | Self::Released => Level::INFO,
            Self::DeadLettered
            | Self::DeadLetteredByPolicy
            | Self::Shed
            | Self::Lost
            | Self::Abandoned
            | Self::NotSettled => Level::WARN,
        }
    }

    /// The value of the metric label `event`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retried => "retried",
            Self::DeadLettered => "dead-lettered",
            Self::DeadLetteredByPolicy => "dead-lettered-by-redrive-policy",
            Self::Shed => "shed",
            Self::Filtered => "filtered",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
            Self::Abandoned => "abandoned",
            Self::Released => "released",
            Self::Duplicate => "duplicate",
            Self::NotSettled => "not-settled",
        }
    }

    /// The fields of its log line in addition to `queue`.
    pub const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Done | Self::Cancelled | Self::Duplicate => &["message_id", "receive_count"],
            Self::Retried => &[
                "message_id",
                "receive_count",
                "attempt",
                "delay_ms",
                "reason_kind",
                "reason",
            ],
            Self::DeadLettered => &[
                "message_id",
                "receive_count",
                "attempts",
                "to",
                "dead_letter_id",
                "first_id",
                "reason_kind",
                "reason",
            ],
            Self::DeadLetteredByPolicy => &[
                "message_id",
                "receive_count",
                "max_receive_count",
                "to",
                "first_id",
                "reason_kind",
                "reason",
            ],
            Self::Shed | Self::Filtered => {
                &["messages", "message_ids", "to", "reason_kind", "reason"]
            }
            Self::Lost => &["message_id", "receive_count", "handled"],
            Self::Abandoned => &[
                "message_id",
                "receive_count",
                "attempt",
                "ran_ms",
                "may_have_been_handled",
                "comes_again_at",
                "reason_kind",
                "reason",
            ],
            Self::Released => &["messages", "message_ids", "reason_kind", "reason"],
            Self::NotSettled => &[
                "message_id",
                "receive_count",
                "wanted",
                "outcome",
                "comes_again_by",
                "error",
            ],
        }
    }

    const fn place(self) -> usize {
        self as usize
    }
}

/// The reason for the end of a delivery, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReasonKind {
    /// The handler asked for a retry.
    RetryRequested,
    /// The handler rejected the message.
    Rejected,
    /// The Lambda function failed, or reported the message as failed.
    FunctionError,
    /// It is unknown whether the Lambda function ran.
    FunctionUnknown,
    /// A command exited with a failure code, or an HTTP handler answered with one.
    HandlerFailed,
    /// The WebAssembly code trapped.
    Trap,
    /// The attempt ran longer than `timeout`.
    Timeout,
    /// The handler exceeded `max-memory`.
    OutOfMemory,
    /// Dispatcher itself failed.
    HostError,
    /// The message was older than `max-age`.
    TooOld,
    /// No filter of the route matched the message.
    Filtered,
    /// The message was received as often as attempts are allowed before this time: earlier attempts
    /// did not answer, or more attempts were allowed then.
    NoAnswer,
    /// The content of the message is missing or cannot be read, so no attempt was made.
    Unreadable,
    /// The message is larger than the total that the process may hold, so no attempt was made.
    TooLarge,
    /// The lease of the message's last permitted receive was lost.
    LeaseLost,
    /// No attempt was started.
    NotAttempted,
    /// A stop interrupted the handler before its end.
    Interrupted,
    /// A stop did not wait for the answer; the called service may have handled the message.
    Stopped,
}

impl ReasonKind {
    /// All reasons, in the order of `host/docs/events.md`.
    pub const ALL: [Self; 18] = [
        Self::RetryRequested,
        Self::Rejected,
        Self::FunctionError,
        Self::FunctionUnknown,
        Self::HandlerFailed,
        Self::Trap,
        Self::Timeout,
        Self::OutOfMemory,
        Self::HostError,
        Self::TooOld,
        Self::Filtered,
        Self::NoAnswer,
        Self::Unreadable,
        Self::TooLarge,
        Self::LeaseLost,
        Self::NotAttempted,
        Self::Interrupted,
        Self::Stopped,
    ];

    /// The value of the field `reason_kind` and of the metric label `reason`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::RetryRequested => "retry-requested",
            Self::Rejected => "rejected",
            Self::FunctionError => "function-error",
            Self::FunctionUnknown => "function-unknown",
            Self::HandlerFailed => "handler-failed",
            Self::Trap => "trap",
            Self::Timeout => "timeout",
            Self::OutOfMemory => "out-of-memory",
            Self::HostError => "host-error",
            Self::TooOld => "too-old",
            Self::Filtered => "filtered",
            Self::NoAnswer => "no-answer",
            Self::Unreadable => "unreadable",
            Self::TooLarge => "too-large",
            Self::LeaseLost => "lease-lost",
            Self::NotAttempted => "not-attempted",
            Self::Interrupted => "interrupted",
            Self::Stopped => "stopped",
        }
    }

    /// Whether a stop interrupted an attempt.
    pub const fn is_of_a_stop(self) -> bool {
        matches!(self, Self::Interrupted | Self::Stopped)
    }

    const fn place(self) -> usize {
        self as usize
    }
}

/// The maximum length of a reason in bytes; the rest is cut. SQS's dead letters have room for it.
pub const LONGEST_REASON: usize = 2_048;
const CUT: &str = " (cut)";

/// The reason for the end of a delivery: a kind for counters and a text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The kind, for labels.
    pub kind: ReasonKind,
    text: String,
}

impl Reason {
    /// Makes a reason. Bounds the text and escapes its control characters.
    pub fn new(kind: ReasonKind, text: &str) -> Self {
        Self {
            kind,
            text: bounded(text),
        }
    }

    /// Returns the text: at most `LONGEST_REASON` bytes, without control characters.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Returns a reason in the form for logs and dead letters: control characters escaped, and at most
/// `LONGEST_REASON` bytes. Idempotent.
pub fn bounded(text: &str) -> String {
    let beginning = &text[..text.floor_char_boundary(LONGEST_REASON)];
    let mut bounded = escape_control_characters(beginning);
    if beginning.len() < text.len() || bounded.len() > LONGEST_REASON {
        bounded.truncate(bounded.floor_char_boundary(LONGEST_REASON - CUT.len()));
        bounded.push_str(CUT);
    }
    bounded
}

/// The count of each event for each reason, since the start.
#[derive(Debug, Default)]
pub struct EventCounts([EventCount; EventKind::ALL.len()]);

#[derive(Debug, Default)]
struct EventCount {
    without_reason: Counter,
    by_reason: [Counter; ReasonKind::ALL.len()],
}

impl EventCounts {
    /// Adds `more`.
    pub fn add(&self, event: EventKind, reason: Option<ReasonKind>, more: usize) {
        let count = &self.0[event.place()];
        match reason {
            None => count.without_reason.many(more),
            Some(reason) => count.by_reason[reason.place()].many(more),
        }
    }

    /// Returns the events that happened, with their counts. The reason is empty if the event has
    /// none.
    pub fn counted(&self) -> impl Iterator<Item = (EventKind, &'static str, u64)> {
        let each = EventKind::ALL.into_iter().flat_map(|event| {
            let count = &self.0[event.place()];
            let by_reason = ReasonKind::ALL
                .into_iter()
                .map(|reason| (reason.label(), count.by_reason[reason.place()].get()));
            [("", count.without_reason.get())]
                .into_iter()
                .chain(by_reason)
                .map(move |(reason, times)| (event, reason, times))
        });
        each.filter(|(_, _, times)| *times > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn every_event_and_reason_is_listed_once_in_order() {
        for (place, event) in EventKind::ALL.into_iter().enumerate() {
            assert_eq!(event.place(), place, "{event:?}");
        }
        for (place, reason) in ReasonKind::ALL.into_iter().enumerate() {
            assert_eq!(reason.place(), place, "{reason:?}");
        }
        let labels: HashSet<_> = EventKind::ALL.map(EventKind::label).into();
        assert_eq!(labels.len(), EventKind::ALL.len());
        let labels: HashSet<_> = ReasonKind::ALL.map(ReasonKind::label).into();
        assert_eq!(labels.len(), ReasonKind::ALL.len());
    }

    #[test]
    fn only_occurred_events_are_counted() {
        let counts = EventCounts::default();
        assert_eq!(counts.counted().count(), 0);
        counts.add(EventKind::Retried, Some(ReasonKind::Trap), 2);
        counts.add(EventKind::Done, None, 1);
        let counted: Vec<_> = counts.counted().collect();
        let wanted = [(EventKind::Done, "", 1), (EventKind::Retried, "trap", 2)];
        assert_eq!(counted, wanted);
    }

    proptest! {
        #[test]
        fn finding_05_reason_is_bounded_and_has_no_control_characters(text in "(?s).{0,200}", times in 1_usize..60) {
            let reason = bounded(&text.repeat(times));
            prop_assert!(reason.len() <= LONGEST_REASON);
            prop_assert!(reason.chars().all(|letter| letter == '\t' || !letter.is_control()));
            prop_assert_eq!(bounded(&reason), reason);
        }
    }
}
