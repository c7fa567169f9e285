//! Guests that hoard or never end: start functions, clean-ups, tables, handles, tasks, waits. Each
//! is stopped at its timeout or refused at a limit, and leaves nothing behind.

use super::hostile::{Guest, HARMLESS, SOON};
use super::*;
use crate::capability::caller::Caller;

#[track_caller]
fn is_stopped(guest: &Guest<'_>) {
    let why = failure_reason(guest.try_for(SOON));
    assert!(matches!(why, FailureReason::TimedOut(_)), "{why:?}");
}

#[test]
fn start_function_uses_the_time_and_memory_of_the_attempt() {
    let with =
        |body: &str| format!(r#"(memory (export "memory") 1) (func $begin {body}) (start $begin)"#);
    let looping = with("(loop $again (br $again))");
    is_stopped(&Guest {
        items: &looping,
        ..HARMLESS
    });
    let digging = with("call $begin");
    let why = Guest {
        items: &digging,
        ..HARMLESS
    }
    .trap();
    assert!(why.starts_with("call stack exhausted in begin"), "{why}");
    let trapping = with("unreachable");
    let why = Guest {
        items: &trapping,
        ..HARMLESS
    }
    .trap();
    assert!(why.contains("unreachable"), "{why}");
    let eating = with(
        "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
        unreachable",
    );
    let verdict = Guest {
        items: &eating,
        ..HARMLESS
    }
    .try_for(LONG);
    assert_eq!(
        failure_reason(verdict),
        FailureReason::OutOfMemory(MAX_MEMORY)
    );
}

#[test]
fn endless_cleanup_is_stopped() {
    let guest = Guest {
        items: r#"(memory (export "memory") 1)
            (func (export "clean") (param i32) (loop $again (br $again)))"#,
        lift: r#"(post-return (core func $i "clean"))"#,
        ..HARMLESS
    };
    is_stopped(&guest);
    let guest = Guest {
        items: r#"(memory (export "memory") 1) (func (export "clean") (param i32) unreachable)"#,
        ..guest
    };
    assert!(guest.trap().contains("unreachable"));
}

#[test]
fn table_grows_only_to_its_limit() {
    // Traps unless the last element fits and one more does not, nor a great many.
    let handle = "
        (if (i32.eq (table.grow $t (ref.null func) (i32.const 19999)) (i32.const -1))
            (then unreachable))
        (if (i32.ne (table.grow $t (ref.null func) (i32.const 1)) (i32.const -1))
            (then unreachable))
        (if (i32.ne (table.grow $t (ref.null func) (i32.const -1)) (i32.const -1))
            (then unreachable))";
    let guest = Guest {
        items: r#"(memory (export "memory") 1) (table $t 1 funcref)"#,
        handle,
        ..HARMLESS
    };
    assert_eq!(guest.try_for(LONG), Verdict::Done);
}

/// The clock and what waits on it, lowered as `$subscribe`, `$block` and `$poll`.
const CLOCK: &str = r#"
    (import "wasi:io/poll@0.2.0" (instance $poll
        (export "pollable" (type $p (sub resource)))
        (export "[method]pollable.block" (func (param "self" (borrow $p))))))
    (alias export $poll "pollable" (type $pollable))
    (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
        (alias outer 1 $pollable (type $outer))
        (export "pollable" (type $p (eq $outer)))
        (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))
    (core func $subscribe (canon lower (func $clock "subscribe-duration")))
    (core func $block (canon lower (func $poll "[method]pollable.block")))"#;
const CLOCK_LENT: &str = r#"(export "subscribe" (func $subscribe)) (export "block" (func $block))"#;
const CLOCK_ITEMS: &str = r#"
    (import "host" "subscribe" (func $subscribe (param i64) (result i32)))
    (import "host" "block" (func $block (param i32)))
    (memory (export "memory") 1)"#;

pub(super) fn waiting(handle: &str) -> Guest<'_> {
    Guest {
        imports: CLOCK,
        granted: CLOCK_LENT,
        items: CLOCK_ITEMS,
        handle,
        ..HARMLESS
    }
}

#[test]
fn wait_for_centuries_ends_with_the_attempt() {
    for nanoseconds in ["-1", "0x7fffffffffffffff", "3600000000000"] {
        let handle = format!("(call $block (call $subscribe (i64.const {nanoseconds})))");
        let runtime = runtime(2);
        let plugin = waiting(&handle).load(&runtime);
        let good = super::load(&runtime, "bench-bare", options());
        let waiting = drive_until_it_waits(plugin.handle(attempt(&["body"], LONG)));
        assert_eq!(one(&good, "done"), Verdict::Done);
        // What the executor does at the timeout.
        drop(waiting);
        assert_eq!(runtime.instances(), 0);
    }
}

