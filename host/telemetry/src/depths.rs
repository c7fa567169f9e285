//! The last known depths of queues, from requests of the dashboard, the API, or a scrape of
//! `/metrics`. Makes no calls; decides which queues are due. Pure: `now` is an argument.

use dispatcher_core::clock::BootInstant;
use dispatcher_core::queue::Depth;
use dispatcher_core::telemetry::metrics::registry::{
    Metric, MetricFamily, MetricSample, MetricValue, Unit,
};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::time::Duration;

/// The queues whose depth `/metrics` shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DepthsOf {
    /// Queues that need one call each, billed or not.
    #[default]
    Cheap,
    /// Queues whose depth costs nothing.
    Free,
    /// All queues.
    All,
    /// Only depths that other requests have read.
    None,
}

/// The settings for reading depths for `/metrics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DepthTerms {
    /// The queues to read.
    pub of: DepthsOf,
    /// The shortest interval between two reads of a queue.
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

/// The last known depths of queues.
#[derive(Debug, Default)]
pub struct QueueDepths(Mutex<DepthAnswers>);

#[derive(Debug, Default)]
struct DepthAnswers {
    known: BTreeMap<String, KnownDepth>,
    /// The number of calls since the start, including those for dead-letter queues.
    calls: BTreeMap<String, u64>,
}

/// The depths of a queue and its dead-letter queue.
#[derive(Debug, Clone, PartialEq)]
struct KnownDepth {
    at: BootInstant,
    depth: Option<Depth>,
    dead_letters: Option<DeadLetters>,
}

/// A dead-letter queue and its number of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetters {
    /// The name of the dead-letter queue.
    pub queue: String,
    /// The number of messages in it.
    pub messages: u64,
}

const BY_STATE: &[&str] = &["queue", "state"];
const BY_QUEUE: &[&str] = &["queue"];
const BY_DEAD_LETTER_QUEUE: &[&str] = &["dead_letter_queue"];

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
    "Messages in the queue's dead-letter queue: several queues may share one, so do not add them up.",
);
const DEAD_LETTER_QUEUES: Metric = Metric::gauge(
    "dead_letter_queue_messages",
    Unit::Messages,
    "Messages in a dead-letter queue, which counts once however many queues share it.",
);
const CALLS: Metric = Metric::counter(
    "queue_depth_calls",
    Unit::Calls,
    "Calls that asked how much the queue, or dead-letter queue, holds; part of its cost.",
);

impl QueueDepths {
    /// Records the depths of a queue and its dead-letter queue; `None` for a depth that could not
    /// be read.
    pub fn record(
        &self,
        queue: &str,
        at: BootInstant,
        depth: Option<Depth>,
        dead_letters: Option<DeadLetters>,
    ) {
        let known = KnownDepth {
            at,
            depth,
            dead_letters,
        };
        self.lock().known.insert(queue.to_owned(), known);
    }

    /// Forgets a queue from which nothing is received any more.
    pub fn remove(&self, queue: &str) {
        let mut asked = self.lock();
        asked.known.remove(queue);
        asked.calls.remove(queue);
    }

    /// Adds to the number of calls for a queue.
    pub fn count_calls(&self, queue: &str, calls: usize) {
        let mut asked = self.lock();
        *asked.calls.entry(queue.to_owned()).or_default() += calls as u64;
    }

