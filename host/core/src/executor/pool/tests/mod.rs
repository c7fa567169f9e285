//! The pool's contract on real threads. They wait on channels and on counts, never on time.

#![expect(clippy::unwrap_used, reason = "a test fails by it, with its place")]

mod close;

use std::{
    future::poll_fn,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc::{self, Receiver, Sender},
    },
    task::{Context, Poll, Waker},
    thread,
};

use super::{Pool, PoolShutdown, Spawner, Stats};

/// Miri runs a thousand times slower.
const MANY: usize = if cfg!(miri) { 20 } else { 2_000 };
const ROUNDS: usize = if cfg!(miri) { 2 } else { 40 };

fn start(workers: usize) -> Pool {
    Pool::start(NonZeroUsize::new(workers).unwrap(), "test").unwrap()
}

/// Wakes itself `times` times before it is ready.
async fn yields(times: usize) {
    let mut left = times;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Counts its drops, so a future that is lost or run twice shows.
struct CountedDrop(Arc<AtomicUsize>);

impl Drop for CountedDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A future that waits until somebody opens the gate.
#[derive(Default)]
struct Gate {
    open: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Gate {
    async fn pass(&self) {
        poll_fn(|cx: &mut Context<'_>| {
            let mut waiting = self.waiting.lock().unwrap();
            if self.open.load(SeqCst) {
                return Poll::Ready(());
            }
            waiting.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn open(&self) {
        let waiting = {
            let mut waiting = self.waiting.lock().unwrap();
            self.open.store(true, SeqCst);
            std::mem::take(&mut *waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

fn settled(pool: &Pool, wanted: impl Fn(Stats) -> bool) -> Stats {
    loop {
        let stats = pool.stats();
        if wanted(stats) {
            return stats;
        }
        thread::yield_now();
    }
}

#[test]
fn every_future_runs_to_completion_once() {
    for workers in 1..=8 {
        let pool = start(workers);
        let ran = Arc::new(AtomicUsize::new(0));
        for index in 0..MANY {
            let ran = Arc::clone(&ran);
            let body = async move {
                yields(index % 3).await;
                ran.fetch_add(1, SeqCst);
            };
            pool.spawner().spawn(body).unwrap();
        }
        assert!(pool.close(PoolShutdown::Finish).is_empty());
        assert_eq!(ran.load(SeqCst), MANY, "{workers} workers");
    }
}

fn tree(spawner: Spawner, depth: usize, done: Sender<()>) {
    let inner = spawner.clone();
    let body = async move {
        if depth > 0 {
            tree(inner.clone(), depth - 1, done.clone());
            yields(1).await;
            tree(inner, depth - 1, done.clone());
        }
        done.send(()).unwrap();
    };
    spawner.spawn(body).unwrap();
}

#[test]
fn futures_can_spawn_futures() {
    let depth = if cfg!(miri) { 3 } else { 10 };
    for workers in [1, 2, 5] {
        let pool = start(workers);
        let (done, nodes) = mpsc::channel();
        tree(pool.spawner(), depth, done);
        assert_eq!(nodes.iter().count(), (1 << (depth + 1)) - 1);
        pool.close(PoolShutdown::Finish);
    }
}

#[test]
fn wakes_from_other_threads_arrive() {
    for workers in [1, 3] {
        let pool = start(workers);
        let (give, wakers): (Sender<Waker>, Receiver<Waker>) = mpsc::channel();
        let outside = thread::spawn(move || wakers.iter().for_each(|waker| waker.wake()));
        for _ in 0..10 {
            let give = give.clone();
            let mut left = MANY / 10;
            let body = poll_fn(move |cx| {
                left -= 1;
                if left == 0 {
                    return Poll::Ready(());
                }
                give.send(cx.waker().clone()).unwrap();
                Poll::Pending
            });
            pool.spawner().spawn(body).unwrap();
        }
        drop(give);
        pool.close(PoolShutdown::Finish);
        outside.join().unwrap();
    }
}

#[test]
fn wake_between_workers_arrives() {
    let pool = start(2);
    let gates: Arc<Vec<Gate>> = Arc::new((0..=MANY).map(|_| Gate::default()).collect());
    for index in 0..MANY {
        let gates = Arc::clone(&gates);
        let body = async move {
            gates[index].pass().await;
            gates[index + 1].open();
        };
        pool.spawner().spawn(body).unwrap();
    }
    gates[0].open();
    pool.close(PoolShutdown::Finish);
    assert!(gates[MANY].open.load(SeqCst));
}

#[test]
fn panic_ends_only_its_own_future() {
    struct Mine;
    impl Drop for Mine {
        fn drop(&mut self) {
            panic!("expected: in a drop");
        }
    }
    let pool = start(1);
    let dropped = Arc::new(AtomicUsize::new(0));
    let counted = CountedDrop(Arc::clone(&dropped));
    let spawner = pool.spawner();
    spawner
        .spawn(async move {
            let _held = counted;
            panic!("expected: in a poll");
        })
        .unwrap();
    let mine = Mine;
    let mut ready = false;
    let in_drop = poll_fn(move |cx| {
        let _held = &mine;
        let poll = if ready {
            Poll::Ready(())
        } else {
            Poll::Pending
        };
        ready = true;
        cx.waker().wake_by_ref();
        poll
    });
    spawner.spawn(in_drop).unwrap();
    let (done, wait) = mpsc::channel();
    spawner
        .spawn(async move { done.send(()).unwrap() })
        .unwrap();
    wait.recv().unwrap();
    let stats = settled(&pool, |stats| stats.live == 0);
    assert_eq!((stats.panics, dropped.load(SeqCst)), (2, 1));
}

#[test]
fn panic_payload_that_panics_on_drop_is_survived() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("expected: in a payload's drop");
        }
    }
    let pool = start(1);
    pool.spawner()
        .spawn(async { std::panic::panic_any(Bad) })
        .unwrap();
    assert_eq!(settled(&pool, |stats| stats.live == 0).panics, 1);
}

#[test]
fn self_waking_future_does_not_starve_others() {
    let pool = start(1);
    let stop = Arc::new(AtomicBool::new(false));
    let polls = Arc::new(AtomicUsize::new(0));
    for _ in 0..2 {
        let (stop, polls) = (Arc::clone(&stop), Arc::clone(&polls));
        let body = poll_fn(move |cx| {
            polls.fetch_add(1, SeqCst);
            if stop.load(SeqCst) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        pool.spawner().spawn(body).unwrap();
    }
    // Both from outside and from inside, others get their turn while the two spin.
    for _ in 0..10 {
        let (done, wait) = mpsc::channel();
        let spawner = pool.spawner();
        let body = async move {
            let inner = async move { done.send(()).unwrap() };
            spawner.spawn(inner).unwrap();
        };
        pool.spawner().spawn(body).unwrap();
        wait.recv().unwrap();
    }
    stop.store(true, SeqCst);
    pool.close(PoolShutdown::Finish);
}

/// The promise behind the one above, counted: behind a yield an injected future waits for one poll.
#[test]
fn injector_is_polled_first_after_a_yield() {
    let pool = start(1);
    let spawner = pool.spawner();
    let (order, seen) = mpsc::channel();
    let mut first = true;
    let body = poll_fn(move |cx| {
        order.send("yielder").unwrap();
        if !first {
            return Poll::Ready(());
        }
        first = false;
        // From another thread, so into the injector.
        let (spawner, order) = (spawner.clone(), order.clone());
        let outside = thread::spawn(move || {
            spawner
                .spawn(async move { order.send("injected").unwrap() })
                .unwrap();
        });
        outside.join().unwrap();
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    pool.spawner().spawn(body).unwrap();
    let seen: Vec<_> = seen.iter().collect();
    assert_eq!(seen, ["yielder", "injected", "yielder"]);
}

#[test]
fn idle_pool_sleeps_and_wakes_one_worker() {
    let workers = 4;
    let pool = start(workers);
    let (done, wait) = mpsc::channel();
    for _ in 0..ROUNDS {
        let done = done.clone();
        pool.spawner()
            .spawn(async move { done.send(()).unwrap() })
            .unwrap();
        wait.recv().unwrap();
    }
    // A park is counted when it ends. One future wakes one worker, and at most one more for the
    // look around that follows.
    let parks = settled(&pool, |stats| stats.live == 0).parks;
    assert!(
        parks <= 2 * ROUNDS as u64 + workers as u64,
        "{parks} parks for {ROUNDS} futures"
    );
    // Nobody wakes without cause.
    let before = pool.stats();
    (0..MANY).for_each(|_| thread::yield_now());
    assert!(pool.stats().parks - before.parks <= workers as u64);
    assert_eq!(pool.stats().queued, 0);
}

#[test]
fn full_deque_is_stolen_from() {
    let pool = start(2);
    let spawner = pool.spawner();
    let (done, wait) = mpsc::channel();
    // The first future blocks its worker until all that it spawned has run: elsewhere.
    let body = async move {
        let (one, all) = mpsc::channel();
        for _ in 0..100 {
            let one = one.clone();
            spawner.spawn(async move { one.send(()).unwrap() }).unwrap();
        }
        drop(one);
        assert_eq!(all.iter().count(), 100);
        done.send(()).unwrap();
    };
    pool.spawner().spawn(body).unwrap();
    wait.recv().unwrap();
    assert!(pool.stats().steals > 0);
}
