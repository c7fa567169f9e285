//! Collects outcomes into calls: as many as fit, or those that arrive within a short linger, which
//! is longer if all of them are patient. Holds retries until they are due. Pure: `now` is an
//! argument.

use crate::clock::BootInstant;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The items that wait for a call.
#[derive(Debug)]
pub(crate) struct Batcher<T> {
    size: usize,
    linger: Duration,
    patience: Duration,
    fresh: VecDeque<BatchedItem<T>>,
    /// The number of these that are not patient.
    hasty: usize,
    later: BTreeMap<(BootInstant, u64), T>,
    numbered: u64,
    awaited: bool,
}

#[derive(Debug)]
struct BatchedItem<T> {
    since: BootInstant,
    patient: bool,
    item: T,
}

impl<T> Batcher<T> {
    /// Creates a batcher with `size` items per call. No item waits longer than `linger` for others,
    /// unless it is patient.
    pub(crate) fn new(size: usize, linger: Duration) -> Self {
        Self {
            size: size.max(1),
            linger,
            patience: linger,
            fresh: VecDeque::new(),
            hasty: 0,
            later: BTreeMap::new(),
            numbered: 0,
            awaited: false,
        }
    }

    /// Sets how long patient items wait for others while all waiting items are patient; at least as
    /// long as the linger.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience.max(self.linger);
    }

    /// Whether patient items wait longer than others.
    pub(crate) fn has_patience(&self) -> bool {
        self.patience > self.linger
    }

    /// Adds an item.
    pub(crate) fn push(&mut self, item: T, patient: bool, now: BootInstant) {
        self.hasty += usize::from(!patient);
        self.fresh.push_back(BatchedItem {
            since: now,
            patient,
            item,
        });
    }

    /// Adds an item that must not be tried before `at`.
    pub(crate) fn push_later(&mut self, item: T, at: BootInstant) {
        self.numbered += 1;
        self.later.insert((at, self.numbered), item);
    }

    /// Marks the present items and the next one as awaited: no others are about to come.
    pub(crate) fn await_next(&mut self) {
        self.awaited = true;
    }

    /// Whether the present items are awaited. They are due at once if no other call is running, for
    /// which the caller sets `flush`; otherwise the next call takes the items that arrive during
    /// that one.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// Takes the items of the next call, if a call is due. `flush` makes it due with any number of
    /// items.
    pub(crate) fn take(&mut self, now: BootInstant, flush: bool) -> Option<Vec<T>> {
        while let Some(entry) = self.later.first_entry() {
            let (at, _) = *entry.key();
            if at > now {
                break;
            }
            // The item has waited already, so it makes its call due.
            self.hasty += 1;
            self.fresh.push_front(BatchedItem {
                since: BootInstant::default(),
                patient: false,
                item: entry.remove(),
            });
        }
        let oldest = self.fresh.front()?.since;
        let due = flush || self.fresh.len() >= self.size || oldest + self.wait() <= now;
        due.then(|| {
            let count = self.size.min(self.fresh.len());
            self.awaited &= self.fresh.len() > count;
            let taken = self.fresh.drain(..count);
            let hasty = &mut self.hasty;
            taken
                .map(|fresh| {
                    *hasty -= usize::from(!fresh.patient);
                    fresh.item
                })
                .collect()
        })
    }

    /// Returns how long the oldest item waits.
    fn wait(&self) -> Duration {
        match self.hasty {
            0 => self.patience,
            _ => self.linger,
        }
    }

    /// Returns when `take` may return items even if nothing is pushed.
    pub(crate) fn next_due(&self) -> Option<BootInstant> {
        let fresh = self.fresh.front().map(|fresh| fresh.since + self.wait());
        let later = self.later.first_key_value().map(|((at, _), _)| *at);
        fresh.into_iter().chain(later).min()
    }

    /// Whether no item waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.later.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINGER: Duration = Duration::from_millis(5);

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_millis(ms))
    }

    #[test]
    fn full_call_is_sent_at_once_and_the_rest_lingers() {
        let mut batch = Batcher::new(3, LINGER);
        (0..5).for_each(|n| batch.push(n, false, at(0)));
        assert_eq!(batch.take(at(0), false), Some(vec![0, 1, 2]));
        assert_eq!(batch.take(at(0), false), None);
        assert_eq!(batch.next_due(), Some(at(5)));
        assert_eq!(batch.take(at(5), false), Some(vec![3, 4]));
        assert!(batch.is_empty());
    }

    #[test]
    fn retried_settlement_waits_for_its_time() {
        let mut batch = Batcher::new(3, LINGER);
        batch.push_later("again", at(100));
        assert_eq!(batch.take(at(99), false), None);
        assert_eq!(batch.next_due(), Some(at(100)));
        assert_eq!(batch.take(at(100), false), Some(vec!["again"]));
    }

    #[test]
    fn finding_12_awaited_settlement_flushes_everything_waiting() {
        let mut batch = Batcher::new(3, LINGER);
        (0..4).for_each(|n| batch.push(n, false, at(0)));
        batch.await_next();
        assert_eq!(batch.take(at(0), false), Some(vec![0, 1, 2]));
        assert!(batch.is_awaited(), "one more waits");
        assert_eq!(batch.take(at(0), false), None, "another call is under way");
        assert_eq!(batch.take(at(0), batch.is_awaited()), Some(vec![3]));
        assert!(!batch.is_awaited(), "what comes later is not");
    }

    #[test]
    fn finding_11_patient_settlements_wait_for_a_full_call_or_an_urgent_one() {
        let mut batch = Batcher::new(3, LINGER);
        batch.push(0, true, at(0));
        assert_eq!(batch.next_due(), Some(at(5)), "nobody said how long");
        batch.set_patience(Duration::from_millis(40));
        assert_eq!(batch.take(at(39), false), None);
        assert_eq!(batch.next_due(), Some(at(40)));
        assert_eq!(batch.take(at(40), false), Some(vec![0]));
        (1..4).for_each(|n| batch.push(n, true, at(50)));
        assert_eq!(batch.take(at(50), false), Some(vec![1, 2, 3]));
        batch.push(4, true, at(60));
        batch.push(5, false, at(63));
        assert_eq!(batch.take(at(64), false), None);
        assert_eq!(batch.take(at(65), false), Some(vec![4, 5]));
        batch.push(6, true, at(70));
        assert_eq!(batch.take(at(75), false), None);
        // Nothing more comes.
        batch.set_patience(Duration::ZERO);
        assert_eq!(batch.take(at(75), false), Some(vec![6]));
    }

    proptest! {
        #[test]
        fn no_settlement_is_lost_or_duplicated(pushes in prop::collection::vec((0_u64..50, prop::option::of(0_u64..100)), 0..200), size in 1_usize..12, patience in 0_u64..30) {
            let mut batch = Batcher::new(size, LINGER);
            batch.set_patience(Duration::from_millis(patience));
            let mut out = Vec::new();
            let mut now = 0;
            for (n, (step, delay)) in pushes.iter().enumerate() {
                now += step;
                match delay {
                    None => batch.push(n, n % 3 == 0, at(now)),
                    Some(delay) => batch.push_later(n, at(now + delay)),
                }
                while let Some(items) = batch.take(at(now), false) {
                    prop_assert!(!items.is_empty() && items.len() <= size);
                    out.extend(items);
                }
            }
            while let Some(items) = batch.take(at(now + 1_000), true) {
                out.extend(items);
            }
            out.sort_unstable();
            prop_assert_eq!(out, (0..pushes.len()).collect::<Vec<_>>());
            prop_assert!(batch.is_empty());
        }
    }
}
