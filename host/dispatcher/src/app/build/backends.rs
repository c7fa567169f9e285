//! Connects to each backend when it is first needed.

use crate::app::waiting;
use dispatcher_config::StoreConfig;
use dispatcher_config::backends::{all, embedded, unnamed};
use dispatcher_config::discovery::QueuePattern;
use dispatcher_config::name::QueueName;
use dispatcher_config::problem::Problem;
use dispatcher_core::account::{Accounts, AwsAccount};
use dispatcher_core::backend::{
    Backend, BackendClient, BackendConfig, BackendRoles, CancelCount, Contradiction, Purpose,
    QueueDeclaration, QueueKey, QueueTerms, ServerWarning, WantedNames, WorkerInfo, not_made_yet,
};
use dispatcher_core::memory::Budget;
use dispatcher_core::queue::{Depth, ErrorKind, Queue, QueueError};
use dispatcher_core::telemetry::metrics::durations::SentMessages;
use dispatcher_core::telemetry::trace::Tracer;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use tokio::sync::OnceCell;

/// The maximum number of names of other queues that a problem lists.
const NAMES_SHOWN: usize = 12;

/// The requirements of a route for its queues.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenTerms<'a> {
    /// The dead-letter queue, in the same backend.
    pub dead_letter: Option<&'a QueueName>,
    /// The number of attempts after which a message is dead-lettered.
    pub attempts: Option<u32>,
    /// The limit on the bytes of messages that the process holds.
    pub budget: Option<&'a Arc<Budget>>,
}

/// The backends. Each is connected to when it is first needed.
pub struct Backends {
    stores: StoreConfig,
    connections: RwLock<Connections>,
    tracer: Arc<OnceLock<Tracer>>,
    sent: Arc<SentMessages>,
}

/// The clients of the backends, which call as the accounts say.
#[derive(Clone)]
struct Connections {
    accounts: Accounts,
    clients: BTreeMap<&'static str, Arc<OnceCell<Arc<dyn BackendClient>>>>,
}

impl Connections {
    /// Returns connections of these accounts. Those of backends without accounts stay.
    fn with_accounts(&self, accounts: &Accounts) -> Self {
        let mut connections = self.clone();
        if connections.accounts != *accounts {
            connections.accounts = accounts.clone();
            for backend in all().iter().filter(|one| one.facts().has_accounts) {
                connections.clients.insert(backend.name(), Arc::default());
            }
        }
        connections
    }
}

impl Backends {
    /// Creates the backends with these settings.
    pub fn new(stores: StoreConfig) -> Self {
        let clients = all().iter();
        let connections = Connections {
            accounts: stores.accounts.clone(),
            clients: clients
                .map(|backend| (backend.name(), Arc::default()))
                .collect(),
        };
        Self {
            stores,
            connections: RwLock::new(connections),
            tracer: Arc::default(),
            sent: Arc::default(),
        }
    }

    /// Returns backends that call as these accounts say. They share the connections of backends
    /// without accounts with this one.
    pub fn with_accounts(&self, accounts: &Accounts) -> Self {
        Self {
            stores: self.stores.clone(),
            connections: RwLock::new(self.connections.read().with_accounts(accounts)),
            tracer: self.tracer.clone(),
            sent: self.sent.clone(),
        }
    }

    /// Calls as these accounts say from now on.
    pub(crate) fn set_accounts(&self, accounts: &Accounts) {
        let mut connections = self.connections.write();
        *connections = connections.with_accounts(accounts);
    }

    /// Traces calls that move messages from now on. Keeps the first tracer that it receives.
    pub(crate) fn trace(&self, tracer: Tracer) {
        // A process has one tracer.
        let _ = self.tracer.set(tracer);
    }

    /// Returns the tracer of calls that move messages.
    pub(crate) fn tracer(&self) -> Tracer {
        self.tracer.get().cloned().unwrap_or_default()
    }

    /// Returns the counter of messages that are sent to their queues.
    pub(crate) fn sent(&self) -> Arc<SentMessages> {
        Arc::clone(&self.sent)
    }

    /// Creates the backends with a client for one that is already connected.
    pub fn with_client(
        stores: StoreConfig,
        backend: &dyn Backend,
        client: Arc<dyn BackendClient>,
    ) -> Self {
        let backends = Self::new(stores);
        let connected = Arc::new(OnceCell::new_with(Some(client)));
        let mut connections = backends.connections.write();
        connections.clients.insert(backend.name(), connected);
        drop(connections);
        backends
    }

