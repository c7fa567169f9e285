//! Many attempts at once in one instance: who shares it, who is hit when it ends.

use super::*;
use crate::capability::lambda::tests::{FakeFunctions, functions_of};
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;

pub(crate) type RunningCalls<'a> = Pin<Box<dyn Future<Output = Vec<Verdict>> + Send + 'a>>;

pub(crate) fn sharing(
    concurrency: usize,
    instances: usize,
    fake: &Arc<FakeFunctions>,
) -> PluginOptions {
    PluginOptions {
        instance_concurrency: concurrency,
        shared_instances: instances,
        ..granting(|grants| grants.lambda = Some(functions_of(fake, &["*"])))
    }
}

/// One attempt at one message, begun.
pub(crate) fn begin<'a>(plugin: &'a LoadedPlugin, id: &str, body: &str) -> RunningCalls<'a> {
    let attempt = Attempt {
        messages: vec![message(id, body)],
        cancelled: vec![CancellationToken::new()],
        tries: Vec::new(),
        deadline: Deadline::fixed(clock::now() + LONG, clock::wall_clock_now() + LONG),
    };
    drive_until_it_waits(plugin.handle(Arc::new(attempt)))
}

/// Drivers end on separate threads.
fn until_there_are(runtime: &Runtime, instances: u64) {
    while runtime.instances() != instances {
        std::thread::yield_now();
    }
}

#[test]
fn thousand_attempts_wait_in_one_instance() {
    const MANY: usize = 1_000;
    let runtime = runtime(2);
    let fake = FakeFunctions::new();
    let plugin = load(&runtime, "commands", sharing(MANY, 2, &fake));
    let running: Vec<_> = (0..MANY)
        .map(|n| begin(&plugin, &format!("m{n}"), "invoke echo"))
        .collect();
    fake.until_called(MANY);
    assert_eq!(runtime.instances(), 1);
    fake.answer_all();
    for (n, running) in running.into_iter().enumerate() {
        assert_eq!(drive(running), [Verdict::Reject(format!("echo m{n}"))]);
    }
    assert_eq!(runtime.instances(), 1, "kept for the next");
    drop(plugin);
    until_there_are(&runtime, 0);
}

#[test]
fn failing_answer_affects_no_other_attempt() {
    type Expectation = fn(&Verdict) -> bool;
    let runtime = runtime(1);
    let fake = FakeFunctions::new();
    let plugin = load(&runtime, "commands", sharing(10, 1, &fake));
    let others = [0, 1].map(|_| begin(&plugin, "other", "await it"));
    fake.until_called(2);
    let answers: [(&str, Expectation); 5] = [
        ("retry", |verdict| matches!(verdict, Verdict::Retry { .. })),
        ("reject no", |verdict| matches!(verdict, Verdict::Reject(_))),
        ("busy 5", |verdict| matches!(verdict, Verdict::Busy { .. })),
        ("closed", |verdict| matches!(verdict, Verdict::Closed(_))),
        ("gibberish", |verdict| matches!(verdict, Verdict::Reject(_))),
    ];
    for (body, expected) in answers {
        let verdict = one(&plugin, body);
        assert!(expected(&verdict), "{body}: {verdict:?}");
    }
    assert_eq!(runtime.instances(), 1, "the same all the time");
    fake.answer_all();
    for other in others {
        assert_eq!(drive(other), [Verdict::Done]);
    }
}

#[test]
fn trap_fails_only_attempts_sharing_the_instance() {
    type Expectation = fn(&FailureReason) -> bool;
    let cases: [(&str, Expectation); 2] = [
        ("trap", |why| matches!(why, FailureReason::Trapped(_))),
        ("big 64", |why| {
            *why == FailureReason::OutOfMemory(MAX_MEMORY)
        }),
    ];
    for (body, expected) in cases {
        let runtime = runtime(2);
        let fake = FakeFunctions::new();
        let plugin = load(&runtime, "commands", sharing(2, 2, &fake));
        let others = [0, 1].map(|_| begin(&plugin, "other", "await it"));
        let sharer = begin(&plugin, "sharer", "await it");
        fake.until_called(3);
        assert_eq!(runtime.instances(), 2);
        let why = failure_reason(one(&plugin, body));
        assert!(expected(&why), "{why:?}");
        let why = failure_reason(drive(sharer).remove(0));
        assert!(expected(&why), "{why:?}");
        until_there_are(&runtime, 1);
        fake.answer_all();
        for other in others {
            assert_eq!(drive(other), [Verdict::Done]);
        }
        assert_eq!(one(&plugin, "done"), Verdict::Done);
    }
}

