//! Batches: the JSON that carries them, and the response that names the messages which failed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dispatcher_guest::{AttributeValue, Failed, Failure, Message};
use serde::Serialize;
use serde_json::Value;
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
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_received_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
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
    Entry {
        id: &message.id,
        body: &message.body,
        queue: &message.queue,
        receive_count: message.receive_count,
        sent_at_ms: message.sent_at,
        first_received_at_ms: message.first_received_at,
        group: message.group.as_deref(),
        attributes: attributes.collect(),
    }
}

/// The messages that a successful response says failed: `{"batchItemFailures":[{"itemIdentifier":
/// ID}]}`, as Lambda's functions answer. Anything but such an object names none.
///
/// # Errors
/// The object cannot be understood, or names a message that the batch does not have: it is unknown
/// which failed.
pub fn failures(body: &[u8], messages: &[Message]) -> Result<Vec<Failed>, String> {
    let Ok(Value::Object(answer)) = serde_json::from_slice(body) else {
        return Ok(Vec::new());
    };
    let items = match answer.get("batchItemFailures") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err("the response: batchItemFailures is not a list".into()),
    };
    let mut failed = Vec::new();
    for item in items {
        let id = item.get("itemIdentifier").and_then(Value::as_str);
        let known = id.filter(|id| messages.iter().any(|message| message.id == *id));
        let id = known.ok_or_else(|| {
            format!("the response: batchItemFailures has {item}, which is no message of the batch")
        })?;
        failed.push(Failed {
            id: id.to_owned(),
            failure: Failure::retry(),
        });
    }
    Ok(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_guest::Attribute;

    fn messages() -> [Message; 2] {
        ["a", "b"].map(|id| Message {
            id: id.into(),
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
        })
    }

    #[test]
    fn a_batch_is_json_with_all_that_is_known() {
        let body = String::from_utf8(body(&messages())).expect("JSON is UTF-8");
        assert_eq!(
            body,
            r#"{"messages":[{"id":"a","body":"{}","queue":"local:q","receive_count":1,"attributes":{"raw":"/w=="}},{"id":"b","body":"{}","queue":"local:q","receive_count":1,"group":"g","attributes":{"raw":"/w=="}}]}"#
        );
    }

    #[test]
    fn a_response_names_the_messages_that_failed() {
        let ids = |body: &str| {
            let failed = failures(body.as_bytes(), &messages())?;
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
        for bad in [
            r#"{"batchItemFailures":{}}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":"c"}]}"#,
            r#"{"batchItemFailures":[{}]}"#,
            r#"{"batchItemFailures":["a"]}"#,
        ] {
            assert!(ids(bad).is_err(), "{bad}");
        }
    }
}
