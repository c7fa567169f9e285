//! What a run did, as it is reported: counts that stay small however many messages there are. Pure.

use super::select::reason_of;
use crate::message::Message;
use serde::{Deserialize, Serialize};

/// The most kinds of letters or of failures that are told apart.
const KINDS: usize = 100;
/// The most characters of a reason by which letters are told apart.
pub(super) const REASON: usize = 200;
/// So many ids are shown of each kind.
const SAMPLES: usize = 3;
/// What stands for all kinds beyond `KINDS`: no reason of a message, so none is selected by it.
pub const OTHERS: &str = "(others)";

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// Everything that was there at the start was looked at.
    Complete,
    /// As many were moved as were asked for.
    First,
    /// As many were looked at as may be.
    ScanLimit,
    /// Somebody stopped it.
    Cancelled,
    /// Too many messages that were redriven have failed again.
    TooManyReturned,
    /// A message of a FIFO queue could not be moved, and those behind it wait for it.
    OrderKept,
    /// The destinations took nothing several times in a row.
    DestinationFails,
    /// The queue refused to delete what was sent, several times in a row.
    SourceKeeps,
    /// Only messages that came after the start were received, many times in a row.
    OnlyNew,
    /// More messages stay than a run may hold.
    TooManyStay,
    /// The next receive of a message that is held would be the last that the queue's own policy allows.
    LastReceive,
    /// A message that is held has had its last receive: that policy takes it at the next.
    ReceivesSpent,
}

impl End {
    /// Whether all that was asked for was looked at.
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Complete | Self::OnlyNew | Self::First)
    }

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Complete => "everything was looked at",
            Self::First => "as many as were asked for",
            Self::ScanLimit => "as many were looked at as may be; there may be more",
            Self::Cancelled => "stopped",
            Self::TooManyReturned => "stopped: too many redriven messages failed again",
            Self::OrderKept => {
                "stopped: a message could not be moved, and those behind it would overtake it"
            }
            Self::DestinationFails => {
                "stopped: the destination took nothing several times in a row"
            }
            Self::SourceKeeps => {
                "stopped: the source keeps its messages, and each that was sent is in both queues"
            }
            Self::OnlyNew => "everything was looked at but what keeps coming",
            Self::TooManyStay => {
                "stopped: too many messages stay, and each is received again and again; correct why \
                 they stay"
            }
            Self::LastReceive => {
                "stopped: the queue's own redrive policy leaves a message one receive more"
            }
            Self::ReceivesSpent => {
                "stopped: a message has had its last receive, and the queue's own redrive policy \
                 takes it at the next"
            }
        }
    }
}

/// Messages with one reason and one destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterTally {
    /// Why they are dead letters, where they say.
    pub reason: Option<String>,
    /// Where they go; nowhere if no destination is known.
    pub to: Option<String>,
    /// How many there are.
    pub messages: u64,
    /// How many of them were moved.
    pub moved: u64,
    /// The ids of some.
    pub samples: Vec<String>,
}

/// Messages that were not moved, or would not be, for one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureTally {
    /// Why.
    pub error: String,
    /// How many.
    pub messages: u64,
    /// The ids of some.
    pub samples: Vec<String>,
}

/// Messages with one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasonTally {
    /// Why they are dead letters, where they say.
    pub reason: Option<String>,
    /// How many there are.
    pub messages: u64,
    /// The ids of some.
    pub samples: Vec<String>,
}

/// Messages counted by their reasons. However many reasons there are, few are told apart.
#[derive(Debug, Clone, Default)]
pub(super) struct ReasonTallies(Vec<ReasonTally>);

