//! Measurements per queue. The stages write a meter, a publisher drains it once per interval into a
//! report, and publishes the report to a sink. Knows no queue and no stage. `host/docs/metrics.md`
//! lists all metrics, and a test compares it with their declarations.

pub mod durations;
pub mod exemplar;
pub mod histogram;
pub mod meter;
pub mod of_plugins;
pub mod queue;
pub mod registry;
pub mod released;

use super::events::outcomes::Outcomes;
use crate::clock::Timestamp;
use meter::{Interval, Level, Meter};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The meters of all queues of one process; shared by `Arc`.
#[derive(Debug, Default)]
pub struct Meters {
    queues: Vec<(Arc<str>, Arc<Meter>)>,
    by_name: HashMap<Arc<str>, usize>,
    all: Arc<Level>,
    outcomes: Arc<Outcomes>,
}

impl Meters {
    /// Makes one meter per queue name. A name that occurs twice gets one meter.
    pub fn new(names: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        let mut meters = Self::default();
        for name in names {
            let name = name.into();
            if meters.of(&name).is_none() {
                let meter = Arc::new(Meter::new(&meters.all, &meters.outcomes));
                meters.by_name.insert(name.clone(), meters.queues.len());
                meters.queues.push((name, meter));
            }
        }
        meters
    }

    /// Returns the meter of a queue, if there is such a queue.
    pub fn of(&self, name: &str) -> Option<Arc<Meter>> {
        let at = *self.by_name.get(name)?;
        self.queues.get(at).map(|(_, meter)| Arc::clone(meter))
    }

    /// Starts to keep exemplars, because a reader needs them.
    pub fn keep_exemplars(&self) {
        for (_, meter) in self.iter() {
            meter.keeps_exemplars.store(true, Relaxed);
        }
    }

    /// Returns the last outcomes of deliveries, of all queues.
    pub fn outcomes(&self) -> &Arc<Outcomes> {
        &self.outcomes
    }

    /// Returns all queues, in the order in which they were named.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Meter>)> {
        self.queues.iter().map(|(name, meter)| (name, meter))
    }

    /// Returns the measurements since the last call. Must have only one caller.
    pub fn drain(&self, at: Timestamp) -> Report {
        let drained = self
            .iter()
            .map(|(name, meter)| (Arc::clone(name), meter.drain()));
        let queues: Vec<(Arc<str>, Interval)> = drained.collect();
        let mut total = Interval {
            in_flight: self.all.take_maximum(),
            ..Interval::default()
        };
        for (_, interval) in &queues {
            total.counts.add(&interval.counts);
        }
        Report {
            at,
            queues,
            total,
            circuits: Vec::new(),
        }
    }
}

/// The measurements of all queues in one interval.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The end of the interval.
    pub at: Timestamp,
    /// Each queue by its name.
    pub queues: Vec<(Arc<str>, Interval)>,
    /// All of them together.
    pub total: Interval,
    /// Each route by its name, and whether its circuit was open at the end. The publisher adds
    /// them, because meters know no circuits.
    pub circuits: Vec<(String, bool)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_covers_all_queues_and_its_peak_is_of_one_moment() {
        let meters = Meters::new(["a", "b", "a"]);
        let (a, b) = (meters.of("a").expect("a"), meters.of("b").expect("b"));
        a.received.many(2);
        b.received.one();
        drop(a.hold(4));
        drop(b.hold(3));
        let report = meters.drain(Timestamp(7));
        assert_eq!(report.queues.len(), 2);
        assert_eq!(report.total.counts.received, 3);
        assert_eq!(
            report.total.in_flight, 4,
            "they were never in flight together"
        );
        assert!(meters.of("c").is_none());
        assert!(!a.keeps_exemplars(), "nobody reads them");
        meters.keep_exemplars();
        assert!(a.keeps_exemplars() && b.keeps_exemplars());
        let names: Vec<&str> = report.queues.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
