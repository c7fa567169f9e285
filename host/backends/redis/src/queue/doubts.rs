//! Claims that may have been granted although their answer was lost. Pure; independent of the
//! server.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of worker names, the latest, whose lost claims are kept: a claim under a lost name
/// may fail after one under the next name. Older claims were released with everything else of their
/// worker.
const WORKERS: usize = 4;

/// A counter of claims that keeps the numbers of those whose answers were lost.
#[derive(Debug, Default)]
pub(super) struct LostClaims {
    last: AtomicU64,
    /// The numbers of lost claims, by the worker's name.
    of: Mutex<VecDeque<(Arc<str>, Vec<u64>)>>,
}

impl LostClaims {
    /// Returns the number of the next claim.
    pub(super) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Removes and returns the lost claims of this worker. Those of others stay.
    pub(super) fn take(&self, worker: &Arc<str>) -> Vec<u64> {
        let mut all = self.lock();
        let at = all.iter().position(|(of, _)| of == worker);
        let taken = at.and_then(|at| all.remove(at));
        taken.map(|(_, claims)| claims).unwrap_or_default()
    }

    /// Adds lost claims of this worker.
    pub(super) fn add(&self, worker: &Arc<str>, claims: impl Iterator<Item = u64>) {
        let mut claims = claims.peekable();
        if claims.peek().is_none() {
            return;
        }
        let mut all = self.lock();
        if let Some((_, list)) = all.iter_mut().find(|(of, _)| of == worker) {
            list.extend(claims);
            return;
        }
        all.push_back((worker.clone(), claims.collect()));
        if all.len() > WORKERS {
            all.pop_front();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Arc<str>, Vec<u64>)>> {
        self.of.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_claims_are_kept_per_worker_and_taken_once() {
        let doubts = LostClaims::default();
        let (one, other) = (Arc::from("one"), Arc::from("other"));
        doubts.add(&one, [doubts.number()].into_iter());
        doubts.add(&one, [doubts.number()].into_iter());
        assert_eq!(doubts.take(&one), [1, 2]);
        assert!(doubts.take(&one).is_empty());
        doubts.add(&one, [3].into_iter());
        doubts.add(&other, [4].into_iter());
        assert_eq!(doubts.take(&other), [4]);
    }

    #[test]
    fn late_failure_under_a_lost_name_keeps_the_new_workers_claims() {
        let doubts = LostClaims::default();
        let (lost, new) = (Arc::from("lost"), Arc::from("new"));
        doubts.add(&new, [2].into_iter());
        doubts.add(&lost, [1].into_iter());
        assert_eq!(doubts.take(&new), [2]);
        doubts.add(&new, [3].into_iter());
        assert_eq!(doubts.take(&lost), [1]);
        assert_eq!(doubts.take(&new), [3]);
    }

    #[test]
    fn lost_worker_names_are_bounded() {
        let doubts = LostClaims::default();
        for number in 0..100 {
            doubts.add(&number.to_string().into(), [number].into_iter());
        }
        assert_eq!(doubts.lock().len(), WORKERS);
        assert_eq!(doubts.take(&"99".into()), [99]);
    }
}
