//! Requests the depths of queues when a client reads metrics, each at most once per interval.
//! Without readers there are no requests.

use dispatcher_core::clock;
use dispatcher_operate::operations::Operations;
use dispatcher_telemetry::registry::Registry;
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
        for names in due.chunks(TOGETHER) {
            let mut views = operations.queues_named(names).await;
            operations.add_depths(&mut views).await;
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
