//! The parameters of the operations in both protocols. Parses them without checking their values.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// Texts by name.
pub(crate) type Texts = BTreeMap<String, String>;

/// Parses a whole number, which the Query protocol writes as text.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    let number = match Value::deserialize(from)? {
        Value::Null => return Ok(None),
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number
        .map(Some)
        .ok_or_else(|| D::Error::custom("wanted a whole number"))
}

/// The parameters of operations that only name a queue.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct OfQueue {
    pub queue_url: Option<String>,
}

/// `SendMessage`, and an entry of its batch.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Send {
    pub queue_url: Option<String>,
    pub id: Option<String>,
    pub message_body: Option<String>,
    #[serde(deserialize_with = "number")]
    pub delay_seconds: Option<i64>,
    pub message_attributes: Option<BTreeMap<String, Attribute>>,
    pub message_system_attributes: Option<BTreeMap<String, Attribute>>,
    pub message_deduplication_id: Option<String>,
    pub message_group_id: Option<String>,
}

/// The value of an attribute of a message.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Attribute {
    pub data_type: Option<String>,
    pub string_value: Option<String>,
    /// The value, in base 64.
    pub binary_value: Option<String>,
}

/// The entries of a batch.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Batch<T> {
    pub queue_url: Option<String>,
    pub entries: Option<Vec<T>>,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self {
            queue_url: None,
            entries: None,
        }
    }
}

/// `DeleteMessage`, `ChangeMessageVisibility`, and an entry of their batches.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ReceiptInput {
    pub queue_url: Option<String>,
    pub id: Option<String>,
    pub receipt_handle: Option<String>,
    #[serde(deserialize_with = "number")]
    pub visibility_timeout: Option<i64>,
}

/// `ReceiveMessage`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Receive {
    pub queue_url: Option<String>,
    #[serde(deserialize_with = "number")]
    pub max_number_of_messages: Option<i64>,
    #[serde(deserialize_with = "number")]
    pub wait_time_seconds: Option<i64>,
    #[serde(deserialize_with = "number")]
    pub visibility_timeout: Option<i64>,
    pub attribute_names: Option<Vec<String>>,
    pub message_system_attribute_names: Option<Vec<String>>,
    pub message_attribute_names: Option<Vec<String>>,
    pub receive_request_attempt_id: Option<String>,
}

/// `CreateQueue`, `GetQueueUrl`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Create {
    pub queue_name: Option<String>,
    pub attributes: Option<Texts>,
    /// The only name that begins with a small letter in JSON.
    #[serde(rename = "tags", alias = "Tags")]
    pub tags: Option<Texts>,
}

/// `ListQueues`, `ListDeadLetterSourceQueues`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct List {
    pub queue_url: Option<String>,
    pub queue_name_prefix: Option<String>,
    #[serde(deserialize_with = "number")]
    pub max_results: Option<i64>,
    pub next_token: Option<String>,
}

/// `GetQueueAttributes`, `SetQueueAttributes`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Attributes {
    pub queue_url: Option<String>,
    pub attribute_names: Option<Vec<String>>,
    pub attributes: Option<Texts>,
}

/// `AddPermission`, `RemovePermission`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Permission {
    pub queue_url: Option<String>,
    pub label: Option<String>,
    #[serde(rename = "AWSAccountIds")]
    pub accounts: Option<Vec<String>>,
    pub actions: Option<Vec<String>>,
}

/// `TagQueue`, `UntagQueue`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Tags {
    pub queue_url: Option<String>,
    #[serde(alias = "tags")]
    pub tags: Option<Texts>,
    pub tag_keys: Option<Vec<String>>,
}

/// `StartMessageMoveTask`, `ListMessageMoveTasks`, `CancelMessageMoveTask`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Moves {
    pub source_arn: Option<String>,
    pub destination_arn: Option<String>,
    #[serde(deserialize_with = "number")]
    pub max_number_of_messages_per_second: Option<i64>,
    #[serde(deserialize_with = "number")]
    pub max_results: Option<i64>,
    pub task_handle: Option<String>,
}
