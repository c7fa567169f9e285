//! What must hold of events and of what is made of answers, whatever they are.

use crate::choices::Choices;
use crate::deliver::{Host, Room, deliver};
use crate::event::NoDigest;
use crate::settings::Settings;
use crate::split::{Step, plan};
use dispatcher_guest::lambda::{DidNotRun, InvokeError, Request, Response};
use dispatcher_guest::{Attribute, AttributeValue, Failed, Message};
use futures_util::FutureExt;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A batch, limits, and the function's answers.
pub fn batches(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut messages = choices.list(12, message);
    // Queues give each message its own id.
    for (at, message) in messages.iter_mut().enumerate() {
        message.id = format!("{}{at}", message.id);
    }
    events(&messages, &mut choices);
    answers(messages, &mut choices);
}

fn message(choices: &mut Choices<'_>) -> Message {
    let source = match choices.below(4) {
        0 => "arn:aws:sqs:eu-west-1:123456789012:orders".into(),
        1 => "arn:aws:sqs:eu-west-1:123456789012:orders.fifo".into(),
        2 => "local:orders".into(),
        _ => choices.text(),
    };
    Message {
        id: choices.text(),
        queue: choices.text(),
        body: choices.text(),
        source,
        receipt: choices.text(),
        receive_count: u32::from(choices.byte()),
        bytes: None,
        attempt: 1,
        idempotency_key: String::new(),
        trace: None,
        deadline: choices.number(),
        sent_at: choices.option(Choices::number),
        first_received_at: choices.option(Choices::number),
        group: choices.option(|choices| choices.below(3).to_string()),
        system_attributes: choices.list(4, |choices| {
            let name = match choices.below(3) {
                0 => "MessageGroupId".into(),
                1 => "SentTimestamp".into(),
                _ => choices.text(),
            };
            (name, choices.text())
        }),
        attributes: choices.list(4, |choices| Attribute {
            name: choices.text(),
            data_type: choices.text(),
            value: if choices.flag() {
                AttributeValue::Text(choices.text())
            } else {
                AttributeValue::Binary(choices.bytes(9).to_vec())
            },
        }),
        body_md5: choices.option(Choices::text),
        attributes_md5: choices.option(Choices::text),
    }
}

/// Every message is in one event, in order and unaltered, or said to be too large for any.
fn events(messages: &[Message], choices: &mut Choices<'_>) {
    let size = |choices: &mut Choices<'_>| usize::try_from(choices.number() % 20_000).unwrap_or(0);
    let (room, limit) = (size(choices), size(choices));
    let mut left = messages.iter();
    let no_digest = if messages.len().is_multiple_of(2) {
        NoDigest::Absent
    } else {
        NoDigest::Null
    };
    for step in plan(messages.to_vec(), no_digest, room.min(limit), limit) {
        match step {
            Step::Oversized(slip, bytes) => {
                assert_eq!(left.next().map(|message| &message.id), Some(&slip.id));
                assert!(bytes >= limit);
            }
            Step::Invoke(part) => {
                let most = if part.slips.len() > 1 {
                    room.min(limit)
                } else {
                    limit
                };
                assert!(part.payload.len() < most);
                for record in records(&part.payload) {
                    let message = left.next().expect("no more records than messages");
                    is_of(&record, message);
                }
            }
        }
    }
    assert_eq!(left.count(), 0);
}

fn records(payload: &[u8]) -> Vec<Value> {
    let event: Value = serde_json::from_slice(payload).expect("an event is JSON");
    event["Records"]
        .as_array()
        .expect("a list of records")
        .clone()
}

fn is_of(record: &Value, message: &Message) {
    for (member, text) in [
        ("messageId", &message.id),
        ("body", &message.body),
        ("receiptHandle", &message.receipt),
    ] {
        assert_eq!(record[member].as_str(), Some(&**text));
    }
    let named: BTreeMap<_, _> = message
        .attributes
        .iter()
        .map(|one| (&one.name, one))
        .collect();
    let told = record["messageAttributes"].as_object().expect("an object");
    assert_eq!(told.len(), named.len());
    let parts = record["eventSourceARN"]
        .as_str()
        .map(|arn| arn.split(':').count());
    assert!(parts >= Some(6), "{record}");
}

/// A function that answers by a script, and all that was asked of it.
struct Script<'a> {
    choices: RefCell<Choices<'a>>,
    asked: RefCell<Vec<String>>,
}

impl Host for Script<'_> {
    async fn invoke(&self, request: Request) -> Result<Response, InvokeError> {
        let mut ids = Vec::new();
        for record in records(&request.payload) {
            ids.push(record["messageId"].as_str().expect("a text").to_owned());
        }
        self.asked.borrow_mut().extend(ids.iter().cloned());
        answer(&mut self.choices.borrow_mut(), &ids)
    }

    fn now(&self) -> u64 {
        self.choices.borrow_mut().number()
    }

    fn log(&self, line: &str) {
        assert!(!line.is_empty());
    }
}

fn answer(choices: &mut Choices<'_>, ids: &[String]) -> Result<Response, InvokeError> {
    Err(match choices.below(8) {
        0 => InvokeError::Refused(choices.text()),
        1 => InvokeError::MayHaveRun(choices.text()),
        2 => InvokeError::Permanent(choices.text()),
        3 => InvokeError::DidNotRun(DidNotRun {
            reason: choices.text(),
            retry_after: choices.option(Choices::number),
        }),
        kind => {
            let payload = match kind {
                4 => choices.text().into_bytes(),
                _ => {
                    let failed = choices.list(4, |choices| {
                        let known = ids.get(choices.below(16));
                        let id = known.cloned().unwrap_or_else(|| choices.text());
                        serde_json::json!({ "itemIdentifier": id })
                    });
                    serde_json::json!({ "batchItemFailures": failed })
                        .to_string()
                        .into_bytes()
                }
            };
            return Ok(Response {
                payload,
                function_error: choices.option(Choices::text),
                log_tail: choices.option(Choices::text),
                executed_version: choices.option(Choices::text),
            });
        }
    })
}

/// Whatever is answered, nothing is said of a stranger, nothing of a message twice, and nothing is
/// done that was not sent.
fn answers(messages: Vec<Message>, choices: &mut Choices<'_>) {
    let (asynchronous, partial) = (choices.flag(), choices.flag());
    let settings = Settings::read(|name| {
        let value = match name {
            "FUNCTION" => "f",
            "INVOCATION" if asynchronous => "async",
            "PARTIAL_FAILURES" if partial => "true",
            _ => return None,
        };
        Some(value.to_owned())
    });
    let settings = settings.expect("they are complete");
    let ids: Vec<String> = messages.iter().map(|message| message.id.clone()).collect();
    let script = Script {
        choices: RefCell::new(Choices::new(choices.rest())),
        asked: RefCell::default(),
    };
    let failed = deliver(messages, &settings, &Room::new(), &script).now_or_never();
    let failed: Vec<Failed> = failed.expect("the script answers at once");
    let mut said: Vec<&String> = failed.iter().map(|one| &one.id).collect();
    let count = said.len();
    said.sort();
    said.dedup();
    assert_eq!(said.len(), count, "a message has two verdicts");
    assert!(
        said.iter().all(|id| ids.contains(id)),
        "a stranger was named"
    );
    let asked = script.asked.borrow();
    let unsent = ids.iter().filter(|id| !asked.contains(id));
    for id in unsent {
        assert!(said.contains(&id), "{id} counts as done and was not sent");
    }
}