    /// Returns the number of calls since the start, by queue and dead-letter queue.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.lock().calls.clone()
    }

    /// Whether the depth of a queue is due to be read again.
    pub fn is_due(&self, queue: &str, now: BootInstant, every: Duration) -> bool {
        let asked = self.lock();
        let known = asked.known.get(queue);
        known.is_none_or(|known| now.since(known.at) >= every)
    }

    /// Returns the number of waiting messages in a queue, if it was read recently.
    pub fn waiting(&self, queue: &str, now: BootInstant, every: Duration) -> Option<u64> {
        let asked = self.lock();
        let known = asked.known.get(queue)?;
        if !known.is_fresh(now, every) {
            return None;
        }
        let depth = known.depth?;
        Some(depth.waiting)
    }

    /// Returns the metrics of all depths that are not too old.
    pub fn families(&self, now: BootInstant, every: Duration) -> Vec<MetricFamily> {
        let asked = self.lock();
        let known = asked.known.iter();
        let fresh = known.filter(|(_, known)| known.is_fresh(now, every));
        let messages = fresh.clone().filter_map(|(queue, known)| {
            let depth = known.depth?;
            let states = [
                ("waiting", depth.waiting),
                ("in_flight", depth.in_flight),
                ("delayed", depth.delayed),
            ];
            Some(states.map(|(state, count)| level(queue, Some(state), count as f64)))
        });
        let oldest = fresh.clone().filter_map(|(queue, known)| {
            let depth = known.depth?;
            let nothing = depth.waiting == 0 && depth.delayed == 0;
            let oldest = depth.oldest.or(nothing.then_some(Duration::ZERO))?;
            Some(level(queue, None, oldest.as_secs_f64()))
        });
        let dead = fresh.clone().filter_map(|(queue, known)| {
            let dead = known.dead_letters.as_ref()?;
            Some(level(queue, None, dead.messages as f64))
        });
        // If several queues share a dead-letter queue, the latest result counts.
        let mut dead_letter_queues = BTreeMap::<&str, (BootInstant, u64)>::new();
        for (_, known) in fresh {
            if let Some(DeadLetters { queue, messages }) = &known.dead_letters {
                let latest = dead_letter_queues
                    .entry(queue)
                    .or_insert((known.at, *messages));
                *latest = (*latest).max((known.at, *messages));
            }
        }
        let shared = dead_letter_queues.into_iter();
        let shared_dead = shared.map(|(queue, (_, messages))| level(queue, None, messages as f64));
        let calls = asked
            .calls
            .iter()
            .map(|(queue, calls)| MetricSample::new([queue.as_str()], MetricValue::Count(*calls)));
        vec![
            MESSAGES.family(BY_STATE, messages.flatten()),
            OLDEST.family(BY_QUEUE, oldest),
            DEAD_LETTERS.family(BY_QUEUE, dead),
            DEAD_LETTER_QUEUES.family(BY_DEAD_LETTER_QUEUE, shared_dead),
            CALLS.family(BY_QUEUE, calls),
        ]
    }

    fn lock(&self) -> MutexGuard<'_, DepthAnswers> {
        self.0.lock()
    }
}

fn level(queue: &str, label: Option<&str>, value: f64) -> MetricSample {
    let labels = std::iter::once(queue).chain(label);
    MetricSample::new(labels, MetricValue::Level(value))
}

impl KnownDepth {
    /// Whether a depth is recent enough; allows for one late or missing read.
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

    fn dead(queue: &str, messages: u64) -> Option<DeadLetters> {
        let queue = queue.to_owned();
        Some(DeadLetters { queue, messages })
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
    fn a_dead_letter_queue_that_queues_share_counts_once() {
        let depths = QueueDepths::default();
        depths.record("a", at(1), depth(0, None), dead("dlq", 8));
        depths.record("b", at(0), depth(0, None), dead("dlq", 7));
        depths.record("c", at(0), depth(0, None), dead("other", 2));
        let mut shown = shown(&depths, at(1));
        shown.retain(|line| line.contains("dead"));
        let wanted = [
            "queue_dead_letter_queue_messages a Level(8.0)",
            "queue_dead_letter_queue_messages b Level(7.0)",
            "queue_dead_letter_queue_messages c Level(2.0)",
            "dead_letter_queue_messages dlq Level(8.0)",
            "dead_letter_queue_messages other Level(2.0)",
        ];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn answers_are_shown_until_they_are_too_old() {
        let depths = QueueDepths::default();
        depths.record("a", at(0), depth(7, Some(9)), dead("a-dlq", 3));
        depths.count_calls("a", 1);
        depths.count_calls("a", 2);
        let all = [
            "queue_messages a waiting Level(7.0)",
            "queue_messages a in_flight Level(2.0)",
            "queue_messages a delayed Level(0.0)",
            "queue_oldest_message_age_seconds a Level(9.0)",
            "queue_dead_letter_queue_messages a Level(3.0)",
            "dead_letter_queue_messages a-dlq Level(3.0)",
            "queue_depth_calls a Count(3)",
        ];
        assert_eq!(shown(&depths, at(180)), all);
        assert_eq!(shown(&depths, at(181)), all[6..]);
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
