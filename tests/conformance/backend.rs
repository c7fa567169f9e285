//! How a check gets an empty queue, on whichever backend it runs.

use dispatcher_core::backend::{Backend as _, BackendConfig, BackendRoles, QueueTerms};
use dispatcher_core::message::{Attribute, Message, Outcome, OutgoingMessage};
use dispatcher_core::queue::{Ask, Queue, ReceivedMessages};
use dispatcher_directory::DirectoryBackend;
use dispatcher_dynamodb::queue::{Completion, Dynamo, Options};
use dispatcher_local::queue::LocalStore;
use dispatcher_postgres::PostgresBackend;
use dispatcher_postgres::queue::{PostgresQueue, QueueOptions};
use dispatcher_postgres::server::Server;
use dispatcher_redis::queue::Redis;
use dispatcher_sqs::queue::Sqs;
use dispatcher_tests::account::Account;
use dispatcher_tests::child::{Program, binary};
use dispatcher_tests::dynamodb::{Dates, Tables};
use dispatcher_tests::guests::run_of;
use dispatcher_tests::postgres::PostgresServer;
use dispatcher_tests::redis::RedisServer;
use dispatcher_tests::served::LocalServer;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::{SqsServer, configuration};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// Long enough that nothing received becomes visible again within a check.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// The shortest visibility that all backends know.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// Far above what any check waits for a message that does come.
pub(crate) const PATIENT: Duration = Duration::from_secs(20);

/// What keys on Redis begin with.
const PREFIX: &str = "conformance";

