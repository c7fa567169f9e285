//! The report of a run: counts whose size does not grow with the number of messages. Pure.

use crate::answers;
use crate::schema::{Components, Schema};
use crate::select::{REASON, reason_of};
use dispatcher_core::message::Message;
use dispatcher_core::telemetry::escape::escape_control_characters;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The maximum number of kinds of letters or failures that are counted separately.
const KINDS: usize = 100;
/// The maximum number of ids shown for each kind.
const SAMPLES: usize = 3;
/// The kind that stands for all kinds beyond `KINDS`. It is not the reason of a message, so it
/// selects none.
pub const OTHERS: &str = "(others)";

/// Declares the reasons why a run ends: each with its name for programs and its words for people.
macro_rules! ends {
    ($( $(#[doc = $about:literal])+ $end:ident, $name:literal, $words:literal; )+) => {
        /// The reason why a run ended.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum End { $( $(#[doc = $about])+ $end, )+ }

        impl End {
            const ALL: &[Self] = &[$( Self::$end, )+];

            /// Returns its name, for programs.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$end => $name, )+ }
            }

            /// Returns its description.
            pub const fn words(self) -> &'static str {
                match self { $( Self::$end => $words, )+ }
            }
        }
    };
}

ends! {
    /// Everything that was there at the start was inspected.
    Complete, "complete", "all messages were inspected";
    /// The requested number was moved.
    First, "first", "the requested number was reached";
    /// The maximum number of messages was inspected.
    ScanLimit, "scan-limit", "the maximum was inspected; there may be more";
    /// The run was cancelled.
    Cancelled, "cancelled", "stopped";
    /// Too many redriven messages have failed again.
    TooManyReturned, "too-many-returned", "stopped: too many redriven messages failed again";
    /// A message of a FIFO queue could not be moved, and those behind it wait for it.
    OrderKept, "order-kept",
        "stopped: a message could not be moved, and those behind it would overtake it";
    /// The destinations accepted nothing several times in a row.
    DestinationFails, "destination-fails",
        "stopped: the destination accepted no message several times in a row";
    /// The queue refused to delete sent messages several times in a row.
    SourceKeeps, "source-keeps",
        "stopped: messages cannot be deleted from the source, and each that was sent is in both \
         queues";
    /// Only messages that arrived after the start were received, many times in a row.
    OnlyNew, "only-new", "all messages were inspected except those that keep arriving";
    /// More messages stay than a run may hold.
    TooManyStay, "too-many-stay",
        "stopped: too many messages stay, and each is received again and again; correct the reason \
         why they stay";
    /// The next receive of a held message would be the last that the queue's redrive policy allows.
    LastReceive, "last-receive",
        "stopped: the queue's own redrive policy leaves a message only one receive";
    /// A held message has had its last receive: the redrive policy moves it at the next one.
    ReceivesSpent, "receives-spent",
        "stopped: a message has had its last receive, and the queue's own redrive policy moves it \
         at the next";
    /// Another version of the program gives a reason that this one does not know.
    Unknown, "unknown", "stopped: for a reason that this version does not know";
}

impl End {
    /// Returns whether everything that was requested was inspected.
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Complete | Self::OnlyNew | Self::First)
    }
}

impl Schema for End {
    fn schema(components: &mut Components) -> Value {
        String::schema(components)
    }
}

impl Serialize for End {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.words())
    }
}

impl<'de> Deserialize<'de> for End {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        let words = String::deserialize(reader)?;
        let mut ends = Self::ALL.iter().copied();
        Ok(ends
            .find(|end| end.words() == words)
            .unwrap_or(Self::Unknown))
    }
}

