//! Opens the queue that a route sends its messages to. Sends nothing.

use super::OpenTerms;
use super::plugins::{LoadedHandler, Loader};
use dispatcher_config::name::QueueName;
use dispatcher_config::problem::Problem;
use dispatcher_config::{Route, TIMEOUT};
use dispatcher_core::executor::relay::Relay;
use dispatcher_core::queue::Queue;
use std::sync::Arc;
use tokio::runtime::Handle;

impl Loader {
    /// Returns the relay of a route to the queue `target`, or `None` after a problem. `queues` are
    /// those that the route reads: `target` may be one of them by another name.
    pub(super) async fn relay(
        &self,
        route: &Route,
        target: &QueueName,
        queues: &[Arc<dyn Queue>],
        problems: &mut Vec<Problem>,
    ) -> Option<LoadedHandler> {
        let at = &route.plugin.at;
        let queue = match self.backends.open(target, OpenTerms::default()).await {
            Ok(queue) => queue,
            Err(error) => {
                problems.push(self.backends.problem(at, target, &error).await);
                return None;
            }
        };
        let source = &queue.identity().source;
        let mut own = queues.iter().map(|own| own.identity());
        if let Some(own) = own.find(|own| own.source == *source) {
            let found = format!("`{target}` is the route's own queue `{}`", own.name);
            let wanted = "a queue that the route does not read: its messages would never leave it";
            let problem = Problem::new(at, found, wanted);
            let mut read = route.queues.iter();
            let read =
                read.find(|read| read.name.name == own.name || read.name.to_string() == own.name);
            problems.push(match read {
                Some(read) => problem.of_queue(read),
                None => problem,
            });
            return None;
        }
        Some(LoadedHandler {
            handler: Arc::new(Relay::new(queue, self.backends.sent(), Handle::current())),
            timeout: TIMEOUT.into(),
            rollout: None,
        })
    }
}
