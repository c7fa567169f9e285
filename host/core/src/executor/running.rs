//! The attempts under way in one route, so that people can see and cancel them. The executor writes
//! it at the beginning and the end of every attempt; it is read only on request.

use crate::clock;
use crate::clock::BootInstant;
use crate::handler::Attempt;
use crate::lease::Ledger;
use crate::lease::book::LeaseId;
use crate::message::Message;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// An attempt that takes less time is not stuck, even if the others are much faster.
const NEVER_STUCK: Duration = Duration::from_secs(5);
/// An attempt that takes this many times the usual time is stuck.
const TIMES_USUAL: u32 = 10;
/// The time that an attempt may continue after its cancellation or its time limit.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// The attempts under way in one route.
#[derive(Debug, Default)]
pub struct RunningAttempts(Mutex<AttemptTable>);

#[derive(Debug, Default)]
struct AttemptTable {
    begun: u64,
    by_number: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    lane: usize,
    attempt: Arc<Attempt>,
    began: BootInstant,
    leases: Vec<RunningLease>,
    version: Option<Arc<str>>,
    /// Which messages were cancelled; empty if none was.
    cancelled: Vec<bool>,
    cancelled_at: Option<BootInstant>,
}

/// The data of a job that stays here while its attempt runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunningLease {
    pub lease: LeaseId,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

/// An attempt, as shown to people.
#[derive(Debug, Clone)]
pub struct AttemptView {
    /// The number of the attempt, unique in the route.
    pub number: u64,
    /// The place of its queue in the route.
    pub lane: usize,
    /// The time that it has run.
    pub age: Duration,
    /// The time that it may still run.
    pub left: Duration,
    /// The version of the plugin that it began with, if there are versions.
    pub version: Option<Arc<str>>,
    /// The reason why it is stuck, if it is.
    pub stuck: Option<&'static str>,
    /// Its messages.
    pub messages: Vec<MessageView>,
}

/// One message of an attempt.
#[derive(Debug, Clone)]
pub struct MessageView {
    /// Its id.
    pub id: String,
    /// The number of times that it was received.
    pub receive_count: u32,
    /// The number of this attempt at it, from 1, as `max-attempts` counts.
    pub attempt: u32,
    /// The time until its lease expires unless it is extended; `None` once it is lost.
    pub lease_left: Option<Duration>,
    /// Whether it was cancelled or its lease was lost.
    pub cancelled: bool,
}

impl RunningAttempts {
    /// Enters an attempt. It is removed when the guard is dropped.
    pub(super) fn begin(
        &self,
        lane: usize,
        attempt: &Arc<Attempt>,
        leases: Vec<RunningLease>,
        version: Option<Arc<str>>,
    ) -> RunningGuard<'_> {
        let entry = Entry {
            lane,
            attempt: attempt.clone(),
            began: clock::now(),
            leases,
            version,
            cancelled: Vec::new(),
            cancelled_at: None,
        };
        let mut running = self.lock();
        running.begun += 1;
        let number = running.begun;
        running.by_number.insert(number, entry);
        RunningGuard { all: self, number }
    }

    /// Returns the number of attempts under way.
    pub fn len(&self) -> usize {
        self.lock().by_number.len()
    }

    /// Whether no attempt is under way.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lists at most `most` attempts with numbers above `after`, in the order of their numbers: the
    /// longest-running first. Lists only attempts of queues for whose place in the route `holds` is
    /// true. `usual` is the usual duration of an attempt, if known.
    pub fn list(
        &self,
        after: u64,
        most: usize,
        holds: impl Fn(usize) -> bool,
        ledger: &Ledger,
        usual: Option<Duration>,
    ) -> Vec<AttemptView> {
        let now = clock::now();
        let running = self.lock();
        let entries = running
            .by_number
            .range(after.saturating_add(1)..)
            .filter(|(_, entry)| holds(entry.lane))
            .take(most);
        entries
            .map(|(number, entry)| entry.view(*number, ledger, usual, now))
            .collect()
    }

    /// Returns one attempt, with copies of its messages.
    pub fn show(
        &self,
        number: u64,
        ledger: &Ledger,
        usual: Option<Duration>,
    ) -> Option<(AttemptView, Vec<Message>)> {
        let running = self.lock();
        let entry = running.by_number.get(&number)?;
        let view = entry.view(number, ledger, usual, clock::now());
        Some((view, entry.attempt.messages.clone()))
    }

    /// Cancels an attempt; its messages are deleted from their queue. Returns how many messages
    /// were cancelled: zero if there is no such attempt or all were cancelled before.
    pub fn cancel(&self, number: u64) -> usize {
        let mut running = self.lock();
        let entry = running.by_number.get_mut(&number);
        entry.map_or(0, |entry| entry.cancel(|_| true))
    }

    /// Cancels only the messages of a queue with this id. Other messages of their attempts
    /// continue. Returns how many messages were cancelled.
    pub fn cancel_message(&self, lane: usize, id: &str) -> usize {
        let mut running = self.lock();
        let entries = running.by_number.values_mut();
        let own = entries.filter(|entry| entry.lane == lane);
        own.map(|entry| entry.cancel(|message| message.id == id))
            .sum()
    }

    fn lock(&self) -> MutexGuard<'_, AttemptTable> {
        self.0.lock()
    }
}

