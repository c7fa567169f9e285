//! Dispatches requests: the store, the state between requests, and the table of operations. Knows
//! no protocol.

use super::attempts::Attempts;
use super::fault::{Fault, FaultKind};
use dispatcher_core::backend::QueueDeclaration;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::memory::{self, Budget, HeldBytes};
use dispatcher_local::queue::{KnownQueue, LocalStore, QueueId};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How long what is known of a queue is not asked for again: another process may set or delete it.
/// SQS itself takes up to a minute.
const FRESH: Duration = Duration::from_secs(1);
/// This many queues are remembered; then all are asked for anew.
const MOST: usize = 10_000;
/// The account that URLs name: there is none.
const ACCOUNT: &str = "000000000000";

/// Who answers.
pub(crate) struct Service {
    /// The file.
    pub store: LocalStore,
    /// Set when waits are to end.
    pub hurry: CancellationToken,
    /// Receives that may be asked for again.
    pub attempts: Attempts,
    /// The bytes that messages in answers under way may have.
    pub budget: Arc<Budget>,
    /// Rung when a task is begun that moves messages.
    pub moves: Notify,
    /// What a reset makes anew; without it the calls for tests are not answered.
    pub tests: Option<Vec<QueueDeclaration>>,
    known: Mutex<HashMap<String, (BootInstant, Arc<KnownQueue>)>>,
    purged: Mutex<HashMap<QueueId, BootInstant>>,
}

/// A request, whichever protocol it came in.
pub(crate) struct Request {
    /// What is wanted: `SendMessage`.
    pub action: String,
    /// How the caller reached us, `127.0.0.1:9324`, for URLs of queues.
    pub host: String,
    /// The queue that the path names, for callers that put it nowhere else.
    pub path_queue: Option<String>,
    /// What was said.
    pub body: Body,
}

/// What a request is answered with.
#[derive(Debug)]
pub(crate) struct Reply {
    /// In the shapes of the JSON protocol; null where the operation has no result.
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

/// What a request says, in the shapes of the JSON protocol.
pub(crate) enum Body {
    /// As it came.
    Json(bytes::Bytes),
    /// Made of a form.
    Value(Value),
}

impl Body {
    /// As the operation wants it.
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
    /// Nothing is known yet.
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

    /// Does what a request asks.
    pub(crate) async fn answer(&self, request: Request) -> Result<Reply, Fault> {
        let Request {
            action,
            host,
            path_queue,
            body,
        } = request;
        let path = path_queue.as_deref();
        let answered = match action.as_str() {
            "SendMessage" => self.send(path, body.read()?).await,
            "SendMessageBatch" => self.send_batch(path, body.read()?).await,
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
            "AddPermission" | "RemovePermission" => self.permit(path, body.read()?).await,
            "StartMessageMoveTask" => self.start_move(body.read()?).await,
            "ListMessageMoveTasks" => self.list_moves(body.read()?).await,
            "CancelMessageMoveTask" => self.cancel_move(body.read()?).await,
            other => Err(Fault::new(
                FaultKind::InvalidAction,
                format!("The action {other} is not valid for this endpoint."),
            )),
        };
        answered.map(Reply::from)
    }

    /// The queue that a request is about, by its URL or the path that it was sent to.
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

    /// The queue of a name.
    pub(crate) async fn named(&self, name: &str) -> Result<Arc<KnownQueue>, Fault> {
        let now = clock::now();
        if let Some((at, known)) = lock(&self.known).get(name)
            && now.since(*at) < FRESH
        {
            return Ok(Arc::clone(known));
        }
        let found = self.store.find(name).await?;
        let known = Arc::new(found.ok_or_else(Fault::no_queue)?);
        let mut all = lock(&self.known);
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(name.to_owned(), (now, Arc::clone(&known)));
        Ok(known)
    }

    /// Nothing that was known is true any more.
    pub(crate) fn forget_all(&self) {
        lock(&self.known).clear();
        lock(&self.purged).clear();
        self.attempts.clear();
    }

    /// What was known of a queue is no longer true.
    pub(crate) fn forget(&self, name: &str) {
        lock(&self.known).remove(name);
    }

    /// Whether a queue may be purged now, and if so that it is: once in this time.
    pub(crate) fn may_purge(&self, queue: QueueId, once_in: Duration) -> bool {
        let now = clock::now();
        let mut purged = lock(&self.purged);
        purged.retain(|_, at| now.since(*at) < once_in);
        match purged.contains_key(&queue) {
            true => false,
            false => purged.insert(queue, now).is_none(),
        }
    }
}

/// The URL of a queue, for a caller who reached us by this host.
pub(crate) fn url(host: &str, name: &str) -> String {
    format!("http://{host}/{ACCOUNT}/{name}")
}

/// The queue that a URL names, wherever it points.
fn name_in(url: &str) -> Option<&str> {
    let path = url.split_once("://").map_or(url, |(_, rest)| rest);
    path.trim_end_matches('/')
        .rsplit_once('/')
        .map(|(_, name)| name)
}

/// A lock that holds only plain data, which no panic leaves half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
