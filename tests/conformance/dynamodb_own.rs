//! What only tables can show: the sample's own steps beside ours, fence tokens, times to live, and
//! what a lost answer leaves.

use crate::backend::{Handy, LONG, SHORT, plain};
use dispatcher_core::message::Outcome;
use dispatcher_core::queue::{ItemError, Queue};
use dispatcher_dynamodb::queue::{Dynamo, DynamoQueue, Options};
use dispatcher_tests::dynamodb::{Dates, Tables, now_ms, text};
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::configuration;
use std::time::Duration;

/// A fresh table, and a queue on it.
pub(crate) struct TableScene {
    pub tables: Tables,
    pub table: String,
    pub queue: DynamoQueue,
}

pub(crate) async fn scene(options: Options) -> TableScene {
    let url = MiniStack::shared().url();
    let tables = Tables::at(&url);
    let table = tables.create("own", Dates::Number).await;
    let queue = open(&url, &table, options).await;
    TableScene {
        tables,
        table,
        queue,
    }
}

/// Opens a table of which no other queue knows.
pub(crate) async fn open(url: &str, table: &str, options: Options) -> DynamoQueue {
    let dynamodb = Dynamo::connect(&configuration(url), options);
    dynamodb.open(table, None).await.expect("it was just made")
}

impl TableScene {
    pub(crate) fn queue(&self) -> &dyn Queue {
        &self.queue
    }

    pub(crate) async fn column(&self, id: &str, name: &str) -> String {
        let item = self.tables.item(&self.table, id).await;
        text(&item.expect("it is there"), name).to_owned()
    }
}

#[tokio::test]
async fn sample_task_goes_through_the_samples_states() {
    let scene = scene(Options::default()).await;
    let id = scene.tables.put_as_sample(&scene.table, &[]).await;
    let created = scene.column(&id, "taskCreated").await;
    let message = scene.queue().next(LONG).await;
    assert_eq!((&message.id, &*message.body), (&id, "{}"));
    assert_eq!(scene.column(&id, "taskStatus").await, "TAKEN");
    let release = Outcome::Release(Duration::ZERO);
    scene.queue().settle_one(&message, release).await;
    assert_eq!(scene.column(&id, "taskStatus").await, "PENDING");
    assert_eq!(scene.column(&id, "taskCreated").await, created);
    let message = scene.queue().next(LONG).await;
    scene.queue().settle_one(&message, Outcome::Delete).await;
    assert_eq!(scene.column(&id, "taskStatus").await, "SUCCESS");
}

#[tokio::test]
async fn dead_letter_stays_as_a_failure_with_its_reason() {
    let scene = scene(Options::default()).await;
    let id = scene.tables.put_as_sample(&scene.table, &[]).await;
    let message = scene.queue().next(LONG).await;
    let dead_letter = Outcome::DeadLetter("bad address".into());
    scene
        .queue()
        .settle_one(&message, dead_letter.clone())
        .await;
    assert_eq!(scene.column(&id, "taskStatus").await, "FAILURE");
    assert_eq!(scene.column(&id, "dispatcherReason").await, "bad address");
    // The answer may have been lost: once more is harmless.
    scene.queue().settle_one(&message, dead_letter).await;
}

#[tokio::test]
async fn sample_handles_tasks_sent_by_dispatcher() {
    let scene = scene(Options::default()).await;
    let ids = scene.queue().send_all(&[plain("a"), plain("b")]).await;
    let pending = scene.tables.pending_as_sample(&scene.table).await;
    assert_eq!(pending, [&*ids[1], &*ids[0]], "the newest first");
    let transition = |from, to| {
        scene
            .tables
            .transition_as_sample(&scene.table, &ids[1], from, to)
    };
    assert!(transition("PENDING", "TAKEN").await);
    assert_eq!(scene.queue().next(LONG).await.id, ids[0]);
    scene.queue().expect_nothing().await;
    assert!(transition("TAKEN", "SUCCESS").await);
}

