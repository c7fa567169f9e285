//! Opens the stores of scheduled messages as the backend of their queue requires: its own store, a
//! store beside the queue, or a table of another backend. Does not decide when to send.

mod adding;

pub use super::later::LaterError;
use super::later::{of_queue, of_store, refused};
use super::{Backends, OpenTerms};
use dispatcher_config::backends;
use dispatcher_config::name::QueueName;
use dispatcher_core::backend::{Backend, DelayedMessage, ScheduleHome, ScheduleOf};
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::queue::{Queue, QueueError};
use dispatcher_core::schedule;
use dispatcher_core::schedule::cron::Periodic;
use dispatcher_core::schedule::decide;
use dispatcher_core::schedule::{
    ErrorKind, JobCancellation, JobOutcome, ScheduleStore, ScheduledJob, StoreError, when,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::OnceCell;

/// The stores of all backends and the target queues of their jobs. Each is opened when it is first
/// needed.
pub struct Schedules {
    backends: Arc<Backends>,
    table: Option<String>,
    open: Mutex<HashMap<QueueName, Cell>>,
}

/// A queue, once it is open.
type Cell = Arc<OnceCell<Arc<dyn Queue>>>;

/// The time of delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// Once, at this date.
    At(Timestamp),
    /// Repeatedly.
    Every(Periodic),
}

/// The result of scheduling a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedJob {
    /// The id for cancelling it; for a message that is already in an SQS queue, the message id.
    pub id: String,
    /// The date when it is due, or first due.
    pub due: Timestamp,
    /// Whether it can still be listed and cancelled.
    pub waits: bool,
}

/// A scheduled job with its full id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedJob {
    /// `QUEUE/JOB`, the argument of `cancel`.
    pub id: String,
    /// The scheduled job.
    pub job: ScheduledJob,
}

/// Adds the full id to a job.
fn listed(job: ScheduledJob) -> ListedJob {
    ListedJob {
        id: format!("{}/{}", job.queue, job.id),
        job,
    }
}

impl Schedules {
    /// Creates the schedules. `table` is the table for all SQS queues, if they do not each have a
    /// table.
    pub fn new(backends: Arc<Backends>, table: Option<String>) -> Self {
        Self {
            backends,
            table,
            open: Mutex::default(),
        }
    }

    /// Returns the backends.
    pub fn backends(&self) -> &Backends {
        &self.backends
    }

    /// Returns a shared reference to the backends.
    pub fn shared_backends(&self) -> Arc<Backends> {
        self.backends.clone()
    }

    /// Opens queues again when they are next needed, as after a change of their accounts.
    pub(crate) fn forget_opened(&self) {
        self.open.lock().clear();
    }

    /// Opens a queue once. A queue that does not answer only delays the callers that wait for it.
    pub async fn queue(&self, name: &QueueName) -> Result<Arc<dyn Queue>, QueueError> {
        let cell = {
            let mut open = self.open.lock();
            open.entry(name.clone()).or_default().clone()
        };
        let queue = cell.get_or_try_init(|| self.backends.open(name, OpenTerms::default()));
        queue.await.cloned()
    }

    /// Returns the store of a queue's jobs.
    pub async fn store(&self, name: &QueueName) -> Result<Arc<dyn ScheduleStore>, LaterError> {
        let of = match name.backend.facts().schedule_home {
            ScheduleHome::Shared => ScheduleOf::All,
            ScheduleHome::BesideQueue => ScheduleOf::Queue(&name.name),
            ScheduleHome::TableOf(_) | ScheduleHome::None => {
                let table = self.table_of(name)?;
                let own = self.table.is_none().then(|| name.to_string());
                return self.table(tables_of(name)?, &table, own.as_deref()).await;
            }
        };
        let store = self.of(name.backend, of).await;
        store.map_err(|error| of_store(&error))
    }

    /// Returns a store of the backend itself.
    pub async fn of(
        &self,
        backend: &dyn Backend,
        of: ScheduleOf<'_>,
    ) -> Result<Arc<dyn ScheduleStore>, StoreError> {
        self.backends.client(backend).await?.schedule(of).await
    }

