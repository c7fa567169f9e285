//! What operators set on queues, in every backend that shares it: processes see each other's changes,
//! and changes of different fields do not undo each other.

use dispatcher_core::backend::{Backend as _, BackendClient, BackendConfig};
use dispatcher_core::control::{ControlChange, QueueControl};
use dispatcher_dynamodb::queue::{Dynamo, Options};
use dispatcher_local::queue::LocalStore;
use dispatcher_postgres::PostgresBackend;
use dispatcher_redis::queue::Redis;
use dispatcher_tests::dynamodb::{Dates, Tables};
use dispatcher_tests::postgres::PostgresServer;
use dispatcher_tests::redis::RedisServer;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::configuration;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A store as one process sees it.
enum ControlStore {
    Local(LocalStore),
    Redis(Redis),
    Dynamo(Dynamo),
    Postgres(Arc<dyn BackendClient>),
}

impl ControlStore {
    async fn change(&self, queue: &str, change: ControlChange) {
        let changed = match self {
            Self::Local(store) => store.change_control(queue, change).await,
            Self::Redis(store) => store.change_control(queue, &change).await,
            Self::Dynamo(store) => store.change_control(queue, &change).await,
            Self::Postgres(store) => store.change_control(queue, &change).await,
        };
        changed.expect("it is changed");
    }

    async fn read(&self, queues: &[&str]) -> Vec<QueueControl> {
        let read = match self {
            Self::Local(store) => {
                let queues = queues.iter().map(|queue| (*queue).to_owned());
                store.controls(queues.collect()).await
            }
            Self::Redis(store) => store.controls(queues).await,
            Self::Dynamo(store) => store.controls(queues).await,
            Self::Postgres(store) => store.controls(queues).await,
        };
        read.expect("it is read")
    }
}

fn pause(paused: bool) -> ControlChange {
    ControlChange {
        paused: Some(paused),
        ..ControlChange::default()
    }
}

fn limits(concurrency: Option<usize>, rate: Option<f64>) -> ControlChange {
    ControlChange {
        concurrency: Some(concurrency),
        rate: Some(rate),
        ..ControlChange::default()
    }
}

async fn processes_share_what_is_set(one: &ControlStore, other: &ControlStore, names: [&str; 2]) {
    let [first, second] = names;
    assert_eq!(one.read(&names).await, [QueueControl::default(); 2]);
    one.change(first, pause(true)).await;
    other.change(first, limits(Some(3), Some(0.5))).await;
    let wanted = QueueControl {
        paused: true,
        concurrency: Some(3),
        rate: Some(0.5),
        prefetch: None,
    };
    for store in [one, other] {
        assert_eq!(
            store.read(&[second, first]).await,
            [QueueControl::default(), wanted]
        );
    }
    // The same again changes nothing.
    one.change(first, pause(true)).await;
    one.change(first, limits(None, Some(7.0))).await;
    other.change(second, pause(true)).await;
    let read = other.read(&names).await;
    assert_eq!(
        (read[0].concurrency, read[0].rate, read[0].paused),
        (None, Some(7.0), true)
    );
    assert!(read[1].paused);
    one.change(first, pause(false)).await;
    one.change(first, ControlChange::RESET).await;
    assert_eq!(other.read(&[first]).await, [QueueControl::default()]);
    assert!(other.read(&[second]).await[0].paused, "another queue");
}

#[tokio::test]
async fn local_processes_share_what_operators_set() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || ControlStore::Local(LocalStore::open(folder.path()).expect("it opens"));
    let (one, other) = (open(), open());
    processes_share_what_is_set(&one, &other, ["a", "b.fifo"]).await;
    drop((one, other));
    assert!(
        open().read(&["b.fifo"]).await[0].paused,
        "it outlives all processes"
    );
}

#[tokio::test]
async fn redis_processes_share_what_operators_set() {
    for server in [RedisServer::shared(), RedisServer::cluster()] {
        let names = ["a", "b"].map(RedisServer::fresh_name);
        let open = || ControlStore::Redis(Redis::new(&server.url(), "dispatcher").expect("a URL"));
        processes_share_what_is_set(&open(), &open(), [&names[0], &names[1]]).await;
    }
}

#[tokio::test]
async fn postgres_processes_share_what_operators_set() {
    let server = crate::backend::postgres_server().await;
    let config = BackendConfig {
        section: BTreeMap::from([("url", vec![server.url()])]),
        ..BackendConfig::default()
    };
    let open = async || {
        let client = PostgresBackend.connect(&config).await;
        ControlStore::Postgres(client.expect("a client"))
    };
    let names = ["a", "b"].map(PostgresServer::fresh_name);
    let (one, other) = (open().await, open().await);
    processes_share_what_is_set(&one, &other, [&names[0], &names[1]]).await;
}

#[tokio::test]
async fn dynamodb_processes_share_what_operators_set() {
    let endpoint = MiniStack::shared().url();
    let tables = Tables::at(&endpoint);
    let first = tables.create("controls", Dates::Number).await;
    let second = tables.create("controls", Dates::Number).await;
    let open = || {
        ControlStore::Dynamo(Dynamo::connect(
            &configuration(&endpoint),
            Options::default(),
        ))
    };
    processes_share_what_is_set(&open(), &open(), [&first, &second]).await;
}
