//! What a table does behind a network that loses answers, and behind many tasks that cannot be
//! taken.

use crate::backend::{Handy, LONG, plain};
use crate::dynamodb_own::{TableScene, open, scene};
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use dispatcher_core::message::Outcome;
use dispatcher_core::queue::{Ask, ItemError, Queue};
use dispatcher_dynamodb::queue::{Completion, Dynamo, Options};
use dispatcher_tests::dynamodb::{Dates, now_ms};
use dispatcher_tests::proxy::Proxy;
use dispatcher_tests::relay::Relay;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::configuration;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Puts so many waiting tasks whose time to live is over; the first was created at `newest`, each of
/// the others a millisecond before the one before it.
async fn put_expired(scene: &TableScene, count: u64, newest: u64) {
    let number = |n: u64| AttributeValue::N(n.to_string());
    let write = |at: u64| {
        let put = PutRequest::builder()
            .item("taskId", AttributeValue::S(format!("expired-{at}")))
            .item("taskStatus", AttributeValue::S("PENDING".into()))
            .item("taskCreated", number(newest - at))
            .item("ttl", number(1_000_000_000))
            .build()
            .expect("the item is set");
        WriteRequest::builder().put_request(put).build()
    };
    let writes: Vec<WriteRequest> = (0..count).map(write).collect();
    for some in writes.chunks(25) {
        let batch = scene.tables.client.batch_write_item();
        let answer = batch.request_items(&scene.table, some.to_vec()).send();
        let left = answer.await.expect("the table exists").unprocessed_items;
        assert!(left.unwrap_or_default().is_empty(), "not all were taken");
    }
}

/// How many pages of waiting tasks were read, the newest first.
fn waiting_pages(proxy: &Proxy) -> usize {
    let pages = proxy.requests("Query", "\"ScanIndexForward\":false");
    let pages = pages.iter().filter(|(body, _)| body.contains("PENDING"));
    pages.count()
}

#[tokio::test]
async fn taken_tasks_are_returned_before_the_whole_index_is_read() {
    let scene = scene(Options::default()).await;
    put_expired(&scene, 150, now_ms()).await;
    let fresh = ["a", "b", "c"].map(plain);
    scene.queue().send_all(&fresh).await;
    let proxy = Proxy::before(MiniStack::shared().address());
    let queue = open(&proxy.url(), &scene.table, Options::default()).await;
    let queue: &dyn Queue = &queue;
    let received = queue.receive_up_to(10, LONG, Duration::ZERO).await;
    let bodies: Vec<&str> = received.messages.iter().map(|m| &*m.body).collect();
    assert_eq!(bodies, ["c", "b", "a"]);
    assert!(!received.drained, "there was more to look at");
    let pages = waiting_pages(&proxy);
    assert_eq!(pages, 1, "one page had some, and that is enough");
}

#[tokio::test]
async fn empty_receive_ends_and_the_next_continues_from_there() {
    let scene = scene(Options::default()).await;
    let id = scene.queue().send_all(&[plain("below")]).await.remove(0);
    // More than twenty pages hold: one of ten, the others of a hundred.
    put_expired(&scene, 1_950, now_ms() + 10_000).await;
    let first = scene.queue().receive_up_to(10, LONG, Duration::ZERO).await;
    assert_eq!(first.messages, [], "one look does not go that far");
    assert!(!first.drained, "nor does it say that there was no more");
    let second = scene.queue().receive_up_to(10, LONG, Duration::ZERO).await;
    let ids: Vec<&str> = second.messages.iter().map(|m| &*m.id).collect();
    assert_eq!(ids, [id]);
}

#[tokio::test]
async fn hurried_receive_ends_after_the_current_page() {
    let scene = scene(Options::default()).await;
    put_expired(&scene, 150, now_ms()).await;
    let proxy = Proxy::before(MiniStack::shared().address());
    let queue = open(&proxy.url(), &scene.table, Options::default()).await;
    let ask = Ask {
        max: 10,
        visibility: LONG,
        wait: LONG,
        newest_first: false,
        ..Ask::PLAIN
    };
    let hurry = CancellationToken::new();
    hurry.cancel();
    let received = queue.receive(ask, &hurry).await.expect("it answers");
    assert_eq!((received.messages, received.drained), (Vec::new(), false));
    assert_eq!(waiting_pages(&proxy), 1);
}

