//! The state of the limits of the fleet in this process, as metrics. Knows no store.

use dispatcher_core::fleet::figures::{KeyFigures, LimitFigures};
use dispatcher_core::fleet::keeper::Fleet;
use dispatcher_core::telemetry::metrics::registry::{
    Metric, MetricFamily, MetricSample, MetricValue, Unit,
};
use std::sync::Arc;

/// The keys of each limit that have lines of their own: those with most messages.
const MOST_KEYS: usize = 10;
/// The name of all other keys together.
const OTHERS: &str = "(others)";

/// A gauge of a limit, and the function that reads it.
type LimitGauge = (Metric, fn(&LimitFigures) -> Option<f64>);
/// A gauge of a key of a limit, and the function that reads it.
type KeyGauge = (Metric, fn(&KeyFigures) -> f64);

const TAKEN: Metric = Metric::counter(
    "limit_starts",
    Unit::Messages,
    "Permits and tokens of a limit that messages of this process took.",
);

const GAUGES: [LimitGauge; 4] = [
    (
        Metric::gauge(
            "limit_concurrency",
            Unit::Attempts,
            "Maximum permits in use in all processes, for each key.",
        ),
        |of| of.numbers.concurrency.map(f64::from),
    ),
    (
        Metric::gauge(
            "limit_rate_per_second",
            Unit::Messages,
            "Maximum starts per second in all processes, for each key.",
        ),
        |of| of.numbers.rate.map(|rate| rate.per_second),
    ),
    (
        Metric::gauge(
            "limit_permits_used",
            Unit::Attempts,
            "Permits of all processes, as this process last learned: of the fullest of its keys.",
        ),
        |of| of.numbers.concurrency.map(|_| f64::from(of.used)),
    ),
    (
        Metric::gauge(
            "limit_processes",
            Unit::Processes,
            "Processes that have permits or wait, as this process last learned: of the key with the most.",
        ),
        |of| Some(f64::from(of.processes)),
    ),
];

const KEY_GAUGES: [KeyGauge; 3] = [
    (
        Metric::gauge(
            "limit_running",
            Unit::Attempts,
            "Permits of running attempts of this process.",
        ),
        |of| f64::from(of.in_use),
    ),
    (
        Metric::gauge(
            "limit_waiting",
            Unit::Messages,
            "Messages of this process that wait for a limit.",
        ),
        |of| f64::from(of.waiting),
    ),
    (
        Metric::gauge(
            "limit_longest_wait_seconds",
            Unit::Seconds,
            "How long the first of the messages that wait has waited.",
        ),
        |of| of.longest_wait.as_secs_f64(),
    ),
];

/// The limits of a process, if it has some.
#[derive(Debug, Clone, Default)]
pub struct Limits(pub Option<Arc<Fleet>>);

impl Limits {
    /// Returns all metrics of all limits; without samples if there are none.
    pub fn families(&self) -> Vec<MetricFamily> {
        let fleet = self.0.as_ref();
        let all = fleet.map_or_else(Vec::new, |fleet| fleet.figures(MOST_KEYS));
        let taken = all.iter().map(|of| {
            let value = MetricValue::Count(of.taken);
            MetricSample::new([of.name.as_str()], value)
        });
        let mut families = vec![TAKEN.family(&["limit"], taken)];
        families.extend(GAUGES.iter().map(|(metric, read)| {
            let samples = all.iter().filter_map(|of| {
                let value = MetricValue::Level(read(of)?);
                Some(MetricSample::new([of.name.as_str()], value))
            });
            metric.family(&["limit"], samples)
        }));
        families.extend(KEY_GAUGES.iter().map(|(metric, read)| {
            let samples = all.iter().flat_map(|of| keys(of, *read));
            metric.family(&["limit", "key"], samples)
        }));
        families
    }
}

fn keys(of: &LimitFigures, read: fn(&KeyFigures) -> f64) -> Vec<MetricSample> {
    let others = (of.others != KeyFigures::default()).then_some((OTHERS, &of.others));
    let keys = of.keys.iter().map(|key| (key.key.as_str(), key));
    let named = keys.chain(others);
    named
        .map(|(name, key)| {
            MetricSample::new([of.name.as_str(), name], MetricValue::Level(read(key)))
        })
        .collect()
}
