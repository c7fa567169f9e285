//! The request that carries a message or a batch. The headers are those of Elastic Beanstalk's daemon
//! for SQS where it has them, so that a worker which was written for it runs unchanged.

use crate::attributes;
use crate::batch;
use crate::settings::Settings;
use crate::signature;
use crate::time::rfc3339;
use dispatcher_guest::Message;
use dispatcher_guest::http::Request;

/// The most bytes of a response that are read: what a service says beside its status is a reason, or
/// the ids of the messages of a batch that failed.
const MOST_RESPONSE: usize = 256 * 1024;
const USER_AGENT: &str = concat!("dispatcher/", env!("CARGO_PKG_VERSION"));

/// The request of one message: its body as it is.
pub fn of_message(message: &Message, settings: &Settings, now_s: u64) -> Request {
    let kind = if serde_json::from_str::<serde::de::IgnoredAny>(&message.body).is_ok() {
        "application/json"
    } else {
        "text/plain; charset=utf-8"
    };
    let mut request = begin(settings, kind)
        .header("x-aws-sqsd-msgid", attributes::value(&message.id))
        .header(
            "x-aws-sqsd-receive-count",
            message.receive_count.to_string(),
        );
    request = of_queue(request, message);
    request = request.header("idempotency-key", &message.idempotency_key);
    if let Some(first) = message.first_received_at {
        request = request.header("x-aws-sqsd-first-received-at", rfc3339(first));
    }
    if let Some(sent) = message.sent_at {
        request = request.header("x-dispatcher-sent-at", rfc3339(sent));
    }
    if let Some(group) = &message.group {
        request = request.header("x-dispatcher-group", attributes::value(group));
    }
    for (name, value) in &message.system_attributes {
        let header = match name.as_str() {
            "SenderId" => "x-aws-sqsd-sender-id",
            "AWSTraceHeader" => "x-amzn-trace-id",
            _ => continue,
        };
        request = request.header(header, attributes::value(value));
    }
    if let Some(trace) = &message.trace {
        request = request.header("traceparent", &trace.traceparent);
        if let Some(state) = &trace.tracestate {
            request = request.header("tracestate", attributes::value(state));
        }
    }
    for attribute in &message.attributes {
        let name = attributes::name(&attribute.name);
        let value = attributes::of_attribute(&attribute.value);
        request = request.header(format!("x-aws-sqsd-attr-{name}"), value);
    }
    end(request, settings, message.body.clone().into_bytes(), now_s)
}

/// The request of a batch: JSON, with all that is known of each message.
pub fn of_batch(messages: &[Message], settings: &Settings, now_s: u64) -> Request {
    let mut request = begin(settings, "application/json");
    if let Some(first) = messages.first() {
        request = of_queue(request, first);
    }
    end(request, settings, batch::body(messages), now_s)
}

fn begin(settings: &Settings, content_type: &str) -> Request {
    // The status is the outcome, however long the body is.
    let mut request = Request::post(&settings.url)
        .limit(MOST_RESPONSE)
        .truncated();
    for (name, value) in [("content-type", content_type), ("user-agent", USER_AGENT)] {
        if !settings.has_header(name) {
            request = request.header(name, value);
        }
    }
    for (name, value) in &settings.headers {
        request = request.header(name, value);
    }
    request
}

fn of_queue(request: Request, message: &Message) -> Request {
    // As the daemon has it: the name without its backend.
    let name = message.queue.rsplit(':').next().unwrap_or_default();
    request
        .header("x-aws-sqsd-queue", attributes::value(name))
        .header("x-dispatcher-queue", attributes::value(&message.queue))
}

