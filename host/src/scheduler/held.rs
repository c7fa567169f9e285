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
        self.take_first(|(until, _), _| *until <= now)
    }

    /// The first, due or not, if they may be tried at all: the downstream turned out to be open.
    pub fn hasten(&mut self, now: Moment) -> Option<Vec<J>> {
        self.take_first(|_, batch| batch.not_before <= now)
    }

    fn take_first(
        &mut self,
        when: impl FnOnce(&(Moment, u64), &Batch<J>) -> bool,
    ) -> Option<Vec<J>> {
        let entry = self.waiting.first_entry()?;
        when(entry.key(), entry.get()).then(|| {
            let jobs = entry.remove().jobs;
            self.count -= jobs.len();
            jobs
        })
    }

    /// When the first are due.
    pub fn due(&self) -> Option<Moment> {
        self.waiting.first_key_value().map(|((until, _), _)| *until)
    }

    /// Takes out what is chosen.
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
