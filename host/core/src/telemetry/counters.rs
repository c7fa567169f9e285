//! Counts of events since the start. Every stage writes them; exporters read them.

use super::metrics::of_plugins::PluginMetrics;
use super::metrics::registry::{Metric, MetricFamily, MetricValue, Unit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A count that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn one(&self) {
        self.many(1);
    }

    /// Adds `more`.
    pub fn many(&self, more: usize) {
        self.0.fetch_add(more as u64, Relaxed);
    }

    /// Returns the count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The current number of something.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Counts one until the guard is dropped.
    #[must_use = "it counts only while the guard lives"]
    pub fn hold(&self) -> GaugeUnit<'_> {
        self.0.fetch_add(1, Relaxed);
        GaugeUnit(self)
    }

    /// Returns the current number.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A unit that a `Gauge` counts while it lives.
#[derive(Debug)]
pub struct GaugeUnit<'a>(&'a Gauge);

impl Drop for GaugeUnit<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

/// Declares every counter once. Its doc comment is the help of its metric, whose name follows `as`.
macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident as $shown:literal: $unit:ident,)+) => {
        /// All counts of one process; shared by `Arc`. The counts are for people: none of them
        /// orders memory.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[doc = $help])+ pub $name: Counter,)+
            /// Attempts running now.
            pub running: Gauge,
            /// The metrics that plugins keep themselves.
            pub of_plugins: Arc<PluginMetrics>,
        }

        /// The counts at one moment. Each is read independently.
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
            /// Returns the counts now.
            pub fn snapshot(&self) -> Snapshot {
                Snapshot {
                    $($name: self.$name.get(),)+
                    running: self.running.get(),
                }
            }

            /// Returns the counts now, as metrics.
            pub fn families(&self) -> Vec<MetricFamily> {
                let mut families = vec![$({
                    const HELP: &str = concat!($($help),+).trim_ascii_start();
                    let metric = Metric::counter($shown, Unit::$unit, HELP);
                    metric.of_process(MetricValue::Count(self.$name.get()))
                },)+];
                let running = MetricValue::Level(self.running.get() as f64);
                families.push(RUNNING.of_process(running));
                families
            }
        }
    };
}

const RUNNING: Metric = Metric::gauge("attempts_running", Unit::Attempts, "Attempts running now.");

counters! {
    /// Messages received, redeliveries included.
    received as "messages_received": Messages,
    /// Messages that were handled and deleted.
    done as "messages_done": Messages,
    /// Messages released to come back.
    retried as "messages_retried": Messages,
    /// Messages that were dead-lettered, by this program or by the queue's redrive policy.
    dead as "messages_dead_lettered": Messages,
    /// Messages that the queue's redrive policy dead-letters, as far as receive counts show.
    dead_by_redrive_policy as "messages_dead_lettered_by_redrive_policy": Messages,
    /// Scheduled messages that could not be read and were moved to the dead jobs of their store.
    scheduled_dead as "scheduled_messages_dead_lettered": Messages,
    /// Messages that were cancelled while this process held them.
    cancelled as "messages_cancelled": Messages,
    /// Messages whose outcome the queue did not accept.
    not_settled as "messages_not_settled": Messages,
    /// Invocations of Lambda functions that failed, may have failed, or were refused for their event.
    function_failures as "function_failures": Invocations,
    /// Messages that were too old to be started: deleted, or counted as dead as well.
    shed as "messages_shed": Messages,
    /// Messages that no filter of their route matched: deleted, or counted as dead as well.
    filtered as "messages_filtered": Messages,
    /// Leases that expired, or were taken away, before their message was settled.
    lost as "leases_lost": Messages,
    /// Messages whose attempt a stop cut off: they are handled again, and some may have been handled.
    messages_abandoned as "messages_abandoned": Messages,
    /// Messages released without an attempt.
    returned as "messages_released": Messages,
    /// Messages held back because their downstream was busy; each time counts.
    held as "messages_held": Messages,
    /// Messages that were done before, were redelivered and were deleted without running.
    recognised as "duplicates_dropped": Messages,
    /// Messages whose handler was done and whose ids the idempotency store has recorded.
    remembered as "idempotency_records": Messages,
    /// Calls of the idempotency store that failed, or were not made because it did not answer.
    idempotency_failures as "idempotency_failures": Calls,
    /// Attempts begun.
    attempts as "attempts": Attempts,
    /// Calls to receive.
    receive_calls as "receive_calls": Calls,
    /// Calls to settle.
    settle_calls as "settle_calls": Calls,
    /// Calls to extend.
    extend_calls as "extend_calls": Calls,
    /// Calls of plugins that their grants do not allow.
    refused as "capability_denials": Calls,
    /// Calls of any kind that failed as a whole.
    failed_calls as "failed_calls": Calls,
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
