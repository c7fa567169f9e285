//! Metrics that are computed from counts and depths of the last minute: the time until a queue is
//! empty, and the cost of messages. Pure: `now` is an argument.

use dispatcher_core::clock::BootInstant;
use dispatcher_core::telemetry::metrics::Meters;
use dispatcher_core::telemetry::metrics::meter::Meter;
use dispatcher_core::telemetry::metrics::registry::{
    Metric, MetricFamily, MetricSample, MetricValue, Unit,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The shortest interval between two marks, which are taken when metrics are read.
const APART: Duration = Duration::from_secs(10);
/// The minimum age of the oldest mark, once there are marks of that age.
const MINUTE: Duration = Duration::from_secs(60);

const DRAIN: Metric = Metric::gauge(
    "queue_drain_seconds",
    Unit::Seconds,
    "Time until nothing waits in the queue if nothing more comes, at the pace of all processes of the fleet, within its limits.",
);
const CALLS: Metric = Metric::gauge(
    "queue_calls_per_1000_messages",
    Unit::Calls,
    "Calls to the queue for 1,000 messages received, in the last minute.",
);
const DOLLARS: Metric = Metric::gauge(
    "queue_dollars_per_1000_messages",
    Unit::Dollars,
    "What these calls cost, where they are billed.",
);
const COST: Metric = Metric::counter(
    "queue_cost_dollars",
    Unit::Dollars,
    "What all calls for the queue have cost, those that send to it, redrive it or ask for its depth included, where they are billed.",
);

/// Counts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PaceCounts {
    received: u64,
    done: u64,
    calls: u64,
}

/// The counts at different times, the oldest first.
type Marks = VecDeque<(BootInstant, PaceCounts)>;

/// The pace of a queue in all processes of the fleet.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FleetPace {
    /// The messages that they handled and deleted per second.
    pub done: f64,
    /// The messages that they can start per second by the limits of the fleet; `None` if that is not
    /// limited or not known.
    pub most: Option<f64>,
}

/// The marks of the last minute, and the last known paces of the fleet, by queue.
#[derive(Debug, Default)]
pub struct Paces {
    marks: Mutex<HashMap<Arc<str>, Marks>>,
    fleet: Mutex<HashMap<String, FleetPace>>,
}

impl Paces {
    /// Records the pace of a queue in all processes of the fleet.
    pub fn record(&self, queue: String, pace: FleetPace) {
        self.fleet.lock().insert(queue, pace);
    }

    /// Returns the messages of a queue that the fleet handles per second, given those of this
    /// process.
    fn per_second(&self, queue: &str, own: f64) -> f64 {
        let fleet = self.fleet.lock().get(queue).copied().unwrap_or_default();
        own.max(fleet.done).min(fleet.most.unwrap_or(f64::MAX))
    }

    /// Returns the counts since the oldest mark and the time since then; `None` at first.
    fn since_mark(
        &self,
        queue: &Arc<str>,
        now: BootInstant,
        counted: PaceCounts,
    ) -> Option<(Duration, PaceCounts)> {
        let mut all = self.marks.lock();
        let marks = all.entry(queue.clone()).or_default();
        while marks.get(1).is_some_and(|(at, _)| now.since(*at) >= MINUTE) {
            marks.pop_front();
        }
        let oldest = marks.front().copied();
        if marks.back().is_none_or(|(at, _)| now.since(*at) >= APART) {
            marks.push_back((now, counted));
        }
        let (at, before) = oldest?;
        let passed = now.since(at);
        let since = PaceCounts {
            received: counted.received.saturating_sub(before.received),
            done: counted.done.saturating_sub(before.done),
            calls: counted.calls.saturating_sub(before.calls),
        };
        (passed > Duration::ZERO).then_some((passed, since))
    }

    /// Returns these metrics of all queues. `price` returns the price of a million calls for a
    /// queue, if they are billed, `waiting` the number of waiting messages, and `other_calls` has
    /// the number of calls for its sends, redrives and depths.
    pub fn families(
        &self,
        now: BootInstant,
        meters: &Meters,
        price: impl Fn(&str) -> Option<f64>,
        waiting: impl Fn(&str) -> Option<u64>,
        other_calls: &BTreeMap<String, u64>,
    ) -> Vec<MetricFamily> {
        let mut samples: [Vec<MetricSample>; 4] = Default::default();
        let [drain, calls, dollars, cost] = &mut samples;
        self.marks
            .lock()
            .retain(|queue, _| meters.of(queue).is_some());
        for (queue, meter) in &meters.all() {
            let asked = other_calls.get(&**queue).copied().unwrap_or_default();
            let counted = counted(meter, asked);
            let price = price(queue);
            if let Some(price) = price {
                cost.push(spent(queue, counted.calls, price));
            }
            let Some((passed, since)) = self.since_mark(queue, now, counted) else {
                continue;
            };
            let per_second = self.per_second(queue, since.done as f64 / passed.as_secs_f64());
            let left = waiting(queue).and_then(|waiting| drain_s(waiting, per_second));
            drain.extend(left.map(|left| level(queue, left)));
            if since.received > 0 {
                let each = since.calls as f64 / since.received as f64 * 1_000.0;
                calls.push(level(queue, each));
                dollars.extend(price.map(|price| level(queue, each * price / 1e6)));
            }
        }
        let others = other_calls
            .iter()
            .filter(|(queue, _)| meters.of(queue).is_none());
        for (queue, calls) in others {
            cost.extend(price(queue).map(|price| spent(queue, *calls, price)));
        }
        let metrics = [DRAIN, CALLS, DOLLARS, COST].into_iter().zip(samples);
        let families = metrics.map(|(metric, samples)| metric.family(&["queue"], samples));
        families.collect()
    }
}

