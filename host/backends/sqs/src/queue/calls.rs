//! The three calls of a message's life: ReceiveMessage, DeleteMessageBatch and
//! ChangeMessageVisibilityBatch. Either through the SDK or directly (`dispatcher_aws::direct`), with the
//! same results and errors. Knows no message, only what SQS delivers.

use super::QueueTarget;
use super::batch::entry_id;
use super::convert::{DeliveredAttribute, SqsDelivery};
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry,
    DeleteMessageBatchRequestEntry, MessageSystemAttributeName,
};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use dispatcher_aws::direct::{DirectClient, Patience};
use dispatcher_core::message::Receipt;
use dispatcher_core::queue::QueueError;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::marker::PhantomData;

/// What a receive asks for.
#[derive(Debug, Clone, Default)]
pub(super) struct ReceiveCall {
    pub max: i32,
    pub visibility_s: i32,
    pub wait_s: i32,
    /// `ReceiveRequestAttemptId`, on FIFO queues.
    pub attempt: Option<String>,
}

/// What SQS answered for the entries of a batch.
#[derive(Debug, Default)]
pub(super) struct BatchAnswer {
    /// Entry ids.
    pub done: Vec<String>,
    pub failed: Vec<BatchResultErrorEntry>,
}

impl QueueTarget {
    pub(super) async fn receive(&self, call: ReceiveCall) -> Result<Vec<SqsDelivery>, QueueError> {
        const STEP: &str = "ReceiveMessage";
        if let Some(client) = self.clients.direct() {
            let input = ReceiveInput {
                queue_url: &self.url,
                max_number_of_messages: call.max,
                visibility_timeout: call.visibility_s,
                wait_time_seconds: call.wait_s,
                message_system_attribute_names: ["All"],
                message_attribute_names: ["All"],
                receive_request_attempt_id: call.attempt.as_deref(),
            };
            let operation = "AmazonSQS.ReceiveMessage";
            let answer = client.call(operation, &input, Patience::LongPoll).await;
            let answer: ReceiveOutput = answer.map_err(|error| self.call(STEP).failed(&error))?;
            let messages = answer.messages.unwrap_or_default();
            return Ok(messages.into_iter().map(SqsDelivery::from).collect());
        }
        let answer = self
            .clients
            .polls
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(call.max)
            .visibility_timeout(call.visibility_s)
            .wait_time_seconds(call.wait_s)
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .message_attribute_names("All")
            .set_receive_request_attempt_id(call.attempt)
            .send()
            .await
            .map_err(|error| self.call(STEP).failed(&error))?;
        let messages = answer.messages.unwrap_or_default();
        Ok(messages.into_iter().map(SqsDelivery::from).collect())
    }

    /// Deletes by receipts; an entry's id is its position.
    pub(super) async fn delete(&self, receipts: &[&Receipt]) -> Result<BatchAnswer, QueueError> {
        const STEP: &str = "DeleteMessageBatch";
        if let Some(client) = self.clients.direct() {
            let entries = receipts.iter().map(|receipt| (&*receipt.0, None));
            let operation = "AmazonSQS.DeleteMessageBatch";
            return self.direct_batch(client, operation, STEP, entries).await;
        }
        let entries = receipts.iter().enumerate().map(|(position, receipt)| {
            DeleteMessageBatchRequestEntry::builder()
                .id(entry_id(position))
                .receipt_handle(&receipt.0)
                .build()
                .expect("id and receipt are set")
        });
        let call = self.clients.control.delete_message_batch();
        let call = call
            .queue_url(&self.url)
            .set_entries(Some(entries.collect()));
        let answer = call.send().await;
        let answer = answer.map_err(|error| self.call(STEP).failed(&error))?;
        let done = answer.successful.into_iter().map(|entry| entry.id);
        Ok(BatchAnswer {
            done: done.collect(),
            failed: answer.failed,
        })
    }

    /// Sets for how many seconds from now deliveries stay invisible; an entry's id is its position.
    pub(super) async fn change_visibility(
        &self,
        changes: &[(&Receipt, i32)],
    ) -> Result<BatchAnswer, QueueError> {
        const STEP: &str = "ChangeMessageVisibilityBatch";
        if let Some(client) = self.clients.direct() {
            let entries = changes
                .iter()
                .map(|(receipt, seconds)| (&*receipt.0, Some(*seconds)));
            let operation = "AmazonSQS.ChangeMessageVisibilityBatch";
            return self.direct_batch(client, operation, STEP, entries).await;
        }
        let entries = changes
            .iter()
            .enumerate()
            .map(|(position, (receipt, seconds))| {
                ChangeMessageVisibilityBatchRequestEntry::builder()
                    .id(entry_id(position))
                    .receipt_handle(&receipt.0)
                    .visibility_timeout(*seconds)
                    .build()
                    .expect("id and receipt are set")
            });
        let call = self.clients.control.change_message_visibility_batch();
        let call = call
            .queue_url(&self.url)
            .set_entries(Some(entries.collect()));
        let answer = call.send().await;
        let answer = answer.map_err(|error| self.call(STEP).failed(&error))?;
        let done = answer.successful.into_iter().map(|entry| entry.id);
        Ok(BatchAnswer {
            done: done.collect(),
            failed: answer.failed,
        })
    }

