//! The contract: what it tells of a message, what a handler may ask, what it may answer.

use super::output::printed;
use super::*;
use crate::capability::queues::{Deliver, NotDelivered, QueuesGrant};
use dispatcher_core::handler::TimeLimit;
use dispatcher_core::message::{Attribute, OutgoingMessage, TRACE_HEADER};
use dispatcher_core::telemetry::metrics::of_plugins::{PluginMeter, PluginMetrics};

/// Keeps what it is to send.
struct KeptMessages(parking_lot::Mutex<Vec<OutgoingMessage>>);

#[async_trait::async_trait]
impl Deliver for KeptMessages {
    async fn deliver(&self, _: &str, message: OutgoingMessage) -> Result<String, NotDelivered> {
        self.0.lock().push(message);
        Ok("id".into())
    }
}

fn sending(kept: &Arc<KeptMessages>) -> PluginOptions {
    let deliver: Arc<dyn Deliver> = kept.clone();
    granting(|grants| {
        grants.queues = Some(QueuesGrant {
            deliver,
            allowed: vec!["local:out".into()],
        });
    })
}

fn plain() -> LoadedPlugin {
    load(&runtime(4), "contract", options())
}

fn rejected(verdict: Verdict) -> String {
    match verdict {
        Verdict::Reject(why) => why,
        other => panic!("wanted a rejection, got {other:?}"),
    }
}

#[test]
fn message_has_attempt_key_and_trace() {
    let plugin = plain();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let of = |tries: u32, receive_count: u32, id: &str| {
        let attempt = Attempt {
            messages: vec![Message {
                receive_count,
                attributes: vec![Attribute::text("traceparent", parent)],
                ..message(id, "message")
            }],
            cancelled: vec![CancellationToken::new()],
            tries: vec![tries],
            deadline: Deadline::after(LONG),
        };
        rejected(only(&plugin, Arc::new(attempt)))
    };
    let first = of(0, 1, "a");
    assert!(first.starts_with("attempt 1, key "), "{first}");
    assert!(first.contains(parent), "{first}");
    let key = |text: &str| text.split("key ").nth(1).map(|rest| rest[..32].to_owned());
    let third = of(1, 2, "a");
    assert!(third.starts_with("attempt 3, "), "{third}");
    assert_eq!(key(&first), key(&third));
    assert_ne!(key(&first), key(&of(0, 1, "b")));
    let header = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";
    let traced = Message {
        system_attributes: vec![(TRACE_HEADER.into(), header.into())],
        ..message("c", "message")
    };
    let traced = rejected(given(&plugin, traced));
    assert!(
        traced.contains("00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01"),
        "{traced}"
    );
}

#[test]
fn retry_has_a_reason() {
    let plugin = plain();
    let asked = Verdict::Retry {
        after: Some(Duration::from_millis(5_000)),
        why: FailureReason::RequestedWith("not yet".into()),
    };
    assert_eq!(one(&plugin, "retry 5000 not yet"), asked);
    let failed = retry(FailureReason::RequestedWith("broken".into()));
    assert_eq!(one(&plugin, "error broken"), failed);
}

#[test]
fn handler_logs_with_level_and_fields_within_the_limit_of_lines() {
    let plugin = plain();
    let lines = printed(|| drop(one(&plugin, "log")));
    let lines: Vec<_> = lines
        .iter()
        .map(|(level, _, id, text)| (level.as_str(), id.as_str(), text.as_str()))
        .collect();
    // The subscriber of this test takes no level below info.
    let wanted = [("WARN", "m0", "priced\\n"), ("ERROR", "m0", "failed")];
    assert_eq!(lines, wanted);
    let many = printed(|| drop(one(&plugin, "log-many 1500")));
    assert_eq!(many.len(), 1_001);
    assert!(
        many[1_000].3.starts_with("dropped 500 more lines"),
        "{many:?}"
    );
}