fn end(mut request: Request, settings: &Settings, body: Vec<u8>, now_s: u64) -> Request {
    if let Some(key) = &settings.signing_key {
        let signature = signature::of(key, now_s, &body);
        request = request.header("x-dispatcher-signature", signature);
    }
    request.body(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_guest::{Attribute, AttributeValue, TraceContext};

    fn settings() -> Settings {
        Settings {
            url: "http://127.0.0.1:8080/jobs".into(),
            headers: Vec::new(),
            signing_key: None,
            batches: false,
        }
    }

    fn message() -> Message {
        let attribute = |name: &str, value| Attribute {
            name: name.into(),
            data_type: "String".into(),
            value,
        };
        Message {
            id: "m-1".into(),
            queue: "local:orders".into(),
            body: r#"{"a":1}"#.into(),
            receive_count: 2,
            sent_at: Some(0),
            first_received_at: Some(1_500),
            group: Some("Zoë".into()),
            system_attributes: vec![
                ("SenderId".into(), "AIDA".into()),
                ("AWSTraceHeader".into(), "Root=1-2-3".into()),
                ("SequenceNumber".into(), "7".into()),
            ],
            attributes: vec![
                attribute("kind", AttributeValue::Text("order".into())),
                attribute("raw", AttributeValue::Binary(vec![1, 2])),
            ],
            idempotency_key: "k-1".into(),
            trace: Some(TraceContext {
                traceparent: "00-a-b-01".into(),
                tracestate: Some("v=1".into()),
            }),
            ..Message::default()
        }
    }

    #[test]
    fn a_message_is_its_body_with_all_else_in_headers() {
        let request = of_message(&message(), &settings(), 0);
        assert_eq!(
            (request.method.as_str(), request.url.as_str()),
            ("POST", "http://127.0.0.1:8080/jobs")
        );
        assert_eq!(request.body, br#"{"a":1}"#);
        let version = env!("CARGO_PKG_VERSION");
        let agent = format!("dispatcher/{version}");
        let wanted = [
            ("content-type", "application/json"),
            ("user-agent", &agent),
            ("x-aws-sqsd-msgid", "m-1"),
            ("x-aws-sqsd-receive-count", "2"),
            ("x-aws-sqsd-queue", "orders"),
            ("x-dispatcher-queue", "local:orders"),
            ("idempotency-key", "k-1"),
            ("x-aws-sqsd-first-received-at", "1970-01-01T00:00:01.500Z"),
            ("x-dispatcher-sent-at", "1970-01-01T00:00:00.000Z"),
            ("x-dispatcher-group", "Zo%C3%AB"),
            ("x-aws-sqsd-sender-id", "AIDA"),
            ("x-amzn-trace-id", "Root=1-2-3"),
            ("traceparent", "00-a-b-01"),
            ("tracestate", "v=1"),
            ("x-aws-sqsd-attr-kind", "order"),
            ("x-aws-sqsd-attr-raw", "AQI="),
        ];
        let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(request.headers, wanted);
    }

    #[test]
    fn a_body_that_is_not_json_is_text_unless_a_header_says_otherwise() {
        let kind = |settings: &Settings| {
            let mut message = message();
            message.body = "hello".into();
            let request = of_message(&message, settings, 0);
            let kinds = request.headers.into_iter();
            let kinds = kinds.filter(|(name, _)| name.eq_ignore_ascii_case("content-type"));
            kinds.map(|(_, value)| value).collect::<Vec<_>>()
        };
        assert_eq!(kind(&settings()), ["text/plain; charset=utf-8"]);
        let headers = vec![("Content-Type".to_owned(), "application/cbor".to_owned())];
        assert_eq!(
            kind(&Settings {
                headers,
                ..settings()
            }),
            ["application/cbor"]
        );
    }

    #[test]
    fn signed_requests_carry_the_signature_of_their_body() {
        let signing_key = Some(b"secret".to_vec());
        let signed = Settings {
            signing_key,
            ..settings()
        };
        let request = of_message(&message(), &signed, 1_700_000_000);
        let wanted = signature::of(b"secret", 1_700_000_000, br#"{"a":1}"#);
        let found = request
            .headers
            .iter()
            .find(|(name, _)| name == "x-dispatcher-signature");
        assert_eq!(found.map(|(_, value)| value), Some(&wanted));
    }
}
