//! The routes that run at one moment. A change of the routes makes a new table.

use super::route::{LiveQueue, LiveRoute};
use dispatcher_config::Settings;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The routes of the process at one moment.
#[derive(Clone, Default)]
pub(crate) struct RouteTable {
    /// The routes that receive messages, in the order of the settings.
    pub routes: Vec<Arc<LiveRoute>>,
    /// The removed routes, and earlier versions of routes, that finish their messages.
    pub ending: Vec<Arc<LiveRoute>>,
    by_queue: BTreeMap<String, (usize, usize)>,
}

/// A queue of a running route.
pub(crate) type QueuePlace = (Arc<LiveRoute>, usize);

impl RouteTable {
    /// Returns the route of a queue, and the index of the queue in it.
    pub(crate) fn find(&self, queue: &str) -> Option<QueuePlace> {
        let (at, lane) = *self.by_queue.get(queue)?;
        Some((self.routes[at].clone(), lane))
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

    pub(super) fn end(&mut self, name: &str) {
        let (ended, others) = std::mem::take(&mut self.routes)
            .into_iter()
            .partition(|route| route.config.name == name);
        self.routes = others;
        self.ending.extend::<Vec<_>>(ended);
    }

    /// Sorts the routes as in the settings, and finds their queues anew.
    pub(super) fn arrange(&mut self, settings: &Settings) {
        self.routes.sort_by_key(|route| {
            let mut all = settings.routes.iter();
            all.position(|one| one.name == route.config.name)
        });
        self.by_queue.clear();
        for (at, route) in self.routes.iter().enumerate() {
            for (lane, queue) in route.queues.iter().enumerate() {
                self.by_queue.insert(queue.text.clone(), (at, lane));
            }
        }
    }
}
