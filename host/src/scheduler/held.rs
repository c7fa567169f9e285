//! Jobs that were begun in vain, since their downstream was busy, and wait for another try. Pure.

use crate::clock::Moment;
use std::collections::BTreeMap;

/// The held jobs of one queue, by the time at which they are due. What was attempted together is
/// held together, so that its order is kept.
#[derive(Debug)]
pub struct Held<J> {
    waiting: BTreeMap<(Moment, u64), Batch<J>>,
    count: usize,
    numbered: u64,
}

#[derive(Debug)]
struct Batch<J> {
    jobs: Vec<J>,
    not_before: Moment,
}

impl<J> Default for Held<J> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            count: 0,
            numbered: 0,
        }
    }
}

impl<J> Held<J> {
    /// How many are held.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Holds jobs until `until`, or until `hasten` when `not_before` has passed.
    pub fn push(&mut self, jobs: Vec<J>, not_before: Moment, until: Moment) {
        self.numbered += 1;
        self.count += jobs.len();
        let key = (until.max(not_before), self.numbered);
        self.waiting.insert(key, Batch { jobs, not_before });
    }

    /// The first that are due, if any are.
    pub fn take_due(&mut self, now: Moment) -> Option<Vec<J>> {
        let (key, _) = self.waiting.first_key_value()?;
        let key = *key;
        (key.0 <= now).then(|| self.take(key))?
    }

    /// The first, due or not, that may be tried at all: the downstream turned out to be open.
    pub fn hasten(&mut self, now: Moment) -> Option<Vec<J>> {
        let mut batches = self.waiting.iter();
        let (key, _) = batches.find(|(_, batch)| batch.not_before <= now)?;
        let key = *key;
        self.take(key)
    }

    fn take(&mut self, key: (Moment, u64)) -> Option<Vec<J>> {
        let jobs = self.waiting.remove(&key)?.jobs;
        self.count -= jobs.len();
        Some(jobs)
    }

    /// When the first are due.
    pub fn due(&self) -> Option<Moment> {
        self.waiting.first_key_value().map(|((until, _), _)| *until)
    }

    /// Whether one is such.
    pub fn any(&self, which: impl Fn(&J) -> bool) -> bool {
        self.waiting
            .values()
            .any(|batch| batch.jobs.iter().any(&which))
    }

    /// Takes out what is chosen, asked in the order in which the jobs are due.
    pub fn extract(&mut self, which: impl Fn(&J) -> bool) -> Vec<J> {
        let mut out = Vec::new();
        for batch in self.waiting.values_mut() {
            let (chosen, kept) = std::mem::take(&mut batch.jobs)
                .into_iter()
                .partition(|job| which(job));
            batch.jobs = kept;
            out.extend::<Vec<J>>(chosen);
        }
        self.waiting.retain(|_, batch| !batch.jobs.is_empty());
        self.count -= out.len();
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(ms))
    }

    #[test]
    fn what_is_due_first_comes_first_and_advice_is_kept() {
        let mut held = Held::default();
        held.push(vec![1, 2], at(50), at(100));
        held.push(vec![3], at(0), at(80));
        assert_eq!((held.len(), held.due()), (3, Some(at(80))));
        assert_eq!(held.take_due(at(79)), None);
        assert_eq!(held.hasten(at(10)), Some(vec![3]));
        assert_eq!(held.hasten(at(10)), None, "it was advised to wait");
        held.push(vec![4], at(0), at(200));
        assert_eq!(held.hasten(at(10)), Some(vec![4]), "and holds up no other");
        assert_eq!(held.take_due(at(100)), Some(vec![1, 2]));
        assert!(held.is_empty());
    }

    #[test]
    fn some_can_be_taken_out() {
        let mut held = Held::default();
        held.push(vec![1, 2], at(0), at(100));
        assert_eq!(held.extract(|n| *n == 1), [1]);
        assert_eq!((held.len(), held.take_due(at(100))), (1, Some(vec![2])));
    }
}
