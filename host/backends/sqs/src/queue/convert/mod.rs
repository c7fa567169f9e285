//! Converts between the types of SQS and those of the program. Pure; makes no calls.

use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{self as sdk, MessageAttributeValue};
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::{Attribute, AttributeValue, ContentError, Message, Receipt};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The order of these attributes in AWS's events, which the SDK's map has lost. Other attributes
/// follow, sorted by name.
const SYSTEM_ORDER: [&str; 9] = [
    "ApproximateReceiveCount",
    "AWSTraceHeader",
    "SentTimestamp",
    "SequenceNumber",
    "MessageGroupId",
    "SenderId",
    "MessageDeduplicationId",
    "ApproximateFirstReceiveTimestamp",
    "DeadLetterQueueSourceArn",
];

/// Converts a delivery to a message. Returns `None` for a delivery without an id or receipt, which
/// could be neither identified nor settled.
pub(super) fn message(delivery: sdk::Message, queue: &str, source: &str) -> Option<Message> {
    let mut system: Vec<(String, String)> = delivery
        .attributes
        .unwrap_or_default()
        .into_iter()
        .map(|(name, value)| (name.as_str().to_owned(), value))
        .collect();
    sort_system_attributes(&mut system);
    let mut unreadable = delivery
        .body
        .is_none()
        .then(|| "no body in SQS's answer".to_owned());
    let delivered = delivery.message_attributes.unwrap_or_default();
    let attributes = attributes(delivered).unwrap_or_else(|why| {
        unreadable.get_or_insert(why);
        Vec::new()
    });
    Some(Message {
        id: delivery.message_id?,
        queue: queue.to_owned(),
        body: delivery.body.unwrap_or_default(),
        source: source.to_owned(),
        receipt: Receipt(delivery.receipt_handle?),
        receive_count: number(&system, "ApproximateReceiveCount")
            .and_then(|count| u32::try_from(count).ok())
            .unwrap_or(1)
            .max(1),
        sent_at: number(&system, "SentTimestamp").map(Timestamp),
        first_received_at: number(&system, "ApproximateFirstReceiveTimestamp").map(Timestamp),
        group: find(&system, "MessageGroupId").map(str::to_owned),
        attributes,
        body_md5: delivery.md5_of_body,
        attributes_md5: delivery.md5_of_message_attributes,
        unreadable: unreadable.map(ContentError::Unreadable),
        system_attributes: system,
    })
}

/// Returns a system attribute of a message.
pub(super) fn find<'a>(system: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let (_, value) = system.iter().find(|(known, _)| known == name)?;
    Some(value)
}

fn number(system: &[(String, String)], name: &str) -> Option<u64> {
    find(system, name)?.parse().ok()
}

fn sort_system_attributes(list: &mut [(String, String)]) {
    list.sort_by(|(a, _), (b, _)| rank(a).cmp(&rank(b)).then_with(|| a.cmp(b)));
}

/// Returns the place of a system attribute in `SYSTEM_ORDER`.
fn rank(name: &str) -> usize {
    let place = SYSTEM_ORDER.iter().position(|known| *known == name);
    place.unwrap_or(SYSTEM_ORDER.len())
}

/// Returns the sender's attributes, sorted by name. The error names an attribute without a value.
fn attributes(delivered: HashMap<String, MessageAttributeValue>) -> Result<Vec<Attribute>, String> {
    let by_name: BTreeMap<String, MessageAttributeValue> = delivered.into_iter().collect();
    let attributes = by_name.into_iter().map(|(name, found)| {
        let value = match (found.binary_value, found.string_value) {
            (Some(bytes), _) => AttributeValue::Binary(bytes.into_inner()),
            (None, Some(text)) => AttributeValue::Text(text),
            (None, None) => return Err(format!("its attribute `{name}` has no value")),
        };
        Ok(Attribute {
            name,
            data_type: found.data_type,
            value,
        })
    });
    attributes.collect()
}

/// Converts an attribute to the type of SQS.
pub(super) fn attribute(attribute: &Attribute) -> MessageAttributeValue {
    let builder = MessageAttributeValue::builder().data_type(&attribute.data_type);
    match &attribute.value {
        AttributeValue::Text(text) => builder.string_value(text),
        AttributeValue::Binary(bytes) => builder.binary_value(Blob::new(bytes.clone())),
    }
    .build()
    .expect("the data type, the one required field, is set")
}

/// Whether SQS accepts this character in a body or an attribute: those of XML 1.0 (SendMessage in
/// the SQS API reference).
pub(super) fn takes(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        || c >= '\u{10000}'
}

/// Converts a duration to whole seconds, the unit of SQS: rounded up, so that no message becomes
/// visible and no wait ends earlier than requested, and at most `most`.
pub(super) fn seconds(duration: Duration, most: u16) -> i32 {
    let whole = duration
        .as_secs()
        .saturating_add(u64::from(duration.subsec_nanos() > 0));
    u16::try_from(whole).map_or(most, |s| s.min(most)).into()
}

#[cfg(test)]
mod tests;
