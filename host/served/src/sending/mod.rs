//! `SendMessage` and its batch: checks, digests, deduplication ids.

use super::attributes::is_fifo;
use super::content;
use super::fault::{Fault, FaultKind};
use super::input::{Batch, Send};
use super::service::Service;
use dispatcher_core::message;
use dispatcher_core::message::{Attribute, AttributeValue, OutgoingMessage};
use dispatcher_local::queue::{
    KnownQueue, LONGEST_MESSAGE, QueuedSend, SentMessage, content_id, once_key,
};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// SQS's limits.
const MOST_ENTRIES: usize = 10;
const LONGEST_ID: usize = 80;
const LONGEST_DELAY_S: i64 = 900;
const LONGEST_FIFO_ID: usize = 128;
/// The only system attribute that a sender may set.
const TRACE: &str = "AWSTraceHeader";

const NO_DEDUPLICATION_ID: &str = "The queue should either have ContentBasedDeduplication enabled or \
                                   MessageDeduplicationId provided explicitly";

/// A message that may be sent, with the digests for its sender.
struct CheckedMessage {
    draft: QueuedSend,
    size: u64,
    body_md5: String,
    attributes_md5: Option<String>,
    system_md5: Option<String>,
}

/// The call that a message comes in. SQS words one of its refusals by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Single,
    Batch,
}

impl CheckedMessage {
    /// Adds the trace of the HTTP request, unless the message has its own. The digest of the
    /// attributes that the sender gets does not include it.
    fn trace(&mut self, header: Option<&str>) {
        let system = &mut self.draft.system;
        if let Some(header) = header
            && !system.iter().any(|(name, _)| name == TRACE)
        {
            system.push((TRACE.to_owned(), header.to_owned()));
        }
    }

    fn answer(&self, sent: &SentMessage) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("MessageId".into(), sent.id.clone().into());
        fields.insert("MD5OfMessageBody".into(), self.body_md5.clone().into());
        if let Some(md5) = &self.attributes_md5 {
            fields.insert("MD5OfMessageAttributes".into(), md5.clone().into());
        }
        if let Some(md5) = &self.system_md5 {
            fields.insert("MD5OfMessageSystemAttributes".into(), md5.clone().into());
        }
        if self.draft.once.is_some() {
            fields.insert("SequenceNumber".into(), sequence(sent.seq).into());
        }
        fields
    }
}

/// Returns a position in the order of sending, as wide as SQS writes it.
pub(crate) fn sequence(seq: i64) -> String {
    format!("{seq:020}")
}

impl Service {
    pub(super) async fn send(
        &self,
        path: Option<&str>,
        trace: Option<String>,
        asked: Send,
    ) -> Result<Value, Fault> {
        let queue = self.queue(path, asked.queue_url.as_deref()).await?;
        let mut checked = check(&queue, asked, Call::Single)?;
        checked.trace(trace.as_deref());
        let drafts = vec![checked.draft.clone()];
        let mut answers = self.store.send_to(queue.id, drafts).await?;
        let sent = answers.pop().ok_or_else(Fault::no_queue)??;
        Ok(Value::Object(checked.answer(&sent)))
    }

    pub(super) async fn send_batch(
        &self,
        path: Option<&str>,
        trace: Option<String>,
        asked: Batch<Send>,
    ) -> Result<Value, Fault> {
        let queue = self.queue(path, asked.queue_url.as_deref()).await?;
        let entries = asked.entries.unwrap_or_default();
        let given = entries.iter().map(|entry| entry.id.as_deref());
        let ids = batch_ids("SendMessageBatch", given)?;
        check_order(&queue, &entries)?;
        let mut total = 0;
        let mut outcome = Outcome::default();
        let mut good = Vec::new();
        for (id, entry) in ids.into_iter().zip(entries) {
            let text = entry.message_body.as_deref().map_or(0, str::len) as u64;
            match check(&queue, entry, Call::Batch) {
                Ok(mut checked) => {
                    checked.trace(trace.as_deref());
                    total += checked.size;
                    good.push((id, checked));
                }
                Err(fault) => {
                    total += text;
                    outcome.fail(id, &fault);
                }
            }
        }
        if total > LONGEST_MESSAGE {
            return Err(Fault::new(
                FaultKind::BatchRequestTooLong,
                format!(
                    "Batch requests cannot be longer than {LONGEST_MESSAGE} bytes. You have sent \
                     {total} bytes."
                ),
            ));
        }
        let drafts = good.iter().map(|(_, checked)| checked.draft.clone());
        let answers = self.store.send_to(queue.id, drafts.collect()).await?;
        for ((id, checked), answer) in good.into_iter().zip(answers) {
            match answer {
                Ok(sent) => outcome.succeed(id, checked.answer(&sent)),
                Err(error) => outcome.fail(id, &error.into()),
            }
        }
        Ok(outcome.into_json())
    }
}

