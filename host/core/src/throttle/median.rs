//! A running median of the last durations. Pure; independent of their meaning.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// A duration with its number, which distinguishes equal ones.
type NumberedDuration = (Duration, u64);

/// The median of the last [`Median::LAST`] durations. Adding one costs O(log n), reading the median
/// almost nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Median {
    /// The durations in the order in which they came.
    recent: VecDeque<NumberedDuration>,
    /// The lower half, whose greatest duration is the median. It has as many as the upper half, or
    /// one more.
    low: BTreeSet<NumberedDuration>,
    high: BTreeSet<NumberedDuration>,
    count: u64,
}

impl Median {
    /// The number of durations that are remembered: odd, so that the median is one of them.
    pub(crate) const LAST: usize = 63;

    /// Adds a duration; forgets the oldest if there are too many.
    pub(crate) fn note(&mut self, took: Duration) {
        if self.recent.len() == Self::LAST {
            self.forget_oldest();
        }
        self.count += 1;
        let entry = (took, self.count);
        self.recent.push_back(entry);
        let below = self.low.last().is_some_and(|median| entry < *median);
        let half = if below { &mut self.low } else { &mut self.high };
        half.insert(entry);
        self.balance();
    }

    /// Returns the median; of an even number, the lower of the two in the middle. `None` without
    /// durations.
    pub(crate) fn get(&self) -> Option<Duration> {
        self.low.last().map(|(took, _)| *took)
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.recent.pop_front()
            && !self.low.remove(&oldest)
        {
            self.high.remove(&oldest);
        }
        self.balance();
    }

    /// Balances the halves. One step is enough after one change.
    fn balance(&mut self) {
        if self.low.len() < self.high.len() {
            self.low.extend(self.high.pop_first());
        } else if self.low.len() > self.high.len() + 1 {
            self.high.extend(self.low.pop_last());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    proptest! {
        #[test]
        fn median_matches_sorting_the_last_values(all in prop::collection::vec(0_u64..50, 0..400)) {
            let mut median = Median::default();
            prop_assert_eq!(median.get(), None);
            for (at, took) in all.iter().enumerate() {
                median.note(ms(*took));
                let mut last = all[(at + 1).saturating_sub(Median::LAST)..=at].to_vec();
                last.sort_unstable();
                prop_assert_eq!(median.get(), Some(ms(last[(last.len() - 1) / 2])));
                prop_assert_eq!(median.low.len() + median.high.len(), last.len());
            }
        }
    }

    #[test]
    fn change_is_reflected_once_half_of_the_window_has_seen_it() {
        let mut median = Median::default();
        (0..1_000).for_each(|_| median.note(ms(10)));
        (0..31).for_each(|_| median.note(ms(100)));
        assert_eq!(median.get(), Some(ms(10)));
        median.note(ms(100));
        assert_eq!(median.get(), Some(ms(100)));
        // A rare slow one changes nothing.
        median.note(ms(60_000));
        assert_eq!(median.get(), Some(ms(100)));
    }
}
