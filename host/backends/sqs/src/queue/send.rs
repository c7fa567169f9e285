//! Sends messages: those that SQS would refuse are refused here, so that one oversized message does
//! not fail the call of nine good ones, and with the position of the problem. Knows nothing of
//! receiving.

use super::batch::{MOST_BYTES, answers, calls, entry_id};
use super::entry_errors::every_item;
use super::{BATCH, QueueTarget, convert};
use aws_sdk_sqs::types::{
    MessageSystemAttributeNameForSends, MessageSystemAttributeValue, SendMessageBatchRequestEntry,
};
use dispatcher_core::message;
use dispatcher_core::message::{Attribute, AttributeValue, Outgoing};
use dispatcher_core::queue::{ErrorKind, ItemError};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// The longest delay of one message (SendMessage in the SQS API reference).
const LONGEST_DELAY_S: u16 = 900;

/// A message ready to be sent.
#[derive(Debug, Clone, Default)]
pub(super) struct SendEntry {
    pub body: String,
    pub attributes: Vec<Attribute>,
    pub delay: Duration,
    /// Whether that is meant where it is zero too, and not the queue's own delay.
    pub exact: bool,
    pub group: Option<String>,
    /// Told to FIFO queues only.
    pub deduplication: Option<String>,
    /// `AWSTraceHeader`, the one system attribute that a sender may set.
    pub trace_header: Option<String>,
}

impl SendEntry {
    /// What a person or a handler wants sent. `deduplication` is made anew for each parcel, so
    /// that the SDK's second attempt cannot send it twice, unless the queue makes its own. What the
    /// schedule sends has the same at each attempt: a body that comes every minute is no duplicate,
    /// and what is sent again since no answer came is one.
    pub(super) fn of(outgoing: &Outgoing, target: &QueueTarget) -> Self {
        let own = outgoing.deduplication.as_deref().map(deduplication_id);
        let made = || match (&outgoing.scheduled, target.content_deduplication) {
            (Some(name), _) => Some(digest(name)),
            (None, false) => Some(uuid::Uuid::new_v4().to_string()),
            (None, true) => None,
        };
        Self {
            body: outgoing.body.clone(),
            attributes: outgoing.attributes.clone(),
            delay: outgoing.delay,
            exact: outgoing.scheduled.is_some(),
            group: outgoing.group.clone(),
            deduplication: target.fifo.then(|| own.or_else(made)).flatten(),
            trace_header: outgoing.trace_header.clone(),
        }
    }

    /// As SQS counts it: the body and every attribute's name, type and value.
    pub(super) fn bytes(&self) -> usize {
        message::bytes(&self.body, &self.attributes)
    }

    fn refusal(&self, target: &QueueTarget) -> Option<String> {
        let bytes = self.bytes();
        if self.body.is_empty() {
            return Some("SQS accepts no empty message; wanted a body of at least one byte".into());
        }
        if bytes > MOST_BYTES {
            return Some(format!(
                "the message has {bytes} bytes with its attributes; SQS accepts at most {MOST_BYTES}"
            ));
        }
        if let Some(found) = self.untaken() {
            return Some(format!(
                "{found}; SQS accepts only the characters of XML 1.0"
            ));
        }
        if target.fifo && !self.delay.is_zero() {
            return Some(format!(
                "`{}` is a FIFO queue, which cannot delay single messages; set the queue's own DelaySeconds or send without a delay",
                target.name
            ));
        }
        if self.delay > Duration::from_secs(LONGEST_DELAY_S.into()) {
            return Some(format!(
                "SQS delays a message by at most {LONGEST_DELAY_S} s (15 minutes), not {} s; longer delays need a local queue in this version",
                self.delay.as_secs()
            ));
        }
        if target.fifo && self.group.is_none() {
            return Some(format!(
                "`{}` is a FIFO queue; wanted a message group",
                target.name
            ));
        }
        None
    }

