//! The last ends of deliveries, in memory: a bounded ring for whoever asks what failed, and a stream
//! for whoever follows. What is done or a duplicate is streamed and not kept, so that a thousand good
//! messages do not push out the bad one, and costs nothing while nobody follows.

use super::kind::{EventCounts, EventKind, Reason};
use super::{MessageEvent, ShedTo};
use crate::clock;
use crate::clock::Timestamp;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::broadcast;

/// How many ends are kept.
pub const KEPT: usize = 1_000;
/// How far a follower may be behind.
const BEHIND: usize = 1_024;
/// How many ids one end names; those of more messages are counted alone.
const IDS: usize = 10;

/// The end of a delivery, or of several of one queue together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentOutcome {
    /// Grows by one from end to end, but for those that nobody followed.
    pub sequence: u64,
    /// When it was.
    pub at: Timestamp,
    /// The queue, as the configuration names it.
    pub queue: String,
    /// How it ended.
    pub event: EventKind,
    /// Why, where that is known.
    pub reason: Option<Reason>,
    /// How many messages.
    pub messages: usize,
    /// The ids of the first of them.
    pub ids: Vec<String>,
    /// How often it was received, where it is one.
    pub receive_count: Option<u32>,
    /// Which attempt at it this was, where it is one and the event counts them.
    pub attempt: Option<u32>,
    /// How long the attempt took, if one was made.
    pub took: Option<Duration>,
    /// Where it went, where the queue tells.
    pub to: Option<String>,
}

/// The last ends of all queues of a process; shared by `Arc`.
#[derive(Debug, Default)]
pub struct Outcomes {
    ring: Mutex<Ring>,
    followers: AtomicUsize,
    counts: EventCounts,
}

#[derive(Debug, Default)]
struct Ring {
    sequence: u64,
    kept: VecDeque<Arc<RecentOutcome>>,
    stream: Option<broadcast::Sender<Arc<RecentOutcome>>>,
}

impl Outcomes {
    /// Takes one down.
    pub(super) fn note(&self, queue: &str, event: &MessageEvent<'_>) {
        let (reason, messages) = event.reason_and_messages();
        self.counts.add(event.kind(), reason, messages);
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
            // Whoever followed may have gone.
            let _ = stream.send(outcome);
        }
    }

    /// How often deliveries of all queues ended so, since the start.
    pub fn counts(&self) -> &EventCounts {
        &self.counts
    }

    /// Those of which this holds and that came before `before`, the newest first; at most `most`.
    pub fn recent(
        &self,
        before: Option<u64>,
        most: usize,
        holds: impl Fn(&RecentOutcome) -> bool,
    ) -> Vec<Arc<RecentOutcome>> {
        let ring = self.lock();
        let earlier = |one: &&Arc<RecentOutcome>| before.is_none_or(|before| one.sequence < before);
        let newest = ring.kept.iter().rev().filter(earlier);
        newest
            .filter(|one| holds(one))
            .take(most)
            .cloned()
            .collect()
    }

    /// Follows what comes from now on.
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
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a follower reads.
#[derive(Debug)]
pub struct OutcomeStream {
    receiver: broadcast::Receiver<Arc<RecentOutcome>>,
    of: Arc<Outcomes>,
}

impl OutcomeStream {
    /// The next end. `None` once the follower is too far behind, and what it missed is gone.
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
        MessageEvent::Retried { of, reason, .. } => (Some(of), &[], Some(reason), None),
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
        MessageEvent::Released { ids, reason, .. } => (None, ids, Some(reason), None),
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
            MessageEvent::Retried { attempt, .. } => Some(*attempt),
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
    use super::super::kind::ReasonKind;
    use super::*;

    fn of(id: &str) -> Delivery<'_> {
        Delivery {
            id,
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
        let all = |_: &RecentOutcome| true;
        assert_eq!(outcomes.recent(None, 10, all)[0].ids, ["first"]);
        let reason = Reason::new(ReasonKind::NotAttempted, "stopped");
        let ids: Vec<String> = (0..30).map(|number| number.to_string()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        for _ in 0..KEPT {
            let released = MessageEvent::Released {
                ids: &ids,
                reason: &reason,
                trace: None,
            };
            outcomes.note("local:b", &released);
        }
        assert!(
            outcomes
                .recent(None, KEPT, |one| one.queue == "local:a")
                .is_empty()
        );
        let newest = &outcomes.recent(None, 1, all)[0];
        assert_eq!((newest.messages, newest.ids.len()), (30, IDS));
        let before = outcomes.recent(Some(newest.sequence), 2, all);
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
