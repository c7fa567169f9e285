//! `ReceiveMessage`: its parameters, and messages in SQS's form.

use super::attributes::is_fifo;
use super::content;
use super::fault::{Fault, FaultKind};
use super::input::Receive;
use super::sending::{fifo_id, sequence};
use super::service::{Reply, Service};
use dispatcher_core::clock;
use dispatcher_core::memory::HeldBytes;
use dispatcher_core::message::{AttributeValue, Message, Outcome};
use dispatcher_core::queue::{Ask, GroupShare, Queue, ReceivedMessages};
use dispatcher_core::tasks;
use dispatcher_local::queue::KnownQueue;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// SQS's limits.
const MOST_MESSAGES: i64 = 10;
const LONGEST_WAIT_S: i64 = 20;
pub(crate) const LONGEST_VISIBILITY_S: i64 = 43_200;
/// The minimum time that a receive waits for memory. Answers to other clients are written
/// meanwhile.
const SHORT_OF_MEMORY: Duration = Duration::from_secs(5);
/// The interval at which a waiting receive checks whether an operator has paused the queue. With
/// `FRESH` it is within the five seconds in which `dispatcher run` obeys.
const PAUSE_LOOK: Duration = Duration::from_secs(4);
/// The sender of every message; the server does not know who sent it.
const SENDER: &str = "000000000000";
/// The system attributes of a message.
const SYSTEM: [&str; 9] = [
    "ApproximateFirstReceiveTimestamp",
    "ApproximateReceiveCount",
    "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
    "MessageDeduplicationId",
    "MessageGroupId",
    "SenderId",
    "SentTimestamp",
    "SequenceNumber",
];

/// The attributes of a message that the client wants.
struct WantedAttributes {
    system: Vec<String>,
    attributes: Vec<String>,
}

impl Service {
    pub(super) async fn receive(&self, path: Option<&str>, asked: Receive) -> Result<Reply, Fault> {
        let queue = self.queue(path, asked.queue_url.as_deref()).await?;
        let ask = ask(&queue, &asked)?;
        let wanted = WantedAttributes::of(&asked)?;
        let attempt = fifo_id("ReceiveRequestAttemptId", asked.receive_request_attempt_id)?;
        if attempt.is_some() && !is_fifo(&queue.name) {
            return Err(Fault::new(
                FaultKind::InvalidParameterValue,
                "ReceiveRequestAttemptId is only valid for FIFO queues.",
            ));
        }
        let ReceivedMessages { messages, held, .. } = match attempt {
            Some(attempt) => self.receive_once(&queue, ask, &attempt).await?,
            None => self.receive_unless_paused(&queue, ask).await?,
        };
        let messages = self.set_aside(&queue, messages).await?;
        let mut fields = Map::new();
        if !messages.is_empty() {
            let shown = messages
                .into_iter()
                .map(|message| show(&queue, message, &wanted));
            fields.insert("Messages".into(), shown.collect());
        }
        let value = Value::Object(fields);
        Ok(Reply { value, held })
    }

    /// Receives messages, and none while an operator has paused the queue.
    async fn receive_unless_paused(
        &self,
        queue: &KnownQueue,
        ask: Ask,
    ) -> Result<ReceivedMessages, Fault> {
        let until = clock::now() + ask.wait;
        loop {
            let is_paused = match self.named(&queue.name).await {
                Ok(known) if known.settings.incarnation == queue.settings.incarnation => {
                    known.paused
                }
                // The queue was deleted meanwhile. Messages of the next queue of its name are not
                // for this call.
                Ok(_) => return Ok(ReceivedMessages::default()),
                Err(fault) if fault.kind == FaultKind::QueueDoesNotExist => {
                    return Ok(ReceivedMessages::default());
                }
                Err(fault) => return Err(fault),
            };
            let now = clock::now();
            let left = until.since(now);
            let wait = left.min(PAUSE_LOOK);
            let received = if is_paused {
                tokio::select! {
                    () = clock::sleep_until(Some(now + wait)) => {}
                    () = self.hurry.cancelled() => {}
                }
                ReceivedMessages::default()
            } else {
                let ask = Ask { wait, ..ask };
                self.receive_within_budget(queue, ask).await?
            };
            let is_last = wait == left || self.hurry.is_cancelled();
            if is_last || !received.messages.is_empty() {
                return Ok(received);
            }
        }
    }

