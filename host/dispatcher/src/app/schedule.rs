//! Starts and ends the movers of scheduled messages in a run.

use super::ProcessContext;
use super::build::outlet::OpenedQueues;
use super::build::schedule::Schedules;
use crate::config::Settings;
use dispatcher_core::schedule::LOOK_INTERVAL;
use dispatcher_core::schedule::mover::{Mover, Outlet, TracedOutlet};
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Movers at work.
pub(crate) struct Scheduling {
    movers: Vec<Task<()>>,
    halt: CancellationToken,
}

/// One mover for each store of the run's queues. They begin nothing new after `stop`, and are
/// dropped at `halt`; what they had claimed is then sent by others when the claims have expired.
pub(crate) async fn start(
    settings: &Settings,
    schedules: &Arc<Schedules>,
    shared: &ProcessContext,
) -> Scheduling {
    let interval = settings.program.schedule_interval;
    let outlet: Arc<dyn Outlet> = Arc::new(TracedOutlet {
        outlet: Arc::new(OpenedQueues(schedules.clone())),
        tracer: shared.tracer.clone(),
    });
    let names: BTreeSet<_> = settings.queue_names().collect();
    let outlet = || outlet.clone();
    let often = |store| Mover::new(store, outlet(), interval.min(LOOK_INTERVAL)).certain();
    let own = schedules.own(&names).await;
    let mut movers: Vec<Mover> = own.into_iter().map(often).collect();
    let tables = schedules.tables(&names).await;
    let table = |store| Mover::new(store, outlet(), interval);
    movers.extend(tables.into_iter().map(table));
    let start = |mover: Mover| {
        let mover = mover.counting(shared.counters.clone());
        tasks::spawn(mover.run(shared.stop.clone()))
    };
    Scheduling {
        movers: movers.into_iter().map(start).collect(),
        halt: shared.halt.clone(),
    }
}

impl Scheduling {
    /// Waits until what was claimed is sent, but not beyond the halt.
    pub(crate) async fn finish(self) {
        for mover in self.movers {
            tokio::select! {
                () = mover.finished() => {}
                () = self.halt.cancelled() => return,
            }
        }
    }
}
