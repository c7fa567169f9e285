//! Starts and ends the movers of scheduled messages in a run.

use super::ProcessContext;
use super::build::outlet::OpenedQueues;
use super::build::schedule::Schedules;
use dispatcher_config::Settings;
use dispatcher_core::schedule::LOOK_INTERVAL;
use dispatcher_core::schedule::mover::{Mover, Outlet, TracedOutlet};
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The running movers.
pub(crate) struct RunningMovers {
    movers: Vec<Task<()>>,
    halt: CancellationToken,
}

/// Starts one mover for each store of the run's queues. Movers start nothing new after `stop` and
/// are dropped at `halt`; other processes send the messages that they had claimed, once the claims
/// have expired.
pub(crate) async fn start(
    settings: &Settings,
    schedules: &Arc<Schedules>,
    shared: &ProcessContext,
) -> RunningMovers {
    let interval = settings.program.schedule_interval;
    let outlet: Arc<dyn Outlet> = Arc::new(TracedOutlet {
        outlet: Arc::new(OpenedQueues(schedules.clone())),
        tracer: shared.tracer.clone(),
    });
    let names: BTreeSet<_> = settings.queue_names().collect();
    let own = schedules.own(&names).await;
    let mut movers: Vec<Mover> = own
        .into_iter()
        .map(|store| Mover::new(store, outlet.clone(), interval.min(LOOK_INTERVAL)).certain())
        .collect();
    let tables = schedules.tables(&names).await;
    movers.extend(
        tables
            .into_iter()
            .map(|store| Mover::new(store, outlet.clone(), interval)),
    );
    RunningMovers {
        movers: movers
            .into_iter()
            .map(|mover: Mover| {
                let mover = mover.counting(shared.counters.clone());
                tasks::spawn(mover.run(shared.stop.clone()))
            })
            .collect(),
        halt: shared.halt.clone(),
    }
}

impl RunningMovers {
    /// Waits until claimed messages are sent, but not beyond the halt.
    pub(crate) async fn finish(self) {
        for mover in self.movers {
            tokio::select! {
                () = mover.finished() => {}
                () = self.halt.cancelled() => return,
            }
        }
    }
}