#[test]
fn metrics_of_a_handler_are_kept_by_plugin() {
    let metrics = Arc::<PluginMetrics>::default();
    let measured = PluginOptions {
        meter: PluginMeter::new(metrics.clone(), "tested"),
        ..options()
    };
    let plugin = load(&runtime(4), "contract", measured);
    for value in ["2.5", "4"] {
        assert_eq!(
            one(&plugin, &format!("metric orders {value}")),
            Verdict::Done
        );
    }
    let all = metrics.all();
    let found: Vec<_> = all
        .iter()
        .map(|one| (one.name.as_str(), one.samples[0].1))
        .collect();
    assert_eq!(found, [("orders", 6.5), ("orders_now", 4.0)]);
    let refused = one(&plugin, "metric 7orders 1");
    let why = "wanted a letter";
    assert!(
        matches!(&refused, Verdict::Retry { why: FailureReason::RequestedWith(told), .. } if told.contains(why)),
        "{refused:?}"
    );
}

#[test]
fn handler_that_requests_more_time_gets_it_up_to_the_limit() {
    let plugin = plain();
    let run = |body: &str, longest: Duration| {
        let limit = TimeLimit {
            timeout: Duration::from_millis(300),
            longest,
        };
        let attempt = Attempt {
            messages: vec![message("m0", body)],
            cancelled: vec![CancellationToken::new()],
            tries: Vec::new(),
            deadline: Deadline::after(limit),
        };
        only(&plugin, Arc::new(attempt))
    };
    // It computes beyond the time that it was given first.
    assert_eq!(rejected(run("extend 60000 600", LONG)), "extended true");
    let stopped = |verdict: Verdict| {
        let why = verdict;
        assert!(
            matches!(
                &why,
                Verdict::Retry {
                    why: FailureReason::TimedOut(_),
                    ..
                }
            ),
            "{why:?}"
        );
    };
    stopped(run("extend 60000 60000", Duration::from_millis(300)));
    stopped(run("extend 60000 60000", Duration::from_millis(400)));
    assert_eq!(rejected(run("extend-other", LONG)), "None");
}

#[test]
fn message_is_sent_as_text_or_refused() {
    let kept = Arc::new(KeptMessages(parking_lot::Mutex::default()));
    let plugin = load(&runtime(1), "contract-sends", sending(&kept));
    assert_eq!(rejection(&plugin, "local:out hello there"), "sent id");
    let wanted = OutgoingMessage {
        body: "hello there".into(),
        deduplication: Some("once".into()),
        ..OutgoingMessage::default()
    };
    assert_eq!(*kept.0.lock(), [wanted]);
    let refused = rejection(&plugin, "local:out");
    assert!(
        refused.contains("Refused(\"the body is not UTF-8"),
        "{refused}"
    );
    let forbidden = rejection(&plugin, "local:other x");
    assert!(forbidden.contains("Forbidden("), "{forbidden}");
    assert_eq!(kept.0.lock().len(), 1);
}

#[test]
fn batch_has_one_verdict_for_each_message() {
    let plugin = load(&runtime(2), "contract-batch", options());
    let why = |why: &str| retry(FailureReason::RequestedWith(why.into()));
    let answered = drive(plugin.handle(attempt(&["done", "reject", "later"], LONG)));
    assert_eq!(
        answered,
        [Verdict::Done, Verdict::Reject("no".into()), why("later")]
    );
    let answered = drive(plugin.handle(attempt(&["done", "fail-all"], LONG)));
    assert_eq!(answered, [why("all of it"), why("all of it")]);
}

#[test]
fn component_with_two_handlers_is_refused() {
    let handler = |name: &str| {
        format!(
            r#"(instance ${name} (export "handle" (func $handle))) (export "dispatcher:plugin/{name}@0.1.0" (instance ${name}))"#
        )
    };
    let text = format!(
        r#"(component
            (core module $m (func (export "handle") (result i32) i32.const 0))
            (core instance $i (instantiate $m))
            (func $handle (result u32) (canon lift (core func $i "handle")))
            {}
            {})"#,
        handler("handler"),
        handler("handler-async")
    );
    let told = load_text(&text).unwrap_err().to_string();
    let both =
        "exports both dispatcher:plugin/handler-async@0.1.0 and dispatcher:plugin/handler@0.1.0";
    assert!(told.contains(both), "{told}");
}
