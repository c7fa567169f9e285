//! Whether the program is ready, as `/readyz` reports it. Knows no specific condition.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;

/// The named conditions that are wrong now, each with its reason. Shared by `Arc`. A process is
/// ready if there are none, and also if only some of its routes are closed, because the others
/// work.
#[derive(Debug, Default)]
pub struct Readiness(Mutex<Conditions>);

#[derive(Debug, Default)]
struct Conditions {
    wrong: BTreeMap<String, String>,
    /// The routes, each with the number of its versions.
    routes: BTreeMap<String, VersionCounts>,
}

/// The number of versions of a route.
#[derive(Debug, Default, Clone, Copy)]
struct VersionCounts {
    all: usize,
    /// The versions whose circuit is open.
    closed: usize,
}

impl Readiness {
    /// Adds a version of a route to the process.
    pub fn add_route(&self, route: &str) {
        let mut conditions = self.lock();
        conditions.routes.entry(route.to_owned()).or_default().all += 1;
    }

    /// Removes a version of a route, whose circuit is closed, from the process.
    pub fn remove_route(&self, route: &str) {
        let mut conditions = self.lock();
        if let Some(versions) = conditions.routes.get_mut(route) {
            versions.all -= 1;
            if versions.all == 0 {
                conditions.routes.remove(route);
            }
        }
    }

    /// Records that the circuit of a version of a route is open, for this reason. `is_new` says
    /// whether it was closed before.
    pub fn close_route(&self, route: &str, reason: &str, is_new: bool) {
        let mut conditions = self.lock();
        conditions.wrong.insert(condition(route), reason.to_owned());
        if is_new {
            conditions
                .routes
                .entry(route.to_owned())
                .or_default()
                .closed += 1;
        }
    }

    /// Records that the circuit of a version of a route is closed again.
    pub fn reopen_route(&self, route: &str) {
        let mut conditions = self.lock();
        let Some(versions) = conditions.routes.get_mut(route) else {
            return;
        };
        versions.closed -= 1;
        if versions.closed == 0 {
            conditions.wrong.remove(&condition(route));
        }
    }

    /// Whether the process can do its work, or that of some routes.
    pub fn is_ready(&self) -> bool {
        let conditions = self.lock();
        let routes = conditions.routes.values();
        let named = routes
            .clone()
            .filter(|versions| versions.closed > 0)
            .count();
        let mut open = routes.filter(|versions| versions.closed < versions.all);
        conditions.wrong.len() == named && (named == 0 || open.next().is_some())
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

fn condition(route: &str) -> String {
    format!("route {route}")
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
        readiness.add_route("a");
        readiness.add_route("b");
        readiness.close_route("a", "no such function", true);
        assert!(readiness.is_ready());
        assert_eq!(readiness.reasons()[0].0, "route a");
        readiness.close_route("b", "denied", true);
        readiness.close_route("b", "denied", false);
        assert!(!readiness.is_ready());
        readiness.reopen_route("a");
        assert!(readiness.is_ready());
        readiness.set("queue a", "no answer");
        assert!(!readiness.is_ready());
        readiness.clear("queue a");
        readiness.remove_route("a");
        assert!(!readiness.is_ready(), "only the closed one is left");
    }

    #[test]
    fn a_route_is_open_while_any_of_its_versions_is() {
        let readiness = Readiness::default();
        readiness.add_route("a");
        readiness.close_route("a", "denied", true);
        readiness.add_route("a");
        assert!(readiness.is_ready(), "the new version");
        readiness.close_route("a", "denied", true);
        assert!(!readiness.is_ready());
        // The earlier one ends.
        readiness.reopen_route("a");
        readiness.remove_route("a");
        assert!(!readiness.is_ready());
        assert_eq!(readiness.reasons().len(), 1);
        readiness.reopen_route("a");
        assert!(readiness.is_ready() && readiness.reasons().is_empty());
    }
}
