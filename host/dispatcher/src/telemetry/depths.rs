//! How much queues hold, as it was asked last by whoever asked: the dashboard, the API, or a scrape of
//! `/metrics`. Asks nothing itself; decides what is due. Pure: it is told `now`.

use dispatcher_core::clock::BootInstant;
use dispatcher_core::queue::Depth;
use dispatcher_core::telemetry::metrics::registry::{
    Metric, MetricFamily, MetricSample, MetricValue, Unit,
};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Whose depth `/metrics` shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DepthsOf {
    /// Queues where that is neither billed nor slow.
    #[default]
    Free,
    /// All queues.
    All,
    /// Only what others have asked for.
    None,
}

/// What `/metrics` asks queues for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DepthTerms {
    /// Which queues.
    pub of: DepthsOf,
    /// Each at most once in this time.
    pub every: Duration,
}

impl Default for DepthTerms {
    fn default() -> Self {
        Self {
            of: DepthsOf::default(),
            every: Duration::from_secs(60),
        }
    }
}

/// What queues answered last.
#[derive(Debug, Default)]
pub struct QueueDepths(Mutex<Asked>);

#[derive(Debug, Default)]
struct Asked {
    known: BTreeMap<String, KnownDepth>,
    /// Calls since the start, of dead-letter queues as well.
    calls: BTreeMap<String, u64>,
}

/// What a queue and its dead-letter queue held.
#[derive(Debug, Clone, Copy, PartialEq)]
struct KnownDepth {
    at: BootInstant,
    depth: Option<Depth>,
    dead_letters: Option<u64>,
}

const BY_STATE: &[&str] = &["queue", "state"];
const BY_QUEUE: &[&str] = &["queue"];

const MESSAGES: Metric = Metric::gauge(
    "queue_messages",
    Unit::Messages,
    "Messages in the queue: `waiting` to be received, `in_flight` at any consumer, or `delayed`.",
);
const OLDEST: Metric = Metric::gauge(
    "queue_oldest_message_age_seconds",
    Unit::Seconds,
    "Age of the oldest message that is not in flight, where the backend reports it.",
);
const DEAD_LETTERS: Metric = Metric::gauge(
    "queue_dead_letter_queue_messages",
    Unit::Messages,
    "Messages in the queue's dead-letter queue.",
);
const CALLS: Metric = Metric::counter(
    "queue_depth_calls",
    Unit::Calls,
    "Calls that asked how much the queue, or dead-letter queue, holds; part of its cost.",
);

impl QueueDepths {
    /// A queue and its dead-letter queue answered so; nothing where they could not.
    pub(crate) fn record(
        &self,
        queue: &str,
        at: BootInstant,
        depth: Option<Depth>,
        dead_letters: Option<u64>,
    ) {
        let known = KnownDepth {
            at,
            depth,
            dead_letters,
        };
        self.lock().known.insert(queue.to_owned(), known);
    }

    /// So many calls were made for a queue.
    pub(crate) fn count_calls(&self, queue: &str, calls: usize) {
        let mut asked = self.lock();
        *asked.calls.entry(queue.to_owned()).or_default() += calls as u64;
    }

    /// Calls since the start, by queue and dead-letter queue.
    pub(crate) fn calls(&self) -> BTreeMap<String, u64> {
        self.lock().calls.clone()
    }

    /// Whether a queue is to be asked again.
    pub(crate) fn is_due(&self, queue: &str, now: BootInstant, every: Duration) -> bool {
        let asked = self.lock();
        let known = asked.known.get(queue);
        known.is_none_or(|known| now.since(known.at) >= every)
    }

    /// How many messages wait in a queue, if that was asked for lately.
    pub(crate) fn waiting(&self, queue: &str, now: BootInstant, every: Duration) -> Option<u64> {
        let known = *self.lock().known.get(queue)?;
        let depth = known.depth.filter(|_| known.is_fresh(now, every))?;
        Some(depth.waiting)
    }