impl Entry {
    fn cancel(&mut self, which: impl Fn(&Message) -> bool) -> usize {
        let messages = &self.attempt.messages;
        self.cancelled.resize(messages.len(), false);
        let mut count = 0;
        for (at, message) in messages.iter().enumerate() {
            // A message whose lease is lost may belong to another process.
            let is_ours = !self.attempt.cancelled[at].is_cancelled();
            if which(message) && is_ours {
                self.cancelled[at] = true;
                self.cancelled_at.get_or_insert(clock::now());
                self.attempt.cancelled[at].cancel();
                count += 1;
            }
        }
        count
    }

    fn view(
        &self,
        number: u64,
        ledger: &Ledger,
        usual: Option<Duration>,
        now: BootInstant,
    ) -> AttemptView {
        let messages = self
            .attempt
            .messages
            .iter()
            .enumerate()
            .map(|(at, message)| {
                let lease = self.leases.get(at);
                let deadline = lease.and_then(|lease| ledger.deadline(lease.lease));
                MessageView {
                    id: message.id.clone(),
                    receive_count: message.receive_count,
                    attempt: lease.map_or(1, |lease| lease.attempt),
                    lease_left: deadline.map(|deadline| deadline.since(now)),
                    cancelled: self.attempt.cancelled[at].is_cancelled(),
                }
            });
        let age = now.since(self.began);
        let limit = self.attempt.deadline.left(self.began);
        let told = self.cancelled_at.map(|at| now.since(at));
        AttemptView {
            number,
            lane: self.lane,
            age,
            left: self.attempt.deadline.left(now),
            version: self.version.clone(),
            stuck: stuck(age, limit, told, usual),
            messages: messages.collect(),
        }
    }
}

/// Returns why an attempt is stuck, or `None`. It is stuck if it has not ended after its
/// cancellation or its time limit, or if it has run for at least 5 seconds and for ten times as
/// long as the usual attempt of its route or, if that is not known, for half of its time limit.
/// `told` is the time since its cancellation.
pub fn stuck(
    age: Duration,
    limit: Duration,
    told: Option<Duration>,
    usual: Option<Duration>,
) -> Option<&'static str> {
    if told.is_some_and(|told| told > ENDS_WITHIN) {
        return Some("it was cancelled and has not ended");
    }
    if age > limit.saturating_add(ENDS_WITHIN) {
        return Some("its time is over and it has not ended");
    }
    if age < NEVER_STUCK {
        return None;
    }
    match usual {
        Some(usual) if age > usual.saturating_mul(TIMES_USUAL) => {
            Some("it has run for more than ten times the median of its route")
        }
        None if age > limit / 2 => Some("it has run for more than half of its time limit"),
        _ => None,
    }
}

/// A guard of an attempt under way. Dropping it removes the attempt from the list.
pub(super) struct RunningGuard<'a> {
    all: &'a RunningAttempts,
    number: u64,
}

