//! The measurements of one queue. The hot path writes them with plain atomic additions; publishers
//! and `/metrics` read them. Knows no sink.

use super::durations::DurationsByError;
use super::exemplar::ExemplarTrace;
use super::histogram::{Histogram, Samples};
use super::released::DelayedReleases;
use crate::telemetry::counters::Counter;
use crate::telemetry::events::EventCounts;
use crate::telemetry::events::outcomes::Outcomes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A current number and its maximum.
#[derive(Debug, Default)]
pub(super) struct Level {
    now: AtomicU64,
    most: AtomicU64,
}

impl Level {
    fn rise(&self, more: u64) {
        let now = self.now.fetch_add(more, Relaxed) + more;
        self.most.fetch_max(now, Relaxed);
    }

    fn fall(&self, less: u64) {
        self.now.fetch_sub(less, Relaxed);
    }

    fn get(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// Returns the maximum since the last call. The next maximum begins at the current number.
    pub(super) fn take_maximum(&self) -> u64 {
        let most = self.most.swap(0, Relaxed);
        let now = self.now.load(Relaxed);
        self.most.fetch_max(now, Relaxed);
        most.max(now)
    }
}

/// The measurements of one queue; shared by `Arc`. The totals since the start only grow.
#[derive(Debug, Default)]
pub struct Meter {
    /// Messages received, redeliveries included.
    pub received: Counter,
    /// Messages that were handled and deleted.
    pub done: Counter,
    /// Messages whose attempt failed: retry, reject, trap, timeout.
    pub failed: Counter,
    /// Messages for which a service behind the handler had no capacity.
    pub throttled: Counter,
    /// Messages that went back to the queue because too many waited for limits.
    pub deferred: Counter,
    /// Messages that went before all others because they had waited for the longest wait of their
    /// priority.
    pub hastened: Counter,
    /// Messages that were dead-lettered, by this program or by the queue's redrive policy.
    pub dead: Counter,
    /// Messages that were too old to be started: deleted, or counted as dead as well.
    pub shed: Counter,
    /// Leases that expired, or were taken away, before their message was settled.
    pub lost: Counter,
    /// Calls to receive, settle and extend. On some backends one settle takes several calls.
    pub calls: Counter,
    /// Messages that were released for a later attempt and are not due yet.
    pub released: DelayedReleases,
    /// The outcomes of deliveries, by reason.
    pub events: EventCounts,
    /// The last outcomes of deliveries, of all queues.
    pub outcomes: Arc<Outcomes>,
    /// Whether the queue is paused.
    pub paused: AtomicBool,
    /// The duration of each message's attempt.
    pub attempts: DurationsByError,
    /// The duration of calls to receive.
    pub receives: DurationsByError,
    /// The duration of calls to settle.
    pub settlements: DurationsByError,
    /// The duration of calls to extend leases.
    pub extensions: DurationsByError,
    pub(super) keeps_exemplars: AtomicBool,
    age: Histogram,
    in_flight: Level,
    /// The messages in flight of all queues together. The sum of the queues' maxima would be more
    /// than the maximum of all.
    all: Arc<Level>,
    /// The totals at the last `drain`.
    drained: Mutex<Totals>,
}

impl Meter {
    pub(super) fn new(all: &Arc<Level>, outcomes: &Arc<Outcomes>) -> Self {
        Self {
            all: Arc::clone(all),
            outcomes: Arc::clone(outcomes),
            ..Self::default()
        }
    }

    /// Records the duration of a message's attempt; `error` is the reason if it failed. Keeps its
    /// trace as an exemplar.
    pub fn took(
        &self,
        duration: Duration,
        error: Option<&'static str>,
        trace: Option<ExemplarTrace>,
    ) {
        self.attempts.record(duration, error);
        if let Some(trace) = trace {
            self.attempts.trace(duration, error, trace);
        }
    }

    /// Whether exemplars are read. If not, callers need not find the trace.
    pub(crate) fn keeps_exemplars(&self) -> bool {
        self.keeps_exemplars.load(Relaxed)
    }

    /// Records the age of a message on arrival.
    pub(crate) fn aged(&self, since_sent: Duration) {
        self.age.record(since_sent);
    }

    /// Counts messages as in flight until the guard is dropped.
    pub fn hold(self: &Arc<Self>, messages: u32) -> InFlight {
        self.in_flight.rise(u64::from(messages));
        self.all.rise(u64::from(messages));
        InFlight {
            meter: Arc::clone(self),
            messages: u64::from(messages),
        }
    }