#[tokio::test]
async fn claim_with_a_lost_answer_is_recognised_as_own() {
    let scene = scene(Options::default()).await;
    scene.queue().send_all(&[plain("once")]).await;
    let relay = Relay::before(MiniStack::shared().address());
    let url = format!("http://{}", relay.address());
    let queue = open(&url, &scene.table, Options::default()).await;
    let queue: &dyn Queue = &queue;
    // Only the answer to a claim has it: the task was never taken before.
    relay.swallow_answer_with("dispatcherUntil");
    let message = queue.next(LONG).await;
    assert_eq!((&*message.body, message.receive_count), ("once", 1));
    queue.settle_one(&message, Outcome::Delete).await;
    assert_eq!(scene.column(&message.id, "taskStatus").await, "SUCCESS");
}

fn deleting() -> Options {
    Options {
        completed: Completion::Delete,
        ..Options::default()
    }
}

#[tokio::test]
async fn deletion_of_a_done_task_with_a_lost_answer_counts_as_made() {
    let scene = scene(deleting()).await;
    let id = scene.queue().send_all(&[plain("once")]).await.remove(0);
    let relay = Relay::before(MiniStack::shared().address());
    let url = format!("http://{}", relay.address());
    let table = open(&url, &scene.table, deleting()).await;
    let queue: &dyn Queue = &table;
    let message = queue.next(LONG).await;
    // The answer to a deletion, which is the only call now.
    relay.swallow_answer_with("ConsumedCapacity");
    queue.settle_one(&message, Outcome::Delete).await;
    let conflicts = table.consumed().conflicts;
    assert_eq!(conflicts, 1, "it was repeated, and found no task");
    let left = scene.tables.item(&scene.table, &id).await;
    assert_eq!(left, None, "nothing stays");
}

#[tokio::test]
async fn late_deletion_leaves_the_task_to_whoever_has_it_now() {
    let scene = scene(deleting()).await;
    scene.queue().send_all(&[plain("slow")]).await;
    let late = scene.queue().next(Duration::from_secs(1)).await;
    let now = scene.queue().next(LONG).await;
    assert_eq!(now.receive_count, 2);
    let answers = scene.queue.settle(&[(late, Outcome::Delete)]).await;
    assert!(
        matches!(answers[..], [Err(ItemError::Gone(_))]),
        "{answers:?}"
    );
    let left = scene.tables.item(&scene.table, &now.id).await;
    assert!(left.is_some(), "the one that has it works on it");
    scene.queue().settle_one(&now, Outcome::Delete).await;
    assert_eq!(scene.tables.all(&scene.table).await, []);
}

/// Puts a task that somebody took whose lease has expired long ago; its id.
async fn put_orphan(scene: &TableScene, created: u64) -> String {
    let id = scene.tables.put_as_sample(&scene.table, &[]).await;
    let number = |n: u64| AttributeValue::N(n.to_string());
    let update = scene.tables.client.update_item().table_name(&scene.table);
    update
        .key("taskId", AttributeValue::S(id.clone()))
        .update_expression(
            "SET taskStatus = :taken, taskCreated = :created, dispatcherToken = :token, \
             dispatcherUntil = :until",
        )
        .expression_attribute_values(":taken", AttributeValue::S("TAKEN".into()))
        .expression_attribute_values(":token", AttributeValue::S("of somebody gone".into()))
        .expression_attribute_values(":created", number(created))
        .expression_attribute_values(":until", number(now_ms() - 60_000))
        .send()
        .await
        .expect("it is there");
    id
}

#[tokio::test]
async fn incomplete_sweep_continues_where_it_ended() {
    let scene = scene(Options::default()).await;
    let id = put_orphan(&scene, 1_600_000_000_000).await;
    let proxy = Proxy::before(MiniStack::shared().address());
    let queue = open(&proxy.url(), &scene.table, Options::default()).await;
    let queue: &dyn Queue = &queue;
    // As many pages as a sweep reads, each full of what others work on.
    let held = r#"{"Items":[],"Count":0,"ScannedCount":1000,"LastEvaluatedKey":{"taskId":
        {"S":"held"},"taskStatus":{"S":"TAKEN"},"taskCreated":{"N":"1700000000000"}}}"#;
    proxy.answer_next(10, "Query", 200, held);
    queue.expect_nothing().await;
    let message = queue.next(LONG).await;
    assert_eq!((&message.id, message.receive_count), (&id, 1));
    let taken = proxy.requests("Query", "dispatcherToken");
    let last = taken.get(10).map(|(body, _)| body.as_str());
    assert!(
        last.is_some_and(|body| body.contains("ExclusiveStartKey")),
        "the second sweep begins where the first one ended: {last:?}"
    );
}

