//! Whether the program is ready, as `/readyz` reports it. Knows no condition by itself.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is wrong at the moment: named conditions, each with its reason. Shared by `Arc`; ready as
/// long as it is empty.
#[derive(Debug, Default)]
pub struct Readiness(Mutex<BTreeMap<String, String>>);

impl Readiness {
    /// This is wrong from now on, for this reason; a reason that was given before is replaced.
    pub fn set(&self, name: impl Into<String>, reason: impl Into<String>) {
        self.wrong().insert(name.into(), reason.into());
    }

    /// This is well again. Nothing happens if it was.
    pub fn clear(&self, name: &str) {
        self.wrong().remove(name);
    }

    /// All that is wrong, each with its reason, by name.
    pub fn reasons(&self) -> Vec<(String, String)> {
        let wrong = self.wrong();
        let pairs = wrong.iter();
        pairs
            .map(|(name, reason)| (name.clone(), reason.clone()))
            .collect()
    }

    fn wrong(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_ready_once_every_condition_has_passed() {
        let readiness = Readiness::default();
        readiness.set("sqs:b", "denied");
        readiness.set("sqs:a", "no answer");
        readiness.set("sqs:b", "no such queue");
        let pair = |name: &str, reason: &str| (name.to_owned(), reason.to_owned());
        let wanted = [pair("sqs:a", "no answer"), pair("sqs:b", "no such queue")];
        assert_eq!(readiness.reasons(), wanted);
        readiness.clear("sqs:a");
        readiness.clear("sqs:a");
        readiness.clear("sqs:b");
        assert!(readiness.reasons().is_empty());
    }
}