#[tokio::test]
async fn tasks_taken_by_the_sample_are_left_alone() {
    let scene = scene(Options::default()).await;
    // One that we had before, whose lease would have expired long ago.
    let ids = scene.queue().send_all(&[plain("once ours")]).await;
    let ours = scene.queue().next(SHORT).await;
    let release = Outcome::Release(Duration::ZERO);
    scene.queue().settle_one(&ours, release).await;
    let (tables, table) = (&scene.tables, &scene.table);
    assert!(
        tables
            .transition_as_sample(table, &ids[0], "PENDING", "TAKEN")
            .await
    );
    // Another, whose lease does expire, shows that the sweep has passed.
    scene.queue().send_all(&[plain("clock")]).await;
    let clock = scene.queue().next(SHORT).await;
    let again = scene.queue().next(LONG).await;
    assert_eq!((&again.id, again.receive_count), (&clock.id, 2));
    assert_eq!(scene.column(&ids[0], "taskStatus").await, "TAKEN");
    let settled = scene.queue().settle(&[(ours, Outcome::Delete)]).await;
    assert!(
        matches!(settled[..], [Err(ItemError::Gone(_))]),
        "{settled:?}"
    );
    assert!(
        tables
            .transition_as_sample(table, &ids[0], "TAKEN", "SUCCESS")
            .await
    );
}

#[tokio::test]
async fn expired_task_never_runs_and_is_counted() {
    let scene = scene(Options::default()).await;
    for (at, ttl) in [(1, now_ms() / 1_000 - 5), (2, now_ms() - 5_000)] {
        let put = scene.tables.client.put_item().table_name(&scene.table);
        let number = |n: u64| aws_sdk_dynamodb::types::AttributeValue::N(n.to_string());
        let string = |s: &str| aws_sdk_dynamodb::types::AttributeValue::S(s.to_owned());
        put.item("taskId", string(&at.to_string()))
            .item("taskStatus", string("PENDING"))
            .item("taskCreated", number(now_ms() - 60_000))
            .item("taskUpdated", number(now_ms() - 60_000))
            .item("ttl", number(ttl))
            .send()
            .await
            .expect("the table exists");
    }
    scene.queue().expect_nothing().await;
    assert_eq!(scene.queue.expired(), 2);
    let depth = scene.queue().depth().await.expect("it counts");
    assert_eq!((depth.waiting, depth.delayed), (0, 0));
    assert_eq!(scene.queue().peek(10).await, Ok(Vec::new()));
}

#[tokio::test]
async fn object_bodies_become_columns() {
    let scene = scene(Options::default()).await;
    let ids = scene
        .queue()
        .send_all(&[plain(r#"{"ip":"10.0.0.1","port":8080}"#)])
        .await;
    assert_eq!(scene.column(&ids[0], "ip").await, "10.0.0.1");
    assert_eq!(scene.column(&ids[0], "port").await, "8080");
    let message = scene.queue().next(LONG).await;
    assert_eq!(message.body, r#"{"ip":"10.0.0.1","port":8080}"#);
}

#[tokio::test]
async fn group_is_refused_with_a_clear_message() {
    let scene = scene(Options::default()).await;
    let answers = scene.queue.send(&[crate::backend::grouped("g", "x")]).await;
    let [Err(ItemError::Refused(why))] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert!(why.contains("does not support groups"), "{why}");
}

#[tokio::test]
async fn missing_or_wrong_table_is_reported_with_the_command_to_create_it() {
    let url = MiniStack::shared().url();
    let dynamodb = Dynamo::connect(&configuration(&url), Options::default());
    let error = dynamodb.open("no-such-table", None).await;
    let error = error.expect_err("there is none").message;
    assert!(
        error.contains("there is no table `no-such-table`"),
        "{error}"
    );
    assert!(
        error.contains("aws dynamodb create-table --table-name no-such-table"),
        "{error}"
    );
    assert!(!error.contains('\n'));
    let scene = scene(Options::default()).await;
    let itself = Some(scene.table.as_str());
    let error = dynamodb
        .open(&scene.table, itself)
        .await
        .expect_err("its own dead-letter queue");
    assert!(
        error.message.contains("its own dead-letter table"),
        "{error}"
    );
}

#[tokio::test]
async fn concurrent_receivers_share_all_tasks_without_overlap() {
    let scene = scene(Options::default()).await;
    let url = MiniStack::shared().url();
    let other = open(&url, &scene.table, Options::default()).await;
    let messages: Vec<_> = (0..60).map(|n| plain(&n.to_string())).collect();
    for batch in messages.chunks(10) {
        scene.queue().send_all(batch).await;
    }
    let drain = async |queue: &dyn Queue| {
        let mut ids = Vec::new();
        loop {
            let received = queue.receive_up_to(10, LONG, Duration::ZERO).await;
            ids.extend(received.messages.into_iter().map(|m| m.id));
            if received.drained {
                return ids;
            }
        }
    };
    let (mut ids, more) = tokio::join!(drain(scene.queue()), drain(&other));
    ids.extend(more);
    ids.sort();
    let taken = ids.len();
    ids.dedup();
    assert_eq!((taken, ids.len()), (60, 60));
}