    /// Returns the settings of the backends.
    pub fn stores(&self) -> &StoreConfig {
        &self.stores
    }

    /// Returns the client of a backend.
    pub async fn client(
        &self,
        backend: &dyn Backend,
    ) -> Result<Arc<dyn BackendClient>, QueueError> {
        let name = backend.name();
        let (client, accounts) = {
            let connections = self.connections.read();
            let client = connections.clients.get(name).cloned();
            (client, connections.accounts.clone())
        };
        let client = client.ok_or_else(|| QueueError {
            kind: ErrorKind::Invalid,
            message: format!("there is no backend `{name}`"),
        })?;
        let connected = client.get_or_try_init(|| async {
            let config = BackendConfig {
                accounts,
                ..self.stores.config_of(name)
            };
            backend.connect(&config).await
        });
        Ok(connected.await?.clone())
    }

    /// Returns the declarations of embedded queues that contradict existing queues. Changes
    /// nothing.
    pub async fn contradictions(
        &self,
        queues: &[QueueDeclaration],
    ) -> Result<Vec<Contradiction>, QueueError> {
        match embedded() {
            Some(backend) => self.client(backend).await?.contradictions(queues).await,
            // Without the embedded backend, names of such queues do not parse.
            None => Ok(Vec::new()),
        }
    }

    /// Creates or changes embedded queues as declared. If a declaration contradicts an existing
    /// queue, changes nothing and returns the contradictions.
    pub async fn declare(
        &self,
        queues: &[QueueDeclaration],
    ) -> Result<Vec<Contradiction>, QueueError> {
        match embedded() {
            Some(backend) => self.client(backend).await?.declare(queues).await,
            None => Ok(Vec::new()),
        }
    }

