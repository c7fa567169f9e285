//! Converts between SQS's types and the program's. Pure; calls nothing.

use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{self as sdk, MessageAttributeValue};
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::{Attribute, AttributeValue, ContentError, Message, Receipt};
use std::time::Duration;

/// The order in which AWS writes these in its events; the SDK's map has lost it. Attributes that
/// are new to us follow by name.
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

/// A message as either client receives it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SqsDelivery {
    pub id: Option<String>,
    pub receipt: Option<String>,
    pub body: Option<String>,
    pub body_md5: Option<String>,
    pub attributes_md5: Option<String>,
    /// In any order.
    pub system_attributes: Vec<(String, String)>,
    /// In any order.
    pub attributes: Vec<DeliveredAttribute>,
}

/// An attribute of the sender's, as it was delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeliveredAttribute {
    pub name: String,
    pub data_type: String,
    pub text: Option<String>,
    pub binary: Option<Vec<u8>>,
}

impl From<sdk::Message> for SqsDelivery {
    fn from(message: sdk::Message) -> Self {
        let system = message.attributes.unwrap_or_default().into_iter();
        let attributes = message.message_attributes.unwrap_or_default().into_iter();
        Self {
            id: message.message_id,
            receipt: message.receipt_handle,
            body: message.body,
            body_md5: message.md5_of_body,
            attributes_md5: message.md5_of_message_attributes,
            system_attributes: system
                .map(|(name, value)| (name.as_str().to_owned(), value))
                .collect(),
            attributes: attributes
                .map(|(name, value)| DeliveredAttribute {
                    name,
                    data_type: value.data_type,
                    text: value.string_value,
                    binary: value.binary_value.map(Blob::into_inner),
                })
                .collect(),
        }
    }
}

/// A delivery as the program knows it. `None` for one without id or receipt, which could be
/// neither told apart nor settled.
pub(super) fn message(delivery: SqsDelivery, queue: &str, source: &str) -> Option<Message> {
    let mut system = delivery.system_attributes;
    sort_system_attributes(&mut system);
    let mut unreadable = delivery
        .body
        .is_none()
        .then(|| "no body in SQS's answer".to_owned());
    let attributes = attributes(delivery.attributes).unwrap_or_else(|why| {
        unreadable.get_or_insert(why);
        Vec::new()
    });
    let text = |name: &str| find(&system, name);
    let number = |name: &str| text(name).and_then(|value| value.parse::<u64>().ok());
    Some(Message {
        id: delivery.id?,
        queue: queue.to_owned(),
        body: delivery.body.unwrap_or_default(),
        source: source.to_owned(),
        receipt: Receipt(delivery.receipt?),
        receive_count: number("ApproximateReceiveCount")
            .and_then(|count| u32::try_from(count).ok())
            .unwrap_or(1)
            .max(1),
        sent_at: number("SentTimestamp").map(Timestamp),
        first_received_at: number("ApproximateFirstReceiveTimestamp").map(Timestamp),
        group: text("MessageGroupId").map(str::to_owned),
        attributes,
        body_md5: delivery.body_md5,
        attributes_md5: delivery.attributes_md5,
        unreadable: unreadable.map(ContentError::Unreadable),
        system_attributes: system,
    })
}

/// One of a message's system attributes.
pub(super) fn find<'a>(system: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let (_, value) = system.iter().find(|(known, _)| known == name)?;
    Some(value)
}

fn sort_system_attributes(list: &mut [(String, String)]) {
    let place = |name: &str| SYSTEM_ORDER.iter().position(|known| *known == name);
    list.sort_by(|(a, _), (b, _)| {
        let rank = |name: &str| place(name).unwrap_or(SYSTEM_ORDER.len());
        rank(a).cmp(&rank(b)).then_with(|| a.cmp(b))
    });
}

/// The sender's attributes by name. The error names one that has no value.
fn attributes(delivered: Vec<DeliveredAttribute>) -> Result<Vec<Attribute>, String> {
    let attribute = |found: DeliveredAttribute| {
        let value = match (found.binary, found.text) {
            (Some(bytes), _) => AttributeValue::Binary(bytes),
            (None, Some(text)) => AttributeValue::Text(text),
            (None, None) => {
                let name = found.name;
                return Err(format!("its attribute `{name}` has no value"));
            }
        };
        Ok(Attribute {
            name: found.name,
            data_type: found.data_type,
            value,
        })
    };
    let list = delivered.into_iter().map(attribute);
    let mut list: Vec<Attribute> = list.collect::<Result<_, _>>()?;
    list.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(list)
}

/// An attribute as SQS wants it.
pub(super) fn attribute(attribute: &Attribute) -> MessageAttributeValue {
    let builder = MessageAttributeValue::builder().data_type(&attribute.data_type);
    match &attribute.value {
        AttributeValue::Text(text) => builder.string_value(text),
        AttributeValue::Binary(bytes) => builder.binary_value(Blob::new(bytes.clone())),
    }
    .build()
    .expect("the data type, the one required field, is set")
}

/// Whether SQS takes this character in a body or an attribute: those of XML 1.0 (SendMessage in the
/// SQS API reference).
pub(super) fn takes(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        || c >= '\u{10000}'
}

/// Whole seconds, which is all that SQS knows: rounded up, so that nothing becomes visible or
/// gives up earlier than was asked for, and at most `most`.
pub(super) fn seconds(duration: Duration, most: u16) -> i32 {
    let whole = duration
        .as_secs()
        .saturating_add(u64::from(duration.subsec_nanos() > 0));
    u16::try_from(whole).map_or(most, |s| s.min(most)).into()
}

#[cfg(test)]
mod tests;
