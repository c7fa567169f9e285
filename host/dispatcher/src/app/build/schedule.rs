//! Where messages for later wait, by the backend of their queue: in a table of DynamoDB for SQS, in
//! the data folder for the embedded queue, beside their queue on Redis. Decides nothing about when.

mod adding;

pub use super::later::LaterError;
use super::later::{of_queue, of_store, refused};
use super::{Backends, Terms};
use crate::config::Stores;
use crate::name::{Backend, QueueName};
use dispatcher_aws as aws;
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::queue::{Queue, QueueError};
use dispatcher_core::schedule;
use dispatcher_core::schedule::cron::Periodic;
use dispatcher_core::schedule::{
    Cancelled, ScheduleStore, ScheduledJob, StoreError, Trouble, when,
};
use dispatcher_dynamodb::schedule::{DynamoDb, TableCreation};
use dispatcher_local::schedule::File;
use dispatcher_redis::schedule::Redis;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OnceCell;

/// The stores of all backends, and the queues that their jobs go to, each opened when it is needed.
pub struct Schedules {
    backends: Arc<Backends>,
    table: Option<String>,
    redis: OnceCell<Redis>,
    dynamodb: OnceCell<DynamoDb>,
    open: Mutex<HashMap<QueueName, Cell>>,
}

/// A queue, once it is open.
type Cell = Arc<OnceCell<Arc<dyn Queue>>>;

/// When a message is to be handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// Once, at this date.
    At(Timestamp),
    /// Again and again.
    Every(Periodic),
}

/// What was added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// The id by which it can be cancelled; of what is in an SQS queue already, the message's id.
    pub id: String,
    /// When it is due, or first due.
    pub due: Timestamp,
    /// Whether it can still be listed and cancelled.
    pub waits: bool,
}

/// A job as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// `QUEUE/JOB`, as `cancel` takes it.
    pub id: String,
    /// What waits.
    pub job: ScheduledJob,
}

impl Schedules {
    /// `table` is the one for all queues of SQS, where each has not its own.
    pub fn new(backends: Arc<Backends>, table: Option<String>) -> Self {
        Self {
            redis: OnceCell::new(),
            backends,
            table,
            dynamodb: OnceCell::new(),
            open: Mutex::default(),
        }
    }

    fn stores(&self) -> &Stores {
        self.backends.stores()
    }

    /// The backends.
    pub fn backends(&self) -> &Backends {
        &self.backends
    }