answers! {
    /// Messages with one reason.
    pub struct ReasonView {
        /// Why they were dead-lettered; nothing if that is not known.
        reason: Option<String>,
        /// How many there are among the inspected messages.
        messages: u64,
        /// The ids of some.
        samples: Vec<String>,
    }

    /// The result of a job, or the result that it would have.
    pub struct JobReport {
        /// Messages that were inspected.
        scanned: u64,
        /// Messages that were selected.
        selected: u64,
        /// Messages that were sent to their destination and deleted.
        moved: u64,
        /// Messages that a purge removed; nothing if the backend does not report it.
        removed: Option<u64>,
        /// Messages that were selected and stay, or would; `failures` says why.
        left: u64,
        /// Messages that were selected and wait behind one of their group that stays.
        blocked: u64,
        /// Messages that were selected and that another receiver took or removed first.
        taken: u64,
        /// Messages that came after the job began, and stay.
        arrived: u64,
        /// Messages that failed again while it ran and had been redriven before, by this job or another; 0
        /// for a move.
        returned: u64,
        /// Messages that were sent and could not be deleted: they are in both queues.
        not_deleted: u64,
        /// Messages that were requested by their ids and not found: in flight, delayed, or gone.
        missing: u64,
        /// Messages whose sending got no clear answer: they stay, and may be in both queues.
        uncertain: u64,
        /// Messages that could not be given back: they stay invisible until their lease ends.
        not_released: u64,
        /// Messages that were moved without `dispatcher-redriven`, because there was no room for
        /// it.
        uncounted: u64,
        /// Receives of messages that stay and were given back: each counts, also where a run takes so
        /// long that a message comes again.
        received: u64,
        /// Calls that received: on SQS each is billed.
        receive_calls: u64,
        /// The selected messages by reason and destination.
        messages: Vec<DestinationView>,
        /// Why messages stay.
        failures: Vec<FailureView>,
        /// Why it ended, in words; nothing while it runs.
        end: Option<End>,
    }

    /// Messages with one reason and one destination.
    pub struct DestinationView {
        /// Why they are dead letters, if that is known.
        reason: Option<String>,
        /// Where they go; nowhere if no destination is known.
        to: Option<String>,
        /// How many there are.
        messages: u64,
        /// How many of them were moved.
        moved: u64,
        /// The ids of some.
        samples: Vec<String>,
    }

    /// Messages that stay, or would, for one cause.
    pub struct FailureView {
        /// Why.
        error: String,
        /// How many.
        messages: u64,
        /// The ids of some.
        samples: Vec<String>,
    }
}

/// Counts messages by reason. The number of separate reasons is limited.
#[derive(Debug, Clone, Default)]
pub(super) struct ReasonTallies(Vec<ReasonView>);

impl ReasonTallies {
    /// Counts one message.
    pub(super) fn note(&mut self, letter: &Message) {
        let reason = shown_reason(letter);
        let is_full = self.0.len() >= KINDS;
        let at = self
            .position(reason.as_deref())
            .or_else(|| is_full.then(|| self.position(Some(OTHERS))).flatten())
            .unwrap_or_else(|| {
                self.0.push(ReasonView {
                    reason: or_others(reason, is_full),
                    messages: 0,
                    samples: Vec::new(),
                });
                self.0.len() - 1
            });
        let tally = &mut self.0[at];
        tally.messages += 1;
        if tally.samples.len() < SAMPLES {
            tally.samples.push(letter.id.clone());
        }
    }

    fn position(&self, reason: Option<&str>) -> Option<usize> {
        let mut all = self.0.iter();
        all.position(|one| one.reason.as_deref() == reason)
    }

    /// Returns the counts, most frequent reason first.
    pub(super) fn sorted(mut self) -> Vec<ReasonView> {
        self.0.sort_by_key(|one| std::cmp::Reverse(one.messages));
        self.0
    }
}

fn shown_reason(letter: &Message) -> Option<String> {
    reason_of(letter).map(|reason| reason.chars().take(REASON).collect())
}

fn or_others(reason: Option<String>, is_full: bool) -> Option<String> {
    if is_full {
        Some(OTHERS.to_owned())
    } else {
        reason
    }
}

impl JobReport {
    /// Records a selected message and its destination.
    pub(super) fn note_selected(&mut self, letter: &Message, to: Option<&str>) {
        self.selected += 1;
        let tally = self.tally_of(letter, to);
        tally.messages += 1;
        if tally.samples.len() < SAMPLES {
            tally.samples.push(letter.id.clone());
        }
    }

    /// Records that a selected message was moved.
    pub(super) fn note_moved(&mut self, letter: &Message, to: &str) {
        self.moved += 1;
        self.tally_of(letter, Some(to)).moved += 1;
    }

