//! A guest that computes, waits or takes without end is stopped, and takes nobody with it.

use super::*;

#[test]
fn endless_loop_is_stopped_at_the_deadline() {
    let plugin = verdicts();
    for body in ["loop", "loop-calls"] {
        let mut verdicts = drive(plugin.handle(attempt(&[body], Duration::from_millis(20))));
        let why = failure_reason(verdicts.remove(0));
        assert!(matches!(why, FailureReason::TimedOut(_)), "{why:?}");
    }
}

#[test]
fn endless_loop_yields_to_others_on_its_thread() {
    let plugin = verdicts();
    let mut endless = plugin.handle(attempt(&["loop"], LONG));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..3 {
        assert!(endless.as_mut().poll(&mut context).is_pending());
        assert_eq!(one(&plugin, "done"), Verdict::Done);
    }
}

/// An attempt that yields after the first tick would leave its instance beside those of the others.
#[test]
fn attempt_of_a_few_ticks_ends_in_one_poll() {
    let runtime = runtime(1);
    for options in [options(), reusing(10)] {
        let plugin = load(&runtime, "verdicts", options);
        for _ in 0..3 {
            let mut attempt = plugin.handle(attempt(&["loop-for:3"], LONG));
            let mut context = Context::from_waker(Waker::noop());
            let ended = attempt.as_mut().poll(&mut context);
            assert_eq!(ended, Poll::Ready(vec![Verdict::Done]));
        }
    }
}

#[test]
fn memory_limit_is_named_in_the_failure() {
    let plugin = verdicts();
    assert_eq!(
        failure_reason(one(&plugin, "eat")),
        FailureReason::OutOfMemory(MAX_MEMORY)
    );
    assert_eq!(one(&plugin, "grow:16"), Verdict::Done);
    let small = PluginOptions {
        max_memory: 8 << 20,
        ..options()
    };
    let small = load(&runtime(1), "verdicts", small);
    assert_eq!(
        failure_reason(one(&small, "grow:16")),
        FailureReason::OutOfMemory(8 << 20)
    );
    assert_eq!(one(&small, "done"), Verdict::Done);
}

#[test]
fn guest_can_sleep_without_tokio() {
    assert!(tokio::runtime::Handle::try_current().is_err());
    assert_eq!(one(&verdicts(), "sleep:5"), Verdict::Done);
}

#[test]
fn dropping_a_sleeping_attempt_frees_its_instance() {
    let runtime = runtime(1);
    for options in [options(), reusing(10)] {
        let plugin = load(&runtime, "verdicts", options);
        for _ in 0..3 {
            let sleeper = drive_until_it_waits(plugin.handle(attempt(&["sleep:3600000"], LONG)));
            assert_eq!(runtime.instances(), 1);
            let late = plugin.handle(attempt(&["done"], Duration::from_millis(4)));
            let turned_away = drive(late);
            let is_full = |why: &str| why.starts_with("no slot for another instance");
            assert!(
                matches!(&turned_away[..], [Verdict::Busy { after: None, why }] if is_full(why)),
                "{turned_away:?}"
            );
            drop(sleeper);
            assert_eq!(runtime.instances(), 0);
        }
        assert_eq!(one(&plugin, "done"), Verdict::Done);
    }
}

#[test]
fn sleeping_guests_hold_no_thread() {
    let plugin = verdicts();
    let sleepers: Vec<_> = (0..40)
        .map(|_| drive_until_it_waits(plugin.handle(attempt(&["sleep:2000"], LONG))))
        .collect();
    for sleeper in sleepers {
        assert_eq!(drive(sleeper), [Verdict::Done]);
    }
}

#[test]
fn cancelled_guest_is_notified_or_stopped() {
    let plugin = verdicts();
    assert_eq!(rejection(&plugin, "cancelled-now"), "false");
    for body in ["loop", "cancelled"] {
        let attempt = attempt(&[body], LONG);
        let mut running = plugin.handle(Arc::clone(&attempt));
        let poll = running
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll.is_pending());
        attempt.cancelled[0].cancel();
        match drive(running).remove(0) {
            Verdict::Done => assert_eq!(body, "cancelled"),
            other => assert!(trap(other).contains("no longer counts")),
        }
    }
}

#[test]
fn messages_of_a_batch_are_cancelled_one_by_one() {
    let attempt = attempt(&["a", "b"], LONG);
    let settings = super::super::guest::GuestSettings {
        max_memory: 0,
        ..Default::default()
    };
    let guest = super::super::guest::Guest::new(Arc::new(settings), Arc::clone(&attempt));
    assert!(!guest.is_message_cancelled("m0") && guest.is_message_cancelled("stranger"));
    attempt.cancelled[0].cancel();
    assert!(guest.is_message_cancelled("m0") && !guest.is_message_cancelled("m1"));
    assert!(!guest.is_cancelled());
    attempt.cancelled[1].cancel();
    assert!(guest.is_cancelled());
}

#[test]
fn lesson_20_more_instances_than_the_machine_can_map_are_refused() {
    let options = RuntimeOptions {
        instances: usize::MAX,
        max_memory: MAX_MEMORY,
        cache: None,
        functions: None,
    };
    let told = Runtime::start(options, timers(), spawn())
        .err()
        .unwrap()
        .to_string();
    assert!(
        told.contains(&format!("{} instances", usize::MAX)),
        "{told}"
    );
}
