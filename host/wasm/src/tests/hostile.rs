//! Guests that mean harm at the boundary: values that are none, strings that are larger than their
//! memory, functions that the host must call and that never return. Each costs its own attempt and
//! nothing else. Here is also how such guests are written.

use super::*;

/// What `handle` is about, as a component spells it.
const TYPES: &str = include_str!("types.wat");

/// The parts of a plugin's text that differ. `handle` begins with nothing in memory but what the
/// host wrote at 1024 and above, and answers `Ok` where it leaves the first bytes alone.
#[derive(Clone, Copy)]
pub(super) struct Guest<'a> {
    /// Imports of the component, and core functions lowered from them.
    pub(super) imports: &'a str,
    /// Those that the core module is given, as `(export "name" (func $name))`.
    pub(super) granted: &'a str,
    /// Items of the core module before its functions.
    pub(super) items: &'a str,
    /// What `realloc` does; its parameters are `$old $size $align $new`.
    pub(super) realloc: &'a str,
    /// What `handle` does before it answers with address 0.
    pub(super) handle: &'a str,
    /// Further options of the lift.
    pub(super) lift: &'a str,
    /// Whether it takes batches.
    pub(super) batch: bool,
}

/// Answers `Ok`.
pub(super) const HARMLESS: Guest<'_> = Guest {
    imports: "",
    granted: "",
    items: r#"(memory (export "memory") 1)"#,
    realloc: "i32.const 1024",
    handle: "",
    lift: "",
    batch: false,
};

impl Guest<'_> {
    pub(super) fn text(&self) -> String {
        let Self {
            imports,
            granted,
            items,
            realloc,
            handle,
            lift,
            batch,
        } = self;
        let (interface, param, flat, ok) = if *batch {
            (
                "batch-handler",
                r#"(param "messages" (list $message))"#,
                "i32 i32",
                "(list $failed)",
            )
        } else {
            ("handler", r#"(param "message" $message)"#, "i32", "")
        };
        let kind = if lift.starts_with("async") {
            "async"
        } else {
            ""
        };
        format!(
            r#"(component {TYPES} {imports}
            (core module $m
                {items}
                (func (export "realloc") (param $old i32) (param $size i32) (param $align i32)
                    (param $new i32) (result i32) {realloc})
                (func $handle (export "handle") (param {flat}) (result i32) {handle} i32.const 0))
            (core instance $host {granted})
            (core instance $i (instantiate $m (with "host" (instance $host))))
            (func $handle {kind} {param} (result (result {ok} (error $failure)))
                (canon lift (core func $i "handle") (memory (core memory $i "memory"))
                    (realloc (core func $i "realloc")) {lift}))
            (instance $handler (export "handle" (func $handle)))
            (export "dispatcher:plugin/{interface}@0.1.0" (instance $handler)))"#
        )
    }

    /// Loaded on this engine.
    pub(super) fn load(&self, runtime: &Runtime) -> LoadedPlugin {
        let bytes = wat::parse_str(self.text()).unwrap();
        runtime.load_bytes("hostile", &bytes, options()).unwrap()
    }

    /// What one attempt at one message comes to, after which a neighbour works as ever and nothing
    /// is left of the attempt.
    #[track_caller]
    pub(super) fn try_for(&self, within: Duration) -> Verdict {
        let runtime = runtime(2);
        let good = super::load(&runtime, "bench-bare", options());
        let bad = self.load(&runtime);
        let verdict = drive(bad.handle(attempt(&["body"], within))).remove(0);
        assert_eq!(runtime.instances(), 0);
        assert_eq!(one(&good, "done"), Verdict::Done);
        verdict
    }

    /// The engine's words about the trap that it must come to.
    #[track_caller]
    pub(super) fn trap(&self) -> String {
        trap(self.try_for(LONG))
    }
}

/// Long enough to begin, and soon over.
pub(super) const SOON: Duration = Duration::from_millis(50);

/// The first bytes of an answer: `Err(reject(string))`, with this string.
fn reject(pointer: u32, length: u32) -> String {
    format!(
        "(i32.store8 (i32.const 0) (i32.const 1)) (i32.store8 (i32.const 8) (i32.const 1))
         (i32.store (i32.const 16) (i32.const {pointer}))
         (i32.store (i32.const 20) (i32.const {length}))"
    )
}