    /// Receives as many messages as the memory beside pending answers allows. The rest stays in the
    /// queue.
    async fn receive_within_budget(
        &self,
        queue: &KnownQueue,
        mut ask: Ask,
    ) -> Result<ReceivedMessages, Fault> {
        let until = clock::now() + ask.wait.max(SHORT_OF_MEMORY);
        loop {
            let budget = Arc::clone(&self.budget);
            let received = self
                .store
                .receive_from(queue, ask, budget, &self.hurry)
                .await?;
            let nothing = received.messages.is_empty();
            let (Some(bytes), true) = (received.short_of, nothing) else {
                return Ok(received);
            };
            if ask.overdraw {
                return Err(out_of_memory());
            }
            tokio::select! {
                () = self.budget.available(bytes) => {}
                () = clock::sleep_until(Some(until)) => ask.overdraw = true,
                () = self.hurry.cancelled() => return Ok(received),
            }
            ask.wait = ask.wait.min(until.since(clock::now()));
        }
    }

    /// Reserves this many bytes once pending answers leave them free.
    async fn reserve(&self, bytes: u64, wait: Duration) -> Result<HeldBytes, Fault> {
        let until = clock::now() + wait.max(SHORT_OF_MEMORY);
        loop {
            if let Some(held) = self.budget.try_take(bytes) {
                return Ok(held);
            }
            tokio::select! {
                () = self.budget.available(bytes) => {}
                () = clock::sleep_until(Some(until)) => {
                    return self.budget.overdraw(bytes).ok_or_else(out_of_memory);
                }
            }
        }
    }

    /// Moves messages whose content is missing or cannot be read to the dead-letter queue, and
    /// returns the others. A client would take such messages for empty ones.
    async fn set_aside(
        &self,
        queue: &KnownQueue,
        messages: Vec<Message>,
    ) -> Result<Vec<Message>, Fault> {
        let (bad, good): (Vec<_>, Vec<_>) = messages
            .into_iter()
            .partition(|message| message.unreadable.is_some());
        if bad.is_empty() {
            return Ok(good);
        }
        let ends: Vec<(Message, Outcome)> = bad
            .into_iter()
            .map(|message| {
                let why = message.unreadable.as_ref();
                let reason = why.map(ToString::to_string).unwrap_or_default();
                tracing::warn!(
                    queue = queue.name,
                    message_id = message.id,
                    reason,
                    "message dead-lettered at receive"
                );
                (message, Outcome::DeadLetter(reason))
            })
            .collect();
        let (store, name) = (self.store.clone(), queue.name.clone());
        let opening = tasks::blocking(move || store.queue(&name, None));
        let opened = opening.finished().await?;
        for answer in opened.settle(&ends).await {
            if let Err(error) = answer {
                tracing::error!(queue = queue.name, %error, "message not dead-lettered");
            }
        }
        Ok(good)
    }

    /// Returns the same messages to the same attempt, as long as they have not changed.
    async fn receive_once(
        &self,
        queue: &KnownQueue,
        ask: Ask,
        attempt: &str,
    ) -> Result<ReceivedMessages, Fault> {
        if let Some(before) = self.attempts.get(queue.id, attempt, clock::now()) {
            let held = vec![self.reserve(before.bytes, ask.wait).await?];
            let again = self
                .store
                .take_again(queue, before.receipts, before.until, ask.visibility);
            if let Some((messages, until)) = again.await? {
                self.attempts.renew(queue.id, attempt, until);
                return Ok(ReceivedMessages {
                    messages,
                    held,
                    ..ReceivedMessages::default()
                });
            }
        }
        let received = self.receive_unless_paused(queue, ask).await?;
        if let Some(first) = received.messages.first()
            && let Some(until) = self.store.until(queue.id, first.receipt.clone()).await?
        {
            let (messages, now) = (&received.messages, clock::now());
            self.attempts.keep(queue.id, attempt, messages, until, now);
        }
        Ok(received)
    }
}

/// Returns the error for a lack of memory. SDKs retry it by themselves.
fn out_of_memory() -> Fault {
    Fault::new(
        FaultKind::Unavailable,
        "Answers that clients have not read yet hold all memory for messages.",
    )
}

fn ask(queue: &KnownQueue, asked: &Receive) -> Result<Ask, Fault> {
    let settings = &queue.settings;
    let max = within(
        asked.max_number_of_messages,
        MOST_MESSAGES,
        1,
        "MaxNumberOfMessages",
    )?;
    let wait = within(
        asked.wait_time_seconds,
        LONGEST_WAIT_S,
        0,
        "WaitTimeSeconds",
    )?;
    let visibility = within(
        asked.visibility_timeout,
        LONGEST_VISIBILITY_S,
        0,
        "VisibilityTimeout",
    )?;
    Ok(Ask {
        max: usize::try_from(max.unwrap_or(1)).unwrap_or(1),
        wait: Duration::from_secs(wait.unwrap_or(settings.wait_s)),
        visibility: Duration::from_secs(visibility.unwrap_or(settings.visibility_s)),
        // As SQS does: as many as possible of one group.
        groups: GroupShare::Fill,
        ..Ask::PLAIN
    })
}