    async fn table(
        &self,
        backend: &dyn Backend,
        table: &str,
        queue: Option<&str>,
    ) -> Result<Arc<dyn ScheduleStore>, LaterError> {
        let store = self.of(backend, ScheduleOf::Table { table, queue }).await;
        store.map_err(|error| of_store(&error))
    }

    /// Returns the table of a queue whose jobs wait in one: the table for all queues, or the table
    /// with the queue's bare name.
    pub fn table_of(&self, name: &QueueName) -> Result<String, LaterError> {
        tables_of(name)?;
        if let Some(table) = &self.table {
            return Ok(table.clone());
        }
        let bare = name.name.rsplit(['/', ':']).next().unwrap_or_default();
        // The length that DynamoDB accepts as the name of a table.
        if (3..=255).contains(&bare.len()) {
            Ok(bare.to_owned())
        } else {
            Err(refused(format!(
                "`{bare}` is too short for a table name; wanted --schedule-table, or schedule-table in the file"
            )))
        }
    }

    /// Returns the stores of jobs for these queues that are cheap to poll.
    pub async fn own(&self, names: &BTreeSet<&QueueName>) -> Vec<Arc<dyn ScheduleStore>> {
        let mut stores = Vec::new();
        let mut shared = BTreeSet::new();
        for name in names {
            let of = match name.backend.facts().schedule_home {
                ScheduleHome::Shared if shared.insert(name.backend) => ScheduleOf::All,
                ScheduleHome::BesideQueue => ScheduleOf::Queue(&name.name),
                ScheduleHome::Shared | ScheduleHome::TableOf(_) | ScheduleHome::None => continue,
            };
            match self.of(name.backend, of).await {
                Ok(store) => stores.push(store),
                // An address that does not parse has already ended the run.
                Err(error) => {
                    tracing::error!(queue = %name, %error, "scheduling is unavailable for the queue")
                }
            }
        }
        stores
    }

    /// Returns the tables of jobs for these queues, each once. A job that names no queue, such as a
    /// job of the Waiter, belongs to the queue of its table.
    pub async fn tables(&self, names: &BTreeSet<&QueueName>) -> Vec<Arc<dyn ScheduleStore>> {
        let Some(backend) = names.iter().find_map(|name| tables_of(name).ok()) else {
            return Vec::new();
        };
        let queues = names.iter().filter_map(|name| {
            let table = self.table_of(name).ok()?;
            Some((table, *name))
        });
        let mut stores: Vec<Arc<dyn ScheduleStore>> = Vec::new();
        for (table, owner) in owners(queues) {
            let own = if self.table.is_none() { owner } else { None };
            if own.is_none() && self.table.is_none() {
                tracing::warn!(
                    table,
                    "several queues have the name of the schedule table: jobs without a queue go to the one in the configured region"
                );
            }
            let own = own.map(ToString::to_string);
            match self.table(backend, &table, own.as_deref()).await {
                Ok(store) => stores.push(store),
                Err(error) => {
                    tracing::error!(table, %error, "nothing is sent from the schedule table")
                }
            }
        }
        stores
    }

    /// Returns the messages that wait in the queues of a backend themselves, soonest first, at most
    /// `most`.
    async fn delayed(
        &self,
        backend: Option<&'static dyn Backend>,
        name: Option<&QueueName>,
        most: usize,
    ) -> Result<Vec<ScheduledJob>, LaterError> {
        let Some(backend) = backend else {
            return Ok(Vec::new());
        };
        let client = self.backends.client(backend).await;
        let bare = name.map(|name| name.name.as_str());
        let answer = match client {
            Ok(client) => client.delayed(bare, most).await,
            Err(error) => Err(error),
        };
        let delayed = answer.map_err(|error| of_queue(&error))?;
        Ok(delayed
            .into_iter()
            .map(|one: DelayedMessage| {
                let queue = QueueName {
                    backend,
                    name: one.queue,
                };
                let job = schedule::job(&queue.to_string(), one.due, one.message, None);
                ScheduledJob { id: one.id, ..job }
            })
            .collect())
    }

