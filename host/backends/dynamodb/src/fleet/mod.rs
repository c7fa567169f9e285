//! The records of a fleet in a DynamoDB table of their own. A hot limit costs a read and a write for
//! each call of a process, never one for each message.
//!
//! The items of limits have the name of the limit as their partition key, so that limits share no
//! partition. Ended items are removed by the table's time to live, on `ends`.

mod time;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes, Put, TransactWriteItem};
use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use dispatcher_aws as aws;
use dispatcher_aws::SdkConfig;
use dispatcher_aws::failure::{About, CallName, code};
use dispatcher_core::clock;
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::fleet::{FleetStore, RecordChange, Snapshot};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use time::ServiceClock;

const PART: &str = "part";
const NAME: &str = "name";
const TEXT: &str = "text";
/// The seconds since the Unix epoch, as the time to live of a table counts.
const ENDS: &str = "ends";
/// The partition of the summaries. Those of limits have names with a prefix.
const PROCESSES: &str = "processes";
/// The condition on an item that must not exist: it may have ended and not been removed.
const IS_NEW: &str = "attribute_not_exists(#part) OR #ends <= :now";
const STANDS: &str = "#text = :stands AND #ends > :now";

type Item = HashMap<String, AttributeValue>;

/// The fleet of one table.
#[derive(Debug)]
pub struct DynamoFleet {
    client: Client,
    table: String,
    place: String,
    clock: Arc<SharedClock>,
}

impl DynamoFleet {
    /// Creates a client from the configuration of `aws::configuration`. Makes no call.
    #[must_use]
    pub fn connect(config: &SdkConfig, table: &str) -> Self {
        let clock = Arc::<SharedClock>::default();
        let own =
            aws_sdk_dynamodb::config::Builder::from(config).interceptor(DateReader(clock.clone()));
        Self {
            client: Client::from_conf(own.build()),
            table: table.to_owned(),
            place: aws::place(config, "DYNAMODB"),
            clock,
        }
    }

    fn call(&self, step: &'static str) -> CallName<'_> {
        CallName {
            step,
            about: About::Table(&self.table),
            place: &self.place,
        }
    }

    /// Adds the commands that create a missing table.
    fn explained(&self, error: CallError) -> CallError {
        if error.kind != ErrorKind::NotFound {
            return error;
        }
        CallError {
            message: format!("{}; {}", error.message, to_create(&self.table)),
            ..error
        }
    }

    /// Returns the service's time in milliseconds; this machine's before the first response.
    fn now(&self) -> u64 {
        let now = self.clock.0.lock().at(own_time());
        now.unwrap_or_else(|| clock::wall_clock_now().0)
    }

    fn put(&self, change: &RecordChange, now: u64) -> Put {
        let mut put = Put::builder()
            .table_name(&self.table)
            .item(PART, AttributeValue::S(limit_part(&change.name)))
            .item(NAME, AttributeValue::S("-".to_owned()))
            .item(TEXT, AttributeValue::S(change.text.clone()))
            .item(ENDS, ends(now, change.keep_for))
            .expression_attribute_names("#ends", ENDS)
            .expression_attribute_values(":now", seconds(now));
        put = match &change.stands {
            Some(text) => put
                .condition_expression(STANDS)
                .expression_attribute_names("#text", TEXT)
                .expression_attribute_values(":stands", AttributeValue::S(text.clone())),
            None => put
                .condition_expression(IS_NEW)
                .expression_attribute_names("#part", PART),
        };
        put.build().expect("table and item are set")
    }
}

/// Returns the command line that creates a table of this name.
fn to_create(name: &str) -> String {
    format!(
        "create it with: aws dynamodb create-table --table-name {name} --billing-mode PAY_PER_REQUEST \
         --attribute-definitions AttributeName={PART},AttributeType=S \
         AttributeName={NAME},AttributeType=S --key-schema AttributeName={PART},KeyType=HASH \
         AttributeName={NAME},KeyType=RANGE && aws dynamodb wait table-exists --table-name {name} && \
         aws dynamodb update-time-to-live --table-name {name} --time-to-live-specification \
         Enabled=true,AttributeName={ENDS}"
    )
}

fn limit_part(record: &str) -> String {
    format!("limit:{record}")
}

fn key(part: String, name: &str) -> Item {
    Item::from([
        (PART.to_owned(), AttributeValue::S(part)),
        (NAME.to_owned(), AttributeValue::S(name.to_owned())),
    ])
}

fn seconds(milliseconds: u64) -> AttributeValue {
    AttributeValue::N((milliseconds / 1_000).to_string())
}

/// The second after which an item may be removed, rounded up.
fn ends(now: u64, keep_for: Duration) -> AttributeValue {
    let keep_for = u64::try_from(keep_for.as_millis()).unwrap_or(u64::MAX);
    seconds(now.saturating_add(keep_for).saturating_add(999))
}

/// The text of an item that has not ended.
fn text(item: &Item, now: u64) -> Option<String> {
    let ends: u64 = item.get(ENDS)?.as_n().ok()?.parse().ok()?;
    let text = item.get(TEXT)?.as_s().ok()?;
    (ends > now / 1_000).then(|| text.clone())
}

#[async_trait::async_trait]
impl FleetStore for DynamoFleet {
    async fn read(&self, names: &[String]) -> Result<Snapshot, CallError> {
        let call = self.call("BatchGetItem");
        let mut found: HashMap<String, Item> = HashMap::new();
        let mut left: Vec<Item> = names
            .iter()
            .map(|name| key(limit_part(name), "-"))
            .collect();
        while !left.is_empty() {
            let keys = KeysAndAttributes::builder()
                .set_keys(Some(left))
                .consistent_read(true)
                .build()
                .expect("keys are set");
            let asked = self
                .client
                .batch_get_item()
                .request_items(&self.table, keys);
            let answer = asked
                .send()
                .await
                .map_err(|error| self.explained(call.failed(&error)))?;
            let items = answer.responses.unwrap_or_default().remove(&self.table);
            for item in items.unwrap_or_default() {
                if let Some(Ok(part)) = item.get(PART).map(AttributeValue::as_s) {
                    found.insert(part.clone(), item);
                }
            }
            let more = answer
                .unprocessed_keys
                .unwrap_or_default()
                .remove(&self.table);
            left = more.map(|keys| keys.keys).unwrap_or_default();
        }
        let now = self.now();
        let records = names.iter().map(|name| {
            let item = found.get(&limit_part(name));
            item.and_then(|item| text(item, now))
        });
        Ok(Snapshot {
            now,
            records: records.collect(),
        })
    }

