//! Counts of events since the start. Written by every stage, read by exporters.

use super::metrics::registry::{Metric, MetricFamily, MetricValue, Unit};
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

/// Declares every counter once: its documentation is the help of its metric.
macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident: $unit:ident,)+) => {
        /// All counts of one process; shared by `Arc`. No count orders memory: they are for people.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[doc = $help])+ pub $name: Counter,)+
            /// Attempts running now.
            pub running: Gauge,
        }

        /// The counts at one moment, each read by itself.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
        #[expect(
            missing_docs,
            reason = "each is the field of the same name of `Counters`"
        )]
        pub struct Snapshot {
            $(pub $name: u64,)+
            pub running: u64,
        }

        impl Counters {
            /// The counts now.
            pub fn snapshot(&self) -> Snapshot {
                Snapshot {
                    $($name: self.$name.get(),)+
                    running: self.running.get(),
                }
            }

            /// The counts now, as metrics.
            pub fn families(&self) -> Vec<MetricFamily> {
                let mut families = vec![$({
                    const HELP: &str = concat!($($help),+).trim_ascii_start();
                    let metric = Metric::counter(stringify!($name), Unit::$unit, HELP);
                    metric.of_process(MetricValue::Count(self.$name.get()))
                },)+];
                let running = MetricValue::Level(self.running.get() as f64);
                families.push(RUNNING.of_process(running));
                families
            }
        }
    };
}

const RUNNING: Metric = Metric::gauge("running", Unit::Attempts, "Attempts running now.");

counters! {
    /// Messages received, redeliveries included.
    received: Messages,
    /// Messages that were handled and deleted.
    done: Messages,
    /// Messages released to come back.
    retried: Messages,
    /// Messages that were dead-lettered, by this program or by the queue's redrive policy.
    dead: Messages,
    /// Messages that the queue's redrive policy dead-letters, as far as receive counts show.
    dead_by_redrive_policy: Messages,
    /// Scheduled messages that could not be read and were moved to the dead jobs of their store.
    scheduled_dead: Messages,
    /// Messages that somebody cancelled while they were here.
    cancelled: Messages,
    /// Messages whose outcome the queue did not accept.
    not_settled: Messages,
    /// Invocations of Lambda functions that failed, may have failed, or were refused for their event.
    function_failures: Invocations,
    /// Messages that were too old to be started: deleted, or counted as dead as well.
    shed: Messages,
    /// Leases that expired, or were taken away, before their message was settled.
    lost: Messages,
    /// Messages released without a completed attempt.
    returned: Messages,
    /// Messages held back because their downstream was busy; each time counts.
    held: Messages,
    /// Messages that were done before, were redelivered and were deleted without running.
    recognised: Messages,
    /// Messages whose handler was done and whose ids the idempotency store has recorded.
    remembered: Messages,
    /// Calls of the idempotency store that failed, or were not made because it did not answer.
    idempotency_failures: Calls,
    /// Attempts begun.
    attempts: Attempts,
    /// Calls to receive.
    receive_calls: Calls,
    /// Calls to settle.
    settle_calls: Calls,
    /// Calls to extend.
    extend_calls: Calls,
    /// Calls of plugins that their grants do not allow.
    refused: Calls,
    /// Calls of any kind that failed as a whole.
    failed_calls: Calls,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_grow_and_gauges_return() {
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
