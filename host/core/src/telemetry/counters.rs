//! Counts of what happened since the start. Written by every stage, read by whoever shows them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One count: it only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn one(&self) {
        self.many(1);
    }

    /// So many more.
    pub fn many(&self, more: usize) {
        self.0.fetch_add(more as u64, Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How many of something there are now.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Counts one until the guard is dropped.
    #[must_use = "it counts only while the guard lives"]
    pub fn hold(&self) -> GaugeUnit<'_> {
        self.0.fetch_add(1, Relaxed);
        GaugeUnit(self)
    }

    /// How many there are.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// One of what a `Gauge` counts.
#[derive(Debug)]
pub struct GaugeUnit<'a>(&'a Gauge);

impl Drop for GaugeUnit<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

/// All counts of one process; shared by `Arc`. No count orders memory: they are for people.
#[derive(Debug, Default)]
pub struct Counters {
    /// Messages received, redeliveries included.
    pub received: Counter,
    /// Messages that were handled and deleted.
    pub done: Counter,
    /// Messages released to come back.
    pub retried: Counter,
    /// Messages that were dead-lettered, by this program or by the queue's redrive policy.
    pub dead: Counter,
    /// Those of them that the queue's redrive policy moves, as far as receive counts show.
    pub dead_by_redrive_policy: Counter,
    /// Scheduled messages that could not be read and were moved to the dead jobs of their store.
    pub scheduled_dead: Counter,
    /// Messages that somebody cancelled while they were here.
    pub cancelled: Counter,
    /// Messages whose outcome the queue did not accept.
    pub not_settled: Counter,
    /// Invocations of Lambda functions that failed, may have failed, or were refused for their event.
    pub function_failures: Counter,
    /// Messages that were too old to be started: deleted, or among the dead as well.
    pub shed: Counter,
    /// Leases that ran out, or were taken away, before their message was settled.
    pub lost: Counter,
    /// Messages given back without a completed attempt.
    pub returned: Counter,
    /// Messages held since their downstream was busy; each time counts.
    pub held: Counter,
    /// Messages that were done before, came again and were deleted without running.
    pub recognised: Counter,
    /// Messages whose handler was done and whose ids the idempotency ledger has stored.
    pub remembered: Counter,
    /// Calls of the idempotency ledger that failed, or were not made since it did not answer.
    pub idempotency_failures: Counter,
    /// Attempts begun.
    pub attempts: Counter,
    /// Attempts running now.
    pub running: Gauge,
    /// Calls to receive.
    pub receive_calls: Counter,
    /// Calls to settle.
    pub settle_calls: Counter,
    /// Calls to extend.
    pub extend_calls: Counter,
    /// Calls of plugins for what they were not lent.
    pub refused: Counter,
    /// Calls of any kind that failed as a whole.
    pub failed_calls: Counter,
}

/// The counts at one moment, each read by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[expect(
    missing_docs,
    reason = "each is the field of the same name of `Counters`"
)]
pub struct Snapshot {
    pub received: u64,
    pub done: u64,
    pub retried: u64,
    pub dead: u64,
    pub dead_by_redrive_policy: u64,
    pub scheduled_dead: u64,
    pub cancelled: u64,
    pub not_settled: u64,
    pub function_failures: u64,
    pub shed: u64,
    pub lost: u64,
    pub returned: u64,
    pub held: u64,
    pub recognised: u64,
    pub remembered: u64,
    pub idempotency_failures: u64,
    pub attempts: u64,
    pub running: u64,
    pub receive_calls: u64,
    pub settle_calls: u64,
    pub extend_calls: u64,
    pub refused: u64,
    pub failed_calls: u64,
}

impl Counters {
    /// The counts now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            received: self.received.get(),
            done: self.done.get(),
            retried: self.retried.get(),
            dead: self.dead.get(),
            dead_by_redrive_policy: self.dead_by_redrive_policy.get(),
            scheduled_dead: self.scheduled_dead.get(),
            cancelled: self.cancelled.get(),
            not_settled: self.not_settled.get(),
            function_failures: self.function_failures.get(),
            shed: self.shed.get(),
            lost: self.lost.get(),
            returned: self.returned.get(),
            held: self.held.get(),
            recognised: self.recognised.get(),
            remembered: self.remembered.get(),
            idempotency_failures: self.idempotency_failures.get(),
            attempts: self.attempts.get(),
            running: self.running.get(),
            receive_calls: self.receive_calls.get(),
            settle_calls: self.settle_calls.get(),
            extend_calls: self.extend_calls.get(),
            refused: self.refused.get(),
            failed_calls: self.failed_calls.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_grow_and_gauges_come_back() {
        let counters = Counters::default();
        counters.received.many(3);
        counters.done.one();
        let held = counters.running.hold();
        let during = counters.snapshot();
        assert_eq!((during.received, during.done, during.running), (3, 1, 1));
        drop(held);
        assert_eq!(counters.snapshot().running, 0);
    }
}
