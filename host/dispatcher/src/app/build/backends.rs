//! The backends, each connected to when its first queue is opened.

use crate::config::iam::QueueKey;
use crate::config::problem::Problem;
use crate::config::{DynamoDb, Stores};
use crate::name::{Backend, QueueName};
use dispatcher_aws as aws;
use dispatcher_core::memory::Budget;
use dispatcher_core::queue::{Depth, Queue, QueueError, Trouble};
use dispatcher_core::trouble::Failed;
use dispatcher_dynamodb::queue::{Dynamo, Options};
use dispatcher_local::queue::{Delayed, LocalStore};
pub use dispatcher_redis::queue::Eviction;
use dispatcher_redis::queue::{Cancelled, KnownWorkers, Redis};
use dispatcher_redis::server::link::RedisConnections;
use dispatcher_sqs::queue::{Encryption, Sqs};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// The suffix of the queue that dead letters go to unless another is named.
const DEAD: &str = ".dead";
/// How many names of other queues a problem lists.
const NAMES_SHOWN: usize = 12;

/// What a route wants of its queues.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms<'a> {
    /// The queue of the same backend that dead letters go to.
    pub dead_letter: Option<&'a QueueName>,
    /// After so many attempts a message is dead-lettered.
    pub attempts: Option<u32>,
    /// How many bytes of messages the process may hold.
    pub budget: Option<&'a Arc<Budget>>,
}

/// The backends, each connected to when its first queue is opened.
pub struct Backends {
    stores: Stores,
    sqs: OnceCell<Sqs>,
    local: OnceCell<LocalStore>,
    redis_lines: OnceCell<RedisConnections>,
    redis: OnceCell<Redis>,
    dynamodb: OnceCell<Dynamo>,
}

impl Backends {
    /// Where the settings say.
    pub fn new(stores: Stores) -> Self {
        Self {
            stores,
            sqs: OnceCell::new(),
            local: OnceCell::new(),
            redis_lines: OnceCell::new(),
            redis: OnceCell::new(),
            dynamodb: OnceCell::new(),
        }
    }

    /// What the settings say of them.
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    /// The connections to the Redis server, for all that keep something there.
    pub async fn redis_lines(&self) -> Result<&RedisConnections, Failed> {
        let open = || async { RedisConnections::new(&self.stores.redis.at()) };
        self.redis_lines.get_or_try_init(open).await
    }

    async fn redis_server(&self) -> Result<&Redis, QueueError> {
        let prefix = &self.stores.redis.prefix;
        let open = || async { Redis::on(self.redis_lines().await?, prefix) };
        self.redis.get_or_try_init(open).await
    }

    /// The package's prefix, if the queue is one of npm `worqr`, as its dead letters are.
    fn worqr(&self, name: &QueueName) -> Option<&str> {
        let place = &self.stores.redis;
        let bare = name.name.strip_suffix(".dead").unwrap_or(&name.name);
        let of_worqr = [bare, &name.name]
            .iter()
            .any(|name| place.worqr.contains(*name));
        of_worqr.then_some(place.worqr_prefix.as_str())
    }

    /// Removes a task from a queue: the message of that id, or all of that body.
    pub async fn cancel(&self, name: &QueueName, task: &str) -> Result<Cancelled, QueueError> {
        match name.backend {
            Backend::Redis => {
                let server = self.redis_server().await?;
                match self.worqr(name) {
                    None => server.cancel(&name.name, task).await,
                    Some(prefix) => server.cancel_worqr(prefix, &name.name, task).await,
                }
            }
            Backend::Sqs | Backend::Local | Backend::DynamoDb => Err(QueueError {
                kind: Trouble::Refused,
                message: "tasks can be cancelled on Redis alone".into(),
            }),
        }
    }

    /// The processes that receive from the Redis server now.
    pub async fn workers(&self) -> Result<Vec<KnownWorkers>, QueueError> {
        self.redis_server().await?.workers().await
    }

    /// Whether the Redis server throws messages away when its memory ends.
    /// `None` where it cannot be reached.
    pub async fn redis_eviction(&self) -> Result<Option<Eviction>, QueueError> {
        let server = self.redis_server().await?;
        Ok(server.eviction().await)
    }

    async fn dynamodb(&self) -> &Dynamo {
        let connect = || async {
            let config = aws::configuration(self.stores.endpoint_url.as_deref()).await;
            Dynamo::connect(&config, options(&self.stores.dynamodb))
        };
        self.dynamodb.get_or_init(connect).await
    }

    async fn sqs(&self) -> &Sqs {
        let connect = || async {
            Sqs::connect(&aws::configuration(self.stores.endpoint_url.as_deref()).await)
        };
        self.sqs.get_or_init(connect).await
    }

