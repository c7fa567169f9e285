//! Programs that know nothing of messages: what they are given, and what their end says.

use super::super::diagnosis;
use super::super::inspect::{self, Kind};
use super::output::printed;
use super::*;
use dispatcher_core::message::{Attribute, AttributeValue};
use proptest::prelude::*;

/// What the program prints for this message, which it is done with.
fn prints(plugin: &LoadedPlugin, message: Message) -> Vec<String> {
    let lines = printed(|| assert_eq!(given(plugin, message), Verdict::Done));
    lines.into_iter().map(|(_, _, _, text)| text).collect()
}

/// The fixture of WASI 0.2. Compiled once.
fn command() -> LoadedPlugin {
    static PLUGIN: OnceLock<LoadedPlugin> = OnceLock::new();
    let load = || load(&runtime(16), "command", options());
    PLUGIN.get_or_init(load).clone()
}

/// The fixture of WASI 0.3, likewise.
fn async_command() -> LoadedPlugin {
    static PLUGIN: OnceLock<LoadedPlugin> = OnceLock::new();
    let load = || load(&runtime(16), "async-command", options());
    PLUGIN.get_or_init(load).clone()
}

/// A core module of WASI 0.1 with this as its `_start`. It may call `$exit`, `$read` (stdin) and
/// `$write` (stdout), each with what is at 0: an address and a length.
fn module(start: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
            (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (import "wasi_snapshot_preview1" "fd_read"
                (func $fd_read (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_write"
                (func $fd_write (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "environ_sizes_get"
                (func $sizes (param i32 i32) (result i32)))
            (memory (export "memory") 8)
            (func $read (result i32)
                (i32.store (i32.const 0) (i32.const 64))
                (i32.store (i32.const 4) (i32.const 4096))
                (call $exit_if (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
                (i32.load (i32.const 8)))
            (func $write (param $length i32)
                (i32.store (i32.const 4) (local.get $length))
                (call $exit_if (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
            (func $exit_if (param $code i32)
                (if (local.get $code) (then (call $exit (i32.const 99)))))
            (func (export "_start") (local $n i32) {start}))"#
    );
    wat::parse_str(text).unwrap()
}

fn module_loaded(start: &str) -> LoadedPlugin {
    let loaded = runtime(1).load_bytes("module", &module(start), options());
    loaded.unwrap()
}

fn failed(why: &str) -> Verdict {
    retry(FailureReason::Failed(why.into()))
}

#[test]
fn exit_code_of_a_module_is_the_verdict() {
    let rows = [
        ("", Verdict::Done),
        ("(call $exit (i32.const 0))", Verdict::Done),
        (
            "(call $exit (i32.const 75))",
            retry(FailureReason::Requested),
        ),
        ("(call $exit (i32.const 1))", failed("it exited with 1")),
        ("(call $exit (i32.const 65))", failed("it exited with 65")),
        ("(call $exit (i32.const 255))", failed("it exited with 255")),
    ];
    for (start, verdict) in rows {
        assert_eq!(one(&module_loaded(start), ""), verdict, "{start}");
    }
    assert!(trap(one(&module_loaded("unreachable"), "")).contains("unreachable"));
}

#[test]
fn module_reads_its_body_and_prints() {
    let copying = module_loaded(
        "(loop $more
            (local.set $n (call $read))
            (if (local.get $n) (then (call $write (local.get $n)) (br $more))))",
    );
    let body = "one\nzwölf\n".repeat(900);
    let lines: Vec<&str> = body.lines().take(1_000).collect();
    let printed = prints(&copying, message("m0", &body));
    assert_eq!(printed[..lines.len()], lines);
}

/// What adapts a module keeps the environment in its own page, and traps when that is full.
#[test]
fn module_environment_is_limited_to_its_memory() {
    let counting = module_loaded(
        "(call $exit_if (call $sizes (i32.const 16) (i32.const 20)))
        (call $exit (i32.load (i32.const 16)))",
    );
    let variables = |attributes: Vec<Attribute>| {
        let mut message = message("m0", "");
        message.attributes = attributes;
        match failure_reason(given(&counting, message)) {
            FailureReason::Failed(why) => why,
            other => panic!("{other:?}"),
        }
    };
    let long = |name: &str, length| Attribute::text(name, "x".repeat(length));
    // Seven besides.
    assert_eq!(variables(vec![long("a", 30 << 10)]), "it exited with 8");
    assert_eq!(variables(vec![long("a", 33 << 10)]), "it exited with 7");
    let two = vec![long("a", 20 << 10), long("b", 20 << 10), long("c", 1)];
    assert_eq!(variables(two), "it exited with 9");
    let many = (0..10_000).map(|n| long(&format!("n{n}"), 0)).collect();
    assert!(variables(many).starts_with("it exited with"));
}

#[test]
fn exit_code_of_a_component_is_the_verdict() {
    let plugin = command();
    let rows = [
        ("done", Verdict::Done),
        ("exit:0", Verdict::Done),
        ("return:0", Verdict::Done),
        (
            "fail:no",
            failed("Error: Custom { kind: Other, error: \"no\" } (it exited with 1)"),
        ),
        ("until:4", retry(FailureReason::Requested)),
        ("until:3", Verdict::Done),
        ("code:0", Verdict::Done),
        ("code:75", retry(FailureReason::Requested)),
        ("code:3", failed("it exited with 3")),
        // Rust 1.95 tells success from failure, and no more.
        ("exit:75", failed("it exited with 1")),
        ("return:75", failed("it exited with 1")),
    ];
    for (body, verdict) in rows {
        assert_eq!(one(&plugin, body), verdict, "{body}");
    }
    assert!(trap(one(&plugin, "panic:no")).contains("unreachable"));
    assert_eq!(
        one(&plugin, "eat"),
        retry(FailureReason::OutOfMemory(MAX_MEMORY)),
        "whatever it says of it"
    );
}

#[test]
fn exit_code_of_an_async_component_is_the_verdict() {
    let plugin = async_command();
    let rows = [
        ("done", Verdict::Done),
        ("fail", failed("it exited with 1")),
        ("exit:0", Verdict::Done),
        ("exit:75", retry(FailureReason::Requested)),
        ("exit:3", failed("it exited with 3")),
        ("sleep:1", Verdict::Done),
    ];
    for (body, verdict) in rows {
        assert_eq!(one(&plugin, body), verdict, "{body}");
    }
    assert!(trap(one(&plugin, "panic:no")).contains("unreachable"));
    let soon = attempt(&["loop"], Duration::from_millis(20));
    let verdict = drive(plugin.handle(soon)).remove(0);
    assert!(matches!(
        failure_reason(verdict),
        FailureReason::TimedOut(_)
    ));
}

#[test]
fn command_receives_its_message() {
    for plugin in [command(), async_command()] {
        let mut whole = message("an id", "variables");
        whole.attributes = vec![
            Attribute::text("colour", "blue"),
            Attribute::text("trace-id.v2", "é\n2"),
            Attribute::text("Colour", "red"),
            Attribute::text("nothing", "a\0b"),
            Attribute {
                name: "picture".into(),
                data_type: "Binary".into(),
                value: AttributeValue::Binary(vec![1, 2]),
            },
        ];
        assert_eq!(
            prints(&plugin, whole),
            [
                "DISPATCHER_ATTRIBUTE_COLOUR=blue",
                "DISPATCHER_ATTRIBUTE_TRACE_ID_V2=é",
                "2",
                "DISPATCHER_DEADLINE_MS=123456789",
                "DISPATCHER_GROUP=a group",
                "DISPATCHER_MESSAGE_ID=an id",
                "DISPATCHER_QUEUE=local:default",
                "DISPATCHER_RECEIVE_COUNT=3",
                "DISPATCHER_SENT_AT_MS=1000",
                "GREETING=hello",
            ]
        );
    }
    assert_eq!(
        prints(&command(), message("m0", "arguments")),
        [r#"["tested"]"#]
    );
}

#[test]
fn body_arrives_whole_and_may_stay_unread() {
    let body = format!("\0\r\n{}\u{feff}é", "\u{ff}".repeat(512 << 10));
    let sum: u64 = body.bytes().map(u64::from).sum();
    let wanted = format!("read {} bytes, the sum is {sum}", body.len());
    for plugin in [command(), async_command()] {
        assert_eq!(prints(&plugin, message("m0", &body)), [wanted.as_str()]);
    }
    let mut unread = message("m0", &body);
    unread.attributes = vec![Attribute::text("verb", "print:unread")];
    assert_eq!(prints(&command(), unread), ["unread"]);
}

#[test]
fn command_has_the_same_sandbox_as_a_handler() {
    let plugin = command();
    let told = |body: &str| prints(&plugin, message("m0", body)).concat();
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(told(&format!("read:{}", file.path().display())).starts_with("Err("));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    assert!(told(&format!("connect:{address}")).starts_with("Err("));
    assert_eq!(prints(&plugin, message("m0", "flood:2000")).len(), 1_001);
    let soon = attempt(&["loop"], Duration::from_millis(20));
    let verdict = drive(plugin.handle(soon)).remove(0);
    assert!(matches!(
        failure_reason(verdict),
        FailureReason::TimedOut(_)
    ));
}

#[test]
fn denials_of_wasi_0_3_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("menu"), "soup").unwrap();
    let (refused, count) = counting();
    let plugin = |peers: &[&str]| {
        let granted = PluginOptions {
            refused: count.clone(),
            ..granting(|grants| {
                grants.folder = Some(folder.path().to_owned());
                grants.peers = peers.iter().map(|peer| peer.parse().unwrap()).collect();
            })
        };
        load(&runtime(2), "async-command", granted)
    };
    let shut = plugin(&[]);
    let told = |plugin: &LoadedPlugin, body: &str| prints(plugin, message("m0", body)).concat();
    assert_eq!(told(&shut, "read:menu"), "Ok(())");
    assert_eq!(refused.load(Ordering::SeqCst), 0);
    let tries = [
        "socket:tcp",
        "socket:udp",
        "resolve:localhost",
        "write:new",
        "make:new",
        "remove:menu",
        "drop:menu",
        "link:new",
        "rename:menu",
    ];
    for (number, body) in tries.into_iter().enumerate() {
        let says = told(&shut, body);
        assert!(says.starts_with("Err("), "{body}: {says}");
        assert_eq!(refused.load(Ordering::SeqCst), number + 1, "{body}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .flatten()
        .collect();
    assert_eq!((left.len(), left[0].file_name()), (1, "menu".into()));
    assert!(told(&plugin(&["192.0.2.7:7000"]), "socket:tcp").starts_with("Ok("));
}

#[test]
fn command_starts_fresh_for_every_message() {
    let many = PluginOptions {
        instance_concurrency: 2,
        ..options()
    };
    for wrong in [reusing(2), many] {
        for name in ["command", "async-command"] {
            let error = runtime(2).load(&prebuilt(name), wrong.clone()).unwrap_err();
            let told = error.to_string();
            assert!(told.contains("a command starts fresh"), "{told}");
        }
    }
}

#[test]
fn command_kinds_are_detected() {
    let look = |bytes: &[u8]| inspect::bytes(bytes);
    let p1 = look(&module(""));
    assert_eq!((p1.kind, p1.problems), (Kind::CommandModule, Vec::new()));
    assert_eq!(p1.kind.to_string(), "a WASI command (p1 module)");
    let file = |name: &str| inspect::file(&prebuilt(name)).unwrap();
    let p2 = file("command");
    assert_eq!((p2.kind, p2.problems), (Kind::Command, Vec::new()));
    let p3 = file("async-command");
    assert_eq!((p3.kind, p3.problems), (Kind::AsyncCommand, Vec::new()));
}

#[test]
fn module_without_start_is_refused_in_one_line() {
    let valid = |text: &str| wat::parse_str(text).unwrap();
    let damaged = b"\0asm\x01\0\0\0\x0a\x04\x01".to_vec();
    let rows = [
        (valid(r#"(module (func (export "handle")))"#), "no `_start`"),
        (
            valid(r#"(module (import "env" "gone" (func)) (func (export "_start")))"#),
            "gone",
        ),
        (damaged, "not a valid module"),
    ];
    for (bytes, part) in rows {
        let problem = diagnosis::component_of(&bytes).unwrap_err().to_string();
        assert!(problem.contains("core module"), "{problem}");
        assert!(
            problem.contains(part) && !problem.contains('\n'),
            "{problem}"
        );
    }
}

proptest! {
    /// It becomes a component or is refused in one line, wherever its bytes are wrong.
    #[test]
    fn damaged_module_is_wrapped_or_refused_in_one_line(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = module("(call $exit (i32.const 3))");
        for (at, byte) in damage {
            // What is before tells that it is a module.
            let at = 8 + at.index(bytes.len() - 8);
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(8 + cut.index(bytes.len() - 8));
        }
        if let Err(problem) = diagnosis::component_of(&bytes) {
            prop_assert!(!problem.to_string().contains('\n'));
        }
    }
}

/// A component whose `run` has another type.
#[test]
fn run_export_of_another_type_is_refused() {
    let text = r#"(component
        (core module $m (func (export "run") (result i32) i32.const 0))
        (core instance $i (instantiate $m))
        (func $run (result u32) (canon lift (core func $i "run")))
        (instance $handler (export "run" (func $run)))
        (export "wasi:cli/run@0.2.4" (instance $handler)))"#;
    let told = load_text(text).unwrap_err().to_string();
    assert!(
        told.contains("another type") && told.contains("run"),
        "{told}"
    );
}
