//! What the instances of a plugin take is counted: those at work, and those that wait.

use super::*;
use dispatcher_core::handler::Usage;

#[test]
fn instances_and_memory_are_counted_until_freed() {
    let runtime = runtime(4);
    let mut options = options();
    let tally = Arc::clone(&options.tally);
    let plugin = load(&runtime, "verdicts", options.clone());
    assert_eq!(plugin.usage(), Usage::default());
    let sleeper = drive_until_it_waits(plugin.handle(attempt(&["sleep:3600000"], LONG)));
    let one_works = plugin.usage();
    assert_eq!((one_works.running, one_works.idle), (1, 0));
    assert!(one_works.running_memory >= 64 << 10, "{one_works:?}");
    drop(sleeper);
    assert_eq!(plugin.usage(), Usage::default());
    // Another version counts in the same place, also what failed and what was refused.
    options.reuse = reusing(100).reuse;
    let next = load(&runtime, "verdicts", options);
    assert_eq!(one(&next, "grow:16"), Verdict::Done);
    let kept = tally.usage();
    assert_eq!((kept.running, kept.running_memory, kept.idle), (0, 0, 1));
    assert!(kept.idle_memory >= 16 << 20, "{kept:?}");
    let sleeper = drive_until_it_waits(plugin.handle(attempt(&["sleep:3600000"], LONG)));
    assert_eq!((tally.usage().running, tally.usage().idle), (1, 1));
    failure_reason(one(&next, "eat"));
    failure_reason(one(&next, "panic"));
    drop(sleeper);
    drop(next);
    assert_eq!(tally.usage(), Usage::default());
}

#[test]
fn shared_instance_is_counted_as_long_as_it_lives() {
    let runtime = runtime(1);
    let fake = crate::capability::lambda::tests::FakeFunctions::new();
    let options = super::shared::sharing(10, 1, &fake);
    let tally = Arc::clone(&options.tally);
    let plugin = load(&runtime, "commands", options);
    assert_eq!(one(&plugin, "done"), Verdict::Done);
    let usage = tally.usage();
    assert_eq!((usage.running, usage.idle), (1, 0));
    assert!(usage.running_memory > 0);
    // Who comes after it has room only once it is gone.
    let other = load(&runtime, "count", super::options());
    assert_eq!(rejection(&other, ""), "1");
    assert_eq!(tally.usage(), Usage::default());
}
