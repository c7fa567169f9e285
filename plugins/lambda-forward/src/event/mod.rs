//! One message as one record of Lambda's SQS event: names, order and digests as Lambda writes
//! them. Knows nothing of batches and their sizes.

use crate::digest;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use dispatcher_guest::{Attribute, AttributeValue, Message};
use serde::{Serialize, Serializer};
use std::borrow::Cow;

/// The order in which Lambda writes the system attributes that it knows.
const ORDER: [&str; 9] = [
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

/// How a record without attributes says that they have no digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoDigest {
    /// The member is absent.
    Absent,
    /// It is null, as Lambda writes it for a mapping with a batching window.
    Null,
}

/// Appends the record of a message, as compact JSON.
pub fn write(message: &Message, no_digest: NoDigest, out: &mut Vec<u8>) {
    let record = Record::of(message, no_digest);
    serde_json::to_writer(out, &record).expect("strings become JSON, and memory takes any bytes");
}

/// Whether the messages of this one's group must be handled in order. A group that a sender named
/// on a standard queue of SQS only shares the queue fairly.
pub fn is_ordered(message: &Message) -> bool {
    let Some(group) = &message.group else {
        return false;
    };
    let mut told = message.system_attributes.iter();
    let fair = told.any(|(name, value)| name == "MessageGroupId" && value == group);
    !(fair && Origin::of(&message.source).is_standard_sqs())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Record<'a> {
    message_id: &'a str,
    receipt_handle: &'a str,
    body: &'a str,
    attributes: Members<'a, Cow<'a, str>>,
    message_attributes: Members<'a, Value<'a>>,
    /// None if the member is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    md5_of_message_attributes: Option<Option<Cow<'a, str>>>,
    md5_of_body: Cow<'a, str>,
    event_source: String,
    #[serde(rename = "eventSourceARN")]
    event_source_arn: Cow<'a, str>,
    aws_region: &'a str,
}

impl<'a> Record<'a> {
    fn of(message: &'a Message, no_digest: NoDigest) -> Self {
        let origin = Origin::of(&message.source);
        let given = |digest: &'a Option<String>| digest.as_deref().map(Cow::Borrowed);
        let attributes = &message.attributes;
        Self {
            message_id: &message.id,
            receipt_handle: &message.receipt,
            body: &message.body,
            attributes: Members(system_attributes(message, &origin)),
            message_attributes: Members(attributes.iter().map(Value::of).collect()),
            md5_of_message_attributes: if attributes.is_empty() {
                (no_digest == NoDigest::Null).then_some(None)
            } else {
                let digest = given(&message.attributes_md5);
                Some(Some(
                    digest.unwrap_or_else(|| digest::of_attributes(attributes).into()),
                ))
            },
            md5_of_body: given(&message.body_md5)
                .unwrap_or_else(|| digest::of_text(&message.body).into()),
            event_source: origin.event_source(),
            event_source_arn: origin.arn(),
            aws_region: origin.region,
        }
    }
}

/// Where a message came from.
struct Origin<'a> {
    /// The whole ARN, for a queue that has one.
    arn: Option<&'a str>,
    /// `sqs`, or the backend.
    service: &'a str,
    /// The region, or the backend.
    region: &'a str,
    /// The queue's own name.
    name: &'a str,
}

impl<'a> Origin<'a> {
    /// From `arn:PARTITION:SERVICE:REGION:ACCOUNT:NAME`, or from `BACKEND:NAME`.
    fn of(source: &'a str) -> Self {
        let mut parts = source.splitn(6, ':');
        let mut part = || parts.next();
        if let (Some("arn"), Some(_), Some(service), Some(region), Some(_), Some(name)) =
            (part(), part(), part(), part(), part(), part())
        {
            return Self {
                arn: Some(source),
                service,
                region,
                name,
            };
        }
        let (backend, name) = source.split_once(':').unwrap_or(("local", source));
        Self {
            arn: None,
            service: backend,
            region: backend,
            name,
        }
    }

    fn is_standard_sqs(&self) -> bool {
        self.arn.is_some() && !self.name.ends_with(".fifo")
    }

    fn event_source(&self) -> String {
        let owner = if self.arn.is_some() {
            "aws"
        } else {
            "dispatcher"
        };
        format!("{owner}:{}", self.service)
    }

    /// Six parts in any case, so that code that splits an ARN finds the name.
    fn arn(&self) -> Cow<'a, str> {
        match self.arn {
            Some(arn) => arn.into(),
            None => format!("arn:dispatcher:{}:::{}", self.service, self.name).into(),
        }
    }
}

/// What the backend says about the message in its own words, and what only the message's fields
/// say in those of SQS.
fn system_attributes<'a>(
    message: &'a Message,
    origin: &Origin<'_>,
) -> Vec<(&'a str, Cow<'a, str>)> {
    let told = &message.system_attributes;
    let number = |value: Option<u64>| value.map(|value| Cow::Owned(value.to_string()));
    let field = |name: &str| match name {
        "ApproximateReceiveCount" => number(Some(message.receive_count.into())),
        "SentTimestamp" => number(message.sent_at),
        "ApproximateFirstReceiveTimestamp" => number(message.first_received_at),
        // What SQS does not call a group on a standard queue is a key of the route's own.
        "MessageGroupId" if !origin.is_standard_sqs() => {
            message.group.as_deref().map(Cow::Borrowed)
        }
        _ => None,
    };
    let known = ORDER.into_iter().filter_map(|name| {
        let found = told.iter().find(|(told, _)| told == name);
        let told = found.map(|(_, value)| Cow::Borrowed(value.as_str()));
        Some((name, told.or_else(|| field(name))?))
    });
    let others = told
        .iter()
        .filter(|(name, _)| !ORDER.contains(&name.as_str()))
        .map(|(name, value)| (name.as_str(), value.as_str().into()));
    known.chain(others).collect()
}

/// A JSON object whose members keep their order.
struct Members<'a, V>(Vec<(&'a str, V)>);

impl<V: Serialize> Serialize for Members<'_, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// One of the sender's attributes. The lists are a type that SQS describes and does not have.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Value<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    string_value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary_value: Option<String>,
    string_list_values: [&'a str; 0],
    binary_list_values: [&'a str; 0],
    data_type: &'a str,
}

impl<'a> Value<'a> {
    fn of(attribute: &'a Attribute) -> (&'a str, Self) {
        let (string_value, binary_value) = match &attribute.value {
            AttributeValue::Text(text) => (Some(text.as_str()), None),
            AttributeValue::Binary(bytes) => (None, Some(BASE64_STANDARD.encode(bytes))),
        };
        let value = Self {
            string_value,
            binary_value,
            string_list_values: [],
            binary_list_values: [],
            data_type: &attribute.data_type,
        };
        (&attribute.name, value)
    }
}

#[cfg(test)]
mod tests;
