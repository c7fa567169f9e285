//! The stop: no new polls; what outstanding ones bring is run or given back; running attempts
//! finish within the grace, then they are stopped; everything is settled. A second signal forces
//! the exit.

use super::Shared;
use super::route::Running;
use crate::clock;
use crate::executor::pool::{Close, Pool};
use crate::tasks;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit codes of a forced stop: 128 and the signal's number, as shells count.
const FORCED_INTERRUPT: i32 = 130;
const FORCED_TERMINATE: i32 = 143;

/// A terminal and a wrapper often pass the same signal on, one after the other: what follows the
/// first so closely is not a second wish.
const SAME_SIGNAL: Duration = Duration::from_millis(300);

/// The two signals that ask for a stop.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From now on the signals do not end the process by themselves.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next signal, as the exit code it would force.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => FORCED_INTERRUPT,
            _ = self.terminate.recv() => FORCED_TERMINATE,
        }
    }
}

/// Waits for the first signal and stops everything in order.
pub(crate) async fn until_stopped(
    mut signals: Signals,
    shared: &Shared,
    routes: Vec<Running>,
    pool: Pool,
    grace: Duration,
) {
    signals.next().await;
    let grace_ends = clock::now() + grace;
    tracing::info!(
        running = shared.counters.running.get(),
        held = shared.ledger.held(),
        ?grace,
        "stopping; a second signal forces the exit"
    );
    drop(signals);
    let _force = tasks::spawn(async move {
        clock::sleep_until(Some(clock::now() + SAME_SIGNAL)).await;
        let Ok(mut signals) = Signals::listen() else {
            return;
        };
        let code = signals.next().await;
        tracing::error!("forced to exit; what was held comes back when its visibility runs out");
        std::process::exit(code);
    });
    shared.stop.cancel();
    let halt = shared.halt.clone();
    let _grace = tasks::spawn(async move {
        clock::sleep_until(Some(grace_ends)).await;
        tracing::warn!(
            "the grace is over; running attempts are stopped and their messages given back"
        );
        halt.cancel();
    });
    for route in routes {
        finish(route).await;
    }
    // Nothing is left in the pool; its threads end without being waited for by this one.
    tasks::blocking(move || pool.close(Close::Finish))
        .finished()
        .await;
    tracing::info!("stopped");
}

/// Ends the stages in the order in which messages pass them.
async fn finish(route: Running) {
    let Running {
        board,
        intake,
        mut settlements,
        executor,
    } = route;
    intake.finished().await;
    loop {
        let retired = board.retired.notified();
        if board.lock().is_idle() {
            break;
        }
        executor.hire();
        retired.await;
    }
    drop(executor);
    while !settlements.is_empty() {
        settlements.next().await;
    }
}