#[test]
fn abandoned_attempt_retires_its_instance() {
    let runtime = runtime(2);
    let fake = FakeFunctions::new();
    let plugin = load(&runtime, "commands", sharing(10, 2, &fake));
    let abandoned = begin(&plugin, "abandoned", "await it");
    let sharer = begin(&plugin, "sharer", "await it");
    fake.until_called(2);
    assert_eq!(runtime.instances(), 1);
    drop(abandoned);
    let later = begin(&plugin, "later", "await it");
    fake.until_called(3);
    assert_eq!(runtime.instances(), 2, "it takes no more");
    fake.answer_all();
    assert_eq!(drive(sharer), [Verdict::Done]);
    assert_eq!(drive(later), [Verdict::Done]);
    until_there_are(&runtime, 1);
}

#[test]
fn instance_with_only_abandoned_attempts_ends_at_once() {
    let runtime = runtime(2);
    let fake = FakeFunctions::new();
    let plugin = load(&runtime, "commands", sharing(10, 1, &fake));
    for body in ["await never", "sync-invoke never"] {
        let called = fake.calls();
        let running = [0, 1].map(|_| begin(&plugin, "m", body));
        // An instance that waits in the synchronous flavour does nothing else.
        fake.until_called(called + 1);
        drop(running);
        until_there_are(&runtime, 0);
    }
    let running = begin(&plugin, "m", "loop");
    until_there_are(&runtime, 1);
    drop(running);
    until_there_are(&runtime, 0);
    assert_eq!(one(&plugin, "done"), Verdict::Done);
}

#[test]
fn endless_loop_is_stopped_and_sharing_attempts_fail() {
    let runtime = runtime(2);
    let fake = FakeFunctions::new();
    let plugin = load(&runtime, "commands", sharing(10, 1, &fake));
    for end in ["deadline", "abandoned", "cancelled"] {
        let called = fake.calls();
        let other = begin(&plugin, "other", "await it");
        fake.until_called(called + 1);
        let within = match end {
            "deadline" => Duration::from_millis(5),
            _ => LONG,
        };
        let attempt = attempt(&["loop at-once"], within);
        let looping = drive_until_it_waits(plugin.handle(Arc::clone(&attempt)));
        fake.until_called(called + 2);
        match end {
            "abandoned" => drop(looping),
            "cancelled" => {
                attempt.cancelled[0].cancel();
                assert!(trap(drive(looping).remove(0)).contains("no longer counts"));
            }
            _ => {
                let why = failure_reason(drive(looping).remove(0));
                assert!(matches!(why, FailureReason::TimedOut(_)), "{why:?}");
            }
        }
        let why = trap(drive(other).remove(0));
        assert!(why.contains("for another attempt"), "{end}: {why}");
        assert_eq!(one(&plugin, "done"), Verdict::Done);
    }
}

#[test]
fn attempt_past_its_deadline_stops_no_other() {
    let fake = FakeFunctions::new();
    let plugin = load(&runtime(1), "commands", sharing(10, 1, &fake));
    assert_eq!(one(&plugin, "done"), Verdict::Done, "there is an instance");
    let late = attempt(&["await it"], Duration::from_millis(1));
    let late = drive_until_it_waits(plugin.handle(late));
    fake.until_called(1);
    for _ in 0..200 {
        assert_eq!(one(&plugin, "done"), Verdict::Done);
    }
    fake.answer_all();
    assert_eq!(drive(late), [Verdict::Done]);
}

