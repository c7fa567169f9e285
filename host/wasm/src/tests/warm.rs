//! Instances that are made ahead: as many as are wanted, never at the cost of an attempt, and never
//! again and again where that fails.

use super::hostile::{Guest, HARMLESS};
use super::output::printed;
use super::*;
use crate::capability::caller::Caller;
use crate::warm::Warm;
use dispatcher_core::handler::Usage;
use std::pin::Pin;
use std::sync::Mutex;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a runtime has spawned and nobody has run yet.
#[derive(Clone, Default)]
struct Makers(Arc<Mutex<Vec<Work>>>);

impl Makers {
    fn runtime(&self, instances: usize) -> Runtime {
        let options = RuntimeOptions {
            instances,
            max_memory: MAX_MEMORY,
            cache: None,
            functions: None,
        };
        let kept = Arc::clone(&self.0);
        let keep: Spawn = Arc::new(move |work| kept.lock().unwrap().push(work));
        Runtime::start(options, timers(), keep).unwrap()
    }

    fn next(&self) -> Option<Work> {
        self.0.lock().unwrap().pop()
    }

    /// Runs all there are. How many that were.
    fn run(&self) -> usize {
        let mut count = 0;
        while let Some(work) = self.next() {
            drive(work);
            count += 1;
        }
        count
    }
}

fn ahead(count: usize, options: PluginOptions) -> PluginOptions {
    let warm = Warm {
        count: Some(count),
        of_heavy: 0,
        patience: LONG,
    };
    PluginOptions { warm, ..options }
}

#[test]
fn message_gets_a_warm_instance() {
    let makers = Makers::default();
    let runtime = makers.runtime(4);
    let plugin = load(&runtime, "count", ahead(2, options()));
    assert_eq!(makers.run(), 1);
    assert_eq!((runtime.instances(), plugin.usage().idle), (2, 2));
    for _ in 0..5 {
        assert_eq!(rejection(&plugin, ""), "1");
        assert_eq!(plugin.usage().idle, 1, "one was taken, and used once");
        assert_eq!(makers.run(), 1, "one maker, however many ask");
        assert_eq!(plugin.usage().idle, 2);
    }
    drop(plugin);
    assert_eq!(runtime.instances(), 0);
}

#[test]
fn reused_instances_are_preferred_to_warm_ones() {
    let makers = Makers::default();
    let runtime = makers.runtime(4);
    let plugin = load(&runtime, "count", ahead(1, reusing(3)));
    makers.run();
    let counts = (0..4).map(|_| {
        makers.run();
        rejection(&plugin, "")
    });
    assert_eq!(counts.collect::<Vec<_>>(), ["1", "2", "3", "1"]);
}

#[test]
fn warm_instances_make_room_for_attempts() {
    let makers = Makers::default();
    let runtime = makers.runtime(2);
    let warm = load(&runtime, "verdicts", ahead(2, options()));
    let other = load(&runtime, "verdicts", options());
    makers.run();
    assert_eq!(warm.usage().idle, 2);
    let sleep = || drive_until_it_waits(other.handle(attempt(&["sleep:3600000"], LONG)));
    let first = sleep();
    assert_eq!(warm.usage().idle, 1, "one made room");
    let second = sleep();
    assert_eq!(warm.usage().idle, 0);
    // No room, and then somebody waits for what comes free.
    let waiting = drive_until_it_waits(warm.handle(attempt(&["done"], LONG)));
    makers.run();
    assert_eq!((warm.usage().running, warm.usage().idle), (0, 0));
    let next = drive_until_it_waits(warm.handle(attempt(&["done"], LONG)));
    assert_eq!(makers.run(), 0, "nobody is asked for more while they wait");
    drop(next);
    drop(first);
    makers.run();
    assert_eq!(warm.usage().idle, 0, "it is for the one that waits");
    assert_eq!(drive(waiting), [Verdict::Done]);
    assert_eq!(makers.run(), 1, "and now there is room");
    assert_eq!(warm.usage().idle, 1);
    drop(second);
}

#[test]
fn commands_and_shared_instances_are_not_prewarmed() {
    let makers = Makers::default();
    let runtime = makers.runtime(4);
    let fake = crate::capability::lambda::tests::FakeFunctions::new();
    let shared = ahead(2, super::shared::sharing(10, 1, &fake));
    let _shared = load(&runtime, "commands", shared);
    let command = std::fs::read(prebuilt("command")).unwrap();
    let command = padded(command);
    let refused = runtime.load_bytes("command", &command, ahead(2, options()));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("omit warm"), "{refused}");
    // Nothing said, its size does not count.
    let warm = Warm {
        of_heavy: 2,
        ..Warm::default()
    };
    let options = PluginOptions { warm, ..options() };
    let _command = runtime.load_bytes("command", &command, options).unwrap();
    assert_eq!(makers.run(), 0);
}

/// The same component, a mebibyte larger.
fn padded(mut component: Vec<u8>) -> Vec<u8> {
    // A custom section: its id, its length in seven bits a byte, a name of one byte, and zeros.
    component.extend([0, 0x82, 0x80, 0x40, 1, b'x']);
    component.resize(component.len() + (1 << 20), 0);
    component
}

#[test]
fn only_large_components_are_prewarmed_by_default() {
    let makers = Makers::default();
    let runtime = makers.runtime(4);
    let warm = Warm {
        count: None,
        of_heavy: 2,
        patience: LONG,
    };
    let unasked = PluginOptions { warm, ..options() };
    let light = std::fs::read(prebuilt("count")).unwrap();
    let heavy = padded(light.clone());
    for (bytes, options, wanted) in [
        (&light, unasked.clone(), 0),
        (&heavy, unasked, 2),
        (&heavy, ahead(0, options()), 0),
    ] {
        let plugin = runtime.load_bytes("padded", bytes, options).unwrap();
        makers.run();
        assert_eq!(plugin.usage().idle, wanted);
    }
}