    /// The first character that SQS does not take, and where it is, which SQS does not tell. SQS
    /// refuses that message, not the whole call (SendMessageBatch in the SQS API reference, which
    /// names InvalidMessageContents among no call's errors but SendMessage's).
    fn untaken(&self) -> Option<String> {
        let attributes = self.attributes.iter().filter_map(|one| match &one.value {
            AttributeValue::Text(text) => Some((format!("attribute `{}`", one.name), text)),
            AttributeValue::Binary(_) => None,
        });
        let mut texts = std::iter::once(("the body".to_owned(), &self.body)).chain(attributes);
        texts.find_map(|(what, text)| {
            let (at, c) = text.char_indices().find(|(_, c)| !convert::takes(*c))?;
            Some(format!(
                "{what} contains U+{:04X} at byte {at}",
                u32::from(c)
            ))
        })
    }

    fn entry(&self, position: usize, target: &QueueTarget) -> SendMessageBatchRequestEntry {
        let delay = convert::seconds(self.delay, LONGEST_DELAY_S);
        let mut entry = SendMessageBatchRequestEntry::builder()
            .id(entry_id(position))
            .message_body(&self.body)
            // Without its own delay the queue's applies; on FIFO queues there is no other.
            .set_delay_seconds((delay > 0 || self.exact && !target.fifo).then_some(delay))
            .set_message_group_id(self.group.clone());
        if target.fifo {
            entry = entry.set_message_deduplication_id(self.deduplication.clone());
        }
        for attribute in &self.attributes {
            entry = entry.message_attributes(&attribute.name, convert::attribute(attribute));
        }
        if let Some(header) = &self.trace_header {
            let value = MessageSystemAttributeValue::builder()
                .data_type("String")
                .string_value(header)
                .build()
                .expect("the data type, the one required field, is set");
            entry = entry.message_system_attributes(
                MessageSystemAttributeNameForSends::AwsTraceHeader,
                value,
            );
        }
        entry.build().expect("id and body are set")
    }
}

/// A deduplication id as it is if SQS takes it, else its digest: at most 128 letters, digits and
/// punctuation (SendMessage in the SQS API reference).
fn deduplication_id(id: &str) -> String {
    let is_legal =
        !id.is_empty() && id.len() <= 128 && id.bytes().all(|byte| byte.is_ascii_graphic());
    if is_legal { id.to_owned() } else { digest(id) }
}

/// A name of any length and letters as SQS takes a deduplication id: at most 128 letters and digits.
fn digest(name: &str) -> String {
    let bytes = Sha256::digest(name);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sends to one queue, in order, in as many calls as SQS's limits ask for: that many were made.
pub(super) async fn send(
    target: &QueueTarget,
    parcels: &[SendEntry],
) -> (Vec<Result<String, ItemError>>, usize) {
    let mut results: Vec<Result<String, ItemError>> = parcels
        .iter()
        .map(|parcel| match parcel.refusal(target) {
            Some(words) => Err(ItemError::Refused(words)),
            None => Ok(String::new()),
        })
        .collect();
    let good: Vec<usize> = (0..parcels.len())
        .filter(|&at| results[at].is_ok())
        .collect();
    let sizes: Vec<usize> = good.iter().map(|&at| parcels[at].bytes()).collect();
    let ranges = calls(&sizes, BATCH);
    let made = ranges.len();
    for range in ranges {
        let chosen = &good[range];
        let entries = chosen
            .iter()
            .enumerate()
            .map(|(position, &at)| parcels[at].entry(position, target))
            .collect();
        let call = send_once(target, chosen.len(), entries).await;
        for (&at, answer) in chosen.iter().zip(call) {
            results[at] = answer;
        }
    }
    (results, made)
}

async fn send_once(
    target: &QueueTarget,
    count: usize,
    entries: Vec<SendMessageBatchRequestEntry>,
) -> Vec<Result<String, ItemError>> {
    let sent = target
        .clients
        .control
        .send_message_batch()
        .queue_url(&target.url)
        .set_entries(Some(entries))
        .send()
        .await;
    match sent {
        Ok(answer) => {
            let done = answer.successful.into_iter().map(|e| (e.id, e.message_id));
            answers(count, done, &answer.failed)
        }
        Err(error) => {
            let error = target.call("SendMessageBatch").failed(&error);
            // No receipt is at stake here: nothing can be sent to a queue that does not exist.
            let item = match error.kind {
                ErrorKind::NotFound => ItemError::Refused(error.message),
                _ => every_item(&error),
            };
            vec![Err(item); count]
        }
    }
}

#[cfg(test)]
mod tests;