    /// A queue, opened once. Who waits for one that does not answer holds up nobody who wants another.
    pub async fn queue(&self, name: &QueueName) -> Result<Arc<dyn Queue>, QueueError> {
        let cell = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.entry(name.clone()).or_default().clone()
        };
        let queue = cell.get_or_try_init(|| self.backends.open(name, Terms::default()));
        queue.await.cloned()
    }

    /// The store of a queue's jobs, with its table's name where it is a table.
    pub async fn store(
        &self,
        name: &QueueName,
    ) -> Result<(Arc<dyn ScheduleStore>, Option<String>), LaterError> {
        if name.backend == Backend::Local {
            return Ok((Arc::new(File::of(&self.stores().data)), None));
        }
        if name.backend == Backend::Redis {
            let store = self.redis(name).await.map_err(|error| of_store(&error))?;
            return Ok((store, None));
        }
        let table = self.table_of(name)?;
        let own = self.table.is_none().then(|| name.to_string());
        let store = self.dynamodb().await.table(&table, own.as_deref());
        Ok((Arc::new(store), Some(table)))
    }

    /// The store that all embedded queues share.
    pub fn local(&self) -> Arc<dyn ScheduleStore> {
        Arc::new(File::of(&self.stores().data))
    }

    /// The store of a queue on Redis.
    pub async fn redis(&self, name: &QueueName) -> Result<Arc<dyn ScheduleStore>, StoreError> {
        let prefix = &self.stores().redis.prefix;
        let connect = || async {
            let link = self.backends.redis_lines().await?.link.clone();
            Ok::<_, StoreError>(Redis::on(link, prefix))
        };
        let server = self.redis.get_or_try_init(connect).await?;
        Ok(Arc::new(server.schedule(&name.name)))
    }

    /// The table of a queue of SQS: the one for all, or the one of the queue's bare name.
    pub fn table_of(&self, name: &QueueName) -> Result<String, LaterError> {
        if name.backend != Backend::Sqs {
            let why = match name.backend {
                Backend::DynamoDb => "cannot be scheduled for in this version",
                _ => "needs no table",
            };
            return Err(refused(format!("`{name}` {why}")));
        }
        if let Some(table) = &self.table {
            return Ok(table.clone());
        }
        let bare = name.name.rsplit(['/', ':']).next().unwrap_or_default();
        // What DynamoDB takes as the name of a table.
        match (3..=255).contains(&bare.len()) {
            true => Ok(bare.to_owned()),
            false => Err(refused(format!(
                "`{bare}` is too short for the name of a table; wanted --schedule-table, or schedule-table in the file"
            ))),
        }
    }

    /// The tables in which jobs for these queues wait, each once, and whose jobs are those that name
    /// no queue themselves, as the Waiter's do not.
    pub async fn tables(&self, names: &BTreeSet<&QueueName>) -> Vec<Arc<dyn ScheduleStore>> {
        let queues = names.iter().filter_map(|name| {
            let table = self.table_of(name).ok()?;
            Some((table, *name))
        });
        let mut stores: Vec<Arc<dyn ScheduleStore>> = Vec::new();
        for (table, owner) in owners(queues) {
            let own = owner.filter(|_| self.table.is_none());
            if own.is_none() && self.table.is_none() {
                tracing::warn!(
                    table,
                    "several queues of this run have the name of this table: a job in it that does not say for which is sent to the queue of that name in the configured region; wanted schedule-table in the file, or --schedule-table"
                );
            }
            let own = own.map(ToString::to_string);
            let store = self.dynamodb().await.table(&table, own.as_deref());
            stores.push(Arc::new(store));
        }
        stores
    }

    async fn dynamodb(&self) -> &DynamoDb {
        let connect = || async {
            DynamoDb::connect(&aws::configuration(self.stores().endpoint_url.as_deref()).await)
        };
        self.dynamodb.get_or_init(connect).await
    }

    /// What waits for a queue, or for all embedded queues and those of the table for all; the
    /// soonest first.
    pub async fn list(&self, name: Option<&QueueName>) -> Result<Vec<Entry>, LaterError> {
        let mut entries = Vec::new();
        if name.is_none_or(|name| name.backend == Backend::Local) {
            let bare = name.map(|name| name.name.as_str());
            let delayed = self.backends.delayed(bare).await;
            for one in delayed.map_err(|error| of_queue(&error))? {
                let queue = format!("local:{}", one.queue);
                let job = schedule::job(&queue, one.due, one.message, None);
                entries.push(ScheduledJob { id: one.id, ..job });
            }
            let kept = schedule::list(&*self.local()).await;
            entries.extend(kept.map_err(|error| of_store(&error))?);
        }
        let shared = name.is_none() && self.table.is_some();
        if let Some(name) = name.filter(|name| name.backend != Backend::Local) {
            let (store, _) = self.store(name).await?;
            let kept = schedule::list(&*store).await;
            entries.extend(kept.map_err(|error| self.of_store(name, &error))?);
        } else if shared {
            let table = self.table.as_deref().unwrap_or_default();
            let store = self.dynamodb().await.table(table, None);
            let kept = schedule::list(&store).await;
            entries.extend(kept.map_err(|error| of_store(&error))?);
        }
        let wanted = name.map(ToString::to_string);
        entries.retain(|job| wanted.as_ref().is_none_or(|wanted| job.queue == *wanted));
        entries.sort_by(|a, b| (a.due, &a.id).cmp(&(b.due, &b.id)));
        let entry = |job: ScheduledJob| Entry {
            id: format!("{}/{}", job.queue, job.id),
            job,
        };
        Ok(entries.into_iter().map(entry).collect())
    }

    /// Takes a job back, by the queue and the rest of its id.
    pub async fn cancel(&self, name: &QueueName, id: &str) -> Result<Cancelled, LaterError> {
        if name.backend == Backend::Local {
            let taken = self.backends.take_back(&name.name, id).await;
            if taken.map_err(|error| of_queue(&error))? {
                return Ok(Cancelled::Yes);
            }
        }
        let (store, _) = self.store(name).await?;
        let cancelled = store.cancel(id, clock::today()).await;
        cancelled.map_err(|error| self.of_store(name, &error))
    }

    /// Makes the table for a queue, or the one for all: its name, and whether it is new.
    pub async fn init(&self, name: Option<&QueueName>) -> Result<(String, bool), LaterError> {
        let table = match (name, &self.table) {
            (_, Some(table)) => table.clone(),
            (Some(name), None) => self.table_of(name)?,
            (None, None) => {
                return Err(refused(
                    "it does not say which table; wanted a queue, or --schedule-table".into(),
                ));
            }
        };
        let made = self.dynamodb().await.table(&table, None).make().await;
        let made = made.map_err(|error| of_store(&error))?;
        Ok((table, made == TableCreation::New))
    }

    fn of_store(&self, name: &QueueName, error: &StoreError) -> LaterError {
        let mut told = of_store(error);
        if error.kind == Trouble::Missing {
            let which = match &self.table {
                Some(table) => format!("--schedule-table {table}"),
                None => name.to_string(),
            };
            told.message = format!(
                "{}; SQS delays a message by 15 minutes at most, and one for a FIFO queue not at \
                 all, so longer delays wait in this table; `dispatcher schedule init {which}` \
                 makes it",
                told.message
            );
        }
        told
    }
}

