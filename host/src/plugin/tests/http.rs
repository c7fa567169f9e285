//! HTTP handlers that know nothing of messages: what they are asked, and what their answer says.

use super::super::inspect::{self, Kind};
use super::output::printed;
use super::*;
use crate::message::{Attribute, AttributeValue};

/// The fixture that answers as the body says. Compiled once.
fn handler() -> Plugin {
    static PLUGIN: OnceLock<Plugin> = OnceLock::new();
    let load = || load(&runtime(16), "http-handler", options());
    PLUGIN.get_or_init(load).clone()
}

fn failed(why: &str) -> Verdict {
    retry(Mishap::Failed(why.into()))
}

fn asked(after: Option<Duration>, why: &str) -> Verdict {
    let why = Mishap::AskedFor(why.into());
    Verdict::Retry { after, why }
}

#[test]
fn the_status_is_the_verdict() {
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
        ("429:slowly", asked(None, "429 Too Many Requests: slowly")),
        ("503", asked(None, "503 Service Unavailable")),
    ];
    let plugin = handler();
    for (body, verdict) in rows {
        assert_eq!(one(&plugin, body), verdict, "{body}");
    }
}

#[test]
fn a_time_to_come_again_is_kept() {
    let plugin = handler();
    let after = |body: &str| match one(&plugin, &format!("after:{body}")) {
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
fn a_message_is_a_post_with_headers() {
    let plugin = handler();
    assert_eq!(
        rejection(&plugin, "line"),
        r#"400 Bad Request: Method::Post Some(Scheme::Http) Some("localhost") Some("/")"#
    );
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
    let lines = printed(|| drop(given(&plugin, whole)));
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
    let bare = printed(|| drop(one(&plugin, "headers")));
    assert!(
        bare.iter()
            .any(|line| line.3 == "content-type: application/octet-stream")
    );
}

#[test]
fn a_body_comes_whole() {
    let body = format!("\0\r\n{}\u{feff}é", "\u{ff}".repeat(512 << 10));
    let sum: u64 = body.bytes().map(u64::from).sum();
    let lines = printed(|| assert_eq!(one(&handler(), &body), Verdict::Done));
    let wanted = format!("read {} bytes, the sum is {sum}", body.len());
    assert_eq!(lines[0].3, wanted);
}

#[test]
fn of_a_long_answer_the_beginning_is_told() {
    let plugin = handler();
    let told = format!("it answered 500 Internal Server Error: {}", "x".repeat(200));
    assert_eq!(one(&plugin, "bytes:10000000"), failed(&told));
    // Nothing that steers a terminal, nothing that is no text.
    let told = "it answered 500 Internal Server Error: \\u{1b}[2J\u{fffd}";
    assert_eq!(one(&plugin, "odd"), failed(told));
}

#[test]
fn no_answer_is_a_failure() {
    let plugin = handler();
    let nothing = failed("it returned without an answer");
    assert_eq!(one(&plugin, "silent"), nothing);
    assert_eq!(one(&plugin, "keep"), nothing);
    let Mishap::Failed(why) = mishap(one(&plugin, "error:out of order")) else {
        panic!();
    };
    assert!(
        why.starts_with("it answered with an error") && why.contains("out of order"),
        "{why}"
    );
    assert!(trap(one(&plugin, "panic:no")).contains("unreachable"));
    assert!(trap(one(&plugin, "exit:3")).contains("exit"));
}

#[test]
fn the_attempt_ends_when_the_handler_returns() {
    let plugin = handler();
    let lines = printed(|| assert_eq!(one(&plugin, "print-later:done"), Verdict::Done));
    assert_eq!(lines[0].3, "done");
    assert!(trap(one(&plugin, "panic-later:no")).contains("unreachable"));
    // It keeps its answer open for ever, and nothing waits for it.
    assert_eq!(one(&plugin, "open:200"), Verdict::Done);
    let half = Verdict::Reject("400 Bad Request: half of it".into());
    assert_eq!(one(&plugin, "open:400"), half);
    let soon = attempt(&["loop"], Duration::from_millis(20));
    let verdict = drive(plugin.handle(soon)).remove(0);
    assert!(matches!(mishap(verdict), Mishap::TimedOut(_)));
}

#[test]
fn a_handler_is_used_again_if_wished_and_never_by_many_at_once() {
    let runtime = runtime(2);
    let plugin = load(&runtime, "http-handler", reusing(3));
    let counts: Vec<_> = (0..4).map(|_| rejection(&plugin, "count")).collect();
    let wanted = ["1", "2", "3", "1"].map(|count| format!("400 Bad Request: {count}"));
    assert_eq!(counts, wanted);
    let many = PluginOptions {
        instance_concurrency: 2,
        ..options()
    };
    let error = runtime.load(&prebuilt("http-handler"), many).unwrap_err();
    let told = error.to_string();
    assert!(told.contains("one at a time"), "{told}");
}

#[test]
fn a_handler_of_requests_sends_none() {
    let told = rejection(&handler(), "fetch:127.0.0.1:1");
    assert!(told.contains("HttpRequestDenied"), "{told}");
}

#[test]
fn handles_of_http_are_few() {
    let why = trap(one(&handler(), "hoard"));
    assert!(why.contains("resource table"), "{why}");
}

#[test]
fn a_handler_is_known_by_its_export() {
    let seen = inspect::file(&prebuilt("http-handler")).unwrap();
    assert_eq!((seen.kind, seen.problems), (Kind::HttpHandler, Vec::new()));
    assert_eq!(seen.kind.to_string(), "a wasi:http handler");
}
