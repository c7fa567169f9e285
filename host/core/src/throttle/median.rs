//! A running median of the last durations. Pure; knows nothing of their meaning.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// A duration with its number, which distinguishes equal ones.
type Numbered = (Duration, u64);

/// The median of the last [`Median::LAST`] durations. An observation costs O(log n), the median
/// nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Median {
    /// In the order in which they came.
    recent: VecDeque<Numbered>,
    /// The lower half, the median its greatest: as many as in the upper half, or one more.
    low: BTreeSet<Numbered>,
    high: BTreeSet<Numbered>,
    count: u64,
}

impl Median {
    /// How many are remembered: odd, so that the median is one of them.
    pub(crate) const LAST: usize = 63;

    /// One more; the oldest is forgotten if there are too many.
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

    /// The median; of an even number the lower of the two in the middle. `None` of none.
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

    /// One step is enough after one change.
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
