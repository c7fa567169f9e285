//! Every answer of a handler, and every way not to answer, as the verdict that the queue is told.

use super::*;
use dispatcher_core::message::{Attribute, AttributeValue};

fn requested_retry(after: Option<u64>) -> Verdict {
    Verdict::Retry {
        after: after.map(Duration::from_millis),
        why: FailureReason::Requested,
    }
}

#[test]
fn handler_returns_every_verdict() {
    let plugin = verdicts();
    assert_eq!(plugin.batch(), 1);
    assert_eq!(one(&plugin, "done"), Verdict::Done);
    assert_eq!(one(&plugin, "retry"), requested_retry(None));
    assert_eq!(one(&plugin, "retry:1500"), requested_retry(Some(1500)));
    assert_eq!(
        one(&plugin, "reject:no good"),
        Verdict::Reject("no good".into())
    );
}

#[test]
fn message_arrives_with_all_fields() {
    let plugin = verdicts();
    let mut whole = message("an id", "echo-message");
    whole.attributes = vec![
        Attribute::text("colour", "blue"),
        Attribute {
            name: "picture".into(),
            data_type: "Binary.png".into(),
            value: AttributeValue::Binary(vec![1, 2, 255]),
        },
    ];
    whole.body_md5 = Some("digest-of-body".into());
    let attempt = Arc::new(Attempt {
        messages: vec![whole],
        cancelled: vec![CancellationToken::new()],
        tries: Vec::new(),
        deadline: Deadline::fixed(clock::now() + LONG, Timestamp(123_456_789)),
    });
    let verdicts = drive(plugin.handle(attempt));
    let [Verdict::Reject(seen)] = verdicts.as_slice() else {
        panic!("{verdicts:?}");
    };
    for part in [
        "an id",
        "echo-message",
        "local:default",
        "receipt",
        "123456789",
        "1000",
        "a group",
        "SenderId",
        "me",
        "colour",
        "blue",
        "picture",
        "Binary.png",
        "255",
        "digest-of-body",
    ] {
        assert!(seen.contains(part), "{part} in {seen}");
    }
}

#[test]
fn large_body_round_trips_and_is_truncated_as_a_reason() {
    let body = "é".repeat(512 << 10);
    let echo = format!("echo:{body}");
    let cut = format!("{} (cut)", &body[..super::super::limits::REASON]);
    assert!(rejection(&verdicts(), &echo) == cut);
}

#[test]
fn failing_guest_is_a_retry_with_the_reason() {
    let plugin = verdicts();
    let why = trap(one(&plugin, "panic:as told"));
    assert!(why.contains("unreachable"), "{why}");
    let why = trap(one(&plugin, "trap"));
    assert!(
        why.contains("unreachable") && why.contains(" in verdicts::obey"),
        "{why}"
    );
    let why = trap(one(&plugin, "stack"));
    // Rust keeps its own stack in the memory, and that one ends first.
    assert!(why.contains("out of bounds memory access"), "{why}");
    for status in [0, 1] {
        let why = trap(one(&plugin, &format!("exit:{status}")));
        assert_eq!(
            why,
            format!("the handler called exit({status}) instead of returning")
        );
    }
    assert_eq!(one(&plugin, "done"), Verdict::Done);
}

/// A handler whose `handle` begins with `code`, a call of `$dig` that never ends for one.
fn handler_of(code: &str) -> String {
    let guest = hostile::Guest {
        items: r#"(memory (export "memory") 1) (func $dig call $dig)"#,
        handle: code,
        ..hostile::HARMLESS
    };
    guest.text()
}

#[test]
fn stack_overflow_is_a_trap() {
    let plugin = load_text(&handler_of("")).unwrap();
    assert_eq!(one(&plugin, ""), Verdict::Done);
    let plugin = load_text(&handler_of("call $dig")).unwrap();
    let why = trap(one(&plugin, ""));
    assert!(why.starts_with("call stack exhausted in dig × "), "{why}");
}

#[test]
fn batch_for_a_single_message_handler_fails() {
    let verdicts = drive(verdicts().handle(attempt(&["done", "done"], LONG)));
    assert_eq!(verdicts.len(), 2);
    for verdict in verdicts {
        assert!(matches!(failure_reason(verdict), FailureReason::Host(_)));
    }
}

fn batch(bodies: &[&str]) -> Vec<Verdict> {
    static PLUGIN: OnceLock<LoadedPlugin> = OnceLock::new();
    let plugin = PLUGIN.get_or_init(|| super::load(&runtime(8), "batch-verdicts", options()));
    assert_eq!(plugin.batch(), 10_000);
    let mut attempt = Arc::into_inner(attempt(bodies, LONG)).unwrap();
    // In no group: of one, what follows a failure is not run.
    for message in &mut attempt.messages {
        message.group = None;
    }
    drive(plugin.handle(Arc::new(attempt)))
}

#[test]
fn batch_lists_failed_messages() {
    let reject = |why: &str| Verdict::Reject(why.into());
    assert_eq!(batch(&["done"; 10]), vec![Verdict::Done; 10]);
    assert_eq!(
        batch(&["done", "retry", "retry:7", "reject:bad", "done"]),
        [
            Verdict::Done,
            requested_retry(None),
            requested_retry(Some(7)),
            reject("bad"),
            Verdict::Done
        ]
    );
    assert_eq!(batch(&[]), []);
}

#[test]
fn batch_can_fail_as_a_whole() {
    assert_eq!(batch(&["done", "fail-all"]), vec![requested_retry(None); 2]);
    assert_eq!(
        batch(&["done", "fail-all-later"]),
        vec![requested_retry(Some(1000)); 2]
    );
    assert_eq!(
        batch(&["done", "reject-all"]),
        vec![Verdict::Reject("all of it".into()); 2]
    );
    for verdict in batch(&["done", "panic"]) {
        assert!(trap(verdict).contains("unreachable"));
    }
}

#[test]
fn unknown_id_fails_the_batch_and_a_duplicate_does_not() {
    let verdicts = batch(&["done", "unknown-id"]);
    assert_eq!(verdicts.len(), 2);
    for verdict in verdicts {
        let why = trap(verdict);
        assert!(why.contains("an id of no message"), "{why}");
    }
    assert_eq!(
        batch(&["done", "twice"]),
        [Verdict::Done, Verdict::Reject("named".into())]
    );
}

#[test]
fn many_attempts_run_concurrently() {
    let plugin = verdicts();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let plugin = &plugin;
            scope.spawn(move || {
                for turn in 0..40 {
                    let word = format!("{thread} {turn}");
                    assert_eq!(rejection(plugin, &format!("echo:{word}")), word);
                }
            });
        }
    });
}
