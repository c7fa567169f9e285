//! What the SDK makes of what became of an invocation or of a message to be sent, with the guest that
//! leaves it all to `?`.

use super::*;
use crate::capability::lambda::Functions;
use crate::capability::lambda::tests::{FakeFunctions, functions_of};
use crate::capability::queues::{Deliver, NotDelivered, QueuesGrant};
use dispatcher_core::lambda::{Invoke, InvokeError, Request, Response};
use dispatcher_core::message::OutgoingMessage;
use std::sync::Mutex;

const MINUTE: Duration = Duration::from_secs(60);

/// Answers with the event, unless the function is one that fails.
struct Echo;

#[async_trait::async_trait]
impl Invoke for Echo {
    async fn invoke(&self, request: Request) -> Result<Response, InvokeError> {
        let fails = request.function == "fails";
        Ok(Response {
            function_error: fails.then(|| "Unhandled".into()),
            payload: request.payload,
            ..Response::default()
        })
    }
}

/// Takes what is sent, unless the queue is one that does not.
struct Post(Mutex<Vec<OutgoingMessage>>);

#[async_trait::async_trait]
impl Deliver for Post {
    async fn deliver(&self, queue: &str, message: OutgoingMessage) -> Result<String, NotDelivered> {
        match queue {
            "full" => Err(NotDelivered::Unavailable("why".into())),
            "picky" => Err(NotDelivered::Refused("why".into())),
            _ => {
                self.0.lock().unwrap().push(message);
                Ok("an id".into())
            }
        }
    }
}

fn granted(functions: Functions, post: &Arc<Post>) -> PluginOptions {
    granting(|grants| {
        grants.lambda = Some(functions);
        grants.queues = Some(QueuesGrant {
            deliver: Arc::clone(post) as Arc<dyn Deliver>,
            allowed: ["open", "full", "picky"].map(String::from).into(),
        });
    })
}

fn post() -> Arc<Post> {
    Arc::new(Post(Mutex::default()))
}

/// The verdicts on a body with `"waits"` true and false: by both twins of a call.
fn both(options: &PluginOptions, body: &str) -> [Verdict; 2] {
    let plugin = load(&runtime(1), "granted-sends", options.clone());
    [true, false].map(|waits| one(&plugin, &format!(r#"{{{body}, "waits": {waits}}}"#)))
}

fn invoked(options: &PluginOptions, function: &str) -> [Verdict; 2] {
    let event = r#""event": {"n": 7}"#;
    let body = format!(r#""do": "invoke", "function": "{function}", {event}"#);
    both(options, &body)
}

fn sent(options: &PluginOptions, queue: &str) -> [Verdict; 2] {
    let body = r#""do": "send", "value": {"n": 7}, "delay_ms": 60000"#;
    both(options, &format!(r#"{body}, "queue": "{queue}""#))
}

/// A retry was asked for, whatever was printed before.
fn assert_retry(verdicts: [Verdict; 2]) {
    for verdict in verdicts {
        let why = failure_reason(verdict);
        assert!(
            matches!(
                why,
                FailureReason::Requested | FailureReason::RequestedWith(_)
            ),
            "{why}"
        );
    }
}

#[test]
fn response_is_read_and_function_error_is_a_retry() {
    let mut functions = functions_of(&FakeFunctions::new(), &["*"]);
    functions.invoker = Arc::new(Echo);
    let options = granted(functions, &post());
    let read = Verdict::Reject(r#"got {"n":7}"#.into());
    assert_eq!(invoked(&options, "echo"), [read.clone(), read]);
    for verdict in invoked(&options, "fails") {
        let why = "function fails failed: an error without a type: no message";
        assert_eq!(failure_reason(verdict), FailureReason::Function(why.into()));
    }
}

#[test]
fn failed_invocation_maps_to_the_matching_failure() {
    let fake = FakeFunctions::new();
    fake.answer_all();
    let functions = functions_of(&fake, &["throttled", "reset", "unwanted", "missing"]);
    let options = granted(functions, &post());
    let busy = Verdict::Busy {
        after: Some(Duration::from_millis(1500)),
        why: "Throttled".into(),
    };
    for (function, means) in [
        ("throttled", busy),
        ("unwanted", Verdict::Reject("why".into())),
        ("missing", Verdict::Closed("why".into())),
    ] {
        let both = [means.clone(), means];
        assert_eq!(invoked(&options, function), both, "{function}");
    }
    for verdict in invoked(&options, "reset") {
        let why = "unknown whether the function ran: why";
        assert_eq!(
            failure_reason(verdict),
            FailureReason::FunctionUnknown(why.into())
        );
    }
    // Not granted: no message stops its route by what it names.
    assert_retry(invoked(&options, "another"));
}

#[test]
fn message_is_sent_as_composed() {
    let post = post();
    let options = granted(functions_of(&FakeFunctions::new(), &[]), &post);
    let id = Verdict::Reject(r#"got "an id""#.into());
    assert_eq!(sent(&options, "open"), [id.clone(), id]);
    let sent = post.0.lock().unwrap();
    assert_eq!(sent.len(), 2);
    for sent in &*sent {
        assert_eq!(
            (&*sent.body, sent.group.as_deref()),
            (r#"{"n":7}"#, Some("g"))
        );
        let names: Vec<_> = sent.attributes.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["by", "n", "b"]);
        // By a date it is what is left until then.
        assert!(sent.delay > MINUTE / 2 && sent.delay <= MINUTE, "{sent:?}");
    }
    assert_eq!(sent[1].delay, MINUTE);
}

#[test]
fn failed_send_maps_to_the_matching_failure() {
    let options = granted(functions_of(&FakeFunctions::new(), &[]), &post());
    assert_retry(sent(&options, "full"));
    let refused = Verdict::Reject("why".into());
    assert_eq!(sent(&options, "picky"), [refused.clone(), refused]);
    assert_retry(sent(&options, "another"));
}
