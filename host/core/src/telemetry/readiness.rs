//! Whether the program is ready, as `/readyz` reports it. Knows no specific condition.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};

/// The named conditions that are wrong now, each with its reason. Shared by `Arc`. A process is
/// ready if there are none, and also if only some of its routes are closed, because the others
/// work.
#[derive(Debug, Default)]
pub struct Readiness(Mutex<Conditions>);

#[derive(Debug, Default)]
struct Conditions {
    wrong: BTreeMap<String, String>,
    routes: usize,
    closed: BTreeSet<String>,
}

impl Readiness {
    /// Adds a route to the process.
    pub fn add_route(&self) {
        self.lock().routes += 1;
    }

    /// Removes a route from the process, which has none of its conditions.
    pub fn remove_route(&self) {
        self.lock().routes -= 1;
    }

    /// Records that the circuit of a route is open, for this reason.
    pub fn close_route(&self, route: &str, reason: &str) {
        let mut conditions = self.lock();
        let name = format!("route {route}");
        conditions.closed.insert(name.clone());
        conditions.wrong.insert(name, reason.to_owned());
    }

    /// Records that the circuit of a route is closed again. Does nothing if it was closed.
    pub fn reopen_route(&self, route: &str) {
        let mut conditions = self.lock();
        let name = format!("route {route}");
        conditions.closed.remove(&name);
        conditions.wrong.remove(&name);
    }

    /// Whether the process can do its work, or that of some routes.
    pub fn is_ready(&self) -> bool {
        let conditions = self.lock();
        let closed = conditions.closed.len();
        conditions.wrong.len() == closed && (closed == 0 || closed < conditions.routes)
    }

    /// Sets a condition that is wrong from now on, with its reason. Replaces an earlier reason.
    pub fn set(&self, name: impl Into<String>, reason: impl Into<String>) {
        self.lock().wrong.insert(name.into(), reason.into());
    }

    /// Clears a condition. Does nothing if it was not set.
    pub fn clear(&self, name: &str) {
        self.lock().wrong.remove(name);
    }

    /// Returns the conditions that are wrong, each with its reason, by name.
    pub fn reasons(&self) -> Vec<(String, String)> {
        let conditions = self.lock();
        let pairs = conditions.wrong.iter();
        pairs
            .map(|(name, reason)| (name.clone(), reason.clone()))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Conditions> {
        self.0.lock()
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
        let wanted = [("sqs:a", "no answer"), ("sqs:b", "no such queue")]
            .map(|(name, reason)| (name.to_owned(), reason.to_owned()));
        assert_eq!(readiness.reasons(), wanted);
        readiness.clear("sqs:a");
        readiness.clear("sqs:a");
        assert!(!readiness.is_ready());
        readiness.clear("sqs:b");
        assert!(readiness.reasons().is_empty() && readiness.is_ready());
    }

    #[test]
    fn process_is_ready_while_any_of_its_routes_is_open() {
        let readiness = Readiness::default();
        readiness.add_route();
        readiness.add_route();
        readiness.close_route("a", "no such function");
        assert!(readiness.is_ready());
        assert_eq!(readiness.reasons()[0].0, "route a");
        readiness.close_route("b", "denied");
        readiness.close_route("b", "denied");
        assert!(!readiness.is_ready());
        readiness.reopen_route("a");
        assert!(readiness.is_ready());
        readiness.set("queue a", "no answer");
        assert!(!readiness.is_ready());
        readiness.clear("queue a");
        readiness.remove_route();
        assert!(!readiness.is_ready(), "only the closed one is left");
    }
}