/// The answers to the entries of a batch.
#[derive(Default)]
pub(crate) struct Outcome {
    successful: Vec<Value>,
    failed: Vec<Value>,
}

impl Outcome {
    /// Adds a successful entry with its other fields.
    pub(crate) fn succeed(&mut self, id: String, mut fields: Map<String, Value>) {
        fields.insert("Id".into(), id.into());
        self.successful.push(Value::Object(fields));
    }

    /// Adds a refused entry.
    pub(crate) fn fail(&mut self, id: String, fault: &Fault) {
        self.failed.push(json!({
            "Id": id,
            "Code": fault.kind.query(),
            "Message": fault.message,
            "SenderFault": fault.kind.is_sender(),
        }));
    }

    /// Returns the answer to the whole batch.
    pub(crate) fn into_json(self) -> Value {
        let mut fields = Map::new();
        // Some SDKs need the list of successes even if it is empty. SQS omits an empty list of
        // failures.
        fields.insert("Successful".into(), self.successful.into());
        if !self.failed.is_empty() {
            fields.insert("Failed".into(), self.failed.into());
        }
        Value::Object(fields)
    }
}

/// Checks the ids of a batch's entries by the rules of SQS and returns them.
pub(crate) fn batch_ids<'a>(
    action: &str,
    ids: impl ExactSizeIterator<Item = Option<&'a str>>,
) -> Result<Vec<String>, Fault> {
    match ids.len() {
        0 => {
            return Err(Fault::new(
                FaultKind::EmptyBatchRequest,
                format!("There should be at least one {action}RequestEntry in the request."),
            ));
        }
        1..=MOST_ENTRIES => {}
        more => {
            return Err(Fault::new(
                FaultKind::TooManyEntriesInBatchRequest,
                format!(
                    "Maximum number of entries per request are {MOST_ENTRIES}. You have sent {more}."
                ),
            ));
        }
    }
    let mut seen = Vec::new();
    for id in ids {
        let id = id.unwrap_or_default();
        if id.is_empty()
            || id.len() > LONGEST_ID
            || !id
                .chars()
                .all(|c: char| c.is_ascii_alphanumeric() || "-_".contains(c))
        {
            return Err(Fault::new(
                FaultKind::InvalidBatchEntryId,
                "A batch entry id can only contain alphanumeric characters, hyphens and \
                 underscores. It can be at most 80 letters long.",
            ));
        }
        if seen.iter().any(|known| known == id) {
            return Err(Fault::new(
                FaultKind::BatchEntryIdsNotDistinct,
                format!("Id {id} repeated."),
            ));
        }
        seen.push(id.to_owned());
    }
    Ok(seen)
}

/// Refuses a whole batch to a FIFO queue if an entry has no group or no deduplication id, as SQS
/// does: later entries must not be sent before it.
fn check_order(queue: &KnownQueue, entries: &[Send]) -> Result<(), Fault> {
    if !is_fifo(&queue.name) {
        return Ok(());
    }
    for entry in entries {
        if entry.message_deduplication_id.is_none() && !queue.settings.ids_from_content {
            return Err(Fault::new(
                FaultKind::InvalidParameterValue,
                NO_DEDUPLICATION_ID,
            ));
        }
        if entry.message_group_id.is_none() {
            return Err(Fault::new(
                FaultKind::InvalidParameterValue,
                "The request must contain the parameter MessageGroupId.",
            ));
        }
    }
    Ok(())
}

