//! Whether the program is ready, as `/readyz` reports it. Knows no specific condition.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;

/// The named conditions that are wrong now, each with its reason. Shared by `Arc`. A process is
/// ready while any of its routes works, if nothing is wrong that concerns all of them.
#[derive(Debug, Default)]
pub struct Readiness(Mutex<Conditions>);

#[derive(Debug, Default)]
struct Conditions {
    wrong: BTreeMap<String, WrongCondition>,
    routes: BTreeMap<String, RouteState>,
    ready_when: ReadyWhen,
}

/// When a process is ready.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum ReadyWhen {
    /// While any route works.
    #[default]
    AnyRoute,
    /// While every route, queue and account works.
    EveryRoute,
}

/// A condition that is wrong.
#[derive(Debug)]
struct WrongCondition {
    reason: String,
    concerns: ConcernedPart,
}

/// The part of a process that does not work while a condition is wrong.
#[derive(Debug, PartialEq, Eq)]
enum ConcernedPart {
    Process,
    /// A route, for its circuit.
    Route,
    /// A queue of this route.
    Queue(String),
    /// Parts that have their own conditions if they do not work.
    Others,
}

/// The versions and queues of a route.
#[derive(Debug, Default, Clone, Copy)]
struct RouteState {
    versions: usize,
    /// The versions whose circuit is open.
    closed: usize,
    /// The number of queues of the newest version.
    queues: usize,
}

impl Readiness {
    /// Creates the readiness of a process.
    pub fn new(ready_when: ReadyWhen) -> Self {
        Self(Mutex::new(Conditions {
            ready_when,
            ..Conditions::default()
        }))
    }

    /// Adds a version of a route, with this number of queues, to the process.
    pub fn add_route(&self, route: &str, queues: usize) {
        let mut conditions = self.lock();
        let state = conditions.routes.entry(route.to_owned()).or_default();
        state.versions += 1;
        state.queues = queues;
    }

    /// Removes a version of a route, whose circuit is closed, from the process.
    pub fn remove_route(&self, route: &str) {
        let mut conditions = self.lock();
        if let Some(state) = conditions.routes.get_mut(route) {
            state.versions -= 1;
            if state.versions == 0 {
                conditions.routes.remove(route);
            }
        }
    }

    /// Records that the circuit of a version of a route is open, for this reason. `is_new` says
    /// whether it was closed before.
    pub fn close_route(&self, route: &str, reason: &str, is_new: bool) {
        self.insert(circuit(route), reason, ConcernedPart::Route);
        if is_new {
            let mut conditions = self.lock();
            let state = conditions.routes.entry(route.to_owned()).or_default();
            state.closed += 1;
        }
    }

    /// Records that the circuit of a version of a route is closed again.
    pub fn reopen_route(&self, route: &str) {
        let mut conditions = self.lock();
        let Some(state) = conditions.routes.get_mut(route) else {
            return;
        };
        state.closed -= 1;
        if state.closed == 0 {
            conditions.wrong.remove(&circuit(route));
        }
    }

    /// Records that nothing can be received from a queue of a route.
    pub fn close_queue(&self, route: &str, queue: &str, reason: &str) {
        let concerns = ConcernedPart::Queue(route.to_owned());
        self.insert(format!("queue {queue}"), reason, concerns);
    }

    /// Records that a queue can be received from again.
    pub fn reopen_queue(&self, queue: &str) {
        self.clear(&format!("queue {queue}"));
    }

    /// Replaces the conditions of the process whose names begin with `kind` by these parts of that
    /// kind, each with its reason.
    pub fn replace(&self, kind: &str, parts: impl IntoIterator<Item = (String, String)>) {
        self.replace_all(kind, parts, || ConcernedPart::Process);
    }

    /// Does the same with conditions that are only named: what does not work for their sake has a
    /// condition of its own.
    pub fn replace_named(&self, kind: &str, parts: impl IntoIterator<Item = (String, String)>) {
        self.replace_all(kind, parts, || ConcernedPart::Others);
    }

