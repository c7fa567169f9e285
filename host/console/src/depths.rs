//! Requests the depths of queues when a client reads metrics, each at most once per interval.
//! Without readers there are no requests.

use dispatcher_core::clock;
use dispatcher_operate::operations::{Operations, Page, QueueView};
use dispatcher_telemetry::pace::FleetPace;
use dispatcher_telemetry::registry::Registry;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// How long a reader waits for depths. Depths that arrive later are shown to the next reader.
const PATIENCE: Duration = Duration::from_secs(1);
/// The number of queues that are asked before their depths are shown.
const TOGETHER: usize = 100;

/// Requests depths in a separate task, so that a reader that disconnects does not cancel a call.
pub struct DepthAsker {
    metrics: Registry,
    operations: Arc<OnceLock<Arc<dyn Operations>>>,
    wanted: Notify,
    came: watch::Sender<()>,
}

impl DepthAsker {
    /// Creates an asker for readers of these metrics.
    pub fn new(metrics: Registry, operations: Arc<OnceLock<Arc<dyn Operations>>>) -> Arc<Self> {
        Arc::new(Self {
            metrics,
            operations,
            wanted: Notify::default(),
            came: watch::Sender::default(),
        })
    }

    /// Requests depths whenever a client reads, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let asking = async {
            loop {
                self.wanted.notified().await;
                self.ask().await;
                self.came.send_replace(());
            }
        };
        tokio::select! {
            () = asking => {}
            () = stop.cancelled() => {}
        }
    }

    async fn ask(&self) {
        let Some(operations) = self.operations.get() else {
            return;
        };
        let due = self.metrics.due_depths(clock::now());
        let mut views = Vec::with_capacity(due.len());
        for names in due.chunks(TOGETHER) {
            let mut some = operations.queues_named(names).await;
            operations.add_depths(&mut some).await;
            views.extend(some);
        }
        if !views.is_empty() {
            self.record_paces(&**operations, views).await;
        }
    }

    /// Records the paces of these queues in the fleet.
    async fn record_paces(&self, operations: &dyn Operations, views: Vec<QueueView>) {
        let fleet = operations.fleet().await.unwrap_or_default();
        let queues = fleet.queues.into_iter().map(|one| (one.queue, one.done));
        let done: HashMap<String, f64> = queues.collect();
        let (routes, _) = operations.routes(&Page::everything()).unwrap_or_default();
        let bounds = routes
            .into_iter()
            .map(|one| (one.route, one.fleet_per_second));
        let most: HashMap<String, Option<f64>> = bounds.collect();
        for QueueView { queue, route, .. } in views {
            let pace = FleetPace {
                done: done.get(&queue).copied().unwrap_or_default(),
                most: most.get(&route).copied().flatten(),
            };
            self.metrics.paces.record(queue, pace);
        }
    }

    /// Triggers requests for the depths that are due, and waits some time for them.
    pub async fn refresh(&self) {
        if self.operations.get().is_none() || self.metrics.due_depths(clock::now()).is_empty() {
            return;
        }
        let mut came = self.came.subscribe();
        self.wanted.notify_one();
        tokio::select! {
            _ = came.changed() => {}
            () = clock::sleep_until(Some(clock::now() + PATIENCE)) => {}
        }
    }
}
