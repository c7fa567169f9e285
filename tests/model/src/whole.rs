//! Models of the pool as it is, through its public face alone. They must not look inside it.
//!
//! A lost wake-up shows as a deadlock, a lost future as a wrong count, two polls at once or a
//! missing happens-before as a race on a loom cell. `PREEMPTIONS` bounds how often a schedule may
//! take a running thread off; the protocols by themselves (`parts.rs`) have wider bounds.

use std::{
    future::poll_fn,
    num::NonZeroUsize,
    sync::Arc,
    task::{Poll, Waker},
};

use loom::{
    cell::Cell,
    model::Builder,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

use crate::pool::{PoolShutdown, Pool};

const PREEMPTIONS: usize = 2;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

fn start(workers: usize) -> Pool {
    Pool::start(NonZeroUsize::new(workers).unwrap(), "model").unwrap()
}

/// A push against one worker that goes to sleep.
#[test]
fn push_wakes_a_parking_worker() {
    check(|| {
        let pool = start(1);
        let (tell, told) = mpsc::channel();
        pool.spawner()
            .spawn(async move { tell.send(()).unwrap() })
            .unwrap();
        told.recv().unwrap();
        assert!(pool.close(PoolShutdown::Return).is_empty());
    });
}

/// Two pushes against two workers, each future waiting for the other: both must run at once.
#[test]
fn two_pushes_wake_two_workers() {
    check(|| {
        let pool = start(2);
        let ((tell_a, told_a), (tell_b, told_b)) = (mpsc::channel(), mpsc::channel());
        let (over, wait) = mpsc::channel();
        let a = async move {
            tell_a.send(()).unwrap();
            told_b.recv().unwrap();
        };
        let b = async move {
            tell_b.send(()).unwrap();
            told_a.recv().unwrap();
            over.send(()).unwrap();
        };
        pool.spawner().spawn(a).unwrap();
        pool.spawner().spawn(b).unwrap();
        // Not before: a close wakes everybody.
        wait.recv().unwrap();
        pool.close(PoolShutdown::Finish);
    });
}

/// A spawn into a blocked worker's own deque is stolen by the other.
#[test]
fn deque_of_a_blocked_worker_is_stolen_from() {
    check(|| {
        let pool = start(2);
        let spawner = pool.spawner();
        let (over, wait) = mpsc::channel();
        let outer = async move {
            let (tell, told) = mpsc::channel();
            spawner
                .spawn(async move { tell.send(()).unwrap() })
                .unwrap();
            told.recv().unwrap();
            over.send(()).unwrap();
        };
        pool.spawner().spawn(outer).unwrap();
        // Not before: a close would refuse the inner spawn.
        wait.recv().unwrap();
        pool.close(PoolShutdown::Finish);
    });
}

/// One future woken twice by another thread, at any point of its polls.
fn wake_from_outside(workers: usize) {
    let pool = start(workers);
    let place: Arc<Mutex<Option<Waker>>> = Arc::default();
    let (over, wait) = mpsc::channel();
    let written = Arc::new(AtomicUsize::new(0));
    // No atomic: loom reports two polls at once, or polls without an order between them.
    let polls = Cell::new(0);
    let body = {
        let (place, written) = (place.clone(), written.clone());
        poll_fn(move |cx| {
            polls.set(polls.get() + 1);
            if written.load(Relaxed) == 2 {
                over.send(()).unwrap();
                return Poll::Ready(());
            }
            *place.lock().unwrap() = Some(cx.waker().clone());
            Poll::Pending
        })
    };
    pool.spawner().spawn(body).unwrap();
    let waker = loop {
        if let Some(waker) = place.lock().unwrap().clone() {
            break waker;
        }
        thread::yield_now();
    };
    // Relaxed: only the wake makes these visible to the poll.
    written.store(1, Relaxed);
    waker.wake_by_ref();
    written.store(2, Relaxed);
    waker.wake();
    // Not before: a close wakes everybody.
    wait.recv().unwrap();
    pool.close(PoolShutdown::Finish);
}

#[test]
fn wake_during_a_poll_is_not_lost() {
    check(|| wake_from_outside(1));
}

#[test]
fn wake_during_a_poll_is_not_lost_between_two_workers() {
    check(|| wake_from_outside(2));
}

/// A future that yields and one that comes from outside, on one worker.
#[test]
fn yield_loses_nothing() {
    check(|| {
        let pool = start(1);
        let mut yielded = false;
        let body = poll_fn(move |cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        let (over, wait) = mpsc::channel();
        let also = over.clone();
        let both = async move {
            body.await;
            over.send(()).unwrap();
        };
        pool.spawner().spawn(both).unwrap();
        pool.spawner()
            .spawn(async move { also.send(()).unwrap() })
            .unwrap();
        wait.recv().unwrap();
        wait.recv().unwrap();
        pool.close(PoolShutdown::Finish);
    });
}

/// A spawn on another thread against a close: run, returned or refused, exactly one of them.
fn spawn_against_close(how: PoolShutdown, workers: usize) {
    let pool = start(workers);
    let spawner = pool.spawner();
    let ran = Arc::new(AtomicUsize::new(0));
    let body = {
        let ran = Arc::clone(&ran);
        async move {
            ran.fetch_add(1, SeqCst);
        }
    };
    let outside = thread::spawn(move || usize::from(spawner.spawn(body).is_err()));
    let returned = pool.close(how).len();
    let ran_before = ran.load(SeqCst);
    let refused = outside.join().unwrap();
    assert_eq!(ran.load(SeqCst), ran_before, "nothing runs after the close");
    assert_eq!(ran_before + returned + refused, 1);
    assert!(how == PoolShutdown::Return || returned == 0);
}

#[test]
fn spawn_during_a_finishing_close_is_not_lost() {
    check(|| spawn_against_close(PoolShutdown::Finish, 1));
}

#[test]
fn spawn_during_a_returning_close_is_not_lost() {
    check(|| spawn_against_close(PoolShutdown::Return, 1));
}

#[test]
fn spawn_during_a_close_of_two_workers_is_not_lost() {
    check(|| spawn_against_close(PoolShutdown::Finish, 2));
}

/// A wake on another thread against a close: the future is over or returned, the wake harmless.
#[test]
fn wake_during_a_close_is_harmless() {
    check(|| {
        let pool = start(1);
        let (tell, told) = mpsc::channel();
        let mut woken = false;
        let body = poll_fn(move |cx| {
            if std::mem::replace(&mut woken, true) {
                return Poll::Ready(());
            }
            tell.send(cx.waker().clone()).unwrap();
            Poll::Pending
        });
        pool.spawner().spawn(body).unwrap();
        let waker: Waker = told.recv().unwrap();
        let outside = thread::spawn(move || waker.wake());
        let returned = pool.close(PoolShutdown::Return);
        assert!(returned.len() <= 1);
        outside.join().unwrap();
    });
}