/// The one queue of each table, or none where there are more: queues of two regions or accounts may
/// have one name.
fn owners<'a>(
    queues: impl Iterator<Item = (String, &'a QueueName)>,
) -> BTreeMap<String, Option<&'a QueueName>> {
    let mut owners = BTreeMap::new();
    for (table, name) in queues {
        owners
            .entry(table)
            .and_modify(|owner| *owner = None)
            .or_insert(Some(name));
    }
    owners
}

/// The date so long from now.
pub fn in_time(delay: std::time::Duration) -> Result<Timestamp, String> {
    when::after(clock::today(), delay).ok_or_else(|| "it is due after the year 9999".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::redis_place::RedisPlace;

    #[tokio::test]
    async fn a_queue_that_does_not_answer_keeps_no_other_from_being_opened() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let folder = tempfile::tempdir().expect("a folder");
        let stores = Stores {
            data: folder.path().to_owned(),
            redis: RedisPlace {
                url: format!("redis://{}", silent.local_addr().expect("an address")),
                ..RedisPlace::default()
            },
            endpoint_url: None,
            dynamodb: crate::config::DynamoDb::default(),
            refused: false,
        };
        let schedules = Schedules::new(Arc::new(Backends::new(stores)), None);
        let names = ["redis:silent", "local:near"];
        let [silent, near] = names.map(|name| name.parse::<QueueName>().expect("a name"));
        tokio::select! {
            biased;
            opened = schedules.queue(&silent) => panic!("opened first: {}", opened.is_ok()),
            opened = schedules.queue(&near) => drop(opened.expect("the embedded queue")),
        }
    }

    #[test]
    fn a_table_of_two_queues_is_of_none() {
        let names = [
            "https://sqs.eu-west-1.amazonaws.com/123456789012/orders",
            "https://sqs.us-east-1.amazonaws.com/123456789012/orders",
            "payments",
        ];
        let names = names.map(|name| name.parse::<QueueName>().expect("a name"));
        let tables = ["orders", "orders", "payments"].map(str::to_owned);
        let owners = owners(tables.into_iter().zip(&names));
        assert_eq!(
            owners.into_iter().collect::<Vec<_>>(),
            [
                ("orders".to_owned(), None),
                ("payments".to_owned(), Some(&names[2]))
            ]
        );
    }
}
