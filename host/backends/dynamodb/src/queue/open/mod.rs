//! Opens a queue from a table's name: checks the table and reports how it differs from a task
//! table.

use super::item::{CREATED, Dates, ItemFormat, STATUS, TASK_ID};
use super::recent::Recent;
use super::sweep::Sweeper;
use super::table::{ConsumedUnits, Table};
use super::{BATCH, DynamoQueue, FailedTasks, LONGEST_WAIT, Options, pace, status};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    KeySchemaElement, KeyType, ProjectionType, ScalarAttributeType, TableDescription,
};
use dispatcher_aws as aws;
use dispatcher_aws::SdkConfig;
use dispatcher_aws::failure::{About, CallName};
use dispatcher_core::queue::{ErrorKind, Identity, QueueError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The maximum number of tables that `names` checks: one page of ListTables.
const MOST_NAMES: i32 = 100;

/// The default visibility timeout, as on SQS.
const DEFAULT_VISIBILITY: Duration = Duration::from_secs(30);

/// A DynamoDB client for one configuration. Cheap to create; makes no call before `open`.
#[derive(Debug)]
pub struct Dynamo {
    client: Client,
    place: String,
    options: Options,
    /// The notifier of each open table, so that a send through one queue wakes the receivers of
    /// another.
    notifiers: Mutex<HashMap<String, watch::Sender<u64>>>,
}

impl Dynamo {
    /// Creates a client from the configuration of `aws::configuration`.
    pub fn connect(config: &SdkConfig, options: Options) -> Self {
        Self {
            client: Client::new(config),
            place: aws::place(config, "DYNAMODB"),
            options,
            notifiers: Mutex::default(),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Opens a table and its dead-letter table. Without a dead-letter table, dead letters stay in
    /// the table as `FAILURE`. An error is `Invalid` if there is no region, the table is of another
    /// kind, or it is its own dead-letter table; else it has the kind of the failed call.
    pub async fn open(
        &self,
        name: &str,
        dead_letter: Option<&str>,
    ) -> Result<DynamoQueue, QueueError> {
        let table = self.table(name).await?;
        let dead_letter_queue = match dead_letter {
            Some(same) if same == name => {
                let words = "a table cannot be its own dead-letter table; wanted another one, or none: dead letters then stay in it as FAILURE";
                return Err(table.call("opening the dead-letter table").refused(words));
            }
            Some(other) => Some(self.table(other).await?),
            None => None,
        };
        Ok(DynamoQueue {
            identity: Identity {
                name: table.reading.queue.clone(),
                source: table.reading.source.clone(),
                visibility: DEFAULT_VISIBILITY,
                batch: BATCH,
                longest_wait: LONGEST_WAIT,
                proof_wait: Duration::ZERO,
                ordered_groups: false,
                deduplicates: false,
                dead_letters: true,
                most_receives: None,
                redrive_target: false,
            },
            sweeper: Sweeper::new(table.clone()),
            pace: Mutex::new(pace::Pace::new(self.options.idle_poll)),
            spread: super::claim::Spread::default(),
            rest: Mutex::default(),
            budget: None,
            table,
            dead_letter_queue,
        })
    }

    /// Opens the failed tasks of a table.
    pub async fn failed(&self, name: &str) -> Result<FailedTasks, QueueError> {
        let queue = self.open(name, None).await?;
        Ok(FailedTasks::of(&queue))
    }

    /// Returns the sorted names of the tables that can be queues, among the first hundred tables.
    pub async fn names(&self) -> Result<Vec<String>, QueueError> {
        let (names, _) = self.tables(None).await?;
        let mut queues = Vec::new();
        for name in names {
            if self.can_be_queue(&name).await.is_ok_and(|can| can) {
                queues.push(name);
            }
        }
        queues.sort();
        Ok(queues)
    }

    /// Returns the sorted names of all tables that have a wanted name and can be queues. Leaves out
    /// those that may not be described.
    pub async fn names_among(
        &self,
        is_wanted: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<Vec<String>, QueueError> {
        let mut queues = Vec::new();
        let mut last = None;
        loop {
            let (names, next) = self.tables(last).await?;
            for name in names.into_iter().filter(|name| is_wanted(name)) {
                match self.can_be_queue(&name).await {
                    Ok(true) => queues.push(name),
                    Ok(false) => {}
                    Err(error) if error.kind == ErrorKind::AccessDenied => {
                        tracing::debug!(table = name, %error, "table not looked at");
                    }
                    Err(error) => return Err(error),
                }
            }
            last = next;
            if last.is_none() {
                break;
            }
        }
        queues.sort();
        Ok(queues)
    }

    /// Returns the names of some tables after the last one, and the last of them if there are more.
    async fn tables(
        &self,
        last: Option<String>,
    ) -> Result<(Vec<String>, Option<String>), QueueError> {
        let call = CallName {
            step: "ListTables",
            about: About::All,
            place: &self.place,
        };
        let asked = self
            .client
            .list_tables()
            .limit(MOST_NAMES)
            .set_exclusive_start_table_name(last)
            .send();
        let page = asked.await.map_err(|error| call.failed(&error))?;
        Ok((
            page.table_names.unwrap_or_default(),
            page.last_evaluated_table_name,
        ))
    }

    /// Whether a table exists and has the keys of a queue.
    async fn can_be_queue(&self, name: &str) -> Result<bool, QueueError> {
        match self.describe(name).await {
            Ok(table) => Ok(kind(&table).is_ok()),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn describe(&self, name: &str) -> Result<TableDescription, QueueError> {
        let call = CallName {
            step: "DescribeTable",
            about: About::Table(name),
            place: &self.place,
        };
        let answer = self
            .client
            .describe_table()
            .table_name(name)
            .send()
            .await
            .map_err(|error| {
                let error = call.failed(&error);
                match error.kind {
                    ErrorKind::NotFound => QueueError {
                        message: format!("{}; {}", error.message, to_create(name)),
                        ..error
                    },
                    _ => error,
                }
            })?;
        answer
            .table
            .ok_or_else(|| call.refused("the answer contains no table"))
    }

    async fn table(&self, name: &str) -> Result<Arc<Table>, QueueError> {
        let described = self.describe(name).await?;
        let call = CallName {
            step: "opening",
            about: About::Table(name),
            place: &self.place,
        };
        let kind = kind(&described)
            .map_err(|found| call.refused(&format!("{found}; {}", to_create(name))))?;
        let queue = format!("dynamodb:{name}");
        let notifier = {
            let mut notifiers = self.notifiers.lock();
            let notifier = notifiers.entry(name.to_owned());
            notifier.or_insert_with(|| watch::Sender::new(0)).clone()
        };
        let table = Table {
            client: self.client.clone(),
            name: name.to_owned(),
            place: self.place.clone(),
            index: kind.index,
            dates: kind.dates,
            shards: status::Shards::new(self.options.shards),
            time_to_live: self.options.time_to_live,
            completed: self.options.completed,
            reading: ItemFormat {
                source: described.table_arn.unwrap_or_else(|| queue.clone()),
                queue,
                body: self.options.body_attribute.clone(),
            },
            notifier,
            spent: ConsumedUnits::default(),
            recent: Recent::default(),
            newest: Default::default(),
        };
        table.agree().await?;
        Ok(Arc::new(table))
    }
}

/// Returns the command line that creates a table of this name.
fn to_create(name: &str) -> String {
    format!(
        "create it with: aws dynamodb create-table --table-name {name} --billing-mode PAY_PER_REQUEST \
         --attribute-definitions AttributeName={TASK_ID},AttributeType=S \
         AttributeName={STATUS},AttributeType=S AttributeName={CREATED},AttributeType=N \
         --key-schema AttributeName={TASK_ID},KeyType=HASH --global-secondary-indexes \
         'IndexName=task-status-created-index,KeySchema=[{{AttributeName={STATUS},KeyType=HASH}},\
         {{AttributeName={CREATED},KeyType=RANGE}}],Projection={{ProjectionType=ALL}}'"
    )
}

/// The properties in which task tables differ.
#[derive(Debug, PartialEq, Eq)]
struct TableKind {
    index: String,
    dates: Dates,
}

/// Returns the kind of a table, or an error that says what it lacks.
fn kind(table: &TableDescription) -> Result<TableKind, String> {
    if !is(table.key_schema(), &[(TASK_ID, KeyType::Hash)]) {
        return Err(format!("its key is not only `{TASK_ID}` (hash)"));
    }
    let wanted = [(STATUS, KeyType::Hash), (CREATED, KeyType::Range)];
    let indices = table.global_secondary_indexes().iter();
    let found = indices
        .filter(|index| is(index.key_schema(), &wanted))
        .find_map(|index| {
            let projection = index.projection()?.projection_type();
            Some((
                index.index_name()?,
                projection == Some(&ProjectionType::All),
            ))
        });
    let index = match found {
        Some((index, true)) => index,
        Some((index, false)) => {
            return Err(format!(
                "its index `{index}` does not project all attributes, so leases and times to live cannot be read in it"
            ));
        }
        None => {
            return Err(format!(
                "it has no global secondary index with the keys `{STATUS}` (hash) and `{CREATED}` (range)"
            ));
        }
    };
    let mut types = table.attribute_definitions().iter();
    let of_created = types.find(|attribute| attribute.attribute_name() == CREATED);
    let dates = match of_created.map(|attribute| attribute.attribute_type()) {
        Some(ScalarAttributeType::N) => Dates::Number,
        Some(ScalarAttributeType::S) => Dates::Text,
        _ => return Err(format!("`{CREATED}` is neither a number nor a text")),
    };
    Ok(TableKind {
        index: index.to_owned(),
        dates,
    })
}

fn is(keys: &[KeySchemaElement], wanted: &[(&str, KeyType)]) -> bool {
    keys.len() == wanted.len()
        && wanted.iter().all(|(name, kind): &(&str, KeyType)| {
            keys.iter()
                .any(|key| key.attribute_name() == *name && key.key_type() == kind)
        })
}

#[cfg(test)]
mod tests;
