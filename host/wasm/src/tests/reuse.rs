//! Fresh instances remember nothing; reused ones do, until they have served their time.

use super::*;

#[test]
fn fresh_instance_remembers_nothing() {
    let plugin = load(&runtime(1), "count", options());
    assert_eq!(rejection(&plugin, ""), "1");
    assert_eq!(rejection(&plugin, ""), "1");
}

#[test]
fn instance_is_reused_up_to_its_limit() {
    let plugin = load(&runtime(1), "count", reusing(3));
    let counts: Vec<_> = (0..7).map(|_| rejection(&plugin, "")).collect();
    assert_eq!(counts, ["1", "2", "3", "1", "2", "3", "1"]);
}

#[test]
fn lesson_21_old_or_large_instance_is_not_reused() {
    let keep = reusing(10).reuse.unwrap();
    let age = Duration::ZERO;
    for keep in [Reuse { age, ..keep }, Reuse { memory: 0, ..keep }] {
        let options = PluginOptions {
            reuse: Some(keep),
            ..options()
        };
        let plugin = load(&runtime(1), "count", options);
        assert_eq!(rejection(&plugin, ""), "1");
        assert_eq!(rejection(&plugin, ""), "1");
    }
}

#[test]
fn failed_instance_is_not_reused() {
    let runtime = runtime(4);
    let plugin = load(&runtime, "verdicts", reusing(100));
    for body in ["panic", "exit:0", "eat"] {
        assert_eq!(one(&plugin, "done"), Verdict::Done);
        assert_eq!(runtime.instances(), 1, "kept");
        failure_reason(one(&plugin, body));
        assert_eq!(runtime.instances(), 0, "thrown away after {body}");
    }
    drive(plugin.handle(attempt(&["loop"], Duration::ZERO)));
    assert_eq!(runtime.instances(), 0, "thrown away after its time-out");
    assert_eq!(one(&plugin, "done"), Verdict::Done);
}

/// What continues would print, call and trap under the name of the next message.
#[test]
fn instance_with_unfinished_work_is_not_reused() {
    let plugin = load(&runtime(1), "lingers", reusing(100));
    let counts = ["a", "b", "stay", "c", "d"].map(|body| rejection(&plugin, body));
    assert_eq!(counts, ["1", "2", "3", "1", "2"]);
}

#[test]
fn reused_instance_has_the_current_deadline() {
    let plugin = load(&runtime(1), "verdicts", reusing(100));
    assert_eq!(one(&plugin, "done"), Verdict::Done);
    let mut verdicts = drive(plugin.handle(attempt(&["loop"], Duration::from_millis(5))));
    assert!(matches!(
        failure_reason(verdicts.remove(0)),
        FailureReason::TimedOut(_)
    ));
}

#[test]
fn idle_instances_are_evicted_for_another_plugin() {
    let runtime = runtime(1);
    let (first, second) = (
        load(&runtime, "count", reusing(100)),
        load(&runtime, "count", reusing(100)),
    );
    for plugin in [&first, &second, &first] {
        assert_eq!(rejection(plugin, ""), "1");
    }
    assert_eq!(rejection(&first, ""), "2");
}