    /// The metrics of all answers that are not too old.
    pub(crate) fn families(&self, now: BootInstant, every: Duration) -> Vec<MetricFamily> {
        let asked = self.lock();
        let fresh = || {
            let known = asked.known.iter();
            known.filter(|(_, known)| known.is_fresh(now, every))
        };
        let level = |queue: &str, label: Option<&str>, value: f64| {
            let labels = std::iter::once(queue).chain(label);
            MetricSample::new(labels, MetricValue::Level(value))
        };
        let messages = fresh().filter_map(|(queue, known)| {
            let depth = known.depth?;
            let states = [
                ("waiting", depth.waiting),
                ("in_flight", depth.in_flight),
                ("delayed", depth.delayed),
            ];
            Some(states.map(|(state, count)| level(queue, Some(state), count as f64)))
        });
        let oldest = fresh().filter_map(|(queue, known)| {
            let depth = known.depth?;
            let nothing = depth.waiting == 0 && depth.delayed == 0;
            let oldest = depth.oldest.or(nothing.then_some(Duration::ZERO))?;
            Some(level(queue, None, oldest.as_secs_f64()))
        });
        let dead = fresh()
            .filter_map(|(queue, known)| Some(level(queue, None, known.dead_letters? as f64)));
        let calls = asked
            .calls
            .iter()
            .map(|(queue, calls)| MetricSample::new([queue.as_str()], MetricValue::Count(*calls)));
        vec![
            MESSAGES.family(BY_STATE, messages.flatten()),
            OLDEST.family(BY_QUEUE, oldest),
            DEAD_LETTERS.family(BY_QUEUE, dead),
            CALLS.family(BY_QUEUE, calls),
        ]
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownDepth {
    /// One answer may come late, or be missing.
    fn is_fresh(&self, now: BootInstant, every: Duration) -> bool {
        now.since(self.at) <= every * 2 + Duration::from_secs(60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_secs(1_000 + seconds))
    }

    fn depth(waiting: u64, oldest: Option<u64>) -> Option<Depth> {
        Some(Depth {
            waiting,
            in_flight: 2,
            delayed: 0,
            oldest: oldest.map(Duration::from_secs),
        })
    }

    /// Name, labels and value of all samples.
    fn shown(depths: &QueueDepths, now: BootInstant) -> Vec<String> {
        let families = depths.families(now, EVERY);
        let lines = families.iter().flat_map(|family| {
            let samples = family.samples.iter();
            samples.map(|one| {
                let (labels, value) = (one.labels.join(" "), &one.value);
                format!("{} {labels} {value:?}", family.metric.name)
            })
        });
        lines.collect()
    }

    #[test]
    fn a_queue_is_asked_once_an_interval_also_where_it_did_not_answer() {
        let depths = QueueDepths::default();
        assert!(depths.is_due("a", at(0), EVERY));
        depths.record("a", at(0), None, None);
        assert!(!depths.is_due("a", at(59), EVERY));
        assert!(depths.is_due("a", at(60), EVERY));
        assert_eq!(shown(&depths, at(0)), [""; 0]);
    }

    #[test]
    fn answers_are_shown_until_they_are_too_old() {
        let depths = QueueDepths::default();
        depths.record("a", at(0), depth(7, Some(9)), Some(3));
        depths.count_calls("a", 1);
        depths.count_calls("a", 2);
        let all = [
            "queue_messages a waiting Level(7.0)",
            "queue_messages a in_flight Level(2.0)",
            "queue_messages a delayed Level(0.0)",
            "queue_oldest_message_age_seconds a Level(9.0)",
            "queue_dead_letter_queue_messages a Level(3.0)",
            "queue_depth_calls a Count(3)",
        ];
        assert_eq!(shown(&depths, at(180)), all);
        assert_eq!(shown(&depths, at(181)), all[5..]);
        assert_eq!(depths.waiting("a", at(180), EVERY), Some(7));
        assert_eq!(depths.waiting("a", at(181), EVERY), None);
    }

    #[test]
    fn an_empty_queue_has_no_age_to_wait_for() {
        let depths = QueueDepths::default();
        depths.record("empty", at(0), depth(0, None), None);
        depths.record("unknown", at(0), depth(1, None), None);
        let shown = shown(&depths, at(0));
        let ages: Vec<_> = shown
            .iter()
            .filter(|line| line.contains("oldest"))
            .collect();
        assert_eq!(ages, ["queue_oldest_message_age_seconds empty Level(0.0)"]);
    }
}
