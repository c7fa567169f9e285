//! How long tasks live in a table, and that none is hidden there.

use crate::backend::{Handy, LONG, plain};
use crate::dynamodb_own::{open, scene};
use aws_sdk_dynamodb::types::AttributeValue;
use dispatcher_core::message::Outcome;
use dispatcher_core::queue::Queue;
use dispatcher_dynamodb::queue::{Dynamo, Options};
use dispatcher_tests::dynamodb::{Dates, Tables, now_ms, text};
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::configuration;
use std::time::Duration;

const HOUR: u64 = 3_600;

/// Tasks that expire a minute after they were sent.
fn short() -> Options {
    Options {
        time_to_live: Duration::from_secs(60),
        ..Options::default()
    }
}

/// In how many seconds DynamoDB may delete it.
fn left(ttl: &str) -> u64 {
    let ttl: u64 = ttl.parse().expect("a number of seconds");
    ttl.saturating_sub(now_ms() / 1_000)
}

#[tokio::test]
async fn time_to_live_deletes_no_task_under_lease() {
    let scene = scene(short()).await;
    let id = scene.queue().send_all(&[plain("x")]).await.remove(0);
    let sent = scene.column(&id, "ttl").await;
    assert!(left(&sent) <= 61, "whole seconds, none too early: {sent}");
    for _ in 0..2 {
        let message = scene.queue().next(LONG).await;
        let kept = left(&scene.column(&id, "ttl").await);
        assert!(kept > 12 * HOUR, "a lease may last twelve hours: {kept} s");
        // The handler and whoever looks at it later see what the sender said.
        let told = message.system_attributes.iter();
        let mut told = told.filter(|(name, _)| *name == "ttl");
        assert_eq!(told.next().map(|(_, ttl)| ttl), Some(&sent));
        assert_eq!(scene.column(&id, "dispatcherTtl").await, sent);
        let release = Outcome::Release(Duration::ZERO);
        scene.queue().settle_one(&message, release).await;
    }
}

#[tokio::test]
async fn distant_or_foreign_time_to_live_is_unchanged() {
    let scene = scene(Options::default()).await;
    // Milliseconds, by which DynamoDB deletes nothing.
    let sample = scene.tables.put_as_sample(&scene.table, &[]).await;
    let ours = scene
        .queue()
        .send_all(&[plain("four days")])
        .await
        .remove(0);
    for id in [ours, sample] {
        let before = scene.column(&id, "ttl").await;
        assert_eq!(scene.queue().next(LONG).await.id, id);
        assert_eq!(scene.column(&id, "ttl").await, before);
    }
}

#[tokio::test]
async fn task_that_expired_while_running_does_not_run_again() {
    let scene = scene(short()).await;
    let id = scene.queue().send_all(&[plain("x")]).await.remove(0);
    let message = scene.queue().next(LONG).await;
    // A minute passes.
    let passed = AttributeValue::N((now_ms() / 1_000 - 1).to_string());
    let update = scene.tables.client.update_item().table_name(&scene.table);
    update
        .key("taskId", AttributeValue::S(id))
        .update_expression("SET dispatcherTtl = :passed")
        .expression_attribute_values(":passed", passed)
        .send()
        .await
        .expect("it is there");
    let release = Outcome::Release(Duration::ZERO);
    scene.queue().settle_one(&message, release).await;
    scene.queue().expect_nothing().await;
}

#[tokio::test]
async fn dead_letters_outlive_their_tasks_time_to_live() {
    let url = MiniStack::shared().url();
    let tables = Tables::at(&url);
    let dynamodb = Dynamo::connect(&configuration(&url), short());
    let table = tables.create("dies", Dates::Number).await;
    let dead_letter_queue = tables.create("dead", Dates::Number).await;
    for dead_letter in [None, Some(&*dead_letter_queue)] {
        let queue = dynamodb.open(&table, dead_letter).await;
        let queue = queue.expect("it was just made");
        let queue: &dyn Queue = &queue;
        let id = queue.send_all(&[plain("x")]).await.remove(0);
        let message = queue.next(LONG).await;
        queue
            .settle_one(&message, Outcome::DeadLetter("why".into()))
            .await;
        for table in [Some(&*table), dead_letter].into_iter().flatten() {
            let item = tables.item(table, &id).await.expect("it is kept");
            let left = left(text(&item, "ttl"));
            assert!(left > 13 * 24 * HOUR, "{left} s are left in {table}");
            assert!(!item.contains_key("dispatcherTtl"), "nothing older counts");
        }
    }
}