    /// Returns the messages in flight now.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.get()
    }

    /// Adds the durations of all attempts since the start to `sum`.
    pub fn add_durations(&self, sum: &mut Samples) {
        self.attempts.add_to(sum);
    }

    /// Returns the durations of all attempts since the start.
    pub fn durations(&self) -> Samples {
        let mut sum = Samples::default();
        self.attempts.add_to(&mut sum);
        sum
    }

    /// Returns everything since the start.
    pub fn totals(&self) -> Totals {
        Totals {
            received: self.received.get(),
            done: self.done.get(),
            failed: self.failed.get(),
            throttled: self.throttled.get(),
            deferred: self.deferred.get(),
            hastened: self.hastened.get(),
            dead: self.dead.get(),
            shed: self.shed.get(),
            lost: self.lost.get(),
            calls: self.calls.get(),
            duration: self.durations(),
            age: self.age.samples(),
        }
    }

    /// Returns the measurements since the last call. Must have only one caller: two would take
    /// measurements from each other.
    pub fn drain(&self) -> Interval {
        let mut drained = self.drained.lock();
        let totals = self.totals();
        let counts = totals.since(&drained);
        *drained = totals;
        Interval {
            counts,
            in_flight: self.in_flight.take_maximum(),
        }
    }
}

/// A guard for messages that count as in flight until it is dropped.
#[derive(Debug)]
#[must_use = "it counts only while the guard lives"]
pub struct InFlight {
    meter: Arc<Meter>,
    messages: u64,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.meter.in_flight.fall(self.messages);
        self.meter.all.fall(self.messages);
    }
}

/// The counts of a meter, at some moment or within some time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the field of the same name of `Meter`")]
pub struct Totals {
    pub received: u64,
    pub done: u64,
    pub failed: u64,
    pub throttled: u64,
    pub deferred: u64,
    pub hastened: u64,
    pub dead: u64,
    pub shed: u64,
    pub lost: u64,
    pub calls: u64,
    /// The duration of each message's attempt.
    pub duration: Samples,
    /// The age of each message when it was received.
    pub age: Samples,
}

impl Totals {
    fn since(&self, earlier: &Totals) -> Totals {
        Totals {
            received: self.received - earlier.received,
            done: self.done - earlier.done,
            failed: self.failed - earlier.failed,
            throttled: self.throttled - earlier.throttled,
            deferred: self.deferred - earlier.deferred,
            hastened: self.hastened - earlier.hastened,
            dead: self.dead - earlier.dead,
            shed: self.shed - earlier.shed,
            lost: self.lost - earlier.lost,
            calls: self.calls - earlier.calls,
            duration: self.duration.since(&earlier.duration),
            age: self.age.since(&earlier.age),
        }
    }

    /// Adds the counts of another queue.
    pub fn add(&mut self, other: &Totals) {
        self.received += other.received;
        self.done += other.done;
        self.failed += other.failed;
        self.throttled += other.throttled;
        self.deferred += other.deferred;
        self.hastened += other.hastened;
        self.dead += other.dead;
        self.shed += other.shed;
        self.lost += other.lost;
        self.calls += other.calls;
        self.duration.add(&other.duration);
        self.age.add(&other.age);
    }
}

/// The measurements between two drains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interval {
    /// The counts of that time.
    pub counts: Totals,
    /// The maximum number of messages in flight at once.
    pub in_flight: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drain_returns_what_came_since_the_last() {
        let meter = Arc::new(Meter::default());
        meter.received.many(3);
        meter.took(Duration::from_millis(5), None, None);
        let first = meter.drain();
        assert_eq!(
            (first.counts.received, first.counts.duration.count()),
            (3, 1)
        );
        meter.received.one();
        meter.aged(Duration::from_secs(9));
        let second = meter.drain();
        assert_eq!(
            (second.counts.received, second.counts.duration.count()),
            (1, 0)
        );
        assert_eq!(second.counts.age.count(), 1);
        assert_eq!(meter.totals().received, 4, "totals are never drained");
    }

    #[test]
    fn in_flight_is_the_maximum_including_earlier_attempts() {
        let meter = Arc::new(Meter::default());
        let held = meter.hold(5);
        drop(meter.hold(2));
        assert_eq!(meter.drain().in_flight, 7);
        assert_eq!(meter.drain().in_flight, 5);
        drop(held);
        assert_eq!(meter.drain().in_flight, 5, "they were there when it began");
        assert_eq!(meter.drain().in_flight, 0);
        assert_eq!(meter.in_flight(), 0);
    }
}