    async fn replace(&self, changes: &[RecordChange]) -> Result<bool, CallError> {
        let now = self.now();
        if let [change] = changes {
            let put = self.put(change, now);
            let asked = self
                .client
                .put_item()
                .table_name(put.table_name)
                .set_item(Some(put.item))
                .set_condition_expression(put.condition_expression)
                .set_expression_attribute_names(put.expression_attribute_names)
                .set_expression_attribute_values(put.expression_attribute_values)
                .send()
                .await;
            return self.call("PutItem").held(asked);
        }
        let puts = changes.iter().map(|change| {
            let put = self.put(change, now);
            TransactWriteItem::builder().put(put).build()
        });
        let asked = self
            .client
            .transact_write_items()
            .set_transact_items(Some(puts.collect()))
            .send()
            .await;
        match asked {
            Ok(_) => Ok(true),
            // A condition does not hold, or another transaction is writing one of the items.
            Err(error) if code(&error) == Some("TransactionCanceledException") => Ok(false),
            Err(error) => Err(self.call("TransactWriteItems").failed(&error)),
        }
    }

    async fn publish(
        &self,
        process: &str,
        summary: &str,
        keep_for: Duration,
    ) -> Result<(), CallError> {
        let now = self.now();
        let asked = self
            .client
            .put_item()
            .table_name(&self.table)
            .item(PART, AttributeValue::S(PROCESSES.to_owned()))
            .item(NAME, AttributeValue::S(process.to_owned()))
            .item(TEXT, AttributeValue::S(summary.to_owned()))
            .item(ENDS, ends(now, keep_for))
            .send()
            .await;
        asked
            .map(drop)
            .map_err(|error| self.call("PutItem").failed(&error))
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(10)
    }

    async fn published(&self) -> Result<Vec<(String, String)>, CallError> {
        let call = self.call("Query");
        let mut pages = self
            .client
            .query()
            .table_name(&self.table)
            .key_condition_expression("#part = :part")
            .expression_attribute_names("#part", PART)
            .expression_attribute_values(":part", AttributeValue::S(PROCESSES.to_owned()))
            .into_paginator()
            .items()
            .send();
        let mut items = Vec::new();
        while let Some(item) = pages.next().await {
            items.push(item.map_err(|error| self.explained(call.failed(&error)))?);
        }
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.now();
        let alive = items.iter().filter_map(|item| {
            let name = item.get(NAME)?.as_s().ok()?;
            Some((name.clone(), text(item, now)?))
        });
        Ok(alive.collect())
    }
}

/// The time of this machine in milliseconds, which does not jump.
fn own_time() -> u64 {
    let since = clock::now().since(clock::BootInstant::default());
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Debug, Default)]
struct SharedClock(Mutex<ServiceClock>);

/// Reads the date of each response.
#[derive(Debug)]
struct DateReader(Arc<SharedClock>);

/// When the request of a call was sent.
#[derive(Debug, Clone, Copy)]
struct SentAt(u64);

impl aws_smithy_types::config_bag::Storable for SentAt {
    type Storer = aws_smithy_types::config_bag::StoreReplace<Self>;
}

impl Intercept for DateReader {
    fn name(&self) -> &'static str {
        "DateReader"
    }

    fn read_before_transmit(
        &self,
        _context: &aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        bag.interceptor_state().store_put(SentAt(own_time()));
        Ok(())
    }

    fn read_after_transmit(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        let date = date.and_then(|date| DateTime::from_str(date, Format::HttpDate).ok());
        if let (Some(date), Some(SentAt(sent))) = (date, bag.load::<SentAt>().copied()) {
            self.0.0.lock().note(sent, own_time(), date.secs());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_create_the_table_are_one_line() {
        let commands = to_create("Limits");
        assert!(
            !commands.contains('\n') && !commands.contains("  "),
            "{commands}"
        );
        for part in ["AttributeName=name,KeyType=RANGE", "AttributeName=ends"] {
            assert!(commands.contains(part), "{commands}");
        }
    }
}
