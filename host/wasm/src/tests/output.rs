//! What a guest prints, as our log has it.

use super::super::output::{MAX_LINE, MAX_LINES};
use super::*;
use serde_json::Value;
use std::io::Write;
use std::sync::Mutex;

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A line of a guest: level, stream, message id, text.
pub(super) type Line = (String, String, String, String);

/// What guests print while `work` runs.
pub(super) fn printed(work: impl FnOnce()) -> Vec<Line> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let events = logged(work).into_iter();
    events
        .filter(|event| event["target"] == "guest")
        .inspect(|event| assert_eq!(event["fields"]["plugin"], "tested"))
        .map(|event| {
            let fields = &event["fields"];
            (
                text(&event["level"]),
                text(&fields["stream"]),
                text(&fields["message_id"]),
                text(&fields["message"]),
            )
        })
        .collect()
}

/// The records that are logged while `work` runs.
fn logged(work: impl FnOnce()) -> Vec<Value> {
    let sink = Sink::default();
    let writer = sink.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, work);
    let bytes = sink.0.lock().unwrap();
    let events = bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let events = events.map(|line| serde_json::from_slice(line).unwrap());
    events.collect()
}

fn line(level: &str, stream: &str, id: &str, text: &str) -> Line {
    (level.into(), stream.into(), id.into(), text.into())
}

#[test]
fn printed_lines_carry_stream_and_message_id() {
    let plugin = verdicts();
    let lines = printed(|| {
        one(&plugin, "print:one\ntwo");
        one(&plugin, "eprint:three");
    });
    assert_eq!(
        lines,
        [
            line("INFO", "stdout", "m0", "one"),
            line("INFO", "stdout", "m0", "two"),
            line("WARN", "stderr", "m0", "three"),
        ]
    );
}

#[test]
fn unfinished_line_is_kept_and_control_characters_are_escaped() {
    let plugin = verdicts();
    // ESC [ 2 J, a byte that is no UTF-8, a line end of Windows, and no end.
    let lines = printed(|| drop(one(&plugin, "print-raw:1b5b324a41ff0d0a42")));
    let texts: Vec<_> = lines.iter().map(|line| line.3.as_str()).collect();
    assert_eq!(texts, ["\\u{1b}[2JA\u{fffd}", "B"]);
}

#[test]
fn panic_is_one_record_with_its_message() {
    let plugin = verdicts();
    let records = logged(|| drop(one(&plugin, "panic:as told")));
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(records[0]["fields"]["message"], "attempt failed");
    let printed = records[0]["fields"]["printed"].as_str().unwrap();
    assert!(printed.contains("harm.rs:") && printed.contains("stderr: as told"));
}

#[test]
fn panic_longer_than_its_record_is_logged_line_by_line() {
    let plugin = verdicts();
    let long = "x".repeat(500);
    let lines = printed(|| drop(one(&plugin, &format!("panic:{long}"))));
    assert_eq!(lines, [line("WARN", "stderr", "m0", &long)]);
    let texts: Vec<_> = (0..9).map(|number| number.to_string()).collect();
    let lines = printed(|| drop(one(&plugin, &format!("panic:{}", texts.join("\n")))));
    for text in texts {
        assert!(lines.iter().any(|line| line.3 == text), "{text}: {lines:?}");
    }
}

#[test]
fn long_line_is_truncated() {
    let plugin = verdicts();
    let lines = printed(|| drop(one(&plugin, &format!("print:{}", "x".repeat(100_000)))));
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].3, format!("{} (cut)", "x".repeat(MAX_LINE)));
}

#[test]
fn flood_of_output_is_throttled() {
    let plugin = verdicts();
    let lines = printed(|| assert_eq!(one(&plugin, "flood:2000000"), Verdict::Done));
    assert_eq!(lines.len() as u64, MAX_LINES + 1);
    let told = &lines.last().unwrap().3;
    let lines = 2_000_000_u64.div_ceil("flood ".len() as u64 * 170 + 1);
    assert!(
        told.starts_with(&format!("dropped {} more lines", lines - MAX_LINES)),
        "{told}"
    );
}

#[test]
fn reused_instance_prints_for_the_current_message() {
    let plugin = load(&runtime(1), "verdicts", reusing(10));
    let named = |id: &str| {
        Arc::new(Attempt {
            messages: vec![message(id, "print-raw:41")],
            cancelled: vec![CancellationToken::new()],
            tries: Vec::new(),
            deadline: Deadline::fixed(clock::now() + LONG, Timestamp(0)),
        })
    };
    let lines = printed(|| {
        drive(plugin.handle(named("first")));
        drive(plugin.handle(named("second")));
    });
    let expected = |id| line("INFO", "stdout", id, "A");
    assert_eq!(lines, [expected("first"), expected("second")]);
}

#[test]
fn batch_output_names_the_first_message_and_the_count() {
    let plugin = load(&runtime(1), "batch-verdicts", options());
    let lines = printed(|| {
        drive(plugin.handle(attempt(&["done", "done", "done"], LONG)));
    });
    assert_eq!(
        lines,
        [line("INFO", "stdout", "m0 and 2 more", "batch of 3")]
    );
}

#[test]
fn output_of_a_shared_instance_has_no_message() {
    // Its driver is polled on this thread, whose log is looked at.
    let drivers = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&drivers);
    let keep: Spawn = Arc::new(move |future| kept.lock().unwrap().push(future));
    let options = RuntimeOptions {
        instances: 1,
        max_memory: MAX_MEMORY,
        cache: None,
        functions: None,
    };
    let runtime = Runtime::start(options, timers(), keep).unwrap();
    let fake = crate::capability::lambda::tests::FakeFunctions::new();
    let plugin = load(&runtime, "commands", super::shared::sharing(10, 1, &fake));
    let lines = printed(|| {
        let running = drive_until_it_waits(plugin.handle(attempt(&["print hello"], LONG)));
        let driver = drivers.lock().unwrap().pop().unwrap();
        let _driver = drive_until_it_waits(driver);
        assert_eq!(drive(running), [Verdict::Done]);
    });
    assert_eq!(lines, [line("INFO", "stdout", "", "hello")]);
}