fn spread(shards: u16) -> Options {
    Options {
        shards,
        ..Options::default()
    }
}

#[tokio::test]
async fn fewer_shards_hide_no_task() {
    let scene = scene(spread(4)).await;
    let (url, table) = (MiniStack::shared().url(), &scene.table);
    let bodies: Vec<_> = (0..12).map(|n| plain(&n.to_string())).collect();
    scene.queue().send_all(&bodies).await;
    let held = scene.queue().take(3, Duration::from_secs(1)).await;
    // Fewer than ever, and still fewer: all is read, whoever writes.
    for (shards, count) in [(2, 5), (1, 7)] {
        let fewer = open(&url, table, spread(shards)).await;
        let fewer: &dyn Queue = &fewer;
        // With the last come those whose lease expires.
        for message in fewer.take(count, LONG).await {
            fewer.settle_one(&message, Outcome::Delete).await;
        }
    }
    assert_eq!(held.len(), 3);
    let done = scene.tables.statuses(table).await;
    let done = done
        .iter()
        .filter(|(status, _)| status.starts_with("SUCCESS"));
    assert_eq!(done.map(|(_, count)| count).sum::<usize>(), 12);
}

#[tokio::test]
async fn table_of_the_sample_keeps_no_attribute_of_dispatcher() {
    let scene = scene(Options::default()).await;
    scene.queue().send_all(&[plain("x")]).await;
    let other = open(&MiniStack::shared().url(), &scene.table, spread(1)).await;
    assert_eq!(other.depth().await.map(|depth| depth.waiting), Ok(1));
    assert_eq!(scene.tables.all(&scene.table).await.len(), 1);
}

#[tokio::test]
async fn tables_with_equal_task_ids_can_share_a_dead_letter_queue() {
    let url = MiniStack::shared().url();
    let tables = Tables::at(&url);
    let dynamodb = Dynamo::connect(&configuration(&url), Options::default());
    let dead_letter_queue = tables.create("dead", Dates::Number).await;
    let mut sources = Vec::new();
    for _ in 0..2 {
        let table = tables.create("dies", Dates::Number).await;
        let put = tables.client.put_item().table_name(&table);
        put.item("taskId", AttributeValue::S("the same".into()))
            .item("taskStatus", AttributeValue::S("PENDING".into()))
            .item("taskCreated", AttributeValue::N(now_ms().to_string()))
            .send()
            .await
            .expect("the table exists");
        let queue = dynamodb.open(&table, Some(&dead_letter_queue)).await;
        let queue = queue.expect("it was just made");
        let handy: &dyn Queue = &queue;
        let message = handy.next(LONG).await;
        // Its answer may have been lost: once more is harmless.
        for _ in 0..2 {
            let dead_letter = Outcome::DeadLetter("why".into());
            handy.settle_one(&message, dead_letter).await;
        }
        sources.push(message.source);
    }
    let copies = tables.all(&dead_letter_queue).await;
    assert_eq!(copies.len(), 2, "{copies:?}");
    for source in sources {
        let of = |item: &&_| text(item, "dispatcherAttributes").contains(&source);
        assert_eq!(copies.iter().filter(of).count(), 1, "{source}: {copies:?}");
    }
}

#[tokio::test]
async fn dead_letter_too_large_to_copy_stays_as_a_failure() {
    let url = MiniStack::shared().url();
    let tables = Tables::at(&url);
    let dynamodb = Dynamo::connect(&configuration(&url), Options::default());
    let table = tables.create("dies", Dates::Number).await;
    let dead_letter_queue = tables.create("dead", Dates::Number).await;
    let queue = dynamodb.open(&table, Some(&dead_letter_queue)).await;
    let queue = queue.expect("it was just made");
    let queue: &dyn Queue = &queue;
    // With the reason, of which the copy has two, it goes beyond the 400 KB of an item.
    let why = "x".repeat(2_000);
    let large = plain(&"y".repeat(400 * 1_024 - 3_000));
    let id = queue.send_all(&[large]).await.remove(0);
    let message = queue.next(LONG).await;
    let dead_letter = Outcome::DeadLetter(why.clone());
    queue.settle_one(&message, dead_letter).await;
    let item = tables.item(&table, &id).await.expect("it is kept");
    assert_eq!(text(&item, "taskStatus"), "FAILURE");
    assert_eq!(text(&item, "dispatcherReason"), why);
    assert_eq!(tables.all(&dead_letter_queue).await, [], "there is no copy");
}