    async fn direct_batch<'a>(
        &'a self,
        client: &DirectClient,
        operation: &'static str,
        step: &'static str,
        entries: impl Iterator<Item = (&'a str, Option<i32>)>,
    ) -> Result<BatchAnswer, QueueError> {
        let entry = |(position, (receipt_handle, visibility_timeout))| EntryInput {
            id: entry_id(position),
            receipt_handle,
            visibility_timeout,
        };
        let input = BatchInput {
            queue_url: &self.url,
            entries: entries.enumerate().map(entry).collect(),
        };
        let answer = client.call(operation, &input, Patience::Control).await;
        let answer: BatchOutput = answer.map_err(|error| self.call(step).failed(&error))?;
        Ok(answer.into())
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct ReceiveInput<'a> {
    queue_url: &'a str,
    max_number_of_messages: i32,
    visibility_timeout: i32,
    wait_time_seconds: i32,
    message_system_attribute_names: [&'static str; 1],
    message_attribute_names: [&'static str; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    receive_request_attempt_id: Option<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct BatchInput<'a> {
    queue_url: &'a str,
    entries: Vec<EntryInput<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct EntryInput<'a> {
    id: String,
    receipt_handle: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    visibility_timeout: Option<i32>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ReceiveOutput {
    #[serde(default)]
    messages: Option<Vec<MessageOutput>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct MessageOutput {
    message_id: Option<String>,
    receipt_handle: Option<String>,
    body: Option<String>,
    #[serde(rename = "MD5OfBody")]
    body_md5: Option<String>,
    #[serde(rename = "MD5OfMessageAttributes")]
    attributes_md5: Option<String>,
    #[serde(default)]
    attributes: Pairs<String>,
    #[serde(default)]
    message_attributes: Pairs<AttributeOutput>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AttributeOutput {
    #[serde(default)]
    data_type: Option<String>,
    string_value: Option<String>,
    #[serde(default, deserialize_with = "base64")]
    binary_value: Option<Vec<u8>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BatchOutput {
    #[serde(default)]
    successful: Option<Vec<DoneOutput>>,
    #[serde(default)]
    failed: Option<Vec<FailedOutput>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DoneOutput {
    #[serde(default)]
    id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct FailedOutput {
    #[serde(default)]
    id: String,
    #[serde(default)]
    sender_fault: bool,
    #[serde(default)]
    code: String,
    message: Option<String>,
}

impl From<MessageOutput> for SqsDelivery {
    fn from(message: MessageOutput) -> Self {
        let attributes = message.message_attributes.0.into_iter();
        Self {
            id: message.message_id,
            receipt: message.receipt_handle,
            body: message.body,
            body_md5: message.body_md5,
            attributes_md5: message.attributes_md5,
            system_attributes: message.attributes.0,
            attributes: attributes
                .map(|(name, value)| DeliveredAttribute {
                    name,
                    data_type: value.data_type.unwrap_or_default(),
                    text: value.string_value,
                    binary: value.binary_value,
                })
                .collect(),
        }
    }
}

impl From<BatchOutput> for BatchAnswer {
    fn from(answer: BatchOutput) -> Self {
        let failed = answer.failed.unwrap_or_default().into_iter();
        Self {
            done: answer
                .successful
                .unwrap_or_default()
                .into_iter()
                .map(|entry| entry.id)
                .collect(),
            failed: failed
                .map(|entry| {
                    BatchResultErrorEntry::builder()
                        .id(entry.id)
                        .sender_fault(entry.sender_fault)
                        .code(entry.code)
                        .set_message(entry.message)
                        .build()
                        .expect("id, fault and code are set")
                })
                .collect(),
        }
    }
}

/// The entries of a JSON object, or none for null.
#[derive(Debug)]
struct Pairs<V>(Vec<(String, V)>);

impl<V> Default for Pairs<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Object<V> {
            type Value = Pairs<V>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Pairs::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_any(Object(PhantomData))
    }
}

fn base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let bytes = BASE64_STANDARD
        .decode(text)
        .map_err(serde::de::Error::custom)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests;