    async fn local(&self) -> Result<&LocalStore, QueueError> {
        self.local
            .get_or_try_init(|| async { LocalStore::open(&self.stores.data) })
            .await
    }

    /// Opens a queue for a route, or for whoever wants nothing of it that a route would.
    pub async fn open(
        &self,
        name: &QueueName,
        terms: Terms<'_>,
    ) -> Result<Arc<dyn Queue>, QueueError> {
        let dead_letter = terms.dead_letter.map(|queue| queue.name.as_str());
        let budget = terms.budget.cloned();
        Ok(match name.backend {
            Backend::Sqs => {
                let queue = self.sqs().await.open(&name.name, dead_letter).await?;
                Arc::new(queue.within(budget))
            }
            Backend::Local => {
                let queue = self.local().await?.queue(&name.name, dead_letter)?;
                Arc::new(queue.within(budget, terms.attempts))
            }
            Backend::Redis => {
                let server = self.redis_server().await?;
                match self.worqr(name) {
                    None => Arc::new(server.queue(&name.name, dead_letter).await?.within(budget)),
                    Some(prefix) => Arc::new(server.worqr(prefix, &name.name, dead_letter).await?),
                }
            }
            Backend::DynamoDb => {
                let queue = self.dynamodb().await.open(&name.name, dead_letter).await?;
                Arc::new(queue.within(budget))
            }
        })
    }

    /// Opens a queue to look at it. Queues of the local backend and of Redis are made when they are
    /// first used; a look makes none, so a misspelt name is told.
    pub async fn open_existing(&self, name: &QueueName) -> Result<Arc<dyn Queue>, QueueError> {
        let known = self.made_on_use(name).await?;
        match known.is_none_or(|known| exists(name, &known)) {
            true => self.open(name, Terms::default()).await,
            false => Err(missing()),
        }
    }

    /// The queues among which this one must be to exist, where a backend makes queues on first use.
    async fn made_on_use(&self, name: &QueueName) -> Result<Option<BTreeSet<String>>, QueueError> {
        let names = match name.backend {
            Backend::Sqs | Backend::DynamoDb => return Ok(None),
            Backend::Redis if self.worqr(name).is_some() => return Ok(None),
            Backend::Local => self.local().await?.names()?,
            Backend::Redis => self.redis_server().await?.names().await?,
        };
        Ok(Some(names.into_iter().collect()))
    }

    /// How much each of these queues holds, in their order. The queues of the embedded backend are
    /// counted in one call; of Redis the list of queues is read once.
    pub async fn depths(&self, names: &[QueueName]) -> Vec<Result<Depth, QueueError>> {
        let mut local = self.local_depths(names).await.into_iter();
        let mut on_redis: Option<Result<BTreeSet<String>, QueueError>> = None;
        let mut depths = Vec::with_capacity(names.len());
        for name in names {
            let depth = match name.backend {
                Backend::Local => local.next().unwrap_or_else(|| Err(missing())),
                Backend::Redis if self.worqr(name).is_none() => {
                    if on_redis.is_none() {
                        let known = self.made_on_use(name).await;
                        on_redis = Some(known.map(Option::unwrap_or_default));
                    }
                    match on_redis.as_ref() {
                        Some(Ok(known)) if exists(name, known) => self.depth(name).await,
                        Some(Err(error)) => Err(error.clone()),
                        _ => Err(missing()),
                    }
                }
                _ => self.depth(name).await,
            };
            depths.push(depth);
        }
        depths
    }

    async fn depth(&self, name: &QueueName) -> Result<Depth, QueueError> {
        self.open(name, Terms::default()).await?.depth().await
    }

    /// Of those that are queues of the embedded backend.
    async fn local_depths(&self, names: &[QueueName]) -> Vec<Result<Depth, QueueError>> {
        let local = names.iter().filter(|name| name.backend == Backend::Local);
        let local: Vec<&str> = local.map(|name| name.name.as_str()).collect();
        if local.is_empty() {
            return Vec::new();
        }
        // A dead-letter queue exists with its queue, empty until the first dead letter.
        let bare = |name: &&str| name.strip_suffix(DEAD).map(str::to_owned);
        let asked = local.iter().map(|name| (*name).to_owned());
        let asked = asked.chain(local.iter().filter_map(bare)).collect();
        let found = match self.local().await {
            Ok(store) => store.depths(asked).await,
            Err(error) => Err(error),
        };
        match found {
            Err(error) => vec![Err(error); local.len()],
            Ok(mut found) => {
                let mut bare = found.split_off(local.len()).into_iter();
                let named = local.iter().zip(found);
                let depth = |(name, own): (&&str, Option<Depth>)| {
                    let of = name.strip_suffix(DEAD).and_then(|_| bare.next().flatten());
                    own.or(of.map(|_| Depth::default())).ok_or_else(missing)
                };
                named.map(depth).collect()
            }
        }
    }