    /// Removes a task from a queue: the message with that id or, if the backend cancels tasks
    /// itself, all messages with that body, including running ones.
    pub async fn cancel(&self, name: &QueueName, task: &str) -> Result<CancelCount, QueueError> {
        let client = self.client(name.backend).await?;
        if name.backend.facts().can_cancel {
            return client.cancel(&name.name, task).await;
        }
        let queue = self.open_existing(name).await?;
        if !queue.facts().can_browse {
            return Err(QueueError {
                kind: ErrorKind::Invalid,
                message: format!(
                    "its messages cannot be cancelled: {} cannot find a message by its id; to \
                     cancel one that is running, name its process with --admin",
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

    /// Returns the processes that currently receive from a backend.
    pub async fn workers(&self, backend: &dyn Backend) -> Result<Vec<WorkerInfo>, QueueError> {
        self.client(backend).await?.workers().await
    }

    /// Makes on a backend's server what it needs there, and gives roles their rights.
    pub async fn install(
        &self,
        backend: &dyn Backend,
        roles: &BackendRoles,
    ) -> Result<(), QueueError> {
        self.client(backend).await?.install(roles).await
    }

    /// Returns the problems of a backend's server that will eventually lose messages. `log` says
    /// whether to log them. Returns nothing if the server cannot be reached.
    pub async fn warnings(&self, backend: &dyn Backend, log: bool) -> Vec<ServerWarning> {
        match self.client(backend).await {
            Ok(client) => client.warnings(log).await,
            Err(_) => Vec::new(),
        }
    }

    /// Creates the missing queues on backends where opening a queue creates it. Errors are not
    /// reported here, since they also make opening the queue fail.
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

    /// Opens a queue for a route, or with default terms for other uses.
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
    /// function never creates one, so a misspelt name is an error.
    pub async fn open_existing(&self, name: &QueueName) -> Result<Arc<dyn Queue>, QueueError> {
        if self.client(name.backend).await?.exists(&name.name).await? {
            return self.open(name, OpenTerms::default()).await;
        }
        Err(not_made_yet())
    }

    /// Returns the depth of each of these queues, in their order.
    pub async fn depths(&self, names: &[QueueName]) -> Vec<Result<Depth, QueueError>> {
        let mut depths = BTreeMap::new();
        for backend in all() {
            let own: Vec<&QueueName> = names
                .iter()
                .filter(|name| name.backend == *backend)
                .collect();
            if own.is_empty() {
                continue;
            }
            let bare: Vec<&str> = own.iter().map(|name| name.name.as_str()).collect();
            let found = match self.client(*backend).await {
                Ok(client) => client.depths(&bare).await,
                Err(error) => vec![Err(error); bare.len()],
            };
            depths.extend(own.into_iter().zip(found));
        }
        let named = names.iter();
        named
            .map(|name| {
                depths
                    .get(name)
                    .cloned()
                    .unwrap_or_else(|| Err(not_made_yet()))
            })
            .collect()
    }

    /// Returns the queues of a backend, if it can list them.
    pub async fn list(&self, backend: &'static dyn Backend) -> Result<Vec<QueueName>, QueueError> {
        let names = self.client(backend).await?.queues().await?;
        Ok(names
            .into_iter()
            .map(|name| QueueName { backend, name })
            .collect())
    }

    /// Returns the queues of a pattern in an account, or in that of the process.
    pub(crate) async fn find(
        &self,
        pattern: &QueuePattern,
        account: Option<&AwsAccount>,
    ) -> Result<Vec<QueueName>, QueueError> {
        let backend = pattern.backend();
        let client = self.client(backend).await?;
        let wanted = WantedNames {
            prefix: pattern.prefix(),
            is_wanted: &|name| pattern.matches(name),
        };
        let names = client.queues_in(account, &wanted).await?;
        let queues = names.into_iter().map(|name| QueueName { backend, name });
        Ok(queues.collect())
    }

    /// Whether a queue is the dead-letter queue of another one.
    pub(crate) async fn is_dead_letter_queue(&self, queue: &QueueName) -> Result<bool, QueueError> {
        let client = self.client(queue.backend).await?;
        client.is_dead_letter_queue(&queue.name).await
    }

    /// Returns the tags of a queue, if its backend has tags.
    pub(crate) async fn tags(
        &self,
        queue: &QueueName,
    ) -> Result<BTreeMap<String, String>, QueueError> {
        self.client(queue.backend).await?.tags(&queue.name).await
    }

    /// Returns the embedded backend if it has a queue of this name. Creates no file.
    async fn embedded_with(&self, name: &str) -> Option<&'static dyn Backend> {
        let backend = embedded()?;
        let exists = self.client(backend).await.ok()?.exists(name).await;
        exists.ok()?.then_some(backend)
    }

    /// Returns the keys of the queues that are encrypted with AWS KMS, and the errors of queues
    /// that could not be inspected.
    pub async fn keys<'a>(
        &self,
        names: impl IntoIterator<Item = &'a QueueName>,
    ) -> (Vec<QueueKey>, Vec<QueueError>) {
        let (mut keys, mut errors) = (Vec::new(), Vec::new());
        for name in names.into_iter().filter(|name: &&QueueName| {
            let (backend, config) = (name.backend, self.stores.config_of(name.backend.name()));
            let wanted = backend.permission(&name.name, Purpose::Receive, "", &config);
            wanted.is_some()
        }) {
            let key = match self.client(name.backend).await {
                Ok(client) => client.encryption_key(&name.name).await,
                Err(error) => Err(error),
            };
            match key {
                Ok(key) => keys.extend(key),
                // If access is denied or the server is unreachable for one queue, the next queue
                // fails as well.
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

    /// Returns the name and region of a queue's account, if it has one.
    fn account_of(&self, name: &QueueName) -> Option<String> {
        let connections = self.connections.read();
        let account = name.account_in(&connections.accounts)?;
        let region = account.region.as_ref();
        Some(match region {
            Some(region) => format!("`{}` in {region}", account.name),
            None => format!("`{}`", account.name),
        })
    }

    /// Describes an error of a queue, and names the existing queues.
    pub async fn problem(&self, at: &str, name: &QueueName, error: &QueueError) -> Problem {
        let problem = Problem::new(at, format!("queue `{name}`: {error}"), "");
        // `default` without an account means the embedded queue. Any other plain name only means an
        // embedded queue if there is one of that name.
        let plain = name.backend.name() == unnamed() && !name.name.contains([':', '/']);
        let meant = match embedded() {
            Some(backend) if plain && name.name == "default" => Some(backend),
            _ if plain => self.embedded_with(&name.name).await,
            _ => None,
        };
        let problem = match meant.map(|backend| backend.name()) {
            Some(embedded) => problem.hint(format!(
                "the embedded queue of that name is {embedded}:{name}"
            )),
            None => problem,
        };
        let account = self.account_of(name);
        match error.kind {
            ErrorKind::NotFound if let Some(account) = account => Problem {
                wanted: format!("a queue of account {account}"),
                ..problem
            },
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