#[test]
fn guest_can_ask_about_any_running_message() {
    let fake = FakeFunctions::new();
    let plugin = load(&runtime(1), "commands", sharing(10, 1, &fake));
    let held = attempt(&["await it"], LONG);
    let running = drive_until_it_waits(plugin.handle(Arc::clone(&held)));
    fake.until_called(1);
    let asked = |id: &str| {
        let mut asking = begin_now(&plugin, "asking", &format!("cancelled {id}"));
        match asking.remove(0) {
            Verdict::Reject(answer) => answer,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([asked("m0"), asked("asking")], ["false", "false"]);
    assert_eq!(asked("stranger"), "true");
    held.cancelled[0].cancel();
    assert_eq!(asked("m0"), "true");
    fake.answer_all();
    assert_eq!(drive(running), [Verdict::Done]);
}

/// One attempt at one message, to its end.
fn begin_now(plugin: &LoadedPlugin, id: &str, body: &str) -> Vec<Verdict> {
    let mut attempt = Arc::unwrap_or_clone(attempt(&[body], LONG));
    attempt.messages[0].id = id.into();
    drive(plugin.handle(Arc::new(attempt)))
}

#[test]
fn shared_instance_is_retired_at_its_reuse_limit() {
    let drivers = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&drivers);
    let counting: Spawn = Arc::new(move |future| {
        counted.fetch_add(1, Ordering::SeqCst);
        spawn()(future);
    });
    let options = RuntimeOptions {
        instances: 4,
        max_memory: MAX_MEMORY,
        cache: None,
        functions: None,
    };
    let runtime = Runtime::start(options, timers(), counting).unwrap();
    let keep = reusing(3).reuse.unwrap();
    let age = Duration::ZERO;
    for (keep, expected) in [
        (keep, 3),
        (Reuse { age, ..keep }, 9),
        (Reuse { memory: 0, ..keep }, 9),
    ] {
        let options = PluginOptions {
            reuse: Some(keep),
            ..sharing(10, 2, &FakeFunctions::new())
        };
        let plugin = load(&runtime, "commands", options);
        drivers.store(0, Ordering::SeqCst);
        for _ in 0..9 {
            assert_eq!(one(&plugin, "done"), Verdict::Done);
        }
        assert_eq!(drivers.load(Ordering::SeqCst), expected, "{keep:?}");
    }
}

#[test]
fn attempt_of_a_dropped_instance_is_a_host_failure() {
    let options = RuntimeOptions {
        instances: 1,
        max_memory: MAX_MEMORY,
        cache: None,
        functions: None,
    };
    let runtime = Runtime::start(options, timers(), Arc::new(drop)).unwrap();
    let plugin = load(&runtime, "commands", sharing(10, 1, &FakeFunctions::new()));
    for _ in 0..3 {
        let why = failure_reason(one(&plugin, "done"));
        assert!(matches!(why, FailureReason::Host(_)), "{why:?}");
    }
}

#[test]
fn batches_can_share_an_instance() {
    let runtime = runtime(1);
    let fake = FakeFunctions::new();
    let plugin = load(&runtime, "commands-batch", sharing(10, 1, &fake));
    assert_eq!(plugin.batch(), 10_000);
    let waiting = attempt(&["invoke echo", "done"], LONG);
    let waiting = drive_until_it_waits(plugin.handle(waiting));
    fake.until_called(1);
    let bodies = ["busy 20", "done", "closed why", "retry 5", "reject no"];
    let verdicts = drive(plugin.handle(attempt(&bodies, LONG)));
    let after = |ms| Some(Duration::from_millis(ms));
    let expected = [
        Verdict::Busy {
            after: after(20),
            why: "as told".into(),
        },
        Verdict::Done,
        Verdict::Closed("why".into()),
        Verdict::Retry {
            after: after(5),
            why: FailureReason::Requested,
        },
        Verdict::Reject("no".into()),
    ];
    assert_eq!(verdicts, expected);
    let strange = drive(plugin.handle(attempt(&["done", "stranger"], LONG)));
    for verdict in strange {
        assert!(trap(verdict).contains("an id that is not in the batch"));
    }
    fake.answer_all();
    let answered = [Verdict::Reject("echo m0".into()), Verdict::Done];
    assert_eq!(drive(waiting), answered);
    assert_eq!(runtime.instances(), 1);
}

#[test]
fn only_async_plugins_share_instances() {
    let refused = runtime(1).load(&prebuilt("verdicts"), sharing(10, 1, &FakeFunctions::new()));
    let why = refused.err().unwrap().to_string();
    assert!(why.contains("10 concurrent attempts"), "{why}");
}
