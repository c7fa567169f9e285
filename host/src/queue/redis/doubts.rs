//! Claims that may have been granted without our hearing of it. Pure; knows no server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Numbers claims, and keeps the numbers of those whose answers were lost.
#[derive(Debug, Default)]
pub struct Doubts {
    last: AtomicU64,
    /// Under which name of the worker, and which.
    of: Mutex<Option<(Arc<str>, Vec<u64>)>>,
}

impl Doubts {
    /// The number of the next claim.
    pub fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Those of this worker, which are in doubt no more.
    pub fn take(&self, worker: &Arc<str>) -> Vec<u64> {
        match self.lock().take() {
            Some((of, claims)) if of == *worker => claims,
            // What a lost worker had is given back with the rest.
            _ => Vec::new(),
        }
    }

    /// More of this worker.
    pub fn add(&self, worker: &Arc<str>, claims: impl Iterator<Item = u64>) {
        let mut doubts = self.lock();
        match &mut *doubts {
            Some((of, list)) if of == worker => list.extend(claims),
            doubts => *doubts = Some((worker.clone(), claims.collect())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Arc<str>, Vec<u64>)>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubts_are_of_one_worker_and_are_told_once() {
        let doubts = Doubts::default();
        let (one, other) = (Arc::from("one"), Arc::from("other"));
        doubts.add(&one, [doubts.number()].into_iter());
        doubts.add(&one, [doubts.number()].into_iter());
        assert_eq!(doubts.take(&one), [1, 2]);
        assert!(doubts.take(&one).is_empty());
        doubts.add(&one, [3].into_iter());
        doubts.add(&other, [4].into_iter());
        assert_eq!(doubts.take(&other), [4]);
        doubts.add(&other, [5].into_iter());
        assert!(doubts.take(&one).is_empty());
    }
}