/// Where queues live.
pub(crate) enum Backend {
    Sqs(&'static MiniStack),
    DynamoDb {
        server: &'static MiniStack,
        dates: Dates,
        options: Options,
    },
    /// The SQS adapter, and the embedded queue as a server behind it.
    Served(LocalServer),
    Local {
        store: LocalStore,
        /// Goes when the check ends.
        folder: tempfile::TempDir,
    },
    Redis(&'static RedisServer),
    Postgres(&'static PostgresServer),
    /// The example backend, and the program that has it.
    Directory {
        binary: &'static str,
        /// Goes when the check ends.
        folder: tempfile::TempDir,
    },
    /// The queues of an AWS account, or its tables.
    Account {
        account: &'static Account,
        tables: Option<Options>,
    },
}

/// What a check needs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QueueNeeds {
    /// Groups in order, where the backend has queues of that kind.
    pub ordered: bool,
    /// A dead-letter queue.
    pub dead_letter_queue: bool,
}

/// A fresh, empty queue and, if wanted, its dead-letter queue.
pub(crate) struct TestQueue {
    pub queue: Arc<dyn Queue>,
    pub dead_letter_queue: Option<Arc<dyn Queue>>,
    /// How the queue is called on the command line, without the backend.
    pub name: String,
}

impl Backend {
    pub(crate) fn sqs() -> Self {
        Self::Sqs(MiniStack::shared())
    }

    pub(crate) fn served() -> Self {
        Self::Served(LocalServer::start())
    }

    pub(crate) fn local() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self::Local {
            store: LocalStore::open(folder.path()).expect("the folder is ours"),
            folder,
        }
    }

    pub(crate) fn directory(binary: &'static str) -> Self {
        Self::Directory {
            binary,
            folder: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    pub(crate) fn redis() -> Self {
        Self::Redis(RedisServer::shared())
    }

    /// Every key in the slot that its hash tag says.
    pub(crate) fn redis_cluster() -> Self {
        Self::Redis(RedisServer::cluster())
    }

    /// A server with what `dispatcher postgres init` makes.
    pub(crate) async fn postgres() -> Self {
        Self::Postgres(postgres_server().await)
    }

    /// The sample's own table.
    pub(crate) fn dynamodb() -> Self {
        Self::DynamoDb {
            server: MiniStack::shared(),
            dates: Dates::Number,
            options: Options::default(),
        }
    }

    /// A table whose dates are texts, its statuses spread over three keys, each body a column; tasks
    /// that are done are deleted.
    pub(crate) fn sharded() -> Self {
        Self::DynamoDb {
            server: MiniStack::shared(),
            dates: Dates::Text,
            options: Options {
                shards: 3,
                body_attribute: Some("payload".into()),
                completed: Completion::Delete,
                ..Options::default()
            },
        }
    }

    pub(crate) async fn open(&self, wanted: QueueNeeds) -> TestQueue {
        match self {
            Self::Sqs(server) => open_sqs(&server.url(), wanted).await,
            Self::Served(server) => open_sqs(server.url(), wanted).await,
            Self::Local { store, .. } => open_local(store, wanted),
            Self::Redis(server) => open_redis(&server.url(), wanted).await,
            Self::Postgres(server) => open_postgres(&server.url(), wanted).await,
            Self::Directory { folder, .. } => open_directory(folder.path(), wanted).await,
            Self::DynamoDb {
                server,
                dates,
                options,
            } => open_dynamodb(&server.url(), *dates, options, wanted).await,
            Self::Account {
                account,
                tables: None,
            } => open_queue_of(account, wanted).await,
            Self::Account {
                account,
                tables: Some(options),
            } => open_table_of(account, options, wanted).await,
        }
    }

    /// Whether it can deliver the newest first.
    pub(crate) fn can_choose(&self) -> bool {
        match self {
            Self::Local { .. }
            | Self::Redis(_)
            | Self::Postgres(_)
            | Self::DynamoDb { .. }
            | Self::Directory { .. } => true,
            // Its protocol has no word for it.
            Self::Sqs(_) | Self::Served(_) => false,
            Self::Account { tables, .. } => tables.is_some(),
        }
    }

    /// Whether a queue finds a message that waits for its time by its id. On Redis the server does.
    pub(crate) fn cancels_delayed(&self) -> bool {
        match self {
            Self::Local { .. } | Self::DynamoDb { .. } | Self::Postgres(_) => true,
            Self::Sqs(_) | Self::Served(_) | Self::Redis(_) | Self::Directory { .. } => false,
            Self::Account { tables, .. } => tables.is_some(),
        }
    }

    /// The program with a guest, receiving from a queue, so that it holds a message for
    /// `visibility` without a sign of life.
    pub(crate) fn dispatcher(
        &self,
        queue: &TestQueue,
        guest: &str,
        visibility: Duration,
    ) -> Program {
        let visibility = visibility.as_secs().to_string();
        let backend = match self {
            Self::Sqs(_) | Self::Served(_) => "sqs",
            Self::Local { .. } => "local",
            Self::Redis(_) => "redis",
            Self::Postgres(_) => "postgres",
            Self::Directory { .. } => "directory",
            Self::DynamoDb { .. } => "dynamodb",
            Self::Account { tables: None, .. } => "sqs",
            Self::Account {
                tables: Some(_), ..
            } => "dynamodb",
        };
        let queue = format!("{backend}:{}", queue.name);
        let common = ["--queues", &*queue, "--visibility", &*visibility];
        let binary = match self {
            Self::Directory { binary, .. } => PathBuf::from(binary),
            _ => binary(),
        };
        let with = |more: &[&str]| run_of(&binary, guest, &[&common[..], more].concat());
        match self {
            Self::Sqs(server) => with(&[]).aws(&server.url()),
            Self::Served(server) => with(&[]).aws(server.url()),
            Self::Local { folder, .. } | Self::Directory { folder, .. } => {
                with(&["--data", &folder.path().to_string_lossy()])
            }
            Self::Redis(server) => with(&["--redis-url", &server.url(), "--redis-prefix", PREFIX]),
            Self::Postgres(server) => with(&["--postgres-url", &server.url()]),
            Self::DynamoDb {
                server, options, ..
            } => with(&[])
                .aws(&server.url())
                .file("dispatcher.toml", &tables(options))
                .env("DISPATCHER_CONFIG", "dispatcher.toml"),
            Self::Account {
                account,
                tables: None,
            } => account.program(with(&[])),
            Self::Account {
                account,
                tables: Some(options),
            } => account
                .program(with(&[]))
                .file("dispatcher.toml", &tables(options))
                .env("DISPATCHER_CONFIG", "dispatcher.toml"),
        }
    }

    pub(crate) async fn plain(&self) -> Arc<dyn Queue> {
        self.open(QueueNeeds::default()).await.queue
    }
}

/// The shared server with what `dispatcher postgres init` makes.
pub(crate) async fn postgres_server() -> &'static PostgresServer {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let server = PostgresServer::shared();
    let config = BackendConfig {
        section: BTreeMap::from([("url", vec![server.url()])]),
        ..BackendConfig::default()
    };
    let install = async || {
        let client = PostgresBackend.connect(&config).await.expect("a client");
        let installed = client.install(&BackendRoles::default()).await;
        installed.expect("the owner may");
    };
    INSTALLED.get_or_init(install).await;
    server
}

/// A configuration file with these options.
fn tables(options: &Options) -> String {
    let body = options.body_attribute.as_ref();
    let body = body.map_or_else(String::new, |body| format!("body-attribute = \"{body}\"\n"));
    format!("[backend.dynamodb]\nshards = {}\n{body}", options.shards)
}

async fn open_sqs(url: &str, wanted: QueueNeeds) -> TestQueue {
    let server = SqsServer::at(url);
    let kind: &[(&str, &str)] = if wanted.ordered {
        &[("FifoQueue", "true")]
    } else {
        &[]
    };
    let suffix = if wanted.ordered { ".fifo" } else { "" };
    let name = SqsServer::fresh_name("conformance") + suffix;
    server.create(&name, kind).await;
    let sqs = Sqs::connect(&configuration(url));
    let mut dead_letter_queue = None;
    let mut dead_letter_queue_name = None;
    if wanted.dead_letter_queue {
        let name = SqsServer::fresh_name("dead") + suffix;
        server.create(&name, kind).await;
        let queue = sqs.open(&name, None).await.expect("it was just made");
        dead_letter_queue = Some(Arc::new(queue) as Arc<dyn Queue>);
        dead_letter_queue_name = Some(name);
    }
    let queue = sqs.open(&name, dead_letter_queue_name.as_deref()).await;
    TestQueue {
        queue: Arc::new(queue.expect("it was just made")),
        dead_letter_queue,
        name,
    }
}

async fn open_queue_of(account: &Account, wanted: QueueNeeds) -> TestQueue {
    let kind: &[(&str, &str)] = if wanted.ordered {
        &[("FifoQueue", "true")]
    } else {
        &[]
    };
    let sqs = Sqs::connect(account.config());
    let mut dead_letter_queue = None;
    let mut dead_letter_queue_name = None;
    if wanted.dead_letter_queue {
        let name = account.create_queue("dead", kind).await;
        let queue = sqs.open(&name, None).await.expect("it was just made");
        dead_letter_queue = Some(Arc::new(queue) as Arc<dyn Queue>);
        dead_letter_queue_name = Some(name);
    }
    let name = account.create_queue("conformance", kind).await;
    let queue = sqs.open(&name, dead_letter_queue_name.as_deref()).await;
    TestQueue {
        queue: Arc::new(queue.expect("it was just made")),
        dead_letter_queue,
        name,
    }
}

async fn open_table_of(account: &Account, options: &Options, wanted: QueueNeeds) -> TestQueue {
    let dynamodb = Dynamo::connect(account.config(), options.clone());
    let mut dead_letter_queue = None;
    let mut dead_letter_queue_name = None;
    if wanted.dead_letter_queue {
        let name = account.create_table("dead", Dates::Number).await;
        let queue = dynamodb.open(&name, None).await.expect("it was just made");
        dead_letter_queue = Some(Arc::new(queue) as Arc<dyn Queue>);
        dead_letter_queue_name = Some(name);
    }
    let name = account.create_table("conformance", Dates::Number).await;
    let queue = dynamodb
        .open(&name, dead_letter_queue_name.as_deref())
        .await;
    TestQueue {
        queue: Arc::new(queue.expect("it was just made")),
        dead_letter_queue,
        name,
    }
}

async fn open_dynamodb(
    url: &str,
    dates: Dates,
    options: &Options,
    wanted: QueueNeeds,
) -> TestQueue {
    let tables = Tables::at(url);
    let name = tables.create("conformance", dates).await;
    let dynamodb = Dynamo::connect(&configuration(url), options.clone());
    let mut dead_letter_queue = None;
    let mut dead_letter_queue_name = None;
    if wanted.dead_letter_queue {
        let name = tables.create("dead", dates).await;
        let queue = dynamodb.open(&name, None).await.expect("it was just made");
        dead_letter_queue = Some(Arc::new(queue) as Arc<dyn Queue>);
        dead_letter_queue_name = Some(name);
    }
    let queue = dynamodb
        .open(&name, dead_letter_queue_name.as_deref())
        .await;
    TestQueue {
        queue: Arc::new(queue.expect("it was just made")),
        dead_letter_queue,
        name,
    }
}

/// Every local queue keeps its groups in order.
fn open_local(store: &LocalStore, wanted: QueueNeeds) -> TestQueue {
    let open = |name: &str, dead_letter| {
        let queue = store.queue(name, dead_letter);
        Arc::new(queue.expect("the store is open")) as Arc<dyn Queue>
    };
    TestQueue {
        queue: open("conformance", wanted.dead_letter_queue.then_some("dead")),
        dead_letter_queue: wanted.dead_letter_queue.then(|| open("dead", None)),
        name: "conformance".to_owned(),
    }
}

async fn open_directory(folder: &Path, wanted: QueueNeeds) -> TestQueue {
    let config = BackendConfig {
        data: folder.to_owned(),
        ..BackendConfig::default()
    };
    let client = DirectoryBackend.connect(&config).await.expect("a client");
    let terms = QueueTerms {
        dead_letter: wanted.dead_letter_queue.then_some("dead"),
        ..QueueTerms::default()
    };
    let queue = client.open("conformance", terms).await;
    let dead_letter_queue = client.open("dead", QueueTerms::default()).await;
    TestQueue {
        queue: queue.expect("the folder is ours"),
        dead_letter_queue: wanted
            .dead_letter_queue
            .then(|| dead_letter_queue.expect("the folder is ours")),
        name: "conformance".to_owned(),
    }
}

/// Every queue on Redis keeps its groups in order.
async fn open_redis(url: &str, wanted: QueueNeeds) -> TestQueue {
    let server = Redis::new(url, PREFIX).expect("an address");
    // In a cluster the one that shares the queue's slot.
    let name = RedisServer::fresh_name("q");
    let dead_letter_queue = format!("{name}.dead");
    let wants = wanted.dead_letter_queue.then_some(&*dead_letter_queue);
    let queue = server.queue(&name, wants).await.expect("it is there");
    let dead_letter_queue = match wants {
        Some(name) => Some(server.queue(name, None).await.expect("it is there")),
        None => None,
    };
    TestQueue {
        queue: Arc::new(queue),
        dead_letter_queue: dead_letter_queue.map(|queue| Arc::new(queue) as Arc<dyn Queue>),
        name,
    }
}

/// Every queue on PostgreSQL keeps its groups in order.
async fn open_postgres(url: &str, wanted: QueueNeeds) -> TestQueue {
    let server = Server::new(Some(url), 4).expect("an address");
    let name = PostgresServer::fresh_name("q");
    // Without one of its own a queue has a default one.
    let dead_letter_queue = format!("{name}.dead");
    let queue = PostgresQueue::open(&server, &name, QueueOptions::default()).await;
    let dead_letter_queue = if wanted.dead_letter_queue {
        let options = QueueOptions::default();
        let opened = PostgresQueue::open(&server, &dead_letter_queue, options).await;
        Some(Arc::new(opened.expect("it is there")) as Arc<dyn Queue>)
    } else {
        None
    };
    TestQueue {
        queue: Arc::new(queue.expect("it is there")),
        dead_letter_queue,
        name,
    }
}

/// What checks do with any queue.
#[allow(async_fn_in_trait, reason = "for these tests alone")]
pub(crate) trait Handy {
    async fn send_all(&self, messages: &[OutgoingMessage]) -> Vec<String>;
    async fn receive_up_to(
        &self,
        max: usize,
        visibility: Duration,
        wait: Duration,
    ) -> ReceivedMessages;
    /// Receives so many at most, the newest first where the backend can.
    async fn receive_newest(&self, max: usize) -> Vec<Message>;
    /// Receives one message, patiently.
    async fn next(&self, visibility: Duration) -> Message;
    /// Receives so many, in as many calls as it takes.
    async fn take(&self, count: usize, visibility: Duration) -> Vec<Message>;
    /// Fails if there is a message that could be received.
    async fn expect_nothing(&self);
    async fn settle_one(&self, message: &Message, outcome: Outcome);
}

impl Handy for dyn Queue {
    async fn send_all(&self, messages: &[OutgoingMessage]) -> Vec<String> {
        let answers = self.send(messages).await;
        let ids = answers.into_iter().collect::<Result<Vec<_>, _>>();
        ids.expect("an open queue takes messages")
    }

    async fn receive_up_to(
        &self,
        max: usize,
        visibility: Duration,
        wait: Duration,
    ) -> ReceivedMessages {
        let ask = Ask {
            max,
            visibility,
            wait,
            newest_first: false,
            ..Ask::PLAIN
        };
        self.receive(ask, &CancellationToken::new())
            .await
            .expect("an open queue answers")
    }

    async fn receive_newest(&self, max: usize) -> Vec<Message> {
        let ask = Ask {
            max,
            visibility: LONG,
            wait: PATIENT.min(self.identity().longest_wait),
            newest_first: true,
            ..Ask::PLAIN
        };
        let received = self.receive(ask, &CancellationToken::new()).await;
        received.expect("an open queue answers").messages
    }

    async fn next(&self, visibility: Duration) -> Message {
        let mut messages = self.take(1, visibility).await;
        messages.remove(0)
    }

    async fn take(&self, count: usize, visibility: Duration) -> Vec<Message> {
        let mut messages = Vec::new();
        while messages.len() < count {
            let max = (count - messages.len()).min(self.identity().batch);
            let wait = PATIENT.min(self.identity().longest_wait);
            let received = self.receive_up_to(max, visibility, wait).await.messages;
            assert!(
                !received.is_empty(),
                "only {} of {count} messages came",
                messages.len()
            );
            messages.extend(received);
        }
        messages
    }

    async fn expect_nothing(&self) {
        let proof = self.identity().proof_wait;
        let received = self.receive_up_to(self.identity().batch, LONG, proof).await;
        assert_eq!(received.messages, [], "nothing should be visible");
        assert!(received.drained);
    }

    async fn settle_one(&self, message: &Message, outcome: Outcome) {
        let answers = self.settle(&[(message.clone(), outcome)]).await;
        assert_eq!(answers, [Ok(())]);
    }
}

/// A message with nothing but a body.
pub(crate) fn plain(body: &str) -> OutgoingMessage {
    OutgoingMessage {
        body: body.to_owned(),
        ..OutgoingMessage::default()
    }
}

/// One of a group.
pub(crate) fn grouped(group: &str, body: &str) -> OutgoingMessage {
    OutgoingMessage {
        group: Some(group.to_owned()),
        ..plain(body)
    }
}

/// The bodies, sorted: where no order is promised.
pub(crate) fn bodies(messages: &[Message]) -> Vec<&str> {
    let mut bodies: Vec<&str> = messages.iter().map(|m| &*m.body).collect();
    bodies.sort_unstable();
    bodies
}

/// The value of a text attribute.
pub(crate) fn text<'a>(message: &'a Message, name: &str) -> Option<&'a Attribute> {
    message.attributes.iter().find(|a| a.name == name)
}
