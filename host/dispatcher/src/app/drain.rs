//! The stop. No new polls start; messages of outstanding polls are run or released; running
//! attempts finish within the grace period, then they are stopped; everything is settled. A second
//! signal forces the exit.

use super::ProcessContext;
use super::route::RunningRoute;
use super::routes::RouteSet;
use super::schedule::RunningMovers;
use super::service_manager;
use super::stop::StopPlan;
use dispatcher_config::Route;
use dispatcher_config::problem::Problem;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::executor::pool::{Pool, PoolShutdown};
use dispatcher_core::queue::Queue;
use dispatcher_core::tasks;
use dispatcher_core::tasks::{Group, Task};
use dispatcher_core::telemetry::counters::Counters;
use dispatcher_core::telemetry::events::outcomes::AbandonedMessages;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, oneshot};
use tokio_util::sync::CancellationToken;

/// The exit codes of a forced stop: 128 plus the signal's number, as in shells.
const FORCED_INTERRUPT: i32 = 130;
const FORCED_TERMINATE: i32 = 143;

/// The time after the first signal in which further signals are ignored: a terminal and a wrapper
/// often forward the same signal, one after the other.
const SAME_SIGNAL: Duration = Duration::from_millis(300);

/// The signals that start a stop.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// SIGHUP, which stops the process if there is no file to reload.
    hangup: Option<Signal>,
}

impl Signals {
    /// Handles the signals from now on, so that they do not end the process directly.
    pub fn listen(hangup_stops: bool) -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: hangup_stops
                .then(|| signal(SignalKind::hangup()))
                .transpose()?,
        })
    }

    /// Waits for the next signal. Returns the exit code that it would force.
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

/// How long a forced exit waits for its last log line.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The minimum time for the guest threads to end, and the time limit for leaving a backend.
const CLOSING: Duration = Duration::from_secs(2);

/// The routes at a stop.
pub struct StoppedRoutes {
    /// The routes that received messages until now.
    pub running: Vec<RunningRoute>,
    /// The routes that were ending already.
    pub ending: Vec<Task<()>>,
    /// The plan of the stop.
    pub plan: StopPlan,
}

/// A finished stop.
pub(crate) struct FinishedStop {
    /// The time when it began.
    pub began: BootInstant,
    /// Its plan.
    pub plan: StopPlan,
    /// Its result.
    pub ended: Result<(), Vec<Problem>>,
}

/// Waits for the first signal and stops everything in order. Drops `until_stop` first.
pub(crate) async fn until_stopped(
    mut signals: Signals,
    shared: &ProcessContext,
    routes: &RouteSet,
    until_stop: impl Sized,
    movers: &Mutex<RunningMovers>,
    pool: Pool,
) -> FinishedStop {
    tokio::select! {
        _ = signals.next() => {}
        () = shared.drain.cancelled() => {}
        () = shared.broken.cancelled() => return FinishedStop {
            began: clock::now(),
            plan: routes.plan(),
            ended: Err(vec![broken()]),
        },
    }
    let began = clock::now();
    shared.readiness.set("dispatcher", "it is stopping");
    drop((signals, until_stop));
    let stopped = routes.stop();
    let plan = stopped.plan;
    service_manager::stopping(plan);
    let held = HeldWork {
        counters: shared.counters.clone(),
        held: shared.held.clone(),
    };
    let _force = tasks::spawn(force(Some(held)));
    let grace_ends = began + plan.attempts();
    if let Err(problems) = drain(shared, stopped).await {
        return FinishedStop {
            began,
            plan,
            ended: Err(problems),
        };
    }
    // Other processes send the messages that are claimed but not sent by then.
    let mut movers = movers.lock().await;
    tokio::select! {
        () = movers.finish() => {}
        () = clock::sleep_until(Some(grace_ends)) => {}
    }
    // An instance that takes many attempts stays in the pool as long as its plugin exists.
    shared.plugins.forget();
    close(pool, grace_ends.max(clock::now() + CLOSING)).await;
    report_abandoned(shared);
    tracing::info!("stopped");
    FinishedStop {
        began,
        plan,
        ended: Ok(()),
    }
}

/// Logs a summary of the unfinished messages of this stop, if there are any.
fn report_abandoned(shared: &ProcessContext) {
    let AbandonedMessages {
        interrupted,
        unknown,
        last_return,
    } = shared.meters.outcomes().abandoned();
    if interrupted + unknown == 0 {
        return;
    }
    tracing::warn!(
        messages = interrupted + unknown,
        interrupted,
        may_have_been_handled = unknown,
        comes_again_by = %last_return,
        "attempts abandoned by the stop: their messages are handled again"
    );
}