    /// The queues of a backend, as far as it tells.
    pub async fn list(&self, backend: Backend) -> Result<Vec<QueueName>, QueueError> {
        let names = match backend {
            Backend::Sqs => self.sqs().await.names().await?,
            Backend::Local => self.local().await?.names()?,
            Backend::Redis => {
                let mut names = self.redis_server().await?.names().await?;
                names.extend(self.stores.redis.worqr.iter().cloned());
                names
            }
            Backend::DynamoDb => self.dynamodb().await.names().await?,
        };
        Ok(names
            .into_iter()
            .map(|name| QueueName { backend, name })
            .collect())
    }

    /// What waits for its time in the embedded queue of this bare name, or in any.
    pub async fn delayed(&self, queue: Option<&str>) -> Result<Vec<Delayed>, QueueError> {
        self.local().await?.delayed(queue).await
    }

    /// Takes such a message back; false if there is none.
    pub async fn take_back(&self, queue: &str, id: &str) -> Result<bool, QueueError> {
        self.local().await?.cancel(queue, id).await
    }

    /// Whether there is an embedded queue of this name. Makes no file.
    async fn is_local(&self, name: &str) -> bool {
        if !self.stores.data.join("local.db").exists() {
            return false;
        }
        let names = self.local().await.and_then(LocalStore::names);
        names.is_ok_and(|names| names.iter().any(|known| known == name))
    }

    /// The keys of the encrypted queues of SQS among these, and why some could not be looked at.
    pub async fn keys<'a>(
        &self,
        names: impl IntoIterator<Item = &'a QueueName>,
    ) -> (Vec<QueueKey>, Vec<QueueError>) {
        let (mut keys, mut errors) = (Vec::new(), Vec::new());
        for name in names
            .into_iter()
            .filter(|name| name.backend == Backend::Sqs)
        {
            match self.sqs().await.encryption(&name.name).await {
                Ok(key) => {
                    keys.extend(key.map(|Encryption { key, queue }| QueueKey { key, queue }))
                }
                // Whoever cannot be asked about one queue cannot be asked about the next.
                Err(error) if matches!(error.kind, Trouble::Denied | Trouble::Unreachable) => {
                    errors.push(error);
                    break;
                }
                Err(error) => errors.push(error),
            }
        }
        (keys, errors)
    }

    /// What is wrong, in words that name the queues there are.
    pub async fn problem(&self, at: &str, name: &QueueName, error: &QueueError) -> Problem {
        let problem = Problem::new(at, format!("queue `{name}`: {error}"), "");
        // Who writes `default` without an account means the queue in a file. Nobody else does,
        // unless there is such a queue.
        let plain = name.backend == Backend::Sqs && !name.name.contains([':', '/']);
        let problem = if plain && (name.name == "default" || self.is_local(&name.name).await) {
            problem.hint(format!("the embedded queue of that name is local:{name}"))
        } else {
            problem
        };
        match error.kind {
            Trouble::Missing => {
                let known = self.list(name.backend).await.unwrap_or_default();
                let names: Vec<String> = known.iter().map(ToString::to_string).collect();
                let wanted = if names.is_empty() {
                    "a queue that exists".to_owned()
                } else {
                    let more = if names.len() > NAMES_SHOWN {
                        ", …"
                    } else {
                        ""
                    };
                    let shown = names.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>();
                    format!("one of {}{more}", shown.join(", "))
                };
                Problem { wanted, ..problem }
                    .nearest(&name.to_string(), names.iter().map(String::as_str))
            }
            Trouble::Unreachable | Trouble::Passing => problem.unreachable(),
            Trouble::Denied | Trouble::Refused => problem,
        }
    }
}

/// Whether a queue is among these, or its dead letters' queue would be.
fn exists(name: &QueueName, known: &BTreeSet<String>) -> bool {
    let bare = name.name.strip_suffix(DEAD).unwrap_or(&name.name);
    known.contains(&name.name) || known.contains(bare)
}

fn missing() -> QueueError {
    QueueError {
        kind: Trouble::Missing,
        message: "it does not exist; the first message sent to it makes it".into(),
    }
}

/// What the settings leave open is as the backend has it.
fn options(tables: &DynamoDb) -> Options {
    let usual = Options::default();
    Options {
        body_attribute: tables.body_attribute.clone(),
        shards: tables.shards.unwrap_or(usual.shards),
        time_to_live: tables.time_to_live.unwrap_or(usual.time_to_live),
        idle_poll: tables.idle_poll.unwrap_or(usual.idle_poll),
    }
}