impl ReasonTallies {
    /// Counts one more.
    pub(super) fn note(&mut self, letter: &Message) {
        let reason = shown_reason(letter);
        let is_full = self.0.len() >= KINDS;
        let known = |reason: &Option<String>| self.0.iter().position(|one| one.reason == *reason);
        let others = Some(OTHERS.to_owned());
        let at = known(&reason).or_else(|| is_full.then(|| known(&others)).flatten());
        let at = at.unwrap_or_else(|| {
            self.0.push(ReasonTally {
                reason: if is_full { others } else { reason },
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

    /// The most frequent reason first.
    pub(super) fn sorted(mut self) -> Vec<ReasonTally> {
        self.0.sort_by_key(|one| std::cmp::Reverse(one.messages));
        self.0
    }
}

fn shown_reason(letter: &Message) -> Option<String> {
    reason_of(letter).map(|reason| reason.chars().take(REASON).collect())
}

/// What a run did, or would do.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RedriveReport {
    /// The queue that messages were taken from.
    pub queue: String,
    /// Whether messages were moved; else they were only counted.
    pub applied: bool,
    /// Messages that were looked at.
    pub scanned: u64,
    /// Receives of messages that stay and were given back: each counts, also where a run takes so long
    /// that a message comes again.
    pub received: u64,
    /// Calls that received.
    pub receive_calls: u64,
    /// Messages that were selected, as far as the run came.
    pub matched: u64,
    /// Messages that were sent to their destination and deleted.
    pub moved: u64,
    /// Messages that were selected and stay, or would; `failures` says why.
    pub left: u64,
    /// Messages that were selected and wait behind one of their group that stays.
    pub blocked: u64,
    /// Messages that were selected and that somebody else received or removed first.
    #[serde(default)]
    pub taken: u64,
    /// Messages that came after the run began, and stay.
    pub arrived: u64,
    /// Messages that came after the run began and had been redriven before, by this run or another; 0
    /// for a move.
    pub returned: u64,
    /// Messages that were sent and could not be deleted: they are in both queues.
    pub not_deleted: u64,
    /// Messages that were asked for by their ids and not found: in flight, delayed, or gone.
    #[serde(default)]
    pub missing: u64,
    /// Messages whose sending got no clear answer: they stay, and may be in both queues.
    pub uncertain: u64,
    /// Messages that could not be given back: they stay invisible until their lease ends.
    pub not_released: u64,
    /// Messages that were moved without `dispatcher-redriven`, for want of room.
    pub uncounted: u64,
    /// The selected messages by reason and destination.
    pub messages: Vec<LetterTally>,
    /// Why messages stay.
    pub failures: Vec<FailureTally>,
    /// Why the run ended; nothing while it goes on.
    pub end: Option<End>,
}

impl RedriveReport {
    /// Notes a selected message and where it goes.
    pub(super) fn note_selected(&mut self, letter: &Message, to: Option<&str>) {
        self.matched += 1;
        let tally = self.tally_of(letter, to);
        tally.messages += 1;
        if tally.samples.len() < SAMPLES {
            tally.samples.push(letter.id.clone());
        }
    }

    /// Notes that a selected message was moved.
    pub(super) fn note_moved(&mut self, letter: &Message, to: &str) {
        self.moved += 1;
        self.tally_of(letter, Some(to)).moved += 1;
    }

    fn tally_of(&mut self, letter: &Message, to: Option<&str>) -> &mut LetterTally {
        let reason = shown_reason(letter);
        let known = |list: &[LetterTally], reason: &Option<String>| {
            list.iter()
                .position(|one| one.reason == *reason && one.to.as_deref() == to)
        };
        let others = Some(OTHERS.to_owned());
        let at = known(&self.messages, &reason);
        let at = at.or_else(|| {
            let is_full = self.messages.len() >= KINDS;
            let last = known(&self.messages, &others);
            is_full.then_some(last).flatten()
        });
        let at = at.unwrap_or_else(|| {
            let is_full = self.messages.len() >= KINDS;
            self.messages.push(LetterTally {
                reason: if is_full { others } else { reason },
                to: to.map(str::to_owned),
                messages: 0,
                moved: 0,
                samples: Vec::new(),
            });
            self.messages.len() - 1
        });
        &mut self.messages[at]
    }

    /// Notes a selected message that stays, or would. True for the first of its kind.
    pub(super) fn note_failure(&mut self, letter: &Message, error: &str) -> bool {
        self.left += 1;
        self.note_problem(&letter.id, error)
    }

    /// Notes what is wrong with a message. True for the first of its kind.
    pub(super) fn note_problem(&mut self, id: &str, error: &str) -> bool {
        let known = self.failures.iter().position(|one| one.error == error);
        let is_full = self.failures.len() >= KINDS;
        let last = || self.failures.iter().position(|one| one.error == OTHERS);
        let at = known.or_else(|| is_full.then(last).flatten());
        let is_first = at.is_none();
        let at = at.unwrap_or_else(|| {
            self.failures.push(FailureTally {
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

    /// Whether every selected message is where it should be, and none was left out.
    pub fn is_clean(&self) -> bool {
        let stays = self.left + self.blocked + self.not_deleted + self.missing;
        stays == 0 && self.end.is_some_and(End::is_whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Attribute;
    use crate::message::samples::message;
    use crate::queue::DEAD_LETTER_REASON;

    fn letter(id: usize, reason: &str) -> Message {
        Message {
            attributes: vec![Attribute::text(DEAD_LETTER_REASON, reason)],
            ..message(&id.to_string())
        }
    }

    #[test]
    fn letters_are_counted_by_reason_and_destination() {
        let mut report = RedriveReport::default();
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
        assert_eq!((report.matched, report.moved), (7, 1));
    }

    #[test]
    fn a_report_is_clean_only_if_the_run_did_not_end_early() {
        let ended = |end| RedriveReport {
            moved: 3,
            end: Some(end),
            ..RedriveReport::default()
        };
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
        let mut report = RedriveReport::default();
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
            .find(|one| one.reason.as_deref() == Some("frequent"));
        let frequent = frequent.expect("it is told apart");
        assert_eq!((frequent.messages, &*frequent.samples[0]), (4, "1"));
        assert!(sorted.is_sorted_by_key(|one| std::cmp::Reverse(one.messages)));
    }
}
