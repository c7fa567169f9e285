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
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The meters of the queues of one process, which may come and go; shared by `Arc`.
#[derive(Debug, Default)]
pub struct Meters {
    list: RwLock<MeterList>,
    all: Arc<Level>,
    outcomes: Arc<Outcomes>,
    keeps_exemplars: AtomicBool,
}

/// The meter of a queue, with the queue's name.
pub type NamedMeter = (Arc<str>, Arc<Meter>);

#[derive(Debug, Default)]
struct MeterList {
    /// The meters in the order in which they were added.
    queues: Vec<NamedMeter>,
    by_name: HashMap<Arc<str>, Arc<Meter>>,
    /// The number of changes of the list.
    changes: u64,
    /// The meters that were removed since the last `drain`. Empty if nothing drains.
    removed: Vec<NamedMeter>,
    is_drained: bool,
}

impl Meters {
    /// Makes one meter per queue name. A name that occurs twice gets one meter.
    pub fn new(names: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        let meters = Self::default();
        for name in names {
            meters.add(name);
        }
        meters
    }

    /// Returns the meter of a queue, which is made if there is none.
    pub fn add(&self, name: impl Into<Arc<str>>) -> Arc<Meter> {
        let name = name.into();
        let mut list = self.list.write();
        if let Some(meter) = list.by_name.get(&name) {
            return Arc::clone(meter);
        }
        let meter = Arc::new(Meter::new(&self.all, &self.outcomes));
        let keeps_exemplars = self.keeps_exemplars.load(Relaxed);
        meter.keeps_exemplars.store(keeps_exemplars, Relaxed);
        list.by_name.insert(Arc::clone(&name), Arc::clone(&meter));
        list.queues.push((name, Arc::clone(&meter)));
        list.changes += 1;
        meter
    }

    /// Removes the meter of a queue from which nothing is received any more.
    pub fn remove(&self, name: &str) {
        let mut list = self.list.write();
        let Some(meter) = list.by_name.remove(name) else {
            return;
        };
        list.queues.retain(|(other, _)| **other != *name);
        list.changes += 1;
        if list.is_drained {
            list.removed.push((name.into(), meter));
        }
    }

    /// Returns the meter of a queue, if there is such a queue.
    pub fn of(&self, name: &str) -> Option<Arc<Meter>> {
        self.list.read().by_name.get(name).cloned()
    }

    /// Starts to keep exemplars, because a reader needs them.
    pub fn keep_exemplars(&self) {
        self.keeps_exemplars.store(true, Relaxed);
        for (_, meter) in self.all() {
            meter.keeps_exemplars.store(true, Relaxed);
        }
    }

    /// Returns the last outcomes of deliveries, of all queues.
    pub fn outcomes(&self) -> &Arc<Outcomes> {
        &self.outcomes
    }

    /// Returns the meters of all queues, in the order in which they were added.
    pub fn all(&self) -> Vec<NamedMeter> {
        self.list.read().queues.clone()
    }

    /// Returns a number that changes whenever a queue is added or removed.
    pub fn changes(&self) -> u64 {
        self.list.read().changes
    }

    /// Returns the measurements since the last call, those of removed queues included. Must have
    /// only one caller.
    pub fn drain(&self, at: Timestamp) -> Report {
        let mut meters = self.all();
        {
            let mut list = self.list.write();
            list.is_drained = true;
            meters.append(&mut list.removed);
        }
        let drained = meters
            .into_iter()
            .map(|(name, meter)| (name, meter.drain()));
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

    #[test]
    fn queues_come_and_go_and_no_count_is_lost() {
        let meters = Meters::new(["a"]);
        meters.keep_exemplars();
        meters.drain(Timestamp(1));
        let changes = meters.changes();
        let b = meters.add("b");
        assert!(b.keeps_exemplars(), "they are read of later queues as well");
        b.received.many(3);
        assert!(Arc::ptr_eq(&b, &meters.add("b")));
        meters.remove("b");
        meters.remove("b");
        assert_eq!(meters.changes(), changes + 2);
        assert!(meters.of("b").is_none() && meters.all().len() == 1);
        let report = meters.drain(Timestamp(2));
        assert_eq!(report.total.counts.received, 3);
        assert_eq!(report.queues.len(), 2);
        assert_eq!(meters.drain(Timestamp(3)).queues.len(), 1);
    }
}
