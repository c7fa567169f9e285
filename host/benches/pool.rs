//! What the guest pool costs, beside tokio's multi-thread runtime with as many workers, in one run.
//! It must not know the pool's insides. `cargo bench --bench pool -- [WORKERS]`, two by default.
//!
//! Every line: what, the pool, tokio, and the pool's share of tokio's; below 1 the pool is better.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark paces itself and owns its threads"
)]

use std::{
    future::poll_fn,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Release},
        mpsc,
    },
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use dispatcher_core::executor::pool::{Pool, PoolShutdown, Spawner};
use tokio::runtime::{Builder, Handle, Runtime};

/// In one round.
const LATENCIES: usize = 500;
const SPAWNS: usize = 200_000;
const STOLEN: usize = 50_000;
const ROUNDS: usize = 9;
/// Between two submissions, so that an idle worker is asleep again.
const PAUSE: Duration = Duration::from_micros(200);
/// One poll of a busy guest. The pause is drawn out by up to as much, for the end of a slice is what
/// starts it: a fixed pause would always submit at the same point of a slice.
const SLICE: Duration = Duration::from_micros(100);

/// The one verb that both sides share.
trait Spawn: Clone + Send + Sync + 'static {
    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static);
}

impl Spawn for Spawner {
    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        Spawner::spawn(self, future).expect("the pool is open");
    }
}

impl Spawn for Handle {
    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        Handle::spawn(self, future);
    }
}

/// Tells the waiting thread when the last of `left` has called.
struct Last {
    left: AtomicUsize,
    tell: mpsc::Sender<Instant>,
}

impl Last {
    fn of(count: usize) -> (Arc<Self>, mpsc::Receiver<Instant>) {
        let (tell, told) = mpsc::channel();
        (
            Arc::new(Self {
                left: AtomicUsize::new(count),
                tell,
            }),
            told,
        )
    }

    fn call(&self) {
        if self.left.fetch_sub(1, AcqRel) == 1 {
            self.tell.send(Instant::now()).expect("somebody waits");
        }
    }
}

fn work_for(span: Duration) {
    let start = Instant::now();
    while start.elapsed() < span {
        std::hint::spin_loop();
    }
}

/// From before the submission to the first instruction of the future, in ns.
fn latency(pool: &impl Spawn) -> Vec<f64> {
    (0..LATENCIES)
        .map(|_| {
            thread::sleep(PAUSE + SLICE.mul_f64(fastrand::f64()));
            let (tell, told) = mpsc::channel();
            let start = Instant::now();
            pool.spawn(async move { tell.send(start.elapsed()).expect("somebody waits") });
            told.recv().expect("the future runs").as_nanos() as f64
        })
        .collect()
}

