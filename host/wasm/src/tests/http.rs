//! HTTP handlers that know nothing of messages: what they are asked, and what their answer says.

use super::super::inspect::{self, Kind};
use super::output::printed;
use super::*;
use dispatcher_core::message::{Attribute, AttributeValue};

/// The fixtures that answer as the body says, of WASI 0.2 and 0.3. Compiled once.
fn handlers() -> [LoadedPlugin; 2] {
    static PLUGINS: OnceLock<[LoadedPlugin; 2]> = OnceLock::new();
    let load = || NAMES.map(|name| load(&runtime(16), name, options()));
    PLUGINS.get_or_init(load).clone()
}

const NAMES: [&str; 2] = ["http-handler", "async-http-handler"];

/// The one of WASI 0.2.
fn handler() -> LoadedPlugin {
    let [handler, _] = handlers();
    handler
}

fn failed(why: &str) -> Verdict {
    retry(FailureReason::Failed(why.into()))
}

fn requested_retry(after: Option<Duration>, why: &str) -> Verdict {
    let why = FailureReason::RequestedWith(why.into());
    Verdict::Retry { after, why }
}

#[test]
fn http_status_is_the_verdict() {
    let reject = |why: &str| Verdict::Reject(why.into());
    let rows = [
        ("200", Verdict::Done),
        ("204", Verdict::Done),
        ("299:whatever", Verdict::Done),
        ("400", reject("400 Bad Request")),
        (
            "404: no such order\n",
            reject("404 Not Found: no such order"),
        ),
        ("499:x", reject("499 <unknown status code>: x")),
        ("408:slow", failed("it answered 408 Request Timeout: slow")),
        (
            "500:db",
            failed("it answered 500 Internal Server Error: db"),
        ),
        ("502", failed("it answered 502 Bad Gateway")),
        (
            "302:over there",
            failed("it answered 302 Found: over there"),
        ),
        ("100", failed("it answered 100 Continue")),
        (
            "429:slowly",
            requested_retry(None, "429 Too Many Requests: slowly"),
        ),
        ("503", requested_retry(None, "503 Service Unavailable")),
    ];
    for plugin in handlers() {
        for (body, verdict) in &rows {
            assert_eq!(one(&plugin, body), *verdict, "{body}");
        }
    }
}

#[test]
fn retry_after_delays_the_retry() {
    for plugin in handlers() {
        times_to_come_again(&plugin);
    }
}

fn times_to_come_again(plugin: &LoadedPlugin) {
    let after = |body: &str| match one(plugin, &format!("after:{body}")) {
        Verdict::Retry { after, .. } => after,
        other => panic!("{other:?}"),
    };
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(after("503 7"), seconds(7));
    // No time at all is by policy: a clock that is ahead must not use up all tries at once.
    assert_eq!(after("429 0"), None);
    assert_eq!(after("503 soon"), None);
    assert_eq!(after("503 -1"), None);
    assert_eq!(after("503 Sun, 06 Nov 1994 08:49:37 GMT"), None);
    let far = after("503 Fri, 31 Dec 9999 23:59:59 GMT").unwrap();
    assert!(far > Duration::from_secs(1 << 35), "{far:?}");
    // Of other answers it is nobody's business.
    assert_eq!(after("500 7"), None);
}

#[test]
fn message_becomes_a_post_with_headers() {
    for plugin in handlers() {
        assert_eq!(
            rejection(&plugin, "line"),
            r#"400 Bad Request: Method::Post Some(Scheme::Http) Some("localhost") Some("/")"#
        );
        has_headers(&plugin);
    }
}

fn has_headers(plugin: &LoadedPlugin) {
    let mut whole = message("an id", "headers");
    whole.attributes = vec![
        Attribute::text("Content-Type", "application/json"),
        Attribute::text("colour", "blüe"),
        Attribute::text("Colour", "red"),
        Attribute::text("two words", "left out"),
        Attribute::text("lines", "left\r\nout"),
        Attribute {
            name: "picture".into(),
            data_type: "Binary".into(),
            value: AttributeValue::Binary(b"left out".to_vec()),
        },
    ];
    let lines = printed(|| drop(given(plugin, whole)));
    let lines: Vec<_> = lines.into_iter().map(|(_, _, _, text)| text).collect();
    assert_eq!(
        lines,
        [
            "content-length: 7",
            "content-type: application/json",
            "dispatcher-attribute-colour: blüe",
            "dispatcher-attribute-colour: red",
            "dispatcher-attribute-content-type: application/json",
            "dispatcher-deadline-ms: 123456789",
            "dispatcher-group: a group",
            "dispatcher-message-id: an id",
            "dispatcher-queue: local:default",
            "dispatcher-receive-count: 3",
            "dispatcher-sent-at-ms: 1000",
        ]
    );
    let bare = printed(|| drop(one(plugin, "headers")));
    assert!(
        bare.iter()
            .any(|line| line.3 == "content-type: application/octet-stream")
    );
}

#[test]
fn http_body_arrives_whole() {
    let body = format!("\0\r\n{}\u{feff}é", "\u{ff}".repeat(512 << 10));
    let sum: u64 = body.bytes().map(u64::from).sum();
    let wanted = format!("read {} bytes, the sum is {sum}", body.len());
    for plugin in handlers() {
        let lines = printed(|| assert_eq!(one(&plugin, &body), Verdict::Done));
        assert_eq!(lines[0].3, wanted);
    }
}

#[test]
fn long_response_is_truncated_in_the_reason() {
    let long = format!("it answered 500 Internal Server Error: {}", "x".repeat(200));
    for plugin in handlers() {
        assert_eq!(one(&plugin, "bytes:10000000"), failed(&long));
        // Nothing that steers a terminal, nothing that is no text.
        let told = "it answered 500 Internal Server Error: \\u{1b}[2J\u{fffd}";
        assert_eq!(one(&plugin, "odd"), failed(told));
    }
}