fn within(value: Option<i64>, most: i64, least: i64, name: &str) -> Result<Option<u64>, Fault> {
    match value {
        Some(value) if !(least..=most).contains(&value) => {
            let reason = if name == "WaitTimeSeconds" {
                format!("Must be >= {least} and <= {most}, if provided.")
            } else {
                format!("Must be between {least} and {most}, if provided.")
            };
            Err(Fault::value(value, name, &reason))
        }
        value => Ok(value.map(i64::unsigned_abs)),
    }
}

impl WantedAttributes {
    fn of(asked: &Receive) -> Result<Self, Fault> {
        let mut system: Vec<String> = asked.attribute_names.clone().unwrap_or_default();
        system.extend(
            asked
                .message_system_attribute_names
                .clone()
                .unwrap_or_default(),
        );
        let strange = system
            .iter()
            .find(|name| *name != "All" && !SYSTEM.contains(&name.as_str()));
        if let Some(name) = strange {
            return Err(Fault::unknown_attribute(name));
        }
        Ok(Self {
            system,
            attributes: asked.message_attribute_names.clone().unwrap_or_default(),
        })
    }

    fn system(&self, name: &str) -> bool {
        self.system
            .iter()
            .any(|wanted| wanted == "All" || wanted == name)
    }

    /// Whether the client wants an attribute: by its name, by a prefix with `.*` after it, or by
    /// `All`, `*` or `.*`.
    fn attribute(&self, name: &str) -> bool {
        self.attributes.iter().any(|wanted| {
            wanted == "All"
                || wanted == "*"
                || wanted == name
                || wanted
                    .strip_suffix(".*")
                    .is_some_and(|prefix| name.starts_with(prefix))
        })
    }
}

fn show(queue: &KnownQueue, message: Message, wanted: &WantedAttributes) -> Value {
    let mut fields = Map::new();
    if !wanted.system.is_empty() {
        let system: Map<String, Value> = system(queue, &message)
            .into_iter()
            .filter(|(name, _)| wanted.system(name))
            .map(|(name, value)| (name, value.into()))
            .collect();
        if !system.is_empty() {
            fields.insert("Attributes".into(), system.into());
        }
    }
    let md5 = content::md5(message.body.as_bytes());
    fields.insert("MessageId".into(), message.id.into());
    fields.insert("ReceiptHandle".into(), message.receipt.0.into());
    fields.insert("MD5OfBody".into(), md5.into());
    fields.insert("Body".into(), message.body.into());
    let mut shown = message.attributes;
    shown.retain(|attribute| wanted.attribute(&attribute.name));
    if let Some(md5) = content::attributes_md5(&shown) {
        let fields_of_each = shown.into_iter().map(|attribute| {
            let value = match attribute.value {
                AttributeValue::Text(text) => {
                    json!({"DataType": attribute.data_type, "StringValue": text})
                }
                AttributeValue::Binary(bytes) => json!({
                    "DataType": attribute.data_type, "BinaryValue": content::base64(&bytes),
                }),
            };
            (attribute.name, value)
        });
        let list: Map<String, Value> = fields_of_each.collect();
        fields.insert("MessageAttributes".into(), list.into());
        fields.insert("MD5OfMessageAttributes".into(), md5.into());
    }
    Value::Object(fields)
}

/// Returns the system attributes of a message.
fn system(queue: &KnownQueue, message: &Message) -> Vec<(String, String)> {
    let mut list = message.system_attributes.clone();
    let mut add = |name: &str, value: String| list.push((name.to_owned(), value));
    add("SenderId", SENDER.into());
    add("ApproximateReceiveCount", message.receive_count.to_string());
    if let Some(sent) = message.sent_at {
        add("SentTimestamp", sent.0.to_string());
    }
    if let Some(first) = message.first_received_at {
        add("ApproximateFirstReceiveTimestamp", first.0.to_string());
    }
    if let Some(group) = &message.group {
        add("MessageGroupId", group.clone());
    }
    if is_fifo(&queue.name)
        && let Some(seq) = message.receipt.0.split('.').next()
        && let Ok(seq) = seq.parse()
    {
        add("SequenceNumber", sequence(seq));
    }
    list
}