fn counted(meter: &Meter, other_calls: u64) -> PaceCounts {
    PaceCounts {
        received: meter.received.get(),
        done: meter.done.get(),
        calls: meter.calls.get() + other_calls,
    }
}

fn level(queue: &str, value: f64) -> MetricSample {
    MetricSample::new([queue], MetricValue::Level(value))
}

fn spent(queue: &str, calls: u64, dollars_per_million: f64) -> MetricSample {
    let dollars = calls as f64 * dollars_per_million / 1e6;
    MetricSample::new([queue], MetricValue::Sum(dollars))
}

/// Returns the time in seconds to empty the queue; `None` if no message is handled.
fn drain_s(waiting: u64, per_second: f64) -> Option<f64> {
    if waiting == 0 {
        return Some(0.0);
    }
    (per_second > 0.0).then(|| waiting as f64 / per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_secs(1_000 + seconds))
    }

    fn values(families: &[MetricFamily]) -> Vec<String> {
        let lines = families.iter().flat_map(|family| {
            let samples = family.samples.iter();
            samples.map(|one| format!("{} {} {:?}", family.metric.name, one.labels[0], one.value))
        });
        lines.collect()
    }

    #[test]
    fn the_last_minute_says_what_messages_cost_and_when_none_is_left() {
        let meters = Meters::new(["orders", "local:a"]);
        let numbers = [("orders", 5), ("orders-dead", 10), ("local:b", 7)];
        let calls = BTreeMap::from(numbers.map(|(queue, calls)| (queue.to_owned(), calls)));
        let paces = Paces::default();
        let read = |now| {
            values(&paces.families(
                now,
                &meters,
                |queue| (!queue.starts_with("local:")).then_some(0.4),
                |queue| (queue == "orders").then_some(300),
                &calls,
            ))
        };
        let orders = meters.of("orders").expect("it was named");
        let cost = [
            "queue_cost_dollars orders Sum(2e-6)",
            "queue_cost_dollars orders-dead Sum(4e-6)",
        ];
        assert_eq!(read(at(0)), cost, "nothing is known of a minute yet");
        orders.received.many(100);
        orders.done.many(50);
        orders.calls.many(20);
        assert_eq!(
            read(at(20)),
            [
                "queue_drain_seconds orders Level(120.0)",
                "queue_calls_per_1000_messages orders Level(200.0)",
                "queue_dollars_per_1000_messages orders Level(8e-5)",
                "queue_cost_dollars orders Sum(1e-5)",
                "queue_cost_dollars orders-dead Sum(4e-6)",
            ]
        );
        assert_eq!(read(at(75)).len(), 5, "the mark before is in the minute");
        let idle = read(at(160));
        assert_eq!(idle.len(), 2, "nothing came in the last minute: {idle:?}");
    }

    #[test]
    fn the_drain_time_is_known_where_something_is_done_or_nothing_waits() {
        assert_eq!(drain_s(0, 0.0), Some(0.0));
        assert_eq!(drain_s(5, 0.0), None);
        assert_eq!(drain_s(120, 1.0), Some(120.0));
    }

    #[test]
    fn pace_is_that_of_the_fleet_within_its_limits() {
        let paces = Paces::default();
        assert_eq!(
            paces.per_second("orders", 4.0),
            4.0,
            "nothing is known of others"
        );
        for (done, most, per_second) in [
            (12.0, None, 12.0),
            (0.5, None, 4.0),
            (12.0, Some(10.0), 10.0),
            (12.0, Some(50.0), 12.0),
        ] {
            paces.record("orders".to_owned(), FleetPace { done, most });
            assert_eq!(
                paces.per_second("orders", 4.0),
                per_second,
                "{done} {most:?}"
            );
        }
        assert_eq!(paces.per_second("other", 4.0), 4.0);
    }
}
