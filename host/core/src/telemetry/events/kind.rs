//! The closed sets behind the events of a message: what can happen to a delivery, why, and how often
//! it did. Metric labels come from here alone, so that no text of a guest becomes one.

use crate::telemetry::counters::Counter;
use crate::telemetry::escape::escape_control_characters;
use tracing::Level;

/// How one delivery of a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// It was handled and deleted.
    Done,
    /// It failed and was released to the queue.
    Retried,
    /// Dispatcher moved it to the dead-letter queue.
    DeadLettered,
    /// Its last permitted receive failed, or ended without an answer: the queue's own redrive policy
    /// moves it.
    DeadLetteredByPolicy,
    /// It was older than `max-age` and was not started.
    Shed,
    /// No filter of the route matched it, and it was not started.
    Filtered,
    /// Somebody cancelled it.
    Cancelled,
    /// Its lease expired, or was taken away, before it could be settled.
    Lost,
    /// It was released without a completed attempt.
    Released,
    /// It was handled before and was redelivered; it was deleted without an attempt.
    Duplicate,
    /// The queue did not accept its outcome.
    NotSettled,
}

impl EventKind {
    /// All of them, in the order of `host/docs/events.md`.
    pub const ALL: [Self; 11] = [
        Self::Done,
        Self::Retried,
        Self::DeadLettered,
        Self::DeadLetteredByPolicy,
        Self::Shed,
        Self::Filtered,
        Self::Cancelled,
        Self::Lost,
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
            Self::Released => "released",
            Self::Duplicate => "duplicate",
            Self::NotSettled => "not-settled",
        }
    }

    /// The fields of its log line beside `queue`.
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
                "reason_kind",
                "reason",
            ],
            Self::DeadLetteredByPolicy => &[
                "message_id",
                "receive_count",
                "max_receive_count",
                "to",
                "reason_kind",
                "reason",
            ],
            Self::Shed | Self::Filtered => {
                &["messages", "message_ids", "to", "reason_kind", "reason"]
            }
            Self::Lost => &["message_id", "receive_count", "handled"],
            Self::Released => &["messages", "message_ids", "reason_kind", "reason"],
            Self::NotSettled => &["message_id", "receive_count", "wanted", "outcome", "error"],
        }
    }

    const fn place(self) -> usize {
        self as usize
    }
}

/// Why a delivery ended as it did, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReasonKind {
    /// The handler asked for a retry.
    RetryRequested,
    /// The handler rejected the message.
    Rejected,
    /// The Lambda function failed, or reported the message as failed.
    FunctionError,
    /// Nobody knows whether the Lambda function ran.
    FunctionUnknown,
    /// A command exited with a failure code, or an HTTP handler answered with one.
    HandlerFailed,
    /// The WebAssembly code trapped.
    Trap,
    /// The attempt ran longer than `timeout`.
    Timeout,
    /// The handler wanted more than `max-memory`.
    OutOfMemory,
    /// Dispatcher itself failed.
    HostError,
    /// The message was older than `max-age`.
    TooOld,
    /// No filter of the route matched the message.
    Filtered,
    /// It was received more often than attempts are allowed, and no attempt ever answered.
    NoAnswer,
    /// Its content is missing or cannot be read, so no attempt was made.
    Unreadable,
    /// It is larger than all that the process may hold, so no attempt was made.
    TooLarge,
    /// The lease of its last permitted receive was lost.
    LeaseLost,
    /// No attempt was started, or it was cut off by a stop and may begin again at once.
    NotAttempted,
    /// The attempt was cut off by a stop, and what it began elsewhere may continue.
    Stopped,
}

impl ReasonKind {
    /// All of them, in the order of `host/docs/events.md`.
    pub const ALL: [Self; 17] = [
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
            Self::Stopped => "stopped",
        }
    }

    const fn place(self) -> usize {
        self as usize
    }
}

/// The longest reason, in bytes; the rest of it is dropped. SQS's dead letters have room for it.
pub const LONGEST_REASON: usize = 2_048;
const CUT: &str = " (cut)";

/// Why a delivery ended as it did: the kind for counters, the text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// For labels.
    pub kind: ReasonKind,
    text: String,
}

impl Reason {
    /// The text is bounded and its control characters are escaped.
    pub fn new(kind: ReasonKind, text: &str) -> Self {
        Self {
            kind,
            text: bounded(text),
        }
    }

    /// At most `LONGEST_REASON` bytes, without control characters.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A reason as logs and dead letters have it: its control characters escaped, and at most
/// `LONGEST_REASON` bytes. Applied again it changes nothing.
pub fn bounded(text: &str) -> String {
    let beginning = &text[..text.floor_char_boundary(LONGEST_REASON)];
    let mut bounded = escape_control_characters(beginning);
    if beginning.len() < text.len() || bounded.len() > LONGEST_REASON {
        bounded.truncate(bounded.floor_char_boundary(LONGEST_REASON - CUT.len()));
        bounded.push_str(CUT);
    }
    bounded
}

/// How often each event happened for each reason, since the start.
#[derive(Debug, Default)]
pub struct EventCounts([EventCount; EventKind::ALL.len()]);

#[derive(Debug, Default)]
struct EventCount {
    without_reason: Counter,
    by_reason: [Counter; ReasonKind::ALL.len()],
}

impl EventCounts {
    /// So many more.
    pub fn add(&self, event: EventKind, reason: Option<ReasonKind>, more: usize) {
        let count = &self.0[event.place()];
        match reason {
            None => count.without_reason.many(more),
            Some(reason) => count.by_reason[reason.place()].many(more),
        }
    }

    /// Those that happened at all; the reason is empty where the event has none.
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