#[test]
fn prewarming_ends_with_its_plugin() {
    let makers = Makers::default();
    let runtime = makers.runtime(4);
    let plugin = load(&runtime, "count", ahead(2, options()));
    drop(plugin);
    assert_eq!(makers.run(), 1);
    assert_eq!(runtime.instances(), 0);
    // One that nobody runs is asked for again.
    let plugin = load(&runtime, "count", ahead(1, options()));
    drop(makers.next());
    assert_eq!(rejection(&plugin, ""), "1");
    assert!(makers.run() >= 1);
    assert_eq!(plugin.usage().idle, 1);
}

/// A plugin whose instances begin with this, of which one is wanted ahead.
fn beginning(guest: Guest<'_>, runtime: &Runtime, patience: Duration) -> LoadedPlugin {
    let bytes = wat::parse_str(guest.text()).unwrap();
    let options = ahead(1, options());
    let warm = Warm {
        patience,
        ..options.warm
    };
    let options = PluginOptions { warm, ..options };
    runtime.load_bytes("beginning", &bytes, options).unwrap()
}

#[test]
fn output_while_prewarming_has_no_message() {
    // Its memory is there before it is, so that it can print at its start.
    let guest = Guest {
        imports: r#"
            (import "wasi:io/error@0.2.0" (instance $e (export "error" (type (sub resource)))))
            (alias export $e "error" (type $error))
            (import "wasi:io/streams@0.2.0" (instance $s
                (export "output-stream" (type $stream (sub resource)))
                (type $why (variant (case "last-operation-failed" (own $error)) (case "closed")))
                (export "stream-error" (type $failed (eq $why)))
                (export "[method]output-stream.blocking-write-and-flush" (func
                    (param "self" (borrow $stream)) (param "contents" (list u8))
                    (result (result (error $failed)))))))
            (alias export $s "output-stream" (type $stream))
            (import "wasi:cli/stdout@0.2.0" (instance $o
                (export "get-stdout" (func (result (own $stream))))))
            (core module $memory (memory (export "memory") 1))
            (core instance $memory (instantiate $memory))
            (core func $stdout (canon lower (func $o "get-stdout")))
            (core func $write (canon lower
                (func $s "[method]output-stream.blocking-write-and-flush")
                (memory (core memory $memory "memory"))))"#,
        granted: r#"(export "memory" (memory $memory "memory"))
            (export "stdout" (func $stdout)) (export "write" (func $write))"#,
        items: r#"(import "host" "memory" (memory 1)) (export "memory" (memory 0))
            (import "host" "stdout" (func $stdout (result i32)))
            (import "host" "write" (func $write (param i32 i32 i32 i32)))
            (data (i32.const 256) "made")
            (func $begin
                (call $write (call $stdout) (i32.const 256) (i32.const 4) (i32.const 512)))
            (start $begin)"#,
        ..HARMLESS
    };
    let makers = Makers::default();
    let runtime = makers.runtime(2);
    let plugin = beginning(guest, &runtime, LONG);
    let text = |text: &str| text.to_owned();
    let ahead = printed(|| assert_eq!(makers.run(), 1));
    assert_eq!(
        ahead,
        [(text("INFO"), text("stdout"), text(""), text("made"))]
    );
    let taken = printed(|| assert_eq!(one(&plugin, "x"), Verdict::Done));
    assert_eq!(taken, []);
    let own = printed(|| assert_eq!(one(&plugin, "x"), Verdict::Done));
    assert_eq!(
        own,
        [(text("INFO"), text("stdout"), text("m0"), text("made"))]
    );
}

#[test]
fn failing_or_endless_prewarm_is_abandoned() {
    let with =
        |body: &str| format!(r#"(memory (export "memory") 1) (func $begin {body}) (start $begin)"#);
    let soon = Duration::from_millis(20);
    for body in ["(loop $again (br $again))", "unreachable"] {
        let makers = Makers::default();
        let runtime = makers.runtime(2);
        let items = with(body);
        let guest = Guest {
            items: &items,
            ..HARMLESS
        };
        let plugin = beginning(guest, &runtime, soon);
        assert_eq!(makers.run(), 1, "it tries once");
        assert_eq!(plugin.usage(), Usage::default());
        // A message has its own instance, and learns why there is none.
        let attempt = attempt(&["x"], soon);
        failure_reason(drive(plugin.handle(attempt)).remove(0));
        assert_eq!(runtime.instances(), 0);
    }
}

#[test]
fn prewarm_that_waits_forever_is_abandoned() {
    let waiting = super::hostile_resources::waiting("");
    let items = format!(
        "{} (func $begin (call $block (call $subscribe (i64.const -1)))) (start $begin)",
        waiting.items
    );
    let guest = Guest {
        items: &items,
        ..waiting
    };
    let makers = Makers::default();
    let runtime = makers.runtime(2);
    let plugin = beginning(guest, &runtime, Duration::from_millis(20));
    assert_eq!(makers.run(), 1);
    assert_eq!((runtime.instances(), plugin.usage()), (0, Usage::default()));
}

#[test]
fn prewarming_instance_cannot_use_capabilities() {
    let settings = Arc::new(crate::guest::GuestSettings {
        max_memory: 1 << 20,
        ..Default::default()
    });
    let mut guest = crate::guest::Guest::ahead(settings, clock::now() + LONG);
    assert!(guest.hold(0).is_err());
    assert!(guest.is_message_cancelled("m0") && !guest.is_cancelled());
    guest.begin(attempt(&["x"], LONG));
    assert!(guest.hold(0).is_ok());
    assert!(!guest.is_message_cancelled("m0"));
}
