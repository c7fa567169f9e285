//! Sends messages. Messages that SQS would refuse are refused here, with the position of the
//! problem, so that one oversized message does not fail a call with nine valid ones. Knows nothing
//! of receiving.

use super::batch::{EntryIds, MOST_BYTES, answers, calls};
use super::entry_errors::every_item;
use super::{BATCH, QueueTarget, convert};
use aws_sdk_sqs::types::{
    MessageSystemAttributeNameForSends, MessageSystemAttributeValue, SendMessageBatchRequestEntry,
    SendMessageBatchResultEntry,
};
use dispatcher_core::message;
use dispatcher_core::message::{Attribute, AttributeValue, OutgoingMessage};
use dispatcher_core::queue::{ErrorKind, ItemError};
use md5::Md5;
use sha2::{Digest, Sha256};
use std::time::Duration;

/// The longest delay of one message (SendMessage in the SQS API reference).
const LONGEST_DELAY_S: u16 = 900;

/// A message to send.
#[derive(Debug, Clone, Default)]
pub(super) struct SendEntry {
    pub body: String,
    pub attributes: Vec<Attribute>,
    pub delay: Duration,
    /// Whether a delay of zero overrides the queue's delay.
    pub exact: bool,
    pub group: Option<String>,
    /// The deduplication id, which is only sent to FIFO queues.
    pub deduplication: Option<String>,
    /// `AWSTraceHeader`, the only system attribute that a sender may set.
    pub trace_header: Option<String>,
}

impl SendEntry {
    /// Converts an outgoing message. Each message gets a new `deduplication`, so that the SDK's
    /// second attempt cannot send it twice, unless the queue deduplicates by content. A scheduled
    /// message gets the same id in each attempt: a repeated send is recognized as a duplicate,
    /// while the same body of the next minute is not.
    pub(super) fn of(outgoing: &OutgoingMessage, target: &QueueTarget) -> Self {
        let own = outgoing.deduplication.as_deref().map(deduplication_id);
        Self {
            body: outgoing.body.clone(),
            attributes: outgoing.attributes.clone(),
            delay: outgoing.delay,
            exact: outgoing.scheduled.is_some(),
            group: outgoing.group.clone(),
            deduplication: target
                .fifo
                .then(|| {
                    own.or_else(
                        || match (&outgoing.scheduled, target.content_deduplication) {
                            (Some(name), _) => Some(digest(name)),
                            (None, false) => Some(uuid::Uuid::new_v4().to_string()),
                            (None, true) => None,
                        },
                    )
                })
                .flatten(),
            trace_header: outgoing.trace_header.clone(),
        }
    }

    /// Returns the size in bytes as SQS counts it: the body and every attribute's name, type and
    /// value.
    pub(super) fn bytes(&self) -> usize {
        message::bytes(&self.body, &self.attributes)
    }

    fn refusal(&self, target: &QueueTarget) -> Option<String> {
        let bytes = self.bytes();
        if self.body.is_empty() {
            return Some(
                "SQS does not accept an empty message; wanted a body of at least one byte".into(),
            );
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

    /// Returns the first character that SQS does not accept and its position, which SQS does not
    /// report. SQS refuses only that message, not the whole call (SendMessageBatch in the SQS API
    /// reference lists no InvalidMessageContents among its errors; SendMessage does).
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

    fn entry(&self, id: String, target: &QueueTarget) -> SendMessageBatchRequestEntry {
        let delay = convert::seconds(self.delay, LONGEST_DELAY_S);
        let mut entry = SendMessageBatchRequestEntry::builder()
            .id(id)
            .message_body(&self.body)
            // Without a delay of the message, the queue's delay applies. FIFO queues only have the
            // queue's delay.
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

/// Returns a deduplication id unchanged if SQS accepts it, or else its digest. SQS accepts at most
/// 128 letters, digits and punctuation characters (SendMessage in the SQS API reference).
fn deduplication_id(id: &str) -> String {
    let is_legal =
        !id.is_empty() && id.len() <= 128 && id.bytes().all(|byte| byte.is_ascii_graphic());
    if is_legal { id.to_owned() } else { digest(id) }
}

/// Converts any name to a valid deduplication id of at most 128 letters and digits.
fn digest(name: &str) -> String {
    hex(&Sha256::digest(name))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sends to one queue, in order, in as many calls as the limits of SQS require. Also returns the
/// number of calls.
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
        let chosen_parcels: Vec<&SendEntry> = chosen.iter().map(|&at| &parcels[at]).collect();
        let call = send_once(target, &chosen_parcels).await;
        for (&at, answer) in chosen.iter().zip(call) {
            results[at] = answer;
        }
    }
    (results, made)
}

async fn send_once(target: &QueueTarget, parcels: &[&SendEntry]) -> Vec<Result<String, ItemError>> {
    let ids = EntryIds::fresh();
    let entries = parcels
        .iter()
        .enumerate()
        .map(|(position, parcel)| parcel.entry(ids.at(position), target));
    let sent = target
        .clients
        .control
        .send_message_batch()
        .queue_url(&target.url)
        .set_entries(Some(entries.collect()))
        .send()
        .await;
    let answer = match sent {
        Ok(answer) => answer,
        Err(error) => {
            let error = target.call("SendMessageBatch").failed(&error);
            // `NotFound` is not `Gone` here, since no receipt is involved: nothing can be sent to a
            // queue that does not exist.
            let item = match error.kind {
                ErrorKind::NotFound => ItemError::Refused(error.message),
                _ => every_item(&error),
            };
            return vec![Err(item); parcels.len()];
        }
    };
    let done = answer
        .successful
        .into_iter()
        .map(|entry| (entry.id.clone(), entry));
    let answers = answers(&ids, parcels.len(), done, &answer.failed);
    let parcels = parcels.iter();
    parcels
        .zip(answers)
        .map(|(parcel, answer)| message_id(&parcel.body, &answer?))
        .collect()
}

/// Returns the message id in the response. The response must have an id and the digest of this
/// body, since the original message may be deleted afterwards.
fn message_id(body: &str, sent: &SendMessageBatchResultEntry) -> Result<String, ItemError> {
    let wanted = hex(&Md5::digest(body));
    if sent.message_id.is_empty() {
        return Err(ItemError::Transient(
            "SQS's answer says that the message was sent, but not its MessageId".into(),
        ));
    }
    if !sent.md5_of_message_body.eq_ignore_ascii_case(&wanted) {
        return Err(ItemError::Transient(format!(
            "SQS's answer is about another body: its MD5OfMessageBody is `{}`, wanted `{wanted}`",
            sent.md5_of_message_body
        )));
    }
    Ok(sent.message_id.clone())
}

#[cfg(test)]
mod tests;