    /// Returns the first jobs that wait for a queue, soonest first: from the first page of its
    /// store, and at most `most` from each place.
    pub async fn first(&self, name: &QueueName, most: usize) -> Result<Vec<ListedJob>, LaterError> {
        let mut entries = self.delayed(Some(name.backend), Some(name), most).await?;
        let store = self.store(name).await?;
        let page = store
            .due(when::NEVER, None)
            .await
            .map_err(|error| self.of_store(name, &error))?;
        let wanted = name.to_string();
        let own = page.jobs.into_iter().filter(|job| job.queue == wanted);
        entries.extend(own.take(most));
        entries.sort_by(|a, b| (a.due, &a.id).cmp(&(b.due, &b.id)));
        entries.truncate(most);
        Ok(entries.into_iter().map(listed).collect())
    }

    /// Returns the jobs that wait for a queue, soonest first. Without a name, returns those for all
    /// embedded queues and in the table for all queues.
    pub async fn list(&self, name: Option<&QueueName>) -> Result<Vec<ListedJob>, LaterError> {
        let of = name.map(|name| name.backend).or_else(backends::embedded);
        let mut entries = self.delayed(of, name, usize::MAX).await?;
        let stores = match name {
            Some(name) => vec![self.store(name).await?],
            None => self.of_all().await?,
        };
        for store in stores {
            let kept = schedule::list(&*store).await;
            entries.extend(kept.map_err(|error| match name {
                Some(name) => self.of_store(name, &error),
                None => of_store(&error),
            })?);
        }
        let wanted = name.map(ToString::to_string);
        entries.retain(|job| wanted.as_ref().is_none_or(|wanted| job.queue == *wanted));
        entries.sort_by(|a, b| (a.due, &a.id).cmp(&(b.due, &b.id)));
        Ok(entries.into_iter().map(listed).collect())
    }

    /// Returns the stores that are listed without a queue name: the store of the embedded queues,
    /// and the table for all queues.
    async fn of_all(&self) -> Result<Vec<Arc<dyn ScheduleStore>>, LaterError> {
        let mut stores = Vec::new();
        if let Some(backend) = backends::embedded() {
            let store = self.of(backend, ScheduleOf::All).await;
            stores.push(store.map_err(|error| of_store(&error))?);
        }
        if let Some(table) = &self.table {
            stores.push(self.table(table_backend()?, table, None).await?);
        }
        Ok(stores)
    }

    /// Cancels a job, given its queue and the rest of its id.
    pub async fn cancel(&self, name: &QueueName, id: &str) -> Result<JobCancellation, LaterError> {
        let client = self.backends.client(name.backend).await;
        let taken = match client {
            Ok(client) => client.take_back(&name.name, id).await,
            Err(error) => Err(error),
        };
        if taken.map_err(|error| of_queue(&error))? {
            return Ok(JobCancellation::Yes);
        }
        let store = self.store(name).await?;
        let cancelled = store.cancel(id, clock::wall_clock_now()).await;
        cancelled.map_err(|error| self.of_store(name, &error))
    }

    /// Makes a job due at once: a dispatcher sends it within moments. A repeated job keeps its
    /// times. Returns false if there is no such job or it is just being sent.
    pub async fn run_now(&self, name: &QueueName, id: &str) -> Result<bool, LaterError> {
        let store = self.store(name).await?;
        let mut after: Option<String> = None;
        let job = loop {
            let page = store
                .due(when::NEVER, after.as_deref())
                .await
                .map_err(|error| self.of_store(name, &error))?;
            let mut jobs = page.jobs.into_iter();
            if let Some(job) = jobs.find(|job| job.id == id) {
                break job;
            }
            after = page.next;
            if after.is_none() {
                return Ok(false);
            }
        };
        let now = clock::wall_clock_now();
        let claim = decide::claim(uuid::Uuid::new_v4().to_string(), now);
        let jobs = [job];
        let claimed = store.claim(&jobs, &claim, now).await.into_iter().next();
        if !claimed
            .transpose()
            .map_err(|error| self.of_store(name, &error))?
            .unwrap_or_default()
        {
            return Ok(false);
        }
        let [job] = jobs;
        let ending = JobOutcome {
            job,
            token: claim.token,
            next: Some(now),
        };
        let ended = store.end(&[ending]).await.into_iter().next();
        ended
            .transpose()
            .map_err(|error| self.of_store(name, &error))?;
        Ok(true)
    }

