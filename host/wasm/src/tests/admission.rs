//! Attempts wait for room among all plugins of an engine, whatever keeps it: other attempts, or
//! instances that work on nothing.

use super::shared::{begin, sharing};
use super::*;
use crate::capability::lambda::tests::FakeFunctions;

/// This many attempts at once, each on its own thread.
fn burst(plugin: &LoadedPlugin, count: usize, body: &str) -> Vec<Verdict> {
    let attempts: Vec<_> = (0..count)
        .map(|_| {
            let (plugin, attempt) = (plugin.clone(), attempt(&[body], LONG));
            std::thread::spawn(move || drive(plugin.handle(attempt)))
        })
        .collect();
    let ended = attempts.into_iter();
    ended.flat_map(|one| one.join().unwrap()).collect()
}

#[test]
fn lesson_20_burst_waits_for_instances_and_none_of_it_fails() {
    const ROOM: usize = 3;
    let runtime = runtime(ROOM);
    for options in [options(), reusing(5)] {
        let plugin = load(&runtime, "verdicts", options);
        let verdicts = burst(&plugin, 20 * ROOM, "sleep:3");
        assert_eq!(verdicts, vec![Verdict::Done; 20 * ROOM]);
    }
    assert_eq!(runtime.instances(), 0);
}

#[test]
fn burst_evicts_idle_instances_of_another_plugin() {
    let runtime = runtime(2);
    let idle = load(&runtime, "verdicts", reusing(1_000));
    let other = load(&runtime, "verdicts", reusing(1_000));
    for (first, second) in [(&idle, &other), (&other, &idle)] {
        assert_eq!(burst(first, 10, "sleep:3"), vec![Verdict::Done; 10]);
        assert!(first.usage().idle > 0, "{:?}", first.usage());
        let sleeper = drive_until_it_waits(first.handle(attempt(&["sleep:3600000"], LONG)));
        assert_eq!(burst(second, 10, "sleep:3"), vec![Verdict::Done; 10]);
        drop(sleeper);
    }
}

#[test]
fn waiter_is_served_when_an_ending_attempt_would_keep_its_instance() {
    let runtime = runtime(1);
    let (keeper, other) = (
        load(&runtime, "verdicts", reusing(1_000)),
        load(&runtime, "verdicts", options()),
    );
    let working = drive_until_it_waits(keeper.handle(attempt(&["sleep:5"], LONG)));
    let waiting = drive_until_it_waits(other.handle(attempt(&["done"], LONG)));
    assert_eq!(drive(working), [Verdict::Done]);
    assert_eq!(runtime.instances(), 0, "it was not kept");
    assert_eq!(drive(waiting), [Verdict::Done]);
}

#[test]
fn idle_shared_instances_are_evicted() {
    let runtime = runtime(1);
    let fake = FakeFunctions::new();
    let shared = load(&runtime, "commands", sharing(10, 1, &fake));
    let single = load(&runtime, "verdicts", options());
    for _ in 0..3 {
        assert_eq!(one(&shared, "done"), Verdict::Done);
        assert_eq!(runtime.instances(), 1, "it lives on");
        assert_eq!(one(&single, "done"), Verdict::Done);
        assert_eq!(runtime.instances(), 0);
    }
    // And one that is at work when somebody begins to wait.
    let working = begin(&shared, "working", "await it");
    fake.until_called(1);
    let waiting = drive_until_it_waits(single.handle(attempt(&["done"], LONG)));
    fake.answer_all();
    assert_eq!(drive(working), [Verdict::Done]);
    assert_eq!(drive(waiting), [Verdict::Done]);
}

#[test]
fn shared_instance_waits_for_a_slot_and_its_attempts_are_busy_in_time() {
    let runtime = runtime(1);
    let fake = FakeFunctions::new();
    let shared = load(&runtime, "commands", sharing(10, 1, &fake));
    let single = load(&runtime, "verdicts", options());
    let sleeper = drive_until_it_waits(single.handle(attempt(&["sleep:3600000"], LONG)));
    let late = shared.handle(attempt(&["done"], Duration::from_millis(4)));
    let turned_away = drive(late);
    assert!(
        matches!(&turned_away[..], [Verdict::Busy { .. }]),
        "{turned_away:?}"
    );
    let waiting = drive_until_it_waits(shared.handle(attempt(&["done"], LONG)));
    drop(sleeper);
    assert_eq!(drive(waiting), [Verdict::Done]);
}

/// The engine gives slots of thrown-away instances back some at a time, and while one thread is at it
/// another has room and finds no slot.
#[test]
fn admitted_attempt_always_finds_a_slot() {
    const ROOM: usize = 4;
    let runtime = runtime(ROOM);
    let plugin = load(&runtime, "verdicts", options());
    std::thread::scope(|scope| {
        for _ in 0..3 * ROOM {
            scope.spawn(|| {
                for _ in 0..100 {
                    let verdicts = drive(plugin.handle(attempt(&["grow:4"], LONG)));
                    assert_eq!(verdicts, [Verdict::Done]);
                }
            });
        }
    });
}
