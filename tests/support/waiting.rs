//! A client of DynamoDB for tests of scheduled messages, straight on the SDK: what waits in a table,
//! put there as Shoryuken::Waiter would. Knows only what the suites need.

use crate::sqs::configuration;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, Select, WriteRequest};
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// One item.
pub type Item = HashMap<String, AttributeValue>;

/// A table on a server.
#[derive(Debug, Clone)]
pub struct WaitingTable {
    /// For what the helpers do not do.
    pub client: Client,
    table: String,
}

impl WaitingTable {
    /// Calls nothing yet.
    pub fn at(endpoint_url: &str, table: &str) -> Self {
        Self {
            client: Client::new(&configuration(endpoint_url)),
            table: table.to_owned(),
        }
    }

    /// Puts items, 25 at a time.
    pub async fn put(&self, items: Vec<Item>) {
        for chunk in items.chunks(25) {
            let put = |item: &Item| {
                let put = PutRequest::builder().set_item(Some(item.clone()));
                let put = put.build().expect("the item is set");
                WriteRequest::builder().put_request(put).build()
            };
            let asked = self.client.batch_write_item();
            let requests = chunk.iter().map(put).collect();
            let answer = asked.request_items(&self.table, requests).send().await;
            let left = answer.expect("the table takes items").unprocessed_items;
            assert!(left.unwrap_or_default().is_empty(), "not all were taken");
        }
    }

    /// Everything in the table.
    pub async fn items(&self) -> Vec<Item> {
        let mut items = Vec::new();
        let mut start = None;
        loop {
            let asked = self.client.scan().table_name(&self.table);
            let asked = asked.consistent_read(true).set_exclusive_start_key(start);
            let answer = asked.send().await.expect("the table can be read");
            items.extend(answer.items.unwrap_or_default());
            start = answer.last_evaluated_key.filter(|key| !key.is_empty());
            if start.is_none() {
                return items;
            }
        }
    }

    /// How many there are.
    pub async fn count(&self) -> usize {
        let asked = self.client.scan().table_name(&self.table);
        let asked = asked.consistent_read(true).select(Select::Count);
        let answer = asked.send().await.expect("the table can be read");
        usize::try_from(answer.count).expect("a number")
    }

    /// Returns once at most so many are left; looks again and again, since a table tells nobody.
    pub async fn until_left(&self, most: usize) -> usize {
        let looking = async {
            loop {
                let left = self.count().await;
                if left <= most {
                    return left;
                }
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(crate::MOST_PATIENCE, looking)
            .await
            .expect("the table becomes as wanted")
    }

    /// Lets time pass for all claims: they have expired. Their jobs' ids.
    pub async fn let_claims_run_out(&self) -> Vec<String> {
        let mut claimed = Vec::new();
        for mut item in self.items().await {
            if item.contains_key("dispatcher_claim_until") {
                claimed.push(text(&item, "job_id"));
                let past = AttributeValue::N("1".into());
                item.insert("dispatcher_claim_until".into(), past);
                self.put(vec![item]).await;
            }
        }
        claimed
    }
}

/// A text of an item.
pub fn text(item: &Item, name: &str) -> String {
    item[name].as_s().expect("a text").clone()
}

/// Seconds since the epoch, as `perform_at` has them, so far from now.
pub fn perform_at(seconds: f64) -> AttributeValue {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("it is after 1970").as_secs_f64();
    AttributeValue::N(format!("{:.6}", now + seconds))
}

/// What Shoryuken::Waiter's adapter puts for a job of Active Job, in its very shape.
pub fn of_waiter(id: &str, queue: &str, argument: &str, seconds: f64) -> Item {
    let s = |text: &str| AttributeValue::S(text.to_owned());
    let m = |fields: Vec<(&str, AttributeValue)>| {
        let fields = fields.into_iter();
        AttributeValue::M(
            fields
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    };
    let class = "ActiveJob::QueueAdapters::ShoryukenAdapter::JobWrapper";
    let fields = vec![
        ("scheduler", s("shoryuken-waiter")),
        ("job_id", s(id)),
        ("perform_at", perform_at(seconds)),
        (
            "sqs_message_body",
            m(vec![
                ("job_class", s("ReminderJob")),
                ("job_id", s(id)),
                ("queue_name", s(queue)),
                (
                    "arguments",
                    AttributeValue::L(vec![s(argument), AttributeValue::N("7".into())]),
                ),
                ("locale", s("en")),
            ]),
        ),
        (
            "sqs_message_attributes",
            m(vec![(
                "shoryuken_class",
                m(vec![("string_value", s(class)), ("data_type", s("String"))]),
            )]),
        ),
    ];
    let fields = fields.into_iter();
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