#[test]
fn missing_response_is_a_failure() {
    let plugin = handler();
    let nothing = failed("it returned without a response");
    assert_eq!(one(&plugin, "silent"), nothing);
    assert_eq!(one(&plugin, "keep"), nothing);
    for plugin in handlers() {
        let FailureReason::Failed(why) = failure_reason(one(&plugin, "error:out of order")) else {
            panic!();
        };
        assert!(
            why.starts_with("it returned an error") && why.contains("out of order"),
            "{why}"
        );
        assert!(trap(one(&plugin, "panic:no")).contains("unreachable"));
        assert!(trap(one(&plugin, "exit:3")).contains("exit"));
    }
}

#[test]
fn attempt_ends_when_the_http_handler_returns() {
    let plugin = handler();
    let lines = printed(|| assert_eq!(one(&plugin, "print-later:done"), Verdict::Done));
    assert_eq!(lines[0].3, "done");
    assert!(trap(one(&plugin, "panic-later:no")).contains("unreachable"));
    // It keeps its answer open forever, and nothing waits for it.
    assert_eq!(one(&plugin, "open:200"), Verdict::Done);
    let half = Verdict::Reject("400 Bad Request: half of it".into());
    assert_eq!(one(&plugin, "open:400"), half);
    let soon = attempt(&["loop"], Duration::from_millis(20));
    let verdict = drive(plugin.handle(soon)).remove(0);
    assert!(matches!(
        failure_reason(verdict),
        FailureReason::TimedOut(_)
    ));
}

#[test]
fn truncated_response_body_is_no_success() {
    for plugin in handlers() {
        let FailureReason::Failed(why) = failure_reason(one(&plugin, "break:no more")) else {
            panic!();
        };
        let start = "it answered 200 OK, and its body broke off: ";
        assert!(why.starts_with(start), "{why}");
    }
    let [_, plugin] = handlers();
    let why = failure_reason(one(&plugin, "break:no more")).to_string();
    assert!(why.contains("no more"), "{why}");
}

/// As long as their handles live they are in our memory.
#[test]
fn request_parts_fit_the_limits_of_servers() {
    for plugin in handlers() {
        let set = |letters: usize| rejection(&plugin, &format!("words:{letters}"));
        // A scheme has its own end.
        assert_eq!(set(8192), "400 Bad Request: [true, false, true, true]");
        assert_eq!(set(8193), "400 Bad Request: [false, false, false, false]");
    }
}

/// One of WASI 0.3 has returned before its answer's body is written.
#[test]
fn attempt_of_an_async_http_handler_ends_with_its_response() {
    let [_, plugin] = handlers();
    let lines = printed(|| assert_eq!(one(&plugin, "print-later:done"), Verdict::Done));
    assert_eq!(lines[0].3, "done");
    assert!(trap(one(&plugin, "panic-later:no")).contains("unreachable"));
    assert_eq!(one(&plugin, "sleep:1"), Verdict::Done);
    // What continues after its answer is waited for, and counts.
    let lines = printed(|| assert_eq!(one(&plugin, "go-on:after all"), Verdict::Done));
    assert_eq!(lines[0].3, "after all");
    assert!(trap(one(&plugin, "go-on:panic")).contains("unreachable"));
    // Whoever waits for it gives it up when its time is over.
    for endless in ["open:200", "sleep:60000"] {
        drop(drive_until_it_waits(Box::pin(
            plugin.handle(attempt(&[endless], LONG)),
        )));
    }
    let soon = attempt(&["loop"], Duration::from_millis(20));
    let why = failure_reason(drive(plugin.handle(soon)).remove(0));
    assert!(matches!(why, FailureReason::TimedOut(_)), "{why}");
}

#[test]
fn http_handler_instance_is_reused_on_request_and_never_shared() {
    let runtime = runtime(2);
    for name in NAMES {
        let plugin = load(&runtime, name, reusing(3));
        let counts: Vec<_> = (0..4).map(|_| rejection(&plugin, "count")).collect();
        let wanted = ["1", "2", "3", "1"].map(|count| format!("400 Bad Request: {count}"));
        assert_eq!(counts, wanted);
        drop(plugin);
        let many = PluginOptions {
            instance_concurrency: 2,
            ..options()
        };
        let error = runtime.load(&prebuilt(name), many).unwrap_err();
        let told = error.to_string();
        assert!(told.contains("one at a time"), "{told}");
    }
}

#[test]
fn outbound_request_of_an_http_handler_is_denied_and_counted() {
    for name in NAMES {
        let (refused, count) = counting();
        let counted = PluginOptions {
            refused: count,
            ..options()
        };
        let told = rejection(&load(&runtime(1), name, counted), "fetch:127.0.0.1:1");
        assert!(told.contains("HttpRequestDenied"), "{told}");
        assert_eq!(refused.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn http_handles_are_bounded() {
    for plugin in handlers() {
        let why = trap(one(&plugin, "hoard"));
        assert!(why.contains("resource table"), "{why}");
    }
}

#[test]
fn http_handler_is_detected_by_its_export() {
    let kinds = [
        (Kind::HttpHandler, "a wasi:http handler (p2 component)"),
        (Kind::AsyncHttpHandler, "a wasi:http handler (p3 component)"),
    ];
    for (name, (kind, told)) in NAMES.into_iter().zip(kinds) {
        let seen = inspect::file(&prebuilt(name)).unwrap();
        assert_eq!((seen.kind, seen.problems), (kind, Vec::new()));
        assert_eq!(seen.kind.to_string(), told);
    }
}
