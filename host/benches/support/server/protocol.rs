//! SQS's JSON protocol (AWS JSON 1.0), the calls that a consumer and a sender of standard queues
//! make. Knows nothing of connections.

use super::http::HttpAnswer;
use super::queue::{IncomingMessage, Queue, Refusal, StoredMessage};
use super::{ServerState, SharedServer};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

type Queues<'a> = &'a HashMap<String, Rc<RefCell<Queue>>>;
type ProtocolFailure = (&'static str, &'static str, String);

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Receive {
    max_number_of_messages: Option<usize>,
    wait_time_seconds: Option<u64>,
    visibility_timeout: Option<u64>,
    #[serde(default)]
    attribute_names: Vec<String>,
    #[serde(default)]
    message_system_attribute_names: Vec<String>,
    #[serde(default)]
    message_attribute_names: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProtocolEntry {
    id: String,
    receipt_handle: Option<String>,
    visibility_timeout: Option<u64>,
    message_body: Option<String>,
    delay_seconds: Option<u64>,
    message_attributes: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Batch {
    entries: Vec<ProtocolEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NamedQueue {
    queue_name: Option<String>,
    queue_url: Option<String>,
    #[serde(default)]
    attributes: HashMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ProtocolDelivery<'a> {
    message_id: &'a str,
    receipt_handle: &'a str,
    #[serde(rename = "MD5OfBody")]
    md5_of_body: &'a str,
    body: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<SystemAttributes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_attributes: Option<&'a Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SystemAttributes {
    approximate_receive_count: String,
    sent_timestamp: String,
    sender_id: &'static str,
    approximate_first_receive_timestamp: String,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "PascalCase")]
struct Results {
    successful: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<Value>,
}

/// Answers one call.
pub(crate) async fn answer(action: &str, body: &[u8], state: &SharedServer) -> HttpAnswer {
    let called = clock::now();
    *state
        .borrow_mut()
        .calls
        .entry(action.to_owned())
        .or_default() += 1;
    let answered = match action {
        "ReceiveMessage" => receive(body, called, state).await,
        "CreateQueue" | "GetQueueUrl" | "ListQueues" => find(action, body, &mut state.borrow_mut()),
        "GetQueueAttributes" => attributes(body, &state.borrow()),
        "SendMessageBatch" => batch(body, state, |queue, entry| Ok(send(queue, entry, called))),
        "DeleteMessageBatch" => delete(body, state),
        "DeleteMessage" => delete_one(body, state),
        "ChangeMessageVisibilityBatch" => extend(body, state, called),
        _ => Err(invalid(
            "InvalidAction",
            format!("{action} is not served here"),
        )),
    };
    match answered {
        Ok(body) => HttpAnswer {
            status: 200,
            error: None,
            body,
        },
        Err((name, old_name, message)) => HttpAnswer {
            status: 400,
            error: Some(old_name.to_owned()),
            body: bytes(
                &json!({"__type": format!("com.amazonaws.sqs#{name}"), "message": message}),
            ),
        },
    }
}

fn invalid(name: &'static str, message: String) -> ProtocolFailure {
    (name, name, message)
}

fn bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data")
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ProtocolFailure> {
    serde_json::from_slice(body).map_err(|e| invalid("InvalidParameterValue", e.to_string()))
}

fn missing() -> ProtocolFailure {
    (
        "QueueDoesNotExist",
        "AWS.SimpleQueueService.NonExistentQueue",
        "The specified queue does not exist.".into(),
    )
}

fn queue_of(body: &[u8], queues: Queues) -> Result<(String, Rc<RefCell<Queue>>), ProtocolFailure> {
    let named: NamedQueue = parse(body)?;
    let url = named.queue_url.unwrap_or_default();
    let name = url.rsplit('/').next().unwrap_or_default();
    let queue = queues.get(name).ok_or_else(missing)?;
    Ok((name.to_owned(), queue.clone()))
}

fn find(action: &str, body: &[u8], state: &mut ServerState) -> Result<Vec<u8>, ProtocolFailure> {
    let port = state.port;
    let url = |name: &str| format!("http://127.0.0.1:{port}/000000000000/{name}");
    let named: NamedQueue = parse(body)?;
    let name = named.queue_name.unwrap_or_default();
    if action == "ListQueues" {
        let urls: Vec<String> = state.queues.keys().map(|name| url(name)).collect();
        return Ok(bytes(&json!({"QueueUrls": urls})));
    }
    if action == "CreateQueue" {
        if named.attributes.contains_key("FifoQueue") {
            return Err(invalid(
                "UnsupportedOperation",
                "no FIFO queues here".into(),
            ));
        }
        let seconds = named.attributes.get("VisibilityTimeout");
        let seconds = seconds.and_then(|s| s.parse().ok()).unwrap_or(30);
        let queue = Queue::new(Duration::from_secs(seconds));
        let queue = || Rc::new(RefCell::new(queue));
        state.queues.entry(name.clone()).or_insert_with(queue);
    }
    if state.queues.contains_key(&name) {
        Ok(bytes(&json!({"QueueUrl": url(&name)})))
    } else {
        Err(missing())
    }
}

fn attributes(body: &[u8], state: &ServerState) -> Result<Vec<u8>, ProtocolFailure> {
    let (name, queue) = queue_of(body, &state.queues)?;
    let mut queue = queue.borrow_mut();
    let (visible, in_flight, delayed) = queue.counts(clock::now());
    Ok(bytes(&json!({"Attributes": {
        "QueueArn": format!("arn:aws:sqs:us-east-1:000000000000:{name}"),
        "VisibilityTimeout": queue.visibility.as_secs().to_string(),
        "ApproximateNumberOfMessages": visible.to_string(),
        "ApproximateNumberOfMessagesNotVisible": in_flight.to_string(),
        "ApproximateNumberOfMessagesDelayed": delayed.to_string(),
    }})))
}

async fn receive(
    body: &[u8],
    called: BootInstant,
    state: &SharedServer,
) -> Result<Vec<u8>, ProtocolFailure> {
    let (_, queue) = queue_of(body, &state.borrow().queues)?;
    let ask: Receive = parse(body)?;
    let until = called + Duration::from_secs(ask.wait_time_seconds.unwrap_or_default());
    loop {
        let changed = queue.borrow().changed.clone();
        let changed = changed.notified();
        let now = clock::now();
        let next = {
            let mut queue = queue.borrow_mut();
            let visibility = ask.visibility_timeout.map(Duration::from_secs);
            let visibility = visibility.unwrap_or(queue.visibility);
            let max = ask.max_number_of_messages.unwrap_or(1).clamp(1, 10);
            let taken = queue.receive(max, visibility, called, (now, clock::wall_clock_now()));
            if !taken.is_empty() {
                return Ok(deliveries(&ask, &taken));
            }
            queue.next_return()
        };
        if until <= now {
            state.borrow_mut().empty += 1;
            return Ok(b"{}".to_vec());
        }
        let next = next.map_or(until, |next| next.min(until));
        tokio::select! {
            () = changed => {}
            () = clock::sleep_until(Some(next)) => {}
        }
    }
}

fn deliveries(ask: &Receive, taken: &[(String, &StoredMessage)]) -> Vec<u8> {
    let system = !ask.attribute_names.is_empty() || !ask.message_system_attribute_names.is_empty();
    let own = !ask.message_attribute_names.is_empty();
    let mut messages = Vec::with_capacity(taken.len());
    for (receipt, stored) in taken {
        let attributes = system.then(|| SystemAttributes {
            approximate_receive_count: stored.received.to_string(),
            sent_timestamp: stored.sent.0.to_string(),
            sender_id: "AIDAEXAMPLE",
            approximate_first_receive_timestamp: stored.first_received.0.to_string(),
        });
        messages.push(ProtocolDelivery {
            message_id: &stored.id,
            receipt_handle: receipt,
            md5_of_body: &stored.md5,
            body: &stored.body,
            attributes,
            message_attributes: stored.attributes.as_ref().filter(|_| own),
        });
    }
    bytes(&HashMap::from([("Messages", messages)]))
}

/// Does something for every entry of a call; entries fail one by one.
fn batch(
    body: &[u8],
    state: &SharedServer,
    mut each: impl FnMut(&mut Queue, ProtocolEntry) -> Result<Value, Refusal>,
) -> Result<Vec<u8>, ProtocolFailure> {
    let (_, queue) = queue_of(body, &state.borrow().queues)?;
    let batch: Batch = parse(body)?;
    let mut results = Results::default();
    for entry in batch.entries {
        let id = entry.id.clone();
        match each(&mut queue.borrow_mut(), entry) {
            Ok(mut value) => {
                value["Id"] = id.into();
                results.successful.push(value);
            }
            Err(refusal) => results.failed.push(refused(&id, &refusal)),
        }
    }
    Ok(bytes(&results))
}

fn refused(id: &str, refusal: &Refusal) -> Value {
    let (code, message) = match refusal {
        Refusal::Malformed => (
            "ReceiptHandleIsInvalid",
            "The input receipt handle is invalid.",
        ),
        Refusal::NotInFlight => (
            "InvalidParameterValue",
            "Value for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for visibility timeout change.",
        ),
    };
    json!({"Id": id, "Code": code, "Message": message, "SenderFault": true})
}

fn send(queue: &mut Queue, entry: ProtocolEntry, now: BootInstant) -> Value {
    let sent = IncomingMessage {
        body: entry.message_body.unwrap_or_default(),
        attributes: entry.message_attributes,
        delay: Duration::from_secs(entry.delay_seconds.unwrap_or_default()),
    };
    let (id, md5) = queue.send(sent, now, clock::wall_clock_now());
    queue.changed.notify_waiters();
    json!({"MessageId": id, "MD5OfMessageBody": md5})
}

fn delete(body: &[u8], state: &SharedServer) -> Result<Vec<u8>, ProtocolFailure> {
    let mut drained = false;
    let answer = batch(body, state, |queue, entry| {
        queue.delete(&entry.receipt_handle.unwrap_or_default())?;
        drained |= queue.is_empty();
        Ok(json!({}))
    })?;
    if drained {
        state.borrow_mut().drained = Some(clock::now());
    }
    Ok(answer)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DeletedMessage {
    receipt_handle: String,
}

fn delete_one(body: &[u8], state: &SharedServer) -> Result<Vec<u8>, ProtocolFailure> {
    let (_, queue) = queue_of(body, &state.borrow().queues)?;
    let one: DeletedMessage = parse(body)?;
    let mut queue = queue.borrow_mut();
    if queue.delete(&one.receipt_handle).is_err() {
        let why = "The input receipt handle is invalid.";
        return Err(invalid("ReceiptHandleIsInvalid", why.to_owned()));
    }
    if queue.is_empty() {
        state.borrow_mut().drained = Some(clock::now());
    }
    Ok(bytes(&json!({})))
}

fn extend(
    body: &[u8],
    state: &SharedServer,
    called: BootInstant,
) -> Result<Vec<u8>, ProtocolFailure> {
    batch(body, state, |queue, entry| {
        let visibility = Duration::from_secs(entry.visibility_timeout.unwrap_or_default());
        let receipt = entry.receipt_handle.unwrap_or_default();
        let late = queue.change(&receipt, visibility, called)?;
        if !visibility.is_zero() {
            state.borrow_mut().late_ms.push(late);
        }
        Ok(json!({}))
    })
}
