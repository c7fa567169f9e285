//! The routes that run at one moment. A change of the routes makes a new table.

use super::route::{LiveQueue, LiveRoute};
use dispatcher_config::Settings;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The routes of the process at one moment.
#[derive(Clone, Default)]
pub(crate) struct RouteTable {
    /// The routes that receive messages, in the order of the settings.
    pub routes: Vec<Arc<LiveRoute>>,
    /// The removed routes, and earlier versions of routes, that finish their messages.
    pub ending: Vec<Arc<LiveRoute>>,
    by_queue: BTreeMap<String, QueuePlace>,
}

/// A queue of a running route.
pub(crate) type QueuePlace = (Arc<LiveRoute>, usize);

impl RouteTable {
    /// Returns the route of a queue, and the index of the queue in it.
    pub(crate) fn find(&self, queue: &str) -> Option<QueuePlace> {
        self.by_queue.get(queue).cloned()
    }

    /// Returns the route of this name that receives messages.
    pub(crate) fn route(&self, name: &str) -> Option<&Arc<LiveRoute>> {
        self.routes.iter().find(|one| one.config.name == name)
    }

    /// Returns the latest version of a route, which may only finish its messages.
    pub(super) fn latest(&self, name: &str) -> Option<&Arc<LiveRoute>> {
        let ending = self.ending.iter().rev();
        let mut ended = ending.filter(|one| one.config.name == name);
        self.route(name).or_else(|| ended.next())
    }

    /// Returns the latest route of a queue, which may only finish its messages.
    pub(super) fn latest_with(&self, queue: &str) -> Option<QueuePlace> {
        let ending = self.ending.iter().rev();
        let mut ended = ending.filter_map(|one| Some((one.clone(), one.lane(queue)?)));
        self.find(queue).or_else(|| ended.next())
    }

    /// Returns all routes that may have attempts, in the order in which they were started.
    pub(crate) fn with_attempts(&self) -> Vec<Arc<LiveRoute>> {
        let mut all: Vec<_> = self.routes.iter().chain(&self.ending).cloned().collect();
        all.sort_by_key(|route| route.number);
        all
    }

    /// Returns the queues of the routes that receive messages.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &LiveQueue> + Clone {
        self.routes.iter().flat_map(|route| &route.queues)
    }

    /// Adds a route. It takes the place of an earlier version, and its queues are found here.
    pub(super) fn add(&mut self, route: Arc<LiveRoute>) {
        self.end(&route.config.name);
        for (lane, queue) in route.queues.iter().enumerate() {
            self.by_queue
                .insert(queue.text.clone(), (route.clone(), lane));
        }
        self.routes.push(route);
    }

    /// Records that a route only finishes its messages, if it runs.
    pub(super) fn end(&mut self, name: &str) {
        let mut all = self.routes.iter();
        let Some(at) = all.position(|one| one.config.name == name) else {
            return;
        };
        let ended = self.routes.remove(at);
        for queue in &ended.queues {
            // Another route may have the queue by now.
            if self
                .find(&queue.text)
                .is_some_and(|(one, _)| one.number == ended.number)
            {
                self.by_queue.remove(&queue.text);
            }
        }
        self.ending.push(ended);
    }

    /// Removes a route that has finished.
    pub(super) fn remove(&mut self, number: u64) {
        let mut all = self.routes.iter();
        if let Some(route) = all.find(|route| route.number == number).cloned() {
            self.end(&route.config.name);
        }
        self.ending.retain(|route| route.number != number);
    }

    /// Sorts the routes as in the settings.
    pub(super) fn arrange(&mut self, settings: &Settings) {
        let names = settings.routes.iter().map(|route| &*route.name);
        let places: HashMap<&str, usize> = names.zip(0..).collect();
        self.routes
            .sort_by_key(|route| places.get(&*route.config.name).copied());
    }
}