    /// Creates the table for a queue, or the table for all queues. Returns its name and whether it
    /// is new.
    pub async fn init(&self, name: Option<&QueueName>) -> Result<(String, bool), LaterError> {
        let table = match (name, &self.table) {
            (_, Some(table)) => table.clone(),
            (Some(name), None) => self.table_of(name)?,
            (None, None) => {
                return Err(refused(
                    "no table is named; wanted a queue, or --schedule-table".into(),
                ));
            }
        };
        let store = self.table(table_backend()?, &table, None).await?;
        let is_new = store.make().await.map_err(|error| of_store(&error))?;
        Ok((table, is_new))
    }

    fn of_store(&self, name: &QueueName, error: &StoreError) -> LaterError {
        let mut told = of_store(error);
        let in_table = matches!(name.backend.facts().schedule_home, ScheduleHome::TableOf(_));
        if in_table && error.kind == ErrorKind::NotFound {
            let which = match &self.table {
                Some(table) => format!("--schedule-table {table}"),
                None => name.to_string(),
            };
            told.message = format!(
                "{}; SQS delays a message by 15 minutes at most, and one for a FIFO queue not at \
                 all, so longer delays wait in this table; `dispatcher schedule init {which}` creates it",
                told.message
            );
        }
        told
    }
}

/// Returns the backend whose tables store the jobs for a queue.
fn tables_of(name: &QueueName) -> Result<&'static dyn Backend, LaterError> {
    match name.backend.facts().schedule_home {
        ScheduleHome::TableOf(backend) => backends::find(backend).map_err(|absent| {
            refused(format!(
                "scheduled messages for `{name}` are stored in tables of {absent}"
            ))
        }),
        ScheduleHome::None => Err(refused(format!(
            "`{name}` cannot be scheduled for in this version"
        ))),
        ScheduleHome::Shared | ScheduleHome::BesideQueue => {
            Err(refused(format!("`{name}` needs no table")))
        }
    }
}

/// Returns the backend of the table for all queues.
fn table_backend() -> Result<&'static dyn Backend, LaterError> {
    let mut homes = backends::all()
        .iter()
        .map(|backend| backend.facts().schedule_home);
    let tables = homes.find_map(|home| match home {
        ScheduleHome::TableOf(backend) => Some(backend),
        _ => None,
    });
    let backend = tables.ok_or_else(|| {
        refused("no backend of this binary stores scheduled messages in a table".to_owned())
    })?;
    backends::find(backend).map_err(|absent| refused(format!("the table is one of {absent}")))
}

/// Returns the single queue of each table, or `None` if there are several: queues of two regions or
/// accounts may have the same name.
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

/// Returns the date after this delay.
pub fn in_time(delay: std::time::Duration) -> Result<Timestamp, String> {
    when::after(clock::wall_clock_now(), delay)
        .ok_or_else(|| "it is due after the year 9999".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_config::StoreConfig;

    #[tokio::test]
    async fn unreachable_queue_blocks_opening_of_no_other() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("redis://{}", silent.local_addr().expect("an address"));
        let folder = tempfile::tempdir().expect("a folder");
        let stores = StoreConfig {
            data: folder.path().to_owned(),
            sections: BTreeMap::from([("redis", BTreeMap::from([("url", vec![url])]))]),
            ..StoreConfig::default()
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
    fn table_shared_by_two_queues_belongs_to_neither() {
        let texts = [
            "https://sqs.eu-west-1.amazonaws.com/123456789012/orders",
            "https://sqs.us-east-1.amazonaws.com/123456789012/orders",
            "payments",
        ];
        let names = texts.map(|text| text.parse::<QueueName>().expect("a name"));
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
