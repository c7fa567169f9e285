//! The stop: no new polls; messages of outstanding polls are run or released; running attempts
//! finish within the grace period, then they are stopped; everything is settled. A second signal
//! forces the exit.

use super::ProcessContext;
use super::route::RunningRoute;
use super::schedule::Scheduling;
use super::service_manager;
use super::stop::StopPlan;
use crate::config::problem::Problem;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::executor::pool::{Pool, PoolShutdown};
use dispatcher_core::tasks;
use dispatcher_core::tasks::Group;
use std::pin::pin;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Exit codes of a forced stop: 128 and the signal's number, as shells count.
const FORCED_INTERRUPT: i32 = 130;
const FORCED_TERMINATE: i32 = 143;

/// A terminal and a wrapper often pass the same signal on, one after the other: what follows the
/// first so closely is not a second wish.
const SAME_SIGNAL: Duration = Duration::from_millis(300);

/// The signals that ask for a stop.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Where there is no file to be read again, the end of a terminal is a wish to stop.
    hangup: Option<Signal>,
}

impl Signals {
    /// From now on the signals do not end the process by themselves.
    pub fn listen(hangup_stops: bool) -> std::io::Result<Self> {
        let hangup = || signal(SignalKind::hangup());
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: hangup_stops.then(hangup).transpose()?,
        })
    }

    /// The next signal, as the exit code it would force.
    pub async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => FORCED_INTERRUPT,
            _ = self.terminate.recv() => FORCED_TERMINATE,
            () = received(&mut self.hangup) => FORCED_TERMINATE,
        }
    }
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// How long the guest threads may take to end in any case.
const CLOSING: Duration = Duration::from_secs(2);

/// A stop that is over.
pub(crate) struct Stopped {
    /// When it began.
    pub began: BootInstant,
    /// How it ended.
    pub ended: Result<(), Vec<Problem>>,
}

/// Waits for the first signal and stops everything in order. What continues `until_stop` is
/// dropped first.
pub(crate) async fn until_stopped(
    mut signals: Signals,
    shared: &ProcessContext,
    routes: Vec<RunningRoute>,
    until_stop: impl Sized,
    scheduling: Scheduling,
    pool: Pool,
    plan: StopPlan,
) -> Stopped {
    tokio::select! {
        _ = signals.next() => {}
        () = shared.drain.cancelled() => {}
        () = shared.broken.cancelled() => return Stopped {
            began: clock::now(),
            ended: Err(vec![broken()]),
        },
    }
    let began = clock::now();
    shared.readiness.set("dispatcher", "it is stopping");
    service_manager::stopping(plan);
    drop((signals, until_stop));
    let _force = tasks::spawn(force());
    let grace_ends = began + plan.attempts();
    if let Err(problems) = drain(shared, routes, plan).await {
        return Stopped {
            began,
            ended: Err(problems),
        };
    }
    // What is claimed and not sent then is sent by others.
    tokio::select! {
        () = scheduling.finish() => {}
        () = clock::sleep_until(Some(grace_ends)) => {}
    }
    // An instance that takes many attempts waits in the pool for more as long as its plugin is there.
    shared.plugins.forget();
    close(pool, grace_ends.max(clock::now() + CLOSING)).await;
    tracing::info!("stopped");
    Stopped {
        began,
        ended: Ok(()),
    }
}

/// Ends the guest threads, which have nothing left to do. Waits on its own thread, since those of
/// the runtime may be held by a disk that hangs, and no longer than until then.
async fn close(pool: Pool, latest: BootInstant) {
    let (closed, ended) = oneshot::channel();
    let work = move || {
        pool.close(PoolShutdown::Finish);
        // Whoever no longer waits need not know.
        let _ = closed.send(());
    };
    let thread = std::thread::Builder::new().name("closing".into());
    if let Err(error) = thread.spawn(work) {
        tracing::warn!(%error, "cannot start the thread that closes the guest threads");
    }
    tokio::select! {
        biased;
        _ = ended => {}
        () = clock::sleep_until(Some(latest)) => {
            tracing::warn!("guest threads did not end; their results are ignored");
        }
    }
}

/// Stops everything in order: returns when nothing runs any more and no held message could still
/// be settled. Fails if a stage ends by a panic.
pub async fn drain(
    shared: &ProcessContext,
    routes: Vec<RunningRoute>,
    plan: StopPlan,
) -> Result<(), Vec<Problem>> {
    let began = clock::now();
    let grace_ends = began + plan.attempts();
    let running = shared.counters.running.get();
    tracing::info!(
        running,
        held = shared.ledger.held(),
        grace = ?plan.attempts(),
        at_most_s = clock::whole_seconds(plan.total()),
        "stopping; a second signal forces the exit"
    );
    shared.stop.cancel();
    let halt = shared.halt.clone();
    let _grace = tasks::spawn(async move {
        clock::sleep_until(Some(grace_ends)).await;
        halt.cancel();
        tracing::warn!(
            "grace period over: running attempts are stopped and their messages released"
        );
    });
    let mut finishing = Group::new();
    for route in routes {
        finishing.spawn(finish(route, shared.halt.clone(), began + plan.receives()));
    }
    while !finishing.is_empty() {
        tokio::select! {
            biased; // a stage's panic would go on here
            () = shared.broken.cancelled() => return Err(vec![broken()]),
            () = finishing.next() => {}
        }
    }
    Ok(())
}

/// Sets `stop` at the first signal, and exits at a second one. Never ends by itself.
pub async fn stop_at_signal(mut signals: Signals, stop: &CancellationToken) {
    signals.next().await;
    stop.cancel();
    drop(signals);
    force().await;
    std::future::pending().await
}

/// Exits on a second signal. Says nothing first: who forces may well do so because nobody reads.
async fn force() {
    clock::sleep_until(Some(clock::now() + SAME_SIGNAL)).await;
    let Ok(mut signals) = Signals::listen(false) else {
        return;
    };
    tracing::debug!("a second signal forces the exit from now on");
    std::process::exit(signals.next().await);
}

fn broken() -> Problem {
    let what = "a task panicked, which is a defect of dispatcher";
    let hint = "held messages become visible when their visibility timeout ends";
    Problem::new("the program", what, "").hint(hint).failed()
}

/// Ends the stages in the order in which messages pass them. A receive that is not answered even
/// until `latest` is given up; attempts and what waits for one do not wait for it.
async fn finish(route: RunningRoute, halt: CancellationToken, latest: BootInstant) {
    let RunningRoute {
        scheduler,
        intake,
        mut settlements,
        executor,
        name,
    } = route;
    let received = async {
        tokio::select! {
            biased; // for simulations
            () = intake.finished() => {}
            () = clock::sleep_until(Some(latest)) => {
                tracing::error!(route = name, "a receive was not answered; its messages become visible when their visibility timeout ends");
            }
        }
    };
    let mut received = pin!(received);
    let mut receiving = true;
    loop {
        let retired = scheduler.retired.notified();
        if halt.is_cancelled() {
            executor.give_back();
        } else {
            executor.start_workers();
        }
        // What was released may have been all there was; then nobody retires any more.
        if !receiving && scheduler.lock().is_at_rest() {
            break;
        }
        let now = clock::now();
        let attention = scheduler.lock().next_attention(now);
        tokio::select! {
            biased; // for simulations; every round looks at everything
            () = &mut received, if receiving => receiving = false,
            () = retired => {}
            () = clock::sleep_until(attention) => {}
            () = halt.cancelled(), if !halt.is_cancelled() => {}
        }
    }
    drop(executor);
    while !settlements.is_empty() {
        settlements.next().await;
    }
}
