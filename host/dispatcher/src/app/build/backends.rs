//! Connects each backend when it is first needed.

use crate::app::waiting;
use crate::backends::{all, embedded, unnamed};
use crate::config::StoreConfig;
use crate::config::problem::Problem;
use crate::name::QueueName;
use dispatcher_core::backend::{
    Backend, BackendClient, CancelCount, Contradiction, Purpose, QueueDeclaration, QueueKey,
    QueueTerms, ServerWarning, WorkerInfo, not_made_yet,
};
use dispatcher_core::memory::Budget;
use dispatcher_core::queue::{Depth, ErrorKind, Queue, QueueError};
use dispatcher_core::telemetry::metrics::durations::SentMessages;
use dispatcher_core::telemetry::trace::Tracer;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use tokio::sync::OnceCell;

/// How many names of other queues a problem lists.
const NAMES_SHOWN: usize = 12;

/// What a route wants of its queues.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenTerms<'a> {
    /// The queue of the same backend that dead letters go to.
    pub dead_letter: Option<&'a QueueName>,
    /// A message is dead-lettered after this many attempts.
    pub attempts: Option<u32>,
    /// How many bytes of messages the process may hold.
    pub budget: Option<&'a Arc<Budget>>,
}

/// The backends, each connected to when it is first needed.
pub struct Backends {
    stores: StoreConfig,
    clients: BTreeMap<&'static str, OnceCell<Arc<dyn BackendClient>>>,
    tracer: OnceLock<Tracer>,
    sent: Arc<SentMessages>,
}

impl Backends {
    /// Where the settings say.
    pub fn new(stores: StoreConfig) -> Self {
        let clients = all().iter();
        Self {
            stores,
            clients: clients
                .map(|backend| (backend.name(), OnceCell::new()))
                .collect(),
            tracer: OnceLock::new(),
            sent: Arc::default(),
        }
    }

    /// From now on calls that move messages are traced. Holds the first tracer that it is given.
    pub(crate) fn trace(&self, tracer: Tracer) {
        // A process has one.
        let _ = self.tracer.set(tracer);
    }

    /// Makes the spans of calls that move messages.
    pub(crate) fn tracer(&self) -> Tracer {
        self.tracer.get().cloned().unwrap_or_default()
    }

    /// Counts what is sent to their queues.
    pub(crate) fn sent(&self) -> Arc<SentMessages> {
        Arc::clone(&self.sent)
    }

    /// The same, with a client of one that is connected already.
    pub fn with_client(
        stores: StoreConfig,
        backend: &dyn Backend,
        client: Arc<dyn BackendClient>,
    ) -> Self {
        let mut backends = Self::new(stores);
        let name = backend.name();
        if let Some(cell) = backends.clients.get_mut(name) {
            *cell = OnceCell::new_with(Some(client));
        }
        backends
    }

    /// What the settings say of them.
    pub fn stores(&self) -> &StoreConfig {
        &self.stores
    }

    /// The client of a backend.
    pub async fn client(&self, backend: &dyn Backend) -> Result<&dyn BackendClient, QueueError> {
        let name = backend.name();
        let connect = || async { backend.connect(&self.stores.config_of(name)).await };
        let client = self.clients.get(name).ok_or_else(|| QueueError {
            kind: ErrorKind::Invalid,
            message: format!("there is no backend `{name}`"),
        })?;
        Ok(&**client.get_or_try_init(connect).await?)
    }

    /// Which declarations of embedded queues contradict what is there. Changes nothing.
    pub async fn contradictions(
        &self,
        queues: &[QueueDeclaration],
    ) -> Result<Vec<Contradiction>, QueueError> {
        match embedded() {
            Some(backend) => self.client(backend).await?.contradictions(queues).await,
            // Without it no name of such a queue can be read.
            None => Ok(Vec::new()),
        }
    }

    /// Makes embedded queues, or changes them to what is declared; none, if a declaration contradicts
    /// what is there.
    pub async fn declare(
        &self,
        queues: &[QueueDeclaration],
    ) -> Result<Vec<Contradiction>, QueueError> {
        match embedded() {
            Some(backend) => self.client(backend).await?.declare(queues).await,
            None => Ok(Vec::new()),
        }
    }

    /// Removes a task from a queue: the message of that id, or where the backend cancels tasks by
    /// itself all of that body, running ones as well.
    pub async fn cancel(&self, name: &QueueName, task: &str) -> Result<CancelCount, QueueError> {
        let client = self.client(name.backend).await?;
        if name.backend.can_cancel() {
            return client.cancel(&name.name, task).await;
        }
        let queue = self.open_existing(name).await?;
        if !queue.can_browse() {
            return Err(QueueError {
                kind: ErrorKind::Invalid,
                message: format!(
                    "its messages cannot be cancelled: {} hands out messages by receiving them and \
                     has no call that reaches one by its id; one that runs is cancelled by its process: \
                     name it by --admin",
                    name.backend.name()
                ),
            });
        }
        let is_removed = waiting::cancel(&queue, task).await? || queue.cancel_delayed(task).await?;
        Ok(CancelCount {
            waiting: u64::from(is_removed),
            running: 0,
        })
    }