impl RunningGuard<'_> {
    /// Ends it, and returns which of its messages were cancelled; empty if none was.
    pub(super) fn end(mut self) -> Vec<bool> {
        self.remove()
            .map(|entry| entry.cancelled)
            .unwrap_or_default()
    }

    /// Removes the entry, once.
    fn remove(&mut self) -> Option<Entry> {
        let number = std::mem::take(&mut self.number);
        // The first attempt has the number 1.
        (number > 0).then(|| self.all.lock().by_number.remove(&number))?
    }
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        // Outside of the lock: the entry may hold the last reference to its messages.
        drop(self.remove());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::handler::Deadline;
    use crate::message::samples;
    use tokio_util::sync::CancellationToken;

    const S: Duration = Duration::from_secs(1);

    fn attempt(ids: &[&str]) -> Arc<Attempt> {
        Arc::new(Attempt {
            messages: ids.iter().map(|id| samples::message(id)).collect(),
            cancelled: ids.iter().map(|_| CancellationToken::new()).collect(),
            tries: Vec::new(),
            deadline: Deadline::fixed(clock::now() + 30 * S, Timestamp::default()),
        })
    }

    #[test]
    fn an_attempt_is_listed_until_it_ends() {
        let all = RunningAttempts::default();
        let (one, two) = (attempt(&["a"]), attempt(&["b", "c"]));
        let first = all.begin(0, &one, Vec::new(), None);
        let second = all.begin(1, &two, Vec::new(), Some("v2".into()));
        let ledger = Ledger::default();
        let shown = all.list(0, 10, |_| true, &ledger, None);
        assert_eq!(shown.len(), 2);
        assert_eq!((shown[1].lane, shown[1].messages.len()), (1, 2));
        assert_eq!(shown[1].version.as_deref(), Some("v2"));
        assert_eq!(all.list(0, 1, |_| true, &ledger, None).len(), 1);
        assert_eq!(all.list(1, 10, |_| true, &ledger, None)[0].number, 2);
        assert!(all.list(0, 10, |lane| lane > 100, &ledger, None).is_empty());
        drop(first);
        assert!(second.end().is_empty());
        assert!(all.is_empty());
    }

    #[test]
    fn a_message_is_shown_with_the_number_of_its_attempt() {
        let all = RunningAttempts::default();
        let job = crate::job::samples::job("a");
        let lease = RunningLease {
            lease: job.lease.id(),
            attempt: 3,
        };
        let _running = all.begin(0, &attempt(&["a"]), vec![lease], None);
        let shown = all.list(0, 1, |_| true, &Ledger::default(), None);
        assert_eq!(shown[0].messages[0].attempt, 3);
    }

    #[test]
    fn a_cancelled_message_is_marked_once_and_told_to_end() {
        let all = RunningAttempts::default();
        let batch = attempt(&["a", "b"]);
        let guard = all.begin(3, &batch, Vec::new(), None);
        assert_eq!(all.cancel_message(0, "a"), 0, "another queue");
        assert_eq!(all.cancel_message(3, "a"), 1);
        assert_eq!(all.cancel_message(3, "a"), 0, "a second time");
        let told: Vec<bool> = batch
            .cancelled
            .iter()
            .map(|one| one.is_cancelled())
            .collect();
        assert_eq!(told, [true, false]);
        assert_eq!(all.cancel(guard.number), 1, "the other one");
        assert_eq!(all.cancel(99), 0);
        assert_eq!(guard.end(), [true, true]);
    }

    #[test]
    fn a_message_whose_lease_is_lost_is_not_cancelled() {
        let all = RunningAttempts::default();
        let one = attempt(&["a"]);
        let guard = all.begin(0, &one, Vec::new(), None);
        one.cancelled[0].cancel();
        assert_eq!(all.cancel(guard.number), 0);
    }

    #[test]
    fn an_attempt_is_stuck_by_the_documented_rule() {
        let usual = Some(S);
        assert_eq!(stuck(9 * S, 30 * S, None, usual), None);
        assert!(stuck(11 * S, 30 * S, None, usual).is_some());
        let quick = Some(Duration::from_millis(1));
        assert_eq!(stuck(4 * S, 30 * S, None, quick), None, "it is young");
        assert!(stuck(6 * S, 30 * S, None, quick).is_some());
        assert_eq!(stuck(14 * S, 30 * S, None, None), None);
        assert!(stuck(16 * S, 30 * S, None, None).is_some());
        assert!(
            stuck(2 * S, 30 * S, Some(2 * S), usual).is_some(),
            "it was cancelled"
        );
        assert_eq!(stuck(2 * S, 30 * S, Some(S / 2), usual), None);
        assert!(
            stuck(32 * S, 30 * S, None, Some(30 * S)).is_some(),
            "its time is over"
        );
    }
}