    fn tally_of(&mut self, letter: &Message, to: Option<&str>) -> &mut DestinationView {
        let reason = shown_reason(letter);
        let is_full = self.messages.len() >= KINDS;
        let at = self
            .position(reason.as_deref(), to)
            .or_else(|| is_full.then(|| self.position(Some(OTHERS), to)).flatten())
            .unwrap_or_else(|| {
                self.messages.push(DestinationView {
                    reason: or_others(reason, is_full),
                    to: to.map(str::to_owned),
                    messages: 0,
                    moved: 0,
                    samples: Vec::new(),
                });
                self.messages.len() - 1
            });
        &mut self.messages[at]
    }

    fn position(&self, reason: Option<&str>, to: Option<&str>) -> Option<usize> {
        let mut all = self.messages.iter();
        all.position(|one| one.reason.as_deref() == reason && one.to.as_deref() == to)
    }

    /// Records a selected message that stays, or would stay. Returns true for the first of its
    /// kind.
    pub(super) fn note_failure(&mut self, letter: &Message, error: &str) -> bool {
        self.left += 1;
        self.note_problem(&letter.id, error)
    }

    /// Records a problem of a message. Returns true for the first of its kind.
    pub(super) fn note_problem(&mut self, id: &str, error: &str) -> bool {
        let known = self.failures.iter().position(|one| one.error == error);
        let is_full = self.failures.len() >= KINDS;
        let at = known.or_else(|| {
            is_full
                .then(|| self.failures.iter().position(|one| one.error == OTHERS))
                .flatten()
        });
        let is_first = at.is_none();
        let at = at.unwrap_or_else(|| {
            self.failures.push(FailureView {
                error: if is_full { OTHERS } else { error }.to_owned(),
                messages: 0,
                samples: Vec::new(),
            });
            self.failures.len() - 1
        });
        let tally = &mut self.failures[at];
        tally.messages += 1;
        if tally.samples.len() < SAMPLES {
            tally.samples.push(id.to_owned());
        }
        is_first
    }

    /// Describes the kinds of messages and the counts other than 0, for people.
    pub(crate) fn lines(&self, applied: bool) -> Vec<String> {
        let mut lines = Vec::new();
        for kind in &self.messages {
            let reason = kind.reason.as_deref().unwrap_or("(no reason)");
            let to = kind.to.as_deref().unwrap_or("(nowhere)");
            let samples = kind.samples.join(", ");
            let text = format!("{:>8}  {reason}  -> {to}  e.g. {samples}", kind.messages);
            lines.push(escape_control_characters(&text).to_string());
        }
        let stay = if applied { "stay" } else { "would stay" };
        for kind in &self.failures {
            let (messages, error, samples) = (kind.messages, &kind.error, kind.samples.join(", "));
            let text = format!("{messages:>8}  {stay}: {error}  e.g. {samples}");
            lines.push(escape_control_characters(&text).to_string());
        }
        lines.extend(self.notes());
        if self.receive_calls > 0 {
            let given_back = match self.received {
                0 => String::new(),
                count => format!(
                    "; messages were given back after {count} receives, each of which counts"
                ),
            };
            lines.push(format!("{} receive calls{given_back}", self.receive_calls));
        }
        lines
    }

    /// Returns a line for each of these counts other than 0.
    fn notes(&self) -> impl Iterator<Item = String> {
        let notes = [
            (self.arrived, "arrived after this run began, and stay"),
            (
                self.taken,
                "were received or removed by others before this run reached them",
            ),
            (
                self.blocked,
                "wait behind a message of their group that stays",
            ),
            (
                self.returned,
                "were redriven, by this run or another, and failed again while it ran",
            ),
            (
                self.not_deleted,
                "were sent and could not be deleted: they are in both queues",
            ),
            (
                self.missing,
                "were requested and not found: in flight, delayed, or gone",
            ),
            (
                self.uncertain,
                "were sent without a clear answer and stay: they may be in both queues",
            ),
            (
                self.not_released,
                "could not be given back: they are invisible until their lease ends",
            ),
            (
                self.uncounted,
                "have no room for the attribute dispatcher-redriven besides the sender's",
            ),
        ];
        let counted = notes.into_iter().filter(|(count, _)| *count > 0);
        counted.map(|(count, what)| format!("{count:>8}  {what}"))
    }