#[test]
fn leaked_handles_are_bounded() {
    let handle = "(loop $again (drop (call $subscribe (i64.const -1))) (br $again))";
    let why = waiting(handle).trap();
    assert!(why.contains("resource table"), "{why}");
}

#[test]
fn invalid_handle_is_a_trap() {
    for handle in ["0", "1", "-1", "123456"] {
        let handle = format!("(call $block (i32.const {handle}))");
        let why = waiting(&handle).trap();
        assert!(why.contains("handle"), "{why}");
    }
}

/// A task that answers to its callback with this code, at first and ever after.
fn task(code: &str) -> Guest<'_> {
    Guest {
        handle: code,
        lift: r#"async (callback (core func $i "again"))"#,
        ..HARMLESS
    }
}

#[test]
fn task_that_ends_without_an_answer_affects_no_other() {
    let guest = Guest {
        items: r#"(memory (export "memory") 1)
            (func (export "again") (param i32 i32 i32) (result i32) (i32.const 0))"#,
        ..task("")
    };
    let runtime = runtime(2);
    let good = super::load(&runtime, "bench-bare", options());
    let bad = guest.load(&runtime);
    let run = || drive(bad.handle(attempt(&["body"], LONG))).remove(0);
    // The engine traps; where it is built with debug assertions it trips over one of its own while
    // it cleans up (wasmtime 48), which the executor catches as it does any panic.
    if let Ok(verdict) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        assert!(!trap(verdict).is_empty());
    }
    assert_eq!(one(&good, "done"), Verdict::Done);
}

#[test]
fn endlessly_yielding_task_is_stopped() {
    let guest = Guest {
        items: r#"(memory (export "memory") 1)
            (func (export "again") (param i32 i32 i32) (result i32) (i32.const 1))"#,
        ..task("(return (i32.const 1))")
    };
    is_stopped(&guest);
}

#[test]
fn task_that_waits_for_nothing_ends_with_its_attempt() {
    let guest = Guest {
        imports: "(core func $new (canon waitable-set.new))",
        granted: r#"(export "new" (func $new))"#,
        items: r#"(import "host" "new" (func $new (result i32))) (memory (export "memory") 1)
            (func (export "again") (param i32 i32 i32) (result i32) unreachable)"#,
        ..task("(return (i32.or (i32.const 2) (i32.shl (call $new) (i32.const 4))))")
    };
    let runtime = runtime(2);
    let plugin = guest.load(&runtime);
    let mut hanging = plugin.handle(attempt(&["body"], LONG));
    let mut context = Context::from_waker(Waker::noop());
    // The engine may see that nothing can ever wake it; else it waits until it is dropped.
    let early = hanging.as_mut().poll(&mut context).is_ready();
    drop(hanging);
    assert_eq!(runtime.instances(), 0, "{early}");
    assert_eq!(
        one(&super::load(&runtime, "bench-bare", options()), ""),
        Verdict::Done
    );
}

#[test]
fn endless_guests_leave_their_thread_to_others() {
    let runtime = runtime(3);
    let good = super::load(&runtime, "bench-bare", options());
    let looping = Guest {
        realloc: "(loop $again (br $again)) i32.const 0",
        ..HARMLESS
    };
    let plugins = [
        looping,
        waiting("(call $block (call $subscribe (i64.const -1)))"),
    ]
    .map(|guest| guest.load(&runtime));
    let mut endless = plugins
        .each_ref()
        .map(|one| one.handle(attempt(&["x"], LONG)));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..3 {
        for one in &mut endless {
            assert!(one.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(one(&good, "done"), Verdict::Done);
    }
}

#[test]
fn memory_held_by_pending_invocations_is_bounded() {
    let settings = super::super::guest::GuestSettings {
        max_memory: 1 << 20,
        ..Default::default()
    };
    let attempt = attempt(&["x"], LONG);
    let guest = super::super::guest::Guest::new(Arc::new(settings), attempt);
    assert!(guest.hold(5 << 20).is_err() && guest.hold(usize::MAX).is_err());
    // None of them brings a payload; each costs us something all the same.
    let held: Vec<_> = std::iter::from_fn(|| guest.hold(0).ok())
        .take(10_000)
        .collect();
    assert_eq!(held.len(), 64);
    drop(held);
    assert!(guest.hold(3 << 20).is_ok());
}
