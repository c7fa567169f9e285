//! Room in instances that many attempts share: who waits for it, for how long, and who is turned
//! away.

use super::shared::{begin, sharing};
use super::*;
use crate::capability::lambda::tests::FakeFunctions;
use std::pin::Pin;
use std::sync::Mutex;

#[test]
fn ending_instances_are_bounded_by_the_attempts() {
    let runtime = runtime(4);
    let fake = FakeFunctions::new();
    let plugin = load(&runtime, "commands", sharing(10, 2, &fake));
    // Each abandoned attempt retires an instance that a sharer keeps alive: four in all.
    let mut sharers = Vec::new();
    for pairs in 1..=4 {
        let abandoned = begin(&plugin, "abandoned", "await it");
        sharers.push(begin(&plugin, "sharer", "await it"));
        fake.until_called(2 * pairs);
        assert_eq!(runtime.instances(), pairs as u64);
        drop(abandoned);
    }
    let later = begin(&plugin, "later", "await it");
    assert_eq!((fake.calls(), runtime.instances()), (8, 4), "it waits");
    fake.answer_all();
    for sharer in sharers {
        assert_eq!(drive(sharer), [Verdict::Done]);
    }
    assert_eq!(drive(later), [Verdict::Done]);
}

#[test]
fn lesson_20_attempts_wait_for_instances_in_order_of_arrival() {
    let runtime = runtime(1);
    let fake = FakeFunctions::new();
    let plugin = load(&runtime, "commands", sharing(2, 1, &fake));
    let first = [0, 1].map(|_| begin(&plugin, "first", "await it"));
    let forgotten = begin(&plugin, "forgotten", "await it");
    let later = begin(&plugin, "later", "await it");
    fake.until_called(2);
    drop(forgotten);
    assert_eq!((fake.calls(), runtime.instances()), (2, 1));
    fake.answer_all();
    for running in first {
        assert_eq!(drive(running), [Verdict::Done]);
    }
    assert_eq!(drive(later), [Verdict::Done]);
    assert_eq!((fake.calls(), runtime.instances()), (3, 1));
}

/// Whether an attempt was turned away for want of room.
fn is_turned_away(verdicts: &[Verdict]) -> bool {
    let is_full = |why: &str| why.starts_with("no instance of the plugin has capacity");
    matches!(verdicts, [Verdict::Busy { after: None, why }] if is_full(why))
}

#[test]
fn attempt_without_an_instance_in_time_is_busy() {
    let runtime = runtime(1);
    let fake = FakeFunctions::new();
    let plugin = load(&runtime, "commands", sharing(2, 1, &fake));
    let first = begin(&plugin, "first", "await it");
    fake.until_called(1);
    // Too large to share, and in the way of the next.
    let large = format!("await {}", "x".repeat(MAX_MEMORY / 3));
    let large = plugin.handle(attempt(&[&large], Duration::from_secs(1)));
    let large = drive_until_it_waits(large);
    let next = begin(&plugin, "next", "await it");
    let turned_away = drive(large);
    assert!(is_turned_away(&turned_away), "{turned_away:?}");
    fake.until_called(2);
    let late = plugin.handle(attempt(&["done"], Duration::from_millis(4)));
    let turned_away = drive(late);
    assert!(is_turned_away(&turned_away), "{turned_away:?}");
    fake.answer_all();
    for running in [first, next] {
        assert_eq!(drive(running), [Verdict::Done]);
    }
    assert_eq!(fake.calls(), 2);
}

#[test]
fn large_messages_do_not_share_an_instance() {
    let runtime = runtime(2);
    let fake = FakeFunctions::new();
    let plugin = load(&runtime, "commands", sharing(10, 2, &fake));
    let large = format!("await {}", "x".repeat(MAX_MEMORY / 7));
    let running = [large.as_str(), &large, "await it"].map(|body| begin(&plugin, "m", body));
    fake.until_called(3);
    assert_eq!(runtime.instances(), 2);
    // Alone, one that is too large by that measure is tried all the same.
    let larger = format!("await {}", "x".repeat(MAX_MEMORY / 3));
    let larger = begin(&plugin, "m", &larger);
    fake.answer_all();
    for running in running {
        assert_eq!(drive(running), [Verdict::Done]);
    }
    drive(larger);
}

#[test]
fn attempts_not_begun_in_a_lost_instance_begin_in_another() {
    type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;
    let drivers = Arc::new(Mutex::new(Vec::<Driver>::new()));
    let kept = Arc::clone(&drivers);
    let options = RuntimeOptions {
        instances: 2,
        max_memory: MAX_MEMORY,
        cache: None,
        functions: None,
    };
    let keep: Spawn = Arc::new(move |driver| kept.lock().unwrap().push(driver));
    let runtime = Runtime::start(options, timers(), keep).unwrap();
    let fake = FakeFunctions::new();
    let plugin = load(&runtime, "commands", sharing(10, 1, &fake));
    let next = || drivers.lock().unwrap().pop().unwrap();
    let begun = begin(&plugin, "begun", "await it");
    let driver = drive_until_it_waits(next());
    fake.until_called(1);
    let coming = begin(&plugin, "coming", "done");
    assert!(drivers.lock().unwrap().is_empty(), "it is on its way");
    drop(driver);
    let why = failure_reason(drive(begun).remove(0));
    assert!(matches!(why, FailureReason::Host(_)), "{why:?}");
    let another = drive_until_it_waits(next());
    assert_eq!(drive(coming), [Verdict::Done]);
    // And where no other has room, it does not wait forever.
    let abandoned = begin(&plugin, "abandoned", "await it");
    let another = drive_until_it_waits(another);
    let coming = begin(&plugin, "coming", "done");
    drop(abandoned);
    let full: Vec<_> = (0..10).map(|_| begin(&plugin, "m", "await it")).collect();
    drop(another);
    let turned_away = drive(coming);
    assert!(is_turned_away(&turned_away), "{turned_away:?}");
    drop(full);
    // The runtime and what it keeps here hold each other.
    drop(std::mem::take(&mut *drivers.lock().unwrap()));
}