    /// Returns whether every selected message was moved, or would be, and none was left out. A run
    /// that only counted a queue has no end.
    pub fn is_clean(&self) -> bool {
        let stays = self.left + self.blocked + self.not_deleted + self.missing;
        stays == 0 && self.end.is_none_or(End::is_whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::message::Attribute;
    use dispatcher_core::message::samples::message;
    use dispatcher_core::queue::DEAD_LETTER_REASON;

    fn letter(id: usize, reason: &str) -> Message {
        Message {
            attributes: vec![Attribute::text(DEAD_LETTER_REASON, reason)],
            ..message(&id.to_string())
        }
    }

    #[test]
    fn an_end_is_read_by_its_words_and_one_of_another_version_is_unknown() {
        for end in End::ALL {
            let written = serde_json::to_string(end).expect("a text");
            assert_eq!(serde_json::from_str::<End>(&written).ok(), Some(*end));
        }
        let newer = serde_json::from_str::<End>("\"stopped: of late\"");
        assert_eq!(newer.ok(), Some(End::Unknown));
    }

    #[test]
    fn letters_are_counted_by_reason_and_destination() {
        let mut report = JobReport::default();
        for id in 0..5 {
            report.note_selected(&letter(id, "trap"), Some("local:a"));
        }
        report.note_selected(&letter(5, "trap"), Some("local:b"));
        report.note_selected(&message("6"), None);
        report.note_moved(&letter(0, "trap"), "local:a");
        let counts: Vec<_> = report
            .messages
            .iter()
            .map(|one| (one.messages, one.moved))
            .collect();
        assert_eq!(counts, [(5, 1), (1, 0), (1, 0)]);
        assert_eq!(report.messages[0].samples, ["0", "1", "2"]);
        assert_eq!((report.selected, report.moved), (7, 1));
    }

    fn ended(end: End) -> JobReport {
        JobReport {
            moved: 3,
            end: Some(end),
            ..JobReport::default()
        }
    }

    #[test]
    fn a_report_is_clean_only_if_the_run_did_not_end_early() {
        for end in [End::Complete, End::OnlyNew, End::First] {
            assert!(ended(end).is_clean(), "{end:?}");
        }
        let early = [
            End::ScanLimit,
            End::LastReceive,
            End::ReceivesSpent,
            End::TooManyStay,
        ];
        for end in early {
            assert!(!ended(end).is_clean(), "{end:?}");
        }
    }

    #[test]
    fn a_report_stays_small_whatever_the_reasons_are() {
        let mut report = JobReport::default();
        for id in 0..1_000 {
            report.note_selected(&letter(id, &"x".repeat(id + 1)), Some("local:a"));
            report.note_failure(&letter(id, ""), &format!("error {id}"));
        }
        assert!(
            report.messages.len() <= KINDS + 1,
            "{}",
            report.messages.len()
        );
        assert!(report.failures.len() <= KINDS + 1);
        let counted: u64 = report.messages.iter().map(|one| one.messages).sum();
        assert_eq!((counted, report.left), (1_000, 1_000));
    }

    #[test]
    fn reasons_are_counted_with_the_most_frequent_first() {
        let mut reasons = ReasonTallies::default();
        reasons.note(&letter(0, "rare"));
        for id in 1..5 {
            reasons.note(&letter(id, "frequent"));
        }
        for id in 5..1_000 {
            reasons.note(&letter(id, &"x".repeat(id)));
        }
        let sorted = reasons.sorted();
        assert!(sorted.len() <= KINDS + 1, "{}", sorted.len());
        let counted: u64 = sorted.iter().map(|one| one.messages).sum();
        assert_eq!(counted, 1_000);
        let frequent = sorted
            .iter()
            .find(|one| one.reason.as_deref() == Some("frequent"))
            .expect("it is told apart");
        assert_eq!((frequent.messages, &*frequent.samples[0]), (4, "1"));
        assert!(sorted.is_sorted_by_key(|one| std::cmp::Reverse(one.messages)));
    }
}
