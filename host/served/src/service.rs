//! Dispatches requests: the store, the state between requests, and the table of operations.
//! Independent of the protocol.

use super::attempts::Attempts;
use super::fault::{Fault, FaultKind};
use dispatcher_core::backend::QueueDeclaration;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::memory::{self, Budget, HeldBytes};
use dispatcher_local::queue::{KnownQueue, LocalStore, QueueId};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The time for which the store is not asked again about a queue, although another process may
/// change or delete it. SQS itself takes up to a minute.
const FRESH: Duration = Duration::from_secs(1);
/// The maximum number of queues that are remembered; then all are forgotten.
const MOST: usize = 10_000;
/// The account in URLs. There are no accounts.
const ACCOUNT: &str = "000000000000";

/// The service that answers requests.
pub(crate) struct Service {
    /// The file.
    pub store: LocalStore,
    /// The token that ends all waits when it is cancelled.
    pub hurry: CancellationToken,
    /// The receives that may be repeated.
    pub attempts: Attempts,
    /// The bytes that messages in pending answers may have.
    pub budget: Arc<Budget>,
    /// The notification that a move task was started.
    pub moves: Notify,
    /// The queues that a reset creates anew; `None` if the calls of tests are not answered.
    pub tests: Option<Vec<QueueDeclaration>>,
    known: Mutex<HashMap<String, (BootInstant, Arc<KnownQueue>)>>,
    purged: Mutex<HashMap<QueueId, BootInstant>>,
}

/// A request of either protocol.
pub(crate) struct Request {
    /// The operation, for example `SendMessage`.
    pub action: String,
    /// The host by which the caller reached this server, `127.0.0.1:9324`, for URLs of queues.
    pub host: String,
    /// The queue in the path, for callers that name it nowhere else.
    pub path_queue: Option<String>,
    /// The trace of the request, from its HTTP header.
    pub trace: Option<String>,
    /// The parameters.
    pub body: Body,
}

/// The reply to a request.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The result in the shapes of the JSON protocol; null if the operation has none.
    pub value: Value,
    /// The bytes of the messages in it, held until it is written.
    pub held: Vec<HeldBytes>,
}

impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        let held = Vec::new();
        Self { value, held }
    }
}

/// The parameters of a request, in the shapes of the JSON protocol.
pub(crate) enum Body {
    /// JSON, as it was received.
    Json(bytes::Bytes),
    /// A value, converted from a form.
    Value(Value),
}

impl Body {
    /// Parses the parameters of the operation.
    pub(crate) fn read<T: DeserializeOwned + Default>(self) -> Result<T, Fault> {
        let read = match self {
            Self::Json(bytes) if bytes.is_empty() => Ok(T::default()),
            Self::Json(bytes) => serde_json::from_slice(&bytes),
            Self::Value(value) => serde_json::from_value(value),
        };
        read.map_err(|error| {
            Fault::new(FaultKind::Unreadable, format!("cannot read this: {error}"))
        })
    }
}

impl Service {
    /// Creates a service that does not know any queue yet.
    pub(crate) fn new(store: LocalStore, hurry: CancellationToken) -> Self {
        Self {
            store,
            tests: None,
            hurry,
            attempts: Attempts::default(),
            budget: Budget::new(memory::default_budget(memory::limit())),
            moves: Notify::new(),
            known: Mutex::default(),
            purged: Mutex::default(),
        }
    }

