//! Batches: the JSON that carries them, and the response that names the messages which failed.

use crate::members::{Members, member};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dispatcher_guest::AttributeValue;
use dispatcher_guest::{Failed, Failure, Message};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Batch<'a> {
    messages: Vec<Entry<'a>>,
}

/// One message. Binary attributes are base64.
#[derive(Serialize)]
struct Entry<'a> {
    id: &'a str,
    body: &'a str,
    queue: &'a str,
    receive_count: u32,
    idempotency_key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_received_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sender_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    amzn_trace_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<&'a str>,
    attributes: BTreeMap<&'a str, String>,
}

/// The body of a batch's request.
pub fn body(messages: &[Message]) -> Vec<u8> {
    let messages = messages.iter().map(entry).collect();
    serde_json::to_vec(&Batch { messages }).expect("strings and numbers become JSON")
}

fn entry(message: &Message) -> Entry<'_> {
    let attributes = message.attributes.iter().map(|attribute| {
        let value = match &attribute.value {
            AttributeValue::Text(text) => text.clone(),
            AttributeValue::Binary(bytes) => STANDARD.encode(bytes),
        };
        (attribute.name.as_str(), value)
    });
    let system = |wanted: &str| {
        let mut all = message.system_attributes.iter();
        let found = all.find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str())
    };
    let trace = message.trace.as_ref();
    Entry {
        id: &message.id,
        body: &message.body,
        queue: &message.queue,
        receive_count: message.receive_count,
        idempotency_key: &message.idempotency_key,
        sent_at_ms: message.sent_at,
        first_received_at_ms: message.first_received_at,
        group: message.group.as_deref(),
        sender_id: system("SenderId"),
        amzn_trace_id: system("AWSTraceHeader"),
        traceparent: trace.map(|trace| trace.traceparent.as_str()),
        tracestate: trace.and_then(|trace| trace.tracestate.as_deref()),
        attributes: attributes.collect(),
    }
}

/// The messages that a successful response says failed: `{"batchItemFailures":[{"itemIdentifier":
/// ID}]}`, as Lambda's functions answer. Anything but such an object names none. `is_whole`: no part
/// of it is missing.
///
/// # Errors
/// The object cannot be understood, is too long, or names a message that the batch does not have: it is
/// unknown which failed.
pub fn failures(body: &[u8], is_whole: bool, messages: &[Message]) -> Result<Vec<Failed>, String> {
    let begins = body.trim_ascii_start().starts_with(b"{");
    let answer = begins.then(|| serde_json::from_slice::<Members<'_>>(body));
    let Some(Ok(answer)) = answer else {
        return if begins && !is_whole {
            Err(format!(
                "the response has more than {} bytes, and may list messages that failed",
                body.len()
            ))
        } else {
            Ok(Vec::new())
        };
    };
    let Some(list) = member(&answer, "batchItemFailures") else {
        return Ok(Vec::new());
    };
    let items: Vec<&RawValue> = serde_json::from_slice(list)
        .map_err(|_| "the response: batchItemFailures is not a list".to_owned())?;
    let mut failed = Vec::new();
    for item in items {
        let id = identifier(item);
        let known = id.filter(|id| messages.iter().any(|message| message.id == *id));
        let id = known.ok_or_else(|| {
            format!("the response: batchItemFailures has {item}, which is no message of the batch")
        })?;
        failed.push(Failed {
            id,
            failure: Failure::retry_because("the response lists it in batchItemFailures"),
        });
    }
    Ok(failed)
}

fn identifier(item: &RawValue) -> Option<String> {
    let item: Members<'_> = serde_json::from_slice(item.get().as_bytes()).ok()?;
    serde_json::from_slice(member(&item, "itemIdentifier")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_guest::{Attribute, TraceContext};

    fn messages() -> [Message; 2] {
        let message = |id: &str| Message {
            id: id.into(),
            idempotency_key: id.into(),
            queue: "local:q".into(),
            body: "{}".into(),
            receive_count: 1,
            group: (id == "b").then(|| "g".into()),
            attributes: vec![Attribute {
                name: "raw".into(),
                data_type: "Binary".into(),
                value: AttributeValue::Binary(vec![255]),
            }],
            ..Message::default()
        };
        ["a", "b"].map(|id| {
            let mut one = message(id);
            if id == "b" {
                let system = [("SenderId", "AIDA"), ("AWSTraceHeader", "Root=1-2-3")];
                one.system_attributes = system
                    .map(|(name, value)| (name.into(), value.into()))
                    .into();
                one.trace = Some(TraceContext {
                    traceparent: "00-a-b-01".into(),
                    tracestate: Some("v=1".into()),
                });
            }
            one
        })
    }

    #[test]
    fn a_batch_is_json_with_all_that_is_known() {
        let body = String::from_utf8(body(&messages())).expect("JSON is UTF-8");
        assert_eq!(
            body,
            r#"{"messages":[{"id":"a","body":"{}","queue":"local:q","receive_count":1,"idempotency_key":"a","attributes":{"raw":"/w=="}},{"id":"b","body":"{}","queue":"local:q","receive_count":1,"idempotency_key":"b","group":"g","sender_id":"AIDA","amzn_trace_id":"Root=1-2-3","traceparent":"00-a-b-01","tracestate":"v=1","attributes":{"raw":"/w=="}}]}"#
        );
    }

    #[test]
    fn a_response_names_the_messages_that_failed() {
        let ids = |body: &str| {
            let failed = failures(body.as_bytes(), true, &messages())?;
            Ok::<_, String>(failed.into_iter().map(|one| one.id).collect::<Vec<_>>())
        };
        let none: [&str; 0] = [];
        for fine in [
            "",
            "ok",
            "[]",
            "{}",
            r#"{"batchItemFailures":[]}"#,
            r#"{"batchItemFailures":null}"#,
        ] {
            assert_eq!(ids(fine).expect("none failed"), none, "{fine}");
        }
        let second = r#"{"batchItemFailures":[{"itemIdentifier":"b"}]}"#;
        assert_eq!(ids(second).expect("one failed"), ["b"]);
        for elsewhere in [
            r#""\ud83d""#,
            "1e400",
            &format!("{}1{}", "[".repeat(200), "]".repeat(200)),
        ] {
            let second = format!(
                "{{\"x\":{elsewhere},\"\\ud83d\":1,\"batchItemFailures\":[{{\"x\":{elsewhere},\"itemIdentifier\":\"b\"}}]}}"
            );
            assert_eq!(ids(&second).expect("one failed"), ["b"], "{elsewhere}");
        }
        for bad in [
            r#"{"batchItemFailures":{}}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":"c"}]}"#,
            r#"{"batchItemFailures":[{}]}"#,
            r#"{"batchItemFailures":["a"]}"#,
        ] {
            assert!(ids(bad).is_err(), "{bad}");
        }
        let cut = |body: &[u8]| failures(body, false, &messages());
        assert_eq!(cut(b"<html>").expect("none failed"), []);
        assert!(cut(b" {\"batchItemFailures\":[{\"itemIde").is_err());
    }
}
