//! The guard with a store that works, fails, hangs, and works again, in simulated time.

use super::*;
use crate::clock::Timestamp;
use crate::clock::simulated;
use crate::clock::simulated::Simulation;
use crate::idempotency::samples::{Fake, FakeBehaviour};
use std::task::{Context, Poll, Waker};

const TTL: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(30);

/// Runs it; where it waits, time continues.
fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        match future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(value) => return value,
            Poll::Pending => assert!(simulated::advance(), "it would wait for ever"),
        }
    }
}

fn guard(records: &Arc<Fake>) -> (Guard, Arc<Counters>, Arc<Readiness>) {
    let (counters, readiness) = (Arc::<Counters>::default(), Arc::<Readiness>::default());
    let (told, red) = (counters.clone(), readiness.clone());
    let guard = Guard::new(records.clone(), TTL, "orders", told, red);
    (guard, counters, readiness)
}

#[test]
fn record_is_known_until_it_expires() {
    let _simulation = Simulation::begin(Timestamp(1_000_000));
    let records = Arc::<Fake>::default();
    let (guard, counters, _) = guard(&records);
    assert!(run(guard.remember("q", &["a", "b"])));
    let ask = || run(guard.known("q", &["a", "x", "b"], LEASE));
    assert_eq!(ask(), [true, false, true]);
    assert_eq!(run(guard.known("other", &["a"], LEASE)), [false]);
    simulated::pass(TTL);
    assert_eq!(ask(), [false; 3]);
    assert_eq!(counters.snapshot().remembered, 2);
    assert_eq!(counters.snapshot().idempotency_failures, 0);
}

#[test]
fn failing_store_is_reported_and_stops_nothing() {
    let _simulation = Simulation::begin(Timestamp(1_000_000));
    let records = Arc::<Fake>::default();
    let (guard, counters, readiness) = guard(&records);
    *records.mood.lock().unwrap() = FakeBehaviour::Failing;
    for ready in [true, true, false] {
        assert!(!run(guard.remember("q", &["a"])));
        assert_eq!(readiness.reasons().is_empty(), ready);
    }
    assert_eq!(run(guard.known("q", &["a"], LEASE)), [false]);
    assert_eq!(counters.snapshot().idempotency_failures, 4);
    let (name, why) = readiness.reasons().remove(0);
    assert_eq!(name, "idempotency records of route orders");
    assert_eq!(why, "the disk is full");
    *records.mood.lock().unwrap() = FakeBehaviour::Well;
    // Lookups that work say nothing of writes.
    run(guard.known("q", &["a"], LEASE));
    assert!(!readiness.reasons().is_empty());
    assert!(run(guard.remember("q", &["a"])));
    assert!(readiness.reasons().is_empty());
}

#[test]
fn hanging_store_costs_a_share_of_one_lease_and_is_skipped_for_a_while() {
    let _simulation = Simulation::begin(Timestamp(1_000_000));
    let records = Arc::<Fake>::default();
    let (guard, _, _) = guard(&records);
    *records.mood.lock().unwrap() = FakeBehaviour::Hanging;
    let begun = clock::now();
    let short = Duration::from_secs(2);
    assert_eq!(run(guard.known("q", &["a"], short)), [false]);
    assert_eq!(clock::now().since(begun), short / LOOKUP_SHARE);
    assert_eq!(run(guard.known("q", &["a"], short)), [false]);
    assert_eq!(clock::now().since(begun), short / LOOKUP_SHARE);
    assert!(!run(guard.remember("q", &["a"])));
    assert_eq!(clock::now().since(begun), short / LOOKUP_SHARE + WRITE);
    assert_eq!(records.log.lock().unwrap().len(), 2);
    *records.mood.lock().unwrap() = FakeBehaviour::Well;
    assert!(!run(guard.remember("q", &["a"])));
    simulated::pass(REST);
    assert!(run(guard.remember("q", &["a"])));
    assert_eq!(run(guard.known("q", &["a"], short)), [true]);
}