#[tokio::test]
async fn task_that_cannot_be_returned_stops_no_receive() {
    let scene = scene(Options::default()).await;
    put_orphan(&scene, 1_600_000_000_000).await;
    scene.queue.send(&[plain("waits")]).await;
    let proxy = Proxy::before(MiniStack::shared().address());
    let queue = open(&proxy.url(), &scene.table, Options::default()).await;
    let denied = r#"{"__type":"AccessDeniedException","message":"not yours"}"#;
    proxy.answer_next(1, "UpdateItem", 400, denied);
    let queue: &dyn Queue = &queue;
    assert_eq!(queue.next(LONG).await.body, "waits");
    let tried = proxy.requests("UpdateItem", "of somebody gone");
    assert_eq!(tried.len(), 1, "it was tried");
}

#[tokio::test]
async fn dead_letter_copy_that_dynamodb_refuses_leaves_a_failure() {
    let scene = scene(Options::default()).await;
    let dead_letter_queue = scene.tables.create("dead", Dates::Number).await;
    let id = scene.queue().send_all(&[plain("dies")]).await.remove(0);
    let proxy = Proxy::before(MiniStack::shared().address());
    let dynamodb = Dynamo::connect(&configuration(&proxy.url()), Options::default());
    let queue = dynamodb.open(&scene.table, Some(&dead_letter_queue)).await;
    let queue = queue.expect("it was just made");
    let queue: &dyn Queue = &queue;
    let message = queue.next(LONG).await;
    let cancelled = r#"{"__type":"TransactionCanceledException","message":"cancelled",
        "CancellationReasons":[{"Code":"ValidationError","Message":"too large"},{"Code":"None"}]}"#;
    proxy.answer_next(1, "TransactWriteItems", 400, cancelled);
    let dead_letter = Outcome::DeadLetter("why".into());
    queue.settle_one(&message, dead_letter).await;
    assert_eq!(scene.column(&id, "taskStatus").await, "FAILURE");
    assert_eq!(scene.column(&id, "dispatcherReason").await, "why");
}

#[tokio::test]
async fn task_that_cannot_be_taken_does_not_block_the_others() {
    let scene = scene(Options::default()).await;
    scene.queue().send_all(&[plain("older")]).await;
    scene.queue().send_all(&[plain("newest")]).await;
    let proxy = Proxy::before(MiniStack::shared().address());
    let queue = open(&proxy.url(), &scene.table, Options::default()).await;
    let invalid =
        r#"{"__type":"ValidationException","message":"Item size to update has exceeded"}"#;
    proxy.answer_next(1, "UpdateItem", 400, invalid);
    let queue: &dyn Queue = &queue;
    let received = queue.receive_up_to(1, LONG, Duration::ZERO).await;
    let bodies: Vec<&str> = received.messages.iter().map(|m| &*m.body).collect();
    assert_eq!(bodies, ["older"]);
}

#[tokio::test]
async fn failure_reason_that_does_not_fit_is_omitted() {
    let scene = scene(Options::default()).await;
    let id = scene.queue().send_all(&[plain("dies")]).await.remove(0);
    let proxy = Proxy::before(MiniStack::shared().address());
    let queue = open(&proxy.url(), &scene.table, Options::default()).await;
    let queue: &dyn Queue = &queue;
    let message = queue.next(LONG).await;
    let invalid =
        r#"{"__type":"ValidationException","message":"Item size to update has exceeded"}"#;
    proxy.answer_next(1, "UpdateItem", 400, invalid);
    let dead_letter = Outcome::DeadLetter("why".into());
    queue.settle_one(&message, dead_letter).await;
    assert_eq!(scene.column(&id, "taskStatus").await, "FAILURE");
    assert_eq!(scene.column(&id, "dispatcherReason").await, "");
}