    fn replace_all(
        &self,
        kind: &str,
        parts: impl IntoIterator<Item = (String, String)>,
        concerns: fn() -> ConcernedPart,
    ) {
        let prefix = format!("{kind} ");
        let mut conditions = self.lock();
        conditions
            .wrong
            .retain(|name, _| !name.starts_with(&prefix));
        for (part, reason) in parts {
            let concerns = concerns();
            let wrong = WrongCondition { reason, concerns };
            conditions.wrong.insert(prefix.clone() + &part, wrong);
        }
    }

    /// Whether the process can do its work, or that of some routes.
    pub fn is_ready(&self) -> bool {
        let conditions = self.lock();
        if conditions.wrong.is_empty() {
            return true;
        }
        let needs_every_route = conditions.ready_when == ReadyWhen::EveryRoute;
        let mut wrong = conditions.wrong.values();
        if needs_every_route || wrong.any(|one| one.concerns == ConcernedPart::Process) {
            return false;
        }
        let mut routes = conditions.routes.iter();
        routes.any(|(name, state)| {
            let wrong = conditions.wrong.values();
            let of_queues = wrong.filter(
                |one| matches!(&one.concerns, ConcernedPart::Queue(route) if route == name),
            );
            state.closed < state.versions && of_queues.count() < state.queues
        })
    }

    /// Sets a condition of the process that is wrong from now on, with its reason. Replaces an
    /// earlier reason.
    pub fn set(&self, name: impl Into<String>, reason: impl AsRef<str>) {
        self.insert(name.into(), reason.as_ref(), ConcernedPart::Process);
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
            .map(|(name, wrong)| (name.clone(), wrong.reason.clone()))
            .collect()
    }

    fn insert(&self, name: String, reason: &str, concerns: ConcernedPart) {
        let reason = reason.to_owned();
        let wrong = WrongCondition { reason, concerns };
        self.lock().wrong.insert(name, wrong);
    }

    fn lock(&self) -> MutexGuard<'_, Conditions> {
        self.0.lock()
    }
}

fn circuit(route: &str) -> String {
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
        readiness.add_route("a", 2);
        readiness.add_route("b", 1);
        readiness.close_route("a", "no such function", true);
        assert!(readiness.is_ready());
        assert_eq!(readiness.reasons()[0].0, "route a");
        readiness.close_route("b", "denied", true);
        readiness.close_route("b", "denied", false);
        assert!(!readiness.is_ready());
        readiness.reopen_route("a");
        assert!(readiness.is_ready());
        readiness.set("file a", "no answer");
        assert!(!readiness.is_ready());
        readiness.clear("file a");
        readiness.remove_route("a");
        assert!(!readiness.is_ready(), "only the closed one is left");
    }

    #[test]
    fn a_route_works_while_any_of_its_queues_does() {
        for ready_when in [ReadyWhen::AnyRoute, ReadyWhen::EveryRoute] {
            let readiness = Readiness::new(ready_when);
            readiness.add_route("a", 2);
            readiness.add_route("b", 1);
            assert!(readiness.is_ready());
            let works = ready_when == ReadyWhen::AnyRoute;
            let denied = ("team-a".to_owned(), "denied".to_owned());
            readiness.replace_named("account", [denied]);
            assert_eq!(readiness.is_ready(), works);
            readiness.close_queue("b", "sqs:b", "denied");
            readiness.close_queue("a", "sqs:a1", "denied");
            assert_eq!(readiness.is_ready(), works, "one queue of a works");
            readiness.close_queue("a", "sqs:a2", "denied");
            assert!(!readiness.is_ready());
            readiness.reopen_queue("sqs:b");
            assert_eq!(readiness.is_ready(), works, "b works");
            for queue in ["sqs:a1", "sqs:a2"] {
                readiness.reopen_queue(queue);
            }
            readiness.replace_named("account", []);
            assert!(readiness.is_ready());
        }
    }

    #[test]
    fn a_route_is_open_while_any_of_its_versions_is() {
        let readiness = Readiness::default();
        readiness.add_route("a", 2);
        readiness.close_route("a", "denied", true);
        readiness.add_route("a", 2);
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