    /// Carries out a request.
    pub(crate) async fn answer(&self, request: Request) -> Result<Reply, Fault> {
        let Request {
            action,
            host,
            path_queue,
            trace,
            body,
        } = request;
        let path = path_queue.as_deref();
        let answered = match action.as_str() {
            "SendMessage" => self.send(path, trace, body.read()?).await,
            "SendMessageBatch" => self.send_batch(path, trace, body.read()?).await,
            "ReceiveMessage" => return self.receive(path, body.read()?).await,
            "DeleteMessage" => self.delete_message(path, body.read()?).await,
            "DeleteMessageBatch" => self.delete_batch(path, body.read()?).await,
            "ChangeMessageVisibility" => self.change(path, body.read()?).await,
            "ChangeMessageVisibilityBatch" => self.change_batch(path, body.read()?).await,
            "CreateQueue" => self.create_queue(&host, body.read()?).await,
            "DeleteQueue" => self.delete_queue(path, body.read()?).await,
            "PurgeQueue" => self.purge_queue(path, body.read()?).await,
            "GetQueueUrl" => self.queue_url(&host, body.read()?).await,
            "ListQueues" => self.list_queues(&host, body.read()?).await,
            "ListDeadLetterSourceQueues" => self.list_sources(path, &host, body.read()?).await,
            "GetQueueAttributes" => self.queue_attributes(path, body.read()?).await,
            "SetQueueAttributes" => self.set_attributes(path, body.read()?).await,
            "TagQueue" => self.tag(path, body.read()?).await,
            "UntagQueue" => self.untag(path, body.read()?).await,
            "ListQueueTags" => self.list_tags(path, body.read()?).await,
            "AddPermission" => self.add_permission(path, body.read()?).await,
            "RemovePermission" => self.remove_permission(path, body.read()?).await,
            "StartMessageMoveTask" => self.start_move(body.read()?).await,
            "ListMessageMoveTasks" => self.list_moves(body.read()?).await,
            "CancelMessageMoveTask" => self.cancel_move(body.read()?).await,
            other => Err(Fault::invalid_action(other)),
        };
        answered.map(Reply::from)
    }

    /// Returns the queue of a request, by its URL or by the path that it was sent to.
    pub(crate) async fn queue(
        &self,
        path: Option<&str>,
        url: Option<&str>,
    ) -> Result<Arc<KnownQueue>, Fault> {
        let url = url.filter(|url| !url.is_empty());
        let name = url.and_then(name_in).or(path);
        match (name, url) {
            (Some(name), _) => self.named(name).await,
            (None, Some(_)) => Err(Fault::no_queue()),
            (None, None) => Err(Fault::missing("QueueUrl")),
        }
    }

    /// Returns the queue of a name.
    pub(crate) async fn named(&self, name: &str) -> Result<Arc<KnownQueue>, Fault> {
        let now = clock::now();
        if let Some((at, known)) = self.known.lock().get(name)
            && now.since(*at) < FRESH
        {
            return Ok(Arc::clone(known));
        }
        let found = self.store.find(name).await?;
        let known = Arc::new(found.ok_or_else(Fault::no_queue)?);
        let mut all = self.known.lock();
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(name.to_owned(), (now, Arc::clone(&known)));
        Ok(known)
    }

    /// Forgets everything that is known of queues and attempts.
    pub(crate) fn forget_all(&self) {
        self.known.lock().clear();
        self.purged.lock().clear();
        self.attempts.clear();
    }

    /// Forgets what is known of a queue.
    pub(crate) fn forget(&self, name: &str) {
        self.known.lock().remove(name);
    }

    /// Forgets the purge of a deleted queue: the next of its name, which has its key, was never
    /// purged.
    pub(crate) fn forget_purge(&self, queue: QueueId) {
        self.purged.lock().remove(&queue);
    }

    /// Whether a queue may be purged now, once within `once_in`. If so, records the purge.
    pub(crate) fn may_purge(&self, queue: QueueId, once_in: Duration) -> bool {
        let now = clock::now();
        let mut purged = self.purged.lock();
        purged.retain(|_, at| now.since(*at) < once_in);
        match purged.entry(queue) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(now);
                true
            }
        }
    }
}

/// Returns the URL of a queue, for a caller that reached this server by this host.
pub(crate) fn url(host: &str, name: &str) -> String {
    format!("http://{host}/{ACCOUNT}/{name}")
}

/// Returns the queue's name in a URL with any host. SQS also accepts the name alone.
fn name_in(url: &str) -> Option<&str> {
    let Some((_, path)) = url.split_once("://") else {
        return url.trim_end_matches('/').rsplit('/').next();
    };
    path.trim_end_matches('/')
        .rsplit_once('/')
        .map(|(_, name)| name)
}
