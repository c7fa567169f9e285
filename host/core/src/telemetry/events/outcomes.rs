//! The last outcomes of deliveries, in memory: a bounded ring for queries, and a stream for
//! followers. Done messages and duplicates are streamed but not kept, so that a thousand good
//! messages do not push out the bad one. They cost nothing while there is no follower.

use super::kind::{EventCounts, EventKind, Reason, ReasonKind};
use super::{MessageEvent, ShedTo};
use crate::clock;
use crate::clock::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::broadcast;

/// The maximum number of outcomes that are kept.
pub const KEPT: usize = 1_000;
/// The maximum number of outcomes that a follower may be behind.
const BEHIND: usize = 1_024;
/// The maximum number of ids of one outcome; further messages are only counted.
const IDS: usize = 10;

/// The outcome of one delivery, or of several deliveries of one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentOutcome {
    /// The sequence number. Grows by one with each outcome, except for those that are neither kept
    /// nor followed.
    pub sequence: u64,
    /// The time of the outcome.
    pub at: Timestamp,
    /// The name of the queue in the configuration.
    pub queue: String,
    /// The way in which the delivery ended.
    pub event: EventKind,
    /// The reason, if it is known.
    pub reason: Option<Reason>,
    /// The number of messages.
    pub messages: usize,
    /// The ids of the first messages.
    pub ids: Vec<String>,
    /// The number of receives, if this is one message.
    pub receive_count: Option<u32>,
    /// The number of the attempt, if this is one message and the event counts attempts.
    pub attempt: Option<u32>,
    /// The duration of the attempt, if one was made.
    pub took: Option<Duration>,
    /// The queue that it was moved to, if the backend reports it.
    pub to: Option<String>,
}

/// The last outcomes of all queues of a process; shared by `Arc`.
#[derive(Debug, Default)]
pub struct Outcomes {
    ring: Mutex<Ring>,
    followers: AtomicUsize,
    counts: EventCounts,
    last_return: AtomicU64,
}

/// The number of messages that a stop left unfinished.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AbandonedMessages {
    /// Messages whose handlers were interrupted.
    pub interrupted: u64,
    /// Messages whose handlers' answers were not awaited: they may have been handled.
    pub unknown: u64,
    /// The time at which the queue delivers the last of them again.
    pub last_return: Timestamp,
}

#[derive(Debug, Default)]
struct Ring {
    sequence: u64,
    kept: VecDeque<Arc<RecentOutcome>>,
    stream: Option<broadcast::Sender<Arc<RecentOutcome>>>,
}

impl Outcomes {
    /// Records an outcome.
    pub(super) fn note(&self, queue: &str, event: &MessageEvent<'_>) {
        let (reason, messages) = event.reason_and_messages();
        self.counts.add(event.kind(), reason, messages);
        if let MessageEvent::Abandoned { visible_at, .. } = event {
            self.last_return.fetch_max(visible_at.0, Relaxed);
        }
        let is_kept = !matches!(event.kind(), EventKind::Done | EventKind::Duplicate);
        if !is_kept && self.followers.load(Relaxed) == 0 {
            return;
        }
        let mut outcome = outcome(queue, event);
        let mut ring = self.lock();
        ring.sequence += 1;
        outcome.sequence = ring.sequence;
        let outcome = Arc::new(outcome);
        if is_kept {
            if ring.kept.len() >= KEPT {
                ring.kept.pop_front();
            }
            ring.kept.push_back(outcome.clone());
        }
        if let Some(stream) = &ring.stream {
            // The last follower may have gone.
            let _ = stream.send(outcome);
        }
    }

    /// Returns the counts of outcomes of all queues, since the start.
    pub fn counts(&self) -> &EventCounts {
        &self.counts
    }

    /// Returns the number of messages whose attempts a stop interrupted.
    pub fn abandoned(&self) -> AbandonedMessages {
        let mut abandoned = AbandonedMessages {
            last_return: Timestamp(self.last_return.load(Relaxed)),
            ..AbandonedMessages::default()
        };
        for (_, reason, messages) in self.counts.counted() {
            if reason == ReasonKind::Interrupted.label() {
                abandoned.interrupted += messages;
            } else if reason == ReasonKind::Stopped.label() {
                abandoned.unknown += messages;
            }
        }
        abandoned
    }

    /// Returns at most `most` outcomes for which `holds` is true and that came before `before`,
    /// newest first.
    pub fn recent(
        &self,
        before: Option<u64>,
        most: usize,
        holds: impl Fn(&RecentOutcome) -> bool,
    ) -> Vec<Arc<RecentOutcome>> {
        let ring = self.lock();
        let newest =
            ring.kept.iter().rev().filter(|one: &&Arc<RecentOutcome>| {
                before.is_none_or(|before| one.sequence < before)
            });
        newest
            .filter(|one| holds(one))
            .take(most)
            .cloned()
            .collect()
    }