fn answering(handle: &str) -> Guest<'_> {
    Guest { handle, ..HARMLESS }
}

#[test]
fn hostile_test_guest_works_when_harmless() {
    assert_eq!(HARMLESS.try_for(LONG), Verdict::Done);
    let handle = reject(1020, 2);
    let said = answering(&handle).try_for(LONG);
    assert_eq!(said, Verdict::Reject("\0\0".into()));
}

#[test]
fn answer_outside_its_memory_is_a_trap() {
    for (pointer, length) in [
        (0, u32::MAX),
        (u32::MAX, 1),
        (65_535, 2),
        (1 << 31, 1 << 31),
        (u32::MAX, u32::MAX),
    ] {
        let handle = reject(pointer, length);
        let why = answering(&handle).trap();
        assert!(why.contains("out of bounds"), "{pointer} {length}: {why}");
    }
}

#[test]
fn answer_with_an_invalid_value_is_a_trap() {
    let no_utf8 = format!(
        "{} (i32.store8 (i32.const 40) (i32.const 0xff))",
        reject(40, 1)
    );
    let cut_utf8 = format!(
        "{} (i32.store8 (i32.const 40) (i32.const 0xe2))",
        reject(40, 1)
    );
    for handle in [
        // No such case of a result, of a failure, of an option.
        "(i32.store8 (i32.const 0) (i32.const 7))",
        "(i32.store8 (i32.const 0) (i32.const 1)) (i32.store8 (i32.const 8) (i32.const 9))",
        "(i32.store8 (i32.const 0) (i32.const 1)) (i32.store8 (i32.const 16) (i32.const 2))",
        // No answer can be at these addresses.
        "(return (i32.const 4))",
        "(return (i32.const 65528))",
        "(return (i32.const -8))",
        &no_utf8,
        &cut_utf8,
    ] {
        let why = answering(handle).trap();
        assert!(!why.is_empty(), "{handle}");
    }
}

/// Writes a list of so many failures, each of this case, with the id at 1000 and a reason of this
/// length at 1 MiB, and answers with it.
fn failures(count: u32, failure: u32, length: u32) -> String {
    format!(
        "(local $at i32) (local.set $at (i32.const 2048))
         (loop $more
             (i32.store (local.get $at) (i32.const 1000))
             (i32.store offset=4 (local.get $at) (i32.const 5))
             (i32.store8 offset=8 (local.get $at) (i32.const {failure}))
             (i32.store offset=16 (local.get $at) (i32.const 1048576))
             (i32.store offset=20 (local.get $at) (i32.const {length}))
             (local.set $at (i32.add (local.get $at) (i32.const 48)))
             (br_if $more (i32.lt_u (local.get $at) (i32.const {}))))
         (i32.store (i32.const 8) (i32.const 2048))
         (i32.store (i32.const 12) (i32.const {count}))",
        2048 + 48 * count
    )
}

#[test]
fn strings_sharing_guest_memory_do_not_multiply_in_the_host() {
    // A thousand times the same 16 MiB would be 16 GiB here.
    let handle = failures(1_000, 1, 16 << 20);
    let guest = Guest {
        items: r#"(memory (export "memory") 300)"#,
        batch: true,
        ..answering(&handle)
    };
    let why = guest.trap();
    assert!(why.contains("fuel"), "{why}");
}

#[test]
fn list_longer_than_its_memory_is_a_trap() {
    for length in ["-1", "0x7fffffff", "100000"] {
        let handle = format!("(i32.store (i32.const 12) (i32.const {length}))");
        let guest = Guest {
            batch: true,
            ..answering(&handle)
        };
        let why = guest.trap();
        assert!(why.contains("out of bounds"), "{length}: {why}");
    }
}

#[test]
fn reason_is_truncated_before_it_is_copied_to_a_batch() {
    // Err(reject(…)) with 16 MiB of zeros.
    let handle = reject(4 << 20, 16 << 20);
    let plugin = batches(&handle).load(&runtime(1));
    let bodies = vec!["x"; 10_000];
    let verdicts = drive(plugin.handle(attempt(&bodies, LONG)));
    assert_eq!(verdicts.len(), bodies.len());
    for verdict in verdicts {
        let Verdict::Reject(why) = verdict else {
            panic!("{verdict:?}");
        };
        assert!(why.len() < 10_000, "{}", why.len());
        assert!(why.ends_with(" (cut)"));
    }
}

