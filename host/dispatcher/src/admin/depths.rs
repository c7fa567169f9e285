//! Asks queues how much they hold when somebody reads metrics, each at most once an interval. Nobody
//! reads, nothing is asked.

use super::operations::Operations;
use crate::telemetry::registry::Registry;
use dispatcher_core::clock;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// How long a reader waits for answers; those that come later are shown to the next.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many queues are asked before what they answered is shown.
const TOGETHER: usize = 100;

/// Asks in a separate task, so that a reader who leaves cuts no call off.
pub(crate) struct DepthAsker {
    metrics: Registry,
    operations: Arc<OnceLock<Arc<dyn Operations>>>,
    wanted: Notify,
    came: watch::Sender<()>,
}

impl DepthAsker {
    /// For readers of these metrics.
    pub(crate) fn new(
        metrics: Registry,
        operations: Arc<OnceLock<Arc<dyn Operations>>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            metrics,
            operations,
            wanted: Notify::default(),
            came: watch::Sender::default(),
        })
    }

    /// Asks whenever somebody reads, until `stop`.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
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

    /// Has the queues asked that are due, and waits for some time.
    pub(crate) async fn refresh(&self) {
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