fn check(queue: &KnownQueue, asked: Send, call: Call) -> Result<CheckedMessage, Fault> {
    let body = content::body(asked.message_body)?;
    let attributes = content::attributes(asked.message_attributes)?;
    let size = message::bytes(&body, &attributes) as u64;
    if size > queue.settings.longest {
        let are = match call {
            Call::Single => "are invalid",
            Call::Batch => "cannot be validated",
        };
        return Err(Fault::new(
            FaultKind::InvalidParameterValue,
            format!(
                "One or more parameters {are}. Reason: Message must be shorter than {} bytes.",
                queue.settings.longest
            ),
        ));
    }
    let mut system_given = Vec::new();
    for (name, given) in asked.message_system_attributes.unwrap_or_default() {
        if name != TRACE {
            return Err(Fault::new(
                FaultKind::InvalidParameterValue,
                format!("Message system attribute name '{name}' is invalid."),
            ));
        }
        system_given.push(content::attribute(name, given)?);
    }
    let mut system = texts(&system_given);
    let fifo = is_fifo(&queue.name);
    let delay = delay(queue, fifo, asked.delay_seconds)?;
    let group = fifo_id("MessageGroupId", asked.message_group_id)?;
    let given_id = fifo_id("MessageDeduplicationId", asked.message_deduplication_id)?;
    let (group, once) = if fifo {
        let group = group.ok_or_else(|| Fault::missing("MessageGroupId"))?;
        let id = deduplication_id(queue, given_id, &body)?;
        system.push(("MessageDeduplicationId".into(), id.clone()));
        let key = once_key(&queue.settings, &group, &id);
        (Some(group), Some(key))
    } else if let Some(id) = given_id {
        return Err(Fault::value(
            id,
            "MessageDeduplicationId",
            "The request includes a parameter that is not valid for this queue type.",
        ));
    } else {
        // Here the group is for fair shares only: it keeps no order and delays no message.
        (group, None)
    };
    Ok(CheckedMessage {
        size,
        body_md5: content::md5(body.as_bytes()),
        attributes_md5: content::attributes_md5(&attributes),
        system_md5: content::attributes_md5(&system_given),
        draft: QueuedSend {
            message: OutgoingMessage {
                body,
                attributes,
                delay,
                group,
                ..OutgoingMessage::default()
            },
            system,
            once,
        },
    })
}

fn texts(attributes: &[Attribute]) -> Vec<(String, String)> {
    attributes
        .iter()
        .filter_map(|attribute: &Attribute| match &attribute.value {
            AttributeValue::Text(text) => Some((attribute.name.clone(), text.clone())),
            AttributeValue::Binary(_) => None,
        })
        .collect()
}

fn delay(queue: &KnownQueue, fifo: bool, asked: Option<i64>) -> Result<Duration, Fault> {
    let own = Duration::from_secs(queue.settings.delay_s);
    match asked {
        None => Ok(own),
        Some(seconds) if !(0..=LONGEST_DELAY_S).contains(&seconds) => Err(Fault::value(
            seconds,
            "DelaySeconds",
            "DelaySeconds must be >= 0 and <= 900.",
        )),
        Some(0) if fifo => Ok(own),
        Some(seconds) if fifo => Err(Fault::value(
            seconds,
            "DelaySeconds",
            "The request include parameter that is not valid for this queue type.",
        )),
        Some(seconds) => Ok(Duration::from_secs(seconds.unsigned_abs())),
    }
}

/// Checks the id of a group, a deduplication or an attempt: letters, digits and punctuation.
pub(crate) fn fifo_id(parameter: &str, given: Option<String>) -> Result<Option<String>, Fault> {
    let Some(id) = given else {
        return Ok(None);
    };
    let legal =
        !id.is_empty() && id.len() <= LONGEST_FIFO_ID && id.chars().all(|c| c.is_ascii_graphic());
    if legal {
        Ok(Some(id))
    } else {
        Err(Fault::value(
            &id,
            parameter,
            &format!(
                "{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in \
                 length."
            ),
        ))
    }
}

fn deduplication_id(
    queue: &KnownQueue,
    given: Option<String>,
    body: &str,
) -> Result<String, Fault> {
    match given {
        Some(id) => Ok(id),
        None if queue.settings.ids_from_content => Ok(content_id(body)),
        None => Err(Fault::new(
            FaultKind::InvalidParameterValue,
            NO_DEDUPLICATION_ID,
        )),
    }
}

#[cfg(test)]
mod tests;