/// With room for a large batch of short messages above 24 MiB, and `m9999` at 1000.
fn batches(handle: &str) -> Guest<'_> {
    Guest {
        items: r#"(memory (export "memory") 512) (data (i32.const 1000) "m9999")
            (global $free (mut i32) (i32.const 25165824))"#,
        realloc: "(global.set $free
                (i32.and (i32.add (global.get $free) (i32.const 15)) (i32.const -16)))
            (global.get $free)
            (global.set $free (i32.add (global.get $free) (local.get $new)))",
        batch: true,
        ..answering(handle)
    }
}

#[test]
fn many_answers_about_one_message_count_once() {
    let handle = failures(100_000, 0, 0);
    let plugin = batches(&handle).load(&runtime(1));
    let bodies = vec!["x"; 10_000];
    let mut verdicts = drive(plugin.handle(attempt(&bodies, LONG)));
    let last = verdicts.pop().unwrap();
    assert_eq!(failure_reason(last), FailureReason::Requested);
    assert!(verdicts.iter().all(|one| *one == Verdict::Done));
}

#[test]
fn result_of_realloc_is_checked() {
    for (realloc, said) in [
        ("i32.const -1", "realloc return"),
        ("i32.const 65530", "realloc return"),
        ("i32.const 1027", "realloc return"),
        ("unreachable", "unreachable"),
    ] {
        let guest = Guest {
            realloc,
            ..HARMLESS
        };
        let why = guest.trap();
        assert!(why.contains(said), "{realloc}: {why}");
    }
}

#[test]
fn endless_allocation_is_stopped() {
    let looping = Guest {
        realloc: "(loop $again (br $again)) i32.const 0",
        ..HARMLESS
    };
    let verdict = looping.try_for(SOON);
    assert!(matches!(
        failure_reason(verdict),
        FailureReason::TimedOut(_)
    ));
    let deep = Guest {
        items: r#"(memory (export "memory") 1)
            (func $dig (param i32) (result i32) (call $dig (local.get 0)))"#,
        realloc: "(call $dig (i32.const 1))",
        ..HARMLESS
    };
    let why = deep.trap();
    assert!(why.starts_with("call stack exhausted in dig"), "{why}");
    let greedy = Guest {
        realloc: "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
            unreachable",
        ..HARMLESS
    };
    let verdict = greedy.try_for(LONG);
    assert_eq!(
        failure_reason(verdict),
        FailureReason::OutOfMemory(MAX_MEMORY)
    );
}

/// `dispatcher:plugin/context`, lowered as `$cancelled`.
const CONTEXT: &str = r#"
    (import "dispatcher:plugin/context@0.1.0" (instance $context
        (export "cancelled" (func (param "message-id" string) (result bool)))))
    (core module $memory (memory (export "memory") 1))
    (core instance $shared (instantiate $memory))
    (core func $cancelled (canon lower (func $context "cancelled")
        (memory (core memory $shared "memory"))))"#;

#[test]
fn guest_cannot_call_the_host_during_realloc() {
    let guest = Guest {
        imports: CONTEXT,
        granted: r#"(export "cancelled" (func $cancelled))"#,
        items: r#"(import "host" "cancelled" (func $cancelled (param i32 i32) (result i32)))
            (memory (export "memory") 1)"#,
        realloc: "(drop (call $cancelled (i32.const 0) (i32.const 1))) i32.const 1024",
        ..HARMLESS
    };
    let why = guest.trap();
    assert!(why.contains("cannot leave component instance"), "{why}");
}

#[test]
fn parameter_outside_its_memory_is_a_trap() {
    for (pointer, length) in [(0, -1), (65_535, 2), (-1, 1)] {
        let handle = format!("(drop (call $cancelled (i32.const {pointer}) (i32.const {length})))");
        let guest = Guest {
            imports: CONTEXT,
            granted: r#"(export "cancelled" (func $cancelled))"#,
            items: r#"(import "host" "cancelled" (func $cancelled (param i32 i32) (result i32)))
                (memory (export "memory") 1)"#,
            ..answering(&handle)
        };
        let why = guest.trap();
        assert!(why.contains("out of bounds"), "{pointer} {length}: {why}");
    }
}