    /// The processes that receive from a backend now.
    pub async fn workers(&self, backend: &dyn Backend) -> Result<Vec<WorkerInfo>, QueueError> {
        self.client(backend).await?.workers().await
    }

    /// What about the server of a backend will lose messages one day; `log` says whether that is
    /// logged as well. Nothing where it cannot be reached.
    pub async fn warnings(&self, backend: &dyn Backend, log: bool) -> Vec<ServerWarning> {
        match self.client(backend).await {
            Ok(client) => client.warnings(log).await,
            Err(_) => Vec::new(),
        }
    }

    /// Makes those of these queues that are missing, where opening each would make it. What keeps one
    /// from being made keeps it from being opened.
    pub async fn make(&self, names: &[&QueueName]) {
        for backend in all() {
            let own = names.iter().filter(|name| name.backend == *backend);
            let bare: Vec<&str> = own.map(|name| name.name.as_str()).collect();
            if bare.is_empty() {
                continue;
            }
            let made = match self.client(*backend).await {
                Ok(client) => client.make(&bare).await,
                Err(error) => Err(error),
            };
            if let Err(error) = made {
                tracing::debug!(backend = backend.name(), %error, "queues not made");
            }
        }
    }

    /// Opens a queue for a route, or for whoever wants nothing of it that a route would.
    pub async fn open(
        &self,
        name: &QueueName,
        terms: OpenTerms<'_>,
    ) -> Result<Arc<dyn Queue>, QueueError> {
        let terms = QueueTerms {
            dead_letter: terms.dead_letter.map(|queue| queue.name.as_str()),
            attempts: terms.attempts,
            budget: terms.budget,
        };
        self.client(name.backend)
            .await?
            .open(&name.name, terms)
            .await
    }

    /// Opens a queue to inspect it. Some backends create queues when they are first used; this
    /// creates none, so a misspelt name is an error.
    pub async fn open_existing(&self, name: &QueueName) -> Result<Arc<dyn Queue>, QueueError> {
        if self.client(name.backend).await?.exists(&name.name).await? {
            return self.open(name, OpenTerms::default()).await;
        }
        Err(not_made_yet())
    }

    /// How much each of these queues holds, in their order.
    pub async fn depths(&self, names: &[QueueName]) -> Vec<Result<Depth, QueueError>> {
        let mut depths = BTreeMap::new();
        for backend in all() {
            let own = || names.iter().filter(|name| name.backend == *backend);
            let bare: Vec<&str> = own().map(|name| name.name.as_str()).collect();
            if bare.is_empty() {
                continue;
            }
            let found = match self.client(*backend).await {
                Ok(client) => client.depths(&bare).await,
                Err(error) => vec![Err(error); bare.len()],
            };
            depths.extend(own().zip(found));
        }
        let named = names.iter();
        let depth = |name| {
            depths
                .get(name)
                .cloned()
                .unwrap_or_else(|| Err(not_made_yet()))
        };
        named.map(depth).collect()
    }

    /// The queues of a backend, if it can list them.
    pub async fn list(&self, backend: &'static dyn Backend) -> Result<Vec<QueueName>, QueueError> {
        let names = self.client(backend).await?.queues().await?;
        let name = |name| QueueName { backend, name };
        Ok(names.into_iter().map(name).collect())
    }

    /// The embedded backend, if it has a queue of this name. Makes no file.
    async fn embedded_with(&self, name: &str) -> Option<&'static dyn Backend> {
        let backend = embedded()?;
        let exists = self.client(backend).await.ok()?.exists(name).await;
        exists.ok()?.then_some(backend)
    }

    /// The keys of those among these queues that are encrypted with AWS KMS, and why some could not be
    /// looked at.
    pub async fn keys<'a>(
        &self,
        names: impl IntoIterator<Item = &'a QueueName>,
    ) -> (Vec<QueueKey>, Vec<QueueError>) {
        let (mut keys, mut errors) = (Vec::new(), Vec::new());
        let on_aws = |name: &&QueueName| {
            let (backend, config) = (name.backend, self.stores.config_of(name.backend.name()));
            let wanted = backend.permission(&name.name, Purpose::Receive, "", &config);
            wanted.is_some()
        };
        for name in names.into_iter().filter(on_aws) {
            let key = match self.client(name.backend).await {
                Ok(client) => client.encryption_key(&name.name).await,
                Err(error) => Err(error),
            };
            match key {
                Ok(key) => keys.extend(key),
                // Whoever cannot be asked about one queue cannot be asked about the next.
                Err(error)
                    if matches!(error.kind, ErrorKind::AccessDenied | ErrorKind::Unreachable) =>
                {
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
        let plain = name.backend.name() == unnamed() && !name.name.contains([':', '/']);
        let meant = match embedded().filter(|_| plain && name.name == "default") {
            Some(backend) => Some(backend),
            None if plain => self.embedded_with(&name.name).await,
            None => None,
        };
        let problem = match meant.map(|backend| backend.name()) {
            Some(embedded) => problem.hint(format!(
                "the embedded queue of that name is {embedded}:{name}"
            )),
            None => problem,
        };
        match error.kind {
            ErrorKind::NotFound => {
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
            ErrorKind::Unreachable | ErrorKind::Transient => problem.unreachable(),
            ErrorKind::AccessDenied | ErrorKind::Invalid => problem,
        }
    }
}
