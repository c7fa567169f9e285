//! A client of DynamoDB for tests, straight on the SDK: makes tables in the layout of AWS's LIFO
//! sample, and does what the sample does in the sample's own words. Knows only what suites need.

use crate::sqs::configuration;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, GlobalSecondaryIndex, KeySchemaElement,
    KeyType, Projection, ProjectionType, ScalarAttributeType,
};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

/// An item as the SDK has it.
pub type Item = HashMap<String, AttributeValue>;

/// How a table writes its dates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dates {
    /// As the sample: milliseconds.
    Number,
    /// As texts of RFC 3339.
    Text,
}

/// A client of one server.
#[derive(Debug, Clone)]
pub struct Tables {
    /// For what the helpers do not do.
    pub client: Client,
}

/// Milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = since.expect("after 1970").as_millis();
    u64::try_from(since).expect("before the year 500,000,000")
}

/// A text of an item; empty if it has none of the name.
pub fn text<'a>(item: &'a Item, name: &str) -> &'a str {
    match item.get(name) {
        Some(AttributeValue::S(text) | AttributeValue::N(text)) => text,
        _ => "",
    }
}

impl Tables {
    /// Calls nothing yet.
    pub fn at(endpoint_url: &str) -> Self {
        Self {
            client: Client::new(&configuration(endpoint_url)),
        }
    }

    /// A new table of a name that no other test uses; its name. Keys and index as in the sample's
    /// template.
    pub async fn create(&self, hint: &str, dates: Dates) -> String {
        let name = format!("{hint}-{}", uuid::Uuid::new_v4().simple());
        self.create_named(&name, dates).await;
        name
    }

    /// A new table of this name in the same layout.
    pub async fn create_named(&self, name: &str, dates: Dates) {
        let created = match dates {
            Dates::Number => ScalarAttributeType::N,
            Dates::Text => ScalarAttributeType::S,
        };
        let index = GlobalSecondaryIndex::builder()
            .index_name("task-status-created-index")
            .key_schema(key("taskStatus", KeyType::Hash))
            .key_schema(key("taskCreated", KeyType::Range))
            .projection(
                Projection::builder()
                    .projection_type(ProjectionType::All)
                    .build(),
            )
            .build()
            .expect("name and keys are set");
        self.client
            .create_table()
            .table_name(name)
            .attribute_definitions(attribute("taskId", ScalarAttributeType::S))
            .attribute_definitions(attribute("taskStatus", ScalarAttributeType::S))
            .attribute_definitions(attribute("taskCreated", created))
            .key_schema(key("taskId", KeyType::Hash))
            .global_secondary_indexes(index)
            .billing_mode(BillingMode::PayPerRequest)
            .send()
            .await
            .unwrap_or_else(|error| panic!("cannot create {name}: {error:?}"));
    }

    /// A new table for the records of a fleet.
    pub async fn create_fleet(&self, name: &str) {
        self.client
            .create_table()
            .table_name(name)
            .attribute_definitions(attribute("part", ScalarAttributeType::S))
            .attribute_definitions(attribute("name", ScalarAttributeType::S))
            .key_schema(key("part", KeyType::Hash))
            .key_schema(key("name", KeyType::Range))
            .billing_mode(BillingMode::PayPerRequest)
            .send()
            .await
            .unwrap_or_else(|error| panic!("cannot create {name}: {error:?}"));
    }

    /// What `CreateTasksFunction` writes: five columns, the time to live in milliseconds. With more
    /// columns where given; the task's id.
    pub async fn put_as_sample(&self, table: &str, more: &[(&str, &str)]) -> String {
        let id = uuid::Uuid::new_v4().to_string();
        let now = now_ms();
        let mut put = self
            .client
            .put_item()
            .table_name(table)
            .item("taskId", AttributeValue::S(id.clone()))
            .item("taskStatus", AttributeValue::S("PENDING".into()))
            .item("taskCreated", AttributeValue::N(now.to_string()))
            .item("taskUpdated", AttributeValue::N(now.to_string()))
            .item("ttl", AttributeValue::N((now + 3_600_000).to_string()));
        for (name, value) in more {
            put = put.item(*name, AttributeValue::S((*value).to_owned()));
        }
        put.send().await.expect("the table exists");
        id
    }