/// The same while two futures per worker yield forever.
fn busy_latency(pool: &impl Spawn, workers: usize) -> Vec<f64> {
    let stop = Arc::new(AtomicBool::new(false));
    let (ended, told) = Last::of(2 * workers);
    for _ in 0..2 * workers {
        let (stop, ended) = (Arc::clone(&stop), Arc::clone(&ended));
        pool.spawn(poll_fn(move |cx| {
            work_for(SLICE);
            if stop.load(Acquire) {
                ended.call();
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
    }
    let spans = latency(pool);
    stop.store(true, Release);
    told.recv().expect("the futures end");
    spans
}

/// Spawn and run of one empty future, spawned by another thread: ns each.
fn spawn_outside(pool: &impl Spawn) -> Vec<f64> {
    let (ended, told) = Last::of(SPAWNS);
    let start = Instant::now();
    for _ in 0..SPAWNS {
        let ended = Arc::clone(&ended);
        pool.spawn(async move { ended.call() });
    }
    each(start, told, SPAWNS)
}

/// The same, spawned by a future of the pool.
fn spawn_inside<S: Spawn>(pool: &S) -> Vec<f64> {
    let (ended, told) = Last::of(SPAWNS);
    let inner = pool.clone();
    let start = Instant::now();
    pool.spawn(async move {
        for _ in 0..SPAWNS {
            let ended = Arc::clone(&ended);
            inner.spawn(async move { ended.call() });
        }
    });
    each(start, told, SPAWNS)
}

/// One worker fills its deque and blocks until the others have run all of it: ns each, with two
/// workers the whole cost of stealing and running.
fn steal<S: Spawn>(pool: &S) -> Vec<f64> {
    let (tell, told) = mpsc::channel();
    let inner = pool.clone();
    pool.spawn(async move {
        let (ended, wait) = Last::of(STOLEN);
        let (filled, started) = (Arc::new(AtomicBool::new(false)), Instant::now());
        for _ in 0..STOLEN {
            let (ended, filled) = (Arc::clone(&ended), Arc::clone(&filled));
            inner.spawn(async move {
                // The thief waits with its first until the deque is full.
                while !filled.load(Acquire) {
                    std::hint::spin_loop();
                }
                ended.call();
            });
        }
        // Tokio keeps the last spawned where nobody can steal it.
        inner.spawn(async {});
        let start = started.max(Instant::now());
        filled.store(true, Release);
        tell.send(each(start, wait, STOLEN))
            .expect("somebody waits");
    });
    told.recv().expect("the future runs")
}

fn each(start: Instant, told: mpsc::Receiver<Instant>, count: usize) -> Vec<f64> {
    let end = told.recv().expect("the last one tells");
    vec![end.duration_since(start).as_nanos() as f64 / count as f64]
}

/// Measures both sides in turn, so that the machine's other load falls on both, and prints the
/// wanted quantiles.
fn compare(
    what: &str,
    percentiles: &[usize],
    mut ours: impl FnMut() -> Vec<f64>,
    mut theirs: impl FnMut() -> Vec<f64>,
) {
    let mut sides = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        sides[0].extend(ours());
        sides[1].extend(theirs());
    }
    for side in &mut sides {
        side.sort_by(f64::total_cmp);
    }
    for &percentile in percentiles {
        let [ours, theirs] = [0, 1].map(|side: usize| {
            let side = &sides[side];
            side[side.len() * percentile / 100]
        });
        let ratio = ours / theirs;
        println!("{what:<28} p{percentile:<3} {ours:>10.0} ns {theirs:>10.0} ns   {ratio:>6.2}");
    }
}

fn main() {
    let workers = std::env::args().skip(1).find_map(|arg| arg.parse().ok());
    let workers: NonZeroUsize = workers.unwrap_or(const { NonZeroUsize::new(2).unwrap() });
    let pool = Pool::start(workers, "guest").expect("threads start");
    let runtime: Runtime = Builder::new_multi_thread()
        .worker_threads(workers.get())
        .build()
        .expect("threads start");
    let (ours, theirs) = (pool.spawner(), runtime.handle().clone());

    let n = workers.get();

    println!(
        "{n:>2} workers {:>36} {:>13}   {:>6}",
        "pool", "tokio", "ratio"
    );
    compare(
        "submit to run, idle",
        &[50, 90, 99],
        || latency(&ours),
        || latency(&theirs),
    );
    let (busy, busy_tokio) = (|| busy_latency(&ours, n), || busy_latency(&theirs, n));
    compare("submit to run, busy", &[50, 90, 99], busy, busy_tokio);
    let (outside, outside_tokio) = (|| spawn_outside(&ours), || spawn_outside(&theirs));
    compare("spawn and run, from outside", &[50], outside, outside_tokio);
    compare(
        "spawn and run, from inside",
        &[50],
        || spawn_inside(&ours),
        || spawn_inside(&theirs),
    );
    if n > 1 {
        compare("steal and run", &[50], || steal(&ours), || steal(&theirs));
    }
    println!("{:?}", pool.stats());
    pool.close(PoolShutdown::Finish);
}