    /// Follows the outcomes from now on.
    pub fn follow(self: &Arc<Self>) -> OutcomeStream {
        self.followers.fetch_add(1, Relaxed);
        let mut ring = self.lock();
        let stream = ring
            .stream
            .get_or_insert_with(|| broadcast::channel(BEHIND).0);
        OutcomeStream {
            receiver: stream.subscribe(),
            of: self.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock()
    }
}

/// A follower's stream of outcomes.
#[derive(Debug)]
pub struct OutcomeStream {
    receiver: broadcast::Receiver<Arc<RecentOutcome>>,
    of: Arc<Outcomes>,
}

impl OutcomeStream {
    /// Returns the next outcome; `None` once the follower is too far behind and has missed
    /// outcomes.
    pub async fn next(&mut self) -> Option<Arc<RecentOutcome>> {
        self.receiver.recv().await.ok()
    }
}

impl Drop for OutcomeStream {
    fn drop(&mut self) {
        self.of.followers.fetch_sub(1, Relaxed);
    }
}

fn outcome(queue: &str, event: &MessageEvent<'_>) -> RecentOutcome {
    let (of, ids, reason, to): (_, &[&str], _, Option<&str>) = match event {
        MessageEvent::Done { of }
        | MessageEvent::Duplicate { of }
        | MessageEvent::Cancelled { of }
        | MessageEvent::Lost { of, .. } => (Some(of), &[], None, None),
        MessageEvent::NotSettled { of, .. } => (Some(of), &[], None, None),
        MessageEvent::Retried { of, reason, .. } | MessageEvent::Abandoned { of, reason, .. } => {
            (Some(of), &[], Some(reason), None)
        }
        MessageEvent::DeadLettered { of, reason, to, .. }
        | MessageEvent::DeadLetteredByPolicy { of, reason, to, .. } => {
            (Some(of), &[], Some(reason), *to)
        }
        MessageEvent::Shed { ids, reason, to } | MessageEvent::Filtered { ids, reason, to } => {
            let to = match to {
                ShedTo::Deleted => None,
                ShedTo::DeadLetters(to) => *to,
            };
            (None, ids, Some(reason), to)
        }
        MessageEvent::Released { ids, reason } => (None, ids, Some(reason), None),
    };
    let ids: Vec<&str> = of.map_or_else(|| ids.to_vec(), |of| vec![of.id]);
    RecentOutcome {
        sequence: 0,
        at: clock::wall_clock_now(),
        queue: queue.to_owned(),
        event: event.kind(),
        reason: reason.map(|reason| (*reason).clone()),
        messages: ids.len(),
        ids: ids.iter().take(IDS).map(|id| (*id).to_owned()).collect(),
        receive_count: of.map(|of| of.receive_count),
        attempt: match event {
            MessageEvent::Retried { attempt, .. } | MessageEvent::Abandoned { attempt, .. } => {
                Some(*attempt)
            }
            MessageEvent::DeadLettered { attempts, .. } => Some(*attempts),
            _ => None,
        },
        took: of.and_then(|of| of.took),
        to: to.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Delivery;
    use super::*;

    fn of(id: &str) -> Delivery<'_> {
        Delivery {
            id,
            first_id: None,
            receive_count: 2,
            took: None,
            trace: None,
        }
    }

    #[test]
    fn the_last_failures_are_kept_and_good_messages_push_none_out() {
        let outcomes = Outcomes::default();
        outcomes.note(
            "local:a",
            &MessageEvent::Lost {
                of: of("first"),
                handled: false,
            },
        );
        for _ in 0..2 * KEPT {
            outcomes.note("local:a", &MessageEvent::Done { of: of("good") });
        }
        assert_eq!(outcomes.recent(None, 10, |_| true)[0].ids, ["first"]);
        let reason = Reason::new(ReasonKind::NotAttempted, "stopped");
        let numbers: Vec<String> = (0..30).map(|number| number.to_string()).collect();
        let ids: Vec<&str> = numbers.iter().map(String::as_str).collect();
        for _ in 0..KEPT {
            let released = MessageEvent::Released {
                ids: &ids,
                reason: &reason,
            };
            outcomes.note("local:b", &released);
        }
        assert!(
            outcomes
                .recent(None, KEPT, |one| one.queue == "local:a")
                .is_empty()
        );
        let newest = &outcomes.recent(None, 1, |_| true)[0];
        assert_eq!((newest.messages, newest.ids.len()), (30, IDS));
        let before = outcomes.recent(Some(newest.sequence), 2, |_| true);
        assert_eq!(before[0].sequence + 1, newest.sequence);
        let counts: Vec<_> = outcomes.counts().counted().collect();
        let wanted = [
            (EventKind::Done, "", 2 * KEPT as u64),
            (EventKind::Lost, "", 1),
            (EventKind::Released, "not-attempted", 30 * KEPT as u64),
        ];
        assert_eq!(counts, wanted);
    }

    #[tokio::test]
    async fn a_follower_sees_good_messages_too_and_one_that_is_too_far_behind_is_told() {
        let outcomes = Arc::new(Outcomes::default());
        let mut stream = outcomes.follow();
        outcomes.note("local:a", &MessageEvent::Done { of: of("good") });
        let seen = stream.next().await.expect("it follows");
        assert_eq!((seen.event, &*seen.ids[0]), (EventKind::Done, "good"));
        for _ in 0..=BEHIND {
            outcomes.note("local:a", &MessageEvent::Done { of: of("good") });
        }
        assert!(stream.next().await.is_none());
        drop(stream);
        assert_eq!(outcomes.followers.load(Relaxed), 0);
    }
}
