//! The backends, each connected to when its first queue is opened.

use crate::aws;
use crate::config::iam::QueueKey;
use crate::config::problem::Problem;
use crate::config::{DynamoDb, Stores};
use crate::queue::dynamodb::{Dynamo, Options};
use crate::queue::local::{Delayed, Store};
use crate::queue::name::{Backend, QueueName};
pub use crate::queue::redis::Eviction;
use crate::queue::redis::{Cancelled, Known, Redis};
use crate::queue::sqs::{Encryption, Sqs};
use crate::queue::{Queue, QueueError, Trouble};
use std::sync::Arc;
use tokio::sync::OnceCell;

/// How many names of other queues a problem lists.
const NAMES_SHOWN: usize = 12;

/// The backends, each connected to when its first queue is opened.
pub struct Backends {
    stores: Stores,
    sqs: OnceCell<Sqs>,
    local: OnceCell<Store>,
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
            redis: OnceCell::new(),
            dynamodb: OnceCell::new(),
        }
    }

    async fn redis_server(&self) -> Result<&Redis, QueueError> {
        let place = &self.stores.redis;
        self.redis
            .get_or_try_init(|| async { Redis::new(place.at(), &place.prefix) })
            .await
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
    pub async fn workers(&self) -> Result<Vec<Known>, QueueError> {
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

    async fn local(&self) -> Result<&Store, QueueError> {
        self.local
            .get_or_try_init(|| async { Store::open(&self.stores.data) })
            .await
    }

    /// Opens a queue, with the queue of the same backend that its dead letters go to.
    pub async fn open(
        &self,
        name: &QueueName,
        dead_letter: Option<&QueueName>,
    ) -> Result<Arc<dyn Queue>, QueueError> {
        let dead_letter = dead_letter.map(|queue| queue.name.as_str());
        Ok(match name.backend {
            Backend::Sqs => Arc::new(self.sqs().await.open(&name.name, dead_letter).await?),
            Backend::Local => Arc::new(self.local().await?.queue(&name.name, dead_letter)?),
            Backend::Redis => {
                let server = self.redis_server().await?;
                match self.worqr(name) {
                    None => Arc::new(server.queue(&name.name, dead_letter).await?),
                    Some(prefix) => Arc::new(server.worqr(prefix, &name.name, dead_letter).await?),
                }
            }
            Backend::DynamoDb => {
                Arc::new(self.dynamodb().await.open(&name.name, dead_letter).await?)
            }
        })
    }

    /// Opens a queue to look at it. Queues of the local backend and of Redis are made when they are
    /// first used; a look makes none, so a misspelt name is told.
    pub async fn open_existing(&self, name: &QueueName) -> Result<Arc<dyn Queue>, QueueError> {
        let known = match name.backend {
            Backend::Sqs | Backend::DynamoDb => None,
            Backend::Local => Some(self.local().await?.names()?),
            Backend::Redis if self.worqr(name).is_some() => None,
            Backend::Redis => Some(self.redis_server().await?.names().await?),
        };
        if let Some(known) = known {
            let bare = name.name.strip_suffix(".dead").unwrap_or(&name.name);
            if !known
                .iter()
                .any(|known| *known == name.name || known == bare)
            {
                return Err(QueueError {
                    kind: Trouble::Missing,
                    message: "it does not exist; the first message sent to it makes it".into(),
                });
            }
        }
        self.open(name, None).await
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
        let names = self.local().await.and_then(Store::names);
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