    /// What `transitionTask` of `ProcessTasksFunction` does; whether the task was in that state.
    pub async fn transition_as_sample(&self, table: &str, id: &str, from: &str, to: &str) -> bool {
        let moved = self
            .client
            .update_item()
            .table_name(table)
            .key("taskId", AttributeValue::S(id.to_owned()))
            .update_expression("set taskStatus = :toTaskStatus, taskUpdated = :taskUpdated")
            .condition_expression("taskStatus = :fromTaskStatus")
            .expression_attribute_values(":fromTaskStatus", AttributeValue::S(from.to_owned()))
            .expression_attribute_values(":toTaskStatus", AttributeValue::S(to.to_owned()))
            .expression_attribute_values(":taskUpdated", AttributeValue::N(now_ms().to_string()))
            .send()
            .await;
        match moved {
            Ok(_) => true,
            Err(error) => {
                let unmet = error
                    .as_service_error()
                    .is_some_and(|error| error.is_conditional_check_failed_exception());
                assert!(unmet, "{error:?}");
                false
            }
        }
    }

    /// What `getPendingTaskBatch` reads: the newest ten, by their ids.
    pub async fn pending_as_sample(&self, table: &str) -> Vec<String> {
        let answer = self
            .client
            .query()
            .table_name(table)
            .index_name("task-status-created-index")
            .expression_attribute_values(":taskStatus", AttributeValue::S("PENDING".into()))
            .key_condition_expression("taskStatus = :taskStatus")
            .limit(10)
            .scan_index_forward(false)
            .send()
            .await
            .expect("the table exists");
        let items = answer.items.unwrap_or_default();
        items
            .iter()
            .map(|item| text(item, "taskId").to_owned())
            .collect()
    }

    /// One task as it is now.
    pub async fn item(&self, table: &str, id: &str) -> Option<Item> {
        let answer = self
            .client
            .get_item()
            .table_name(table)
            .key("taskId", AttributeValue::S(id.to_owned()))
            .consistent_read(true)
            .send()
            .await;
        answer.expect("the table exists").item
    }

    /// Every item of the table.
    pub async fn all(&self, table: &str) -> Vec<Item> {
        let mut items = Vec::new();
        let mut start = None;
        loop {
            let page = self
                .client
                .scan()
                .table_name(table)
                .set_exclusive_start_key(start)
                .send()
                .await
                .expect("the table exists");
            items.extend(page.items.unwrap_or_default());
            start = page.last_evaluated_key;
            if start.is_none() {
                return items;
            }
        }
    }

    /// How many tasks there are of each status.
    pub async fn statuses(&self, table: &str) -> BTreeMap<String, usize> {
        let mut count = BTreeMap::new();
        for item in self.all(table).await {
            *count
                .entry(text(&item, "taskStatus").to_owned())
                .or_default() += 1;
        }
        count
    }

    /// Returns once the statuses are as wanted; looks again and again, since a table tells nobody, and
    /// not too often, since each look reads all of it.
    pub async fn until(
        &self,
        table: &str,
        wanted: impl Fn(&BTreeMap<String, usize>) -> bool,
    ) -> BTreeMap<String, usize> {
        // Patience starts over with every change: what continues slowly is not stuck.
        let end = tokio::time::Instant::now() + crate::MOST_PATIENCE;
        let mut deadline = tokio::time::Instant::now() + crate::PATIENCE;
        let mut before = BTreeMap::new();
        loop {
            let statuses = self.statuses(table).await;
            if wanted(&statuses) {
                return statuses;
            }
            let now = tokio::time::Instant::now();
            if statuses != before {
                deadline = (now + crate::PATIENCE).min(end);
            }
            assert!(
                now < deadline,
                "{table} does not become as wanted: {statuses:?}"
            );
            before = statuses;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn key(name: &str, kind: KeyType) -> KeySchemaElement {
    let key = KeySchemaElement::builder()
        .attribute_name(name)
        .key_type(kind);
    key.build().expect("name and kind are set")
}

fn attribute(name: &str, kind: ScalarAttributeType) -> AttributeDefinition {
    let attribute = AttributeDefinition::builder()
        .attribute_name(name)
        .attribute_type(kind);
    attribute.build().expect("name and type are set")
}
