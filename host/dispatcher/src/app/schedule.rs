//! Starts and ends the movers of scheduled messages in a run.

use super::ProcessContext;
use super::build::outlet::OpenedQueues;
use super::build::schedule::Schedules;
use dispatcher_config::Settings;
use dispatcher_config::name::QueueName;
use dispatcher_core::schedule::mover::{Mover, Outlet, TracedOutlet};
use dispatcher_core::schedule::{LOOK_INTERVAL, ScheduleStore};
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use dispatcher_core::telemetry::counters::Counters;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The running movers, one for each store of the run's queues. Movers start nothing new after the
/// stop and are dropped at the halt; other processes send the messages that they had claimed, once
/// the claims have expired.
pub(crate) struct RunningMovers {
    schedules: Arc<Schedules>,
    interval: Duration,
    outlet: Arc<dyn Outlet>,
    counters: Arc<Counters>,
    stop: CancellationToken,
    halt: CancellationToken,
    /// The stores whose messages are moved.
    places: BTreeSet<String>,
    movers: Vec<Task<()>>,
}

impl RunningMovers {
    /// Creates movers for a run that has no queues yet.
    pub(crate) fn new(
        settings: &Settings,
        schedules: &Arc<Schedules>,
        shared: &ProcessContext,
    ) -> Self {
        Self {
            schedules: schedules.clone(),
            interval: settings.program.schedule_interval,
            outlet: Arc::new(TracedOutlet {
                outlet: Arc::new(OpenedQueues(schedules.clone())),
                tracer: shared.tracer.clone(),
            }),
            counters: shared.counters.clone(),
            stop: shared.stop.clone(),
            halt: shared.halt.clone(),
            places: BTreeSet::new(),
            movers: Vec::new(),
        }
    }

    /// Starts the movers that these queues need and that do not run yet.
    pub(crate) async fn serve(&mut self, names: &BTreeSet<&QueueName>) {
        let own = self.schedules.own(names).await;
        let tables = self.schedules.tables(names).await;
        let (outlet, interval) = (self.outlet.clone(), self.interval);
        let own = own.into_iter().map(|store: Arc<dyn ScheduleStore>| {
            let place = store.place();
            let mover = Mover::new(store, outlet.clone(), interval.min(LOOK_INTERVAL));
            (place, mover.certain())
        });
        let tables = tables
            .into_iter()
            .map(|store| (store.place(), Mover::new(store, outlet.clone(), interval)));
        for (place, mover) in own.chain(tables) {
            if self.places.insert(place) {
                let mover = mover.counting(self.counters.clone());
                self.movers.push(tasks::spawn(mover.run(self.stop.clone())));
            }
        }
    }

    /// Waits until claimed messages are sent, but not beyond the halt.
    pub(crate) async fn finish(&mut self) {
        for mover in std::mem::take(&mut self.movers) {
            tokio::select! {
                () = mover.finished() => {}
                () = self.halt.cancelled() => return,
            }
        }
    }
}
