//! How a pool ends: what is run, returned, handed back or dropped.

#![expect(clippy::unwrap_used, reason = "a test fails by it, with its place")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

use super::{super::PoolShutdown, CountedDrop, Gate, MANY, ROUNDS, start, yields};

#[test]
fn close_returns_unfinished_futures() {
    for workers in [1, 2, 4] {
        let pool = start(workers);
        let gate = Arc::new(Gate::default());
        let dropped = Arc::new(AtomicUsize::new(0));
        for _ in 0..MANY {
            let (gate, counted) = (Arc::clone(&gate), CountedDrop(Arc::clone(&dropped)));
            let body = async move {
                let _held = counted;
                gate.pass().await;
            };
            pool.spawner().spawn(body).unwrap();
        }
        let spawner = pool.spawner();
        let returned = pool.close(PoolShutdown::Return);
        assert_eq!((returned.len(), dropped.load(SeqCst)), (MANY, 0));
        // The wakers that still lie about are harmless, and the futures can be run elsewhere.
        gate.open();
        assert!(spawner.spawn(async {}).is_err());
        let second = start(1);
        for future in returned {
            second.spawner().spawn(future).unwrap();
        }
        second.close(PoolShutdown::Finish);
        assert_eq!(dropped.load(SeqCst), MANY);
    }
}

#[test]
fn dropping_the_pool_drops_its_futures() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let pool = start(2);
    for _ in 0..10 {
        let counted = CountedDrop(Arc::clone(&dropped));
        let body = async move {
            let _held = counted;
            std::future::pending().await
        };
        pool.spawner().spawn(body).unwrap();
    }
    drop(pool);
    assert_eq!(dropped.load(SeqCst), 10);
}

/// Every future is run, returned or handed back, whatever the race.
fn race_spawns_with_close(how: PoolShutdown, workers: usize) {
    let pool = start(workers);
    let (ran, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (ready, go) = mpsc::channel();
    let spawners: Vec<_> = (0..2)
        .map(|_| {
            let (spawner, ready) = (pool.spawner(), ready.clone());
            let (ran, dropped) = (Arc::clone(&ran), Arc::clone(&dropped));
            thread::spawn(move || {
                let mut refused = 0;
                for index in 0..MANY {
                    let (ran, counted) = (Arc::clone(&ran), CountedDrop(Arc::clone(&dropped)));
                    let body = async move {
                        let _held = counted;
                        yields(index % 2).await;
                        ran.fetch_add(1, SeqCst);
                    };
                    refused += usize::from(spawner.spawn(body).is_err());
                    if index == MANY / 4 {
                        ready.send(()).unwrap();
                    }
                }
                refused
            })
        })
        .collect();
    go.recv().unwrap();
    let returned = pool.close(how);
    let ran_before = ran.load(SeqCst);
    let refused: usize = spawners
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    assert!(how == PoolShutdown::Return || returned.is_empty());
    assert_eq!(ran.load(SeqCst), ran_before, "nothing runs after the close");
    assert_eq!(ran_before + returned.len() + refused, 2 * MANY);
    drop(returned);
    assert_eq!(dropped.load(SeqCst), 2 * MANY);
}

#[test]
fn no_future_is_lost_between_spawn_and_close() {
    for round in 0..ROUNDS {
        race_spawns_with_close(PoolShutdown::Return, 1 + round % 4);
        race_spawns_with_close(PoolShutdown::Finish, 1 + round % 4);
    }
}

#[test]
fn pool_dropped_by_its_own_future_ends() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let pool = start(2);
    let spawner = pool.spawner();
    let (tell, told) = mpsc::channel::<()>();
    for _ in 0..10 {
        // Each holds a spawner, and so would keep the pool's insides alive forever.
        let held = (
            CountedDrop(Arc::clone(&dropped)),
            spawner.clone(),
            tell.clone(),
        );
        let body = async move {
            let _held = held;
            std::future::pending().await
        };
        spawner.spawn(body).unwrap();
    }
    drop(tell);
    spawner.spawn(async move { drop(pool) }).unwrap();
    assert!(told.recv().is_err(), "nothing was sent, all was dropped");
    assert_eq!(dropped.load(SeqCst), 10);
}

#[test]
fn close_from_inside_panics_and_ends_the_pool() {
    let pool = start(1);
    let spawner = pool.spawner();
    let (tell, told) = mpsc::channel::<()>();
    let body = async move {
        let _held = tell;
        pool.close(PoolShutdown::Finish);
    };
    spawner.spawn(body).unwrap();
    assert!(told.recv().is_err());
    assert!(spawner.spawn(async {}).is_err());
}
