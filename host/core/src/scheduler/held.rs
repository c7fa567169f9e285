//! Jobs that wait for a retry because their downstream was busy. Pure.

use super::ready::WaitingJob;
use crate::clock::BootInstant;
use std::collections::BTreeMap;

/// The held jobs of one queue, by the time at which they are due. Jobs that were attempted together
/// are held together, so that their order is kept.
#[derive(Debug)]
pub(super) struct HeldMessages<J> {
    waiting: BTreeMap<(BootInstant, u64), Batch<J>>,
    count: usize,
    numbered: u64,
    /// When the first job becomes too old; perhaps earlier, because that job may have left.
    expires: Option<BootInstant>,
}

#[derive(Debug)]
struct Batch<J> {
    jobs: Vec<J>,
    not_before: BootInstant,
}

impl<J> Default for HeldMessages<J> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            count: 0,
            numbered: 0,
            expires: None,
        }
    }
}

impl<J: WaitingJob> HeldMessages<J> {
    /// Returns the number of held jobs.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether no job is held.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Holds jobs until `until`, or until `hasten` is called after `not_before`.
    pub(super) fn push(&mut self, jobs: Vec<J>, not_before: BootInstant, until: BootInstant) {
        self.numbered += 1;
        self.count += jobs.len();
        let key = (until.max(not_before), self.numbered);
        let expires = jobs.iter().filter_map(WaitingJob::expires);
        self.expires = self.expires.into_iter().chain(expires).min();
        self.waiting.insert(key, Batch { jobs, not_before });
    }

    /// Takes out the first batch, if it is due.
    pub(super) fn take_due(&mut self, now: BootInstant) -> Option<Vec<J>> {
        let (key, _) = self.waiting.first_key_value()?;
        let key = *key;
        (key.0 <= now).then(|| self.take(key))?
    }

    /// Takes out the first batch, due or not, whose `not_before` has passed. Called when the
    /// downstream turned out to be open.
    pub(super) fn hasten(&mut self, now: BootInstant) -> Option<Vec<J>> {
        let mut batches = self.waiting.iter();
        let (key, _) = batches.find(|(_, batch)| batch.not_before <= now)?;
        let key = *key;
        self.take(key)
    }

    fn take(&mut self, key: (BootInstant, u64)) -> Option<Vec<J>> {
        let jobs = self.waiting.remove(&key)?.jobs;
        self.count -= jobs.len();
        self.forget_ages();
        Some(jobs)
    }

    /// Returns when the first batch is due.
    pub(super) fn due(&self) -> Option<BootInstant> {
        self.waiting.first_key_value().map(|((until, _), _)| *until)
    }

    /// Whether a batch is due.
    pub(super) fn is_due(&self, now: BootInstant) -> bool {
        self.due().is_some_and(|at| at <= now)
    }

    /// Returns when the first job becomes too old; perhaps an earlier time.
    pub(super) fn expires(&self) -> Option<BootInstant> {
        self.expires
    }

    /// Takes out the jobs that are too old.
    pub(super) fn expired(&mut self, now: BootInstant) -> Vec<J> {
        if self.expires.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let out = self.extract(|job| job.expires().is_some_and(|at| at <= now));
        let left = self.waiting.values().flat_map(|batch| &batch.jobs);
        self.expires = left.filter_map(WaitingJob::expires).min();
        out
    }

    /// Returns the held jobs, in the order in which they are due.
    pub(super) fn iter(&self) -> impl Iterator<Item = &J> {
        self.waiting.values().flat_map(|batch| &batch.jobs)
    }

    /// Whether `which` is true for a held job.
    pub(super) fn any(&self, which: impl Fn(&J) -> bool) -> bool {
        self.waiting
            .values()
            .any(|batch| batch.jobs.iter().any(&which))
    }

    fn forget_ages(&mut self) {
        if self.count == 0 {
            self.expires = None;
        }
    }

    /// Takes out the jobs that `which` chooses, called in the order in which they are due.
    pub(super) fn extract(&mut self, which: impl Fn(&J) -> bool) -> Vec<J> {
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
        self.forget_ages();
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    impl WaitingJob for u64 {
        fn group(&self) -> Option<&str> {
            None
        }

        /// At its own number of milliseconds.
        fn expires(&self) -> Option<BootInstant> {
            Some(at(*self))
        }
    }

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_millis(ms))
    }

    #[test]
    fn held_messages_are_released_in_due_order_and_honour_advice() {
        let mut held = HeldMessages::default();
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
    fn some_held_messages_can_be_extracted() {
        let mut held = HeldMessages::default();
        held.push(vec![1, 2], at(0), at(100));
        assert_eq!(held.extract(|n| *n == 1), [1]);
        assert_eq!((held.len(), held.take_due(at(100))), (1, Some(vec![2])));
    }

    #[test]
    fn held_message_expires_at_its_time() {
        let mut held = HeldMessages::default();
        held.push(vec![70, 30], at(0), at(900));
        held.push(vec![50], at(0), at(800));
        assert_eq!(
            (held.expires(), held.expired(at(29))),
            (Some(at(30)), vec![])
        );
        assert_eq!(held.expired(at(60)), [50, 30]);
        assert_eq!((held.expires(), held.len()), (Some(at(70)), 1));
        assert_eq!(held.take_due(at(900)), Some(vec![70]));
        assert!(held.expired(at(999)).is_empty());
        assert_eq!(held.expires(), None);
    }
}