/// Ends the guest threads, which have nothing left to do. Waits on a separate thread, since a
/// hanging disk may block the threads of the runtime, and no longer than until `latest`.
async fn close(pool: Pool, latest: BootInstant) {
    let (closed, ended) = oneshot::channel();
    let thread = std::thread::Builder::new().name("closing".into());
    if let Err(error) = thread.spawn(move || {
        pool.close(PoolShutdown::Finish);
        // The receiver may no longer wait.
        let _ = closed.send(());
    }) {
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

/// Stops everything in order. Returns when nothing runs and no held message can still be settled.
///
/// # Errors
/// Fails if a stage panics.
pub async fn drain(shared: &ProcessContext, stopped: StoppedRoutes) -> Result<(), Vec<Problem>> {
    let StoppedRoutes {
        running: routes,
        ending,
        plan,
    } = stopped;
    let began = clock::now();
    let grace_ends = began + plan.attempts();
    let running = shared.counters.running.get();
    tracing::info!(
        running,
        held = shared.held.load(Relaxed),
        grace = ?plan.attempts(),
        at_most_s = clock::whole_seconds(plan.total()),
        "stopping; a second signal forces the exit"
    );
    shared.stop.cancel();
    let (halt, counters) = (shared.halt.clone(), shared.counters.clone());
    let _grace = tasks::spawn(async move {
        clock::sleep_until(Some(grace_ends)).await;
        let running = counters.running.get();
        halt.cancel();
        tracing::warn!(running, "grace period over: running attempts are abandoned");
    });
    let mut finishing = Group::new();
    for route in routes {
        let latest = began + plan.receives();
        finishing.spawn(finish(route, shared.halt.clone(), latest, || ()));
    }
    for route in ending {
        finishing.spawn(route.finished());
    }
    while !finishing.is_empty() {
        tokio::select! {
            biased; // `finishing.next()` would propagate a stage's panic
            () = shared.broken.cancelled() => return Err(vec![broken()]),
            () = finishing.next() => {}
        }
    }
    Ok(())
}

/// Sets `stop` at the first signal, and exits at a second one. Never returns.
pub async fn stop_at_signal(mut signals: Signals, stop: &CancellationToken) {
    signals.next().await;
    stop.cancel();
    drop(signals);
    force(None).await;
    std::future::pending().await
}

/// Exits on a second signal.
async fn force(held: Option<HeldWork>) {
    clock::sleep_until(Some(clock::now() + SAME_SIGNAL)).await;
    let Ok(mut signals) = Signals::listen(false) else {
        return;
    };
    tracing::debug!("a second signal forces the exit from now on");
    let code = signals.next().await;
    if let Some(held) = held {
        held.report().await;
    }
    std::process::exit(code);
}

/// The work that a forced exit interrupts.
struct HeldWork {
    counters: Arc<Counters>,
    /// The number of messages.
    held: Arc<AtomicUsize>,
}

impl HeldWork {
    /// Logs it on another thread and waits at most `LAST_WORDS`: the exit may be forced because the
    /// reader of the log is stuck.
    async fn report(self) {
        let (written, over) = oneshot::channel();
        if std::thread::Builder::new().spawn(move || {
            tracing::warn!(
                running = self.counters.running.get(),
                held = self.held.load(Relaxed),
                "exit forced: attempts are cut off, and held messages come again when their visibility timeout ends"
            );
            // The process may have stopped waiting.
            let _ = written.send(());
        }).is_err() {
            return;
        }
        tokio::select! {
            _ = over => {}
            () = clock::sleep_until(Some(clock::now() + LAST_WORDS)) => {}
        }
    }
}

fn broken() -> Problem {
    let what = "a task panicked, which is a defect of dispatcher";
    let hint = "held messages become visible when their visibility timeout ends";
    Problem::new("the program", what, "").hint(hint).failed()
}

/// Ends the stages in the order in which messages pass them. Gives up a receive that is not
/// answered by `latest`; attempts and messages that wait for one do not wait for it. Calls
/// `progress` whenever it may need fewer attempts than before.
pub async fn finish(
    route: RunningRoute,
    halt: CancellationToken,
    latest: BootInstant,
    progress: impl Fn(),
) {
    let RunningRoute {
        scheduler,
        intake,
        mut settlements,
        executor,
        limits,
        route: Route { name, .. },
        queues,
        keeper,
        ..
    } = route;
    let last_receive = async {
        tokio::select! {
            biased; // for simulations
            () = intake.finished() => {}
            () = clock::sleep_until(Some(latest)) => {
                tracing::error!(route = name, "a receive was not answered; its messages become visible when their visibility timeout ends");
            }
        }
    };
    let mut received = pin!(last_receive);
    let mut receiving = true;
    loop {
        let retired = scheduler.retired.notified();
        if halt.is_cancelled() {
            executor.give_back();
        } else {
            executor.start_workers();
        }
        progress();
        // The released messages may have been the last ones, and then no further attempt retires.
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
    drop((executor, limits));
    while !settlements.is_empty() {
        settlements.next().await;
    }
    drop(keeper);
    tasks::all(queues.iter().map(|queue| leave(&**queue)).collect()).await;
}

/// Leaves a queue from which nothing is received any more. A backend that does not answer later
/// detects that this process has ended.
pub(super) async fn leave(queue: &dyn Queue) {
    let left = tokio::select! {
        biased; // for simulations
        left = queue.leave() => left.map_err(|error| error.to_string()),
        () = clock::sleep_until(Some(clock::now() + CLOSING)) => {
            Err(format!("no answer within {} s", CLOSING.as_secs()))
        }
    };
    if let Err(error) = left {
        let queue = &queue.identity().name;
        tracing::warn!(queue, error, "queue not left");
    }
}
