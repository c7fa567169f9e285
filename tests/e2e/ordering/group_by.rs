//! Queues that keep no groups: a route groups their messages itself, by an attribute or by what the
//! body says, and one dispatcher keeps each group in order whatever fails.

use crate::ordering::groups_scene::{
    GroupSource, OrderedFunction, bodies, queues, send_local, send_sqs,
};

/// A thousand groups on a standard queue of SQS through a function that fails.
async fn standard(seed: u64, grouping: GroupSource, more: &[&str]) {
    let (server, [(name, url), (dead, _)]) = queues("standard", false).await;
    let bodies = bodies(seed);
    send_sqs(&server, &url, grouping, &bodies).await;
    let checked = OrderedFunction::start();
    let more = [more, &["--dead-letter", &dead]].concat();
    let mut running = checked.run(&name, &more).start();
    checked.finish(&mut running, bodies.len()).await;
    server.wait_until_empty(&url).await;
}

/// The same on a local queue whose messages have no group.
async fn local(seed: u64, grouping: GroupSource, more: &[&str]) {
    let checked = OrderedFunction::start();
    let bodies = bodies(seed);
    let mut running = checked.run("local:default", more).start();
    send_local(running.data().path(), "default", grouping, &bodies).await;
    checked.finish(&mut running, bodies.len()).await;
}

#[tokio::test]
async fn lesson_19_standard_queue_keeps_groups_by_an_attribute() {
    let more = ["--group-by", "customer"];
    standard(11, GroupSource::Attribute, &more).await;
}

#[tokio::test]
async fn lesson_19_standard_queue_keeps_groups_by_the_body_in_batches() {
    let more = ["--group-by", "/order/customer", "--batch-size", "10"];
    standard(12, GroupSource::Body, &more).await;
}

#[tokio::test]
async fn lesson_19_local_queue_keeps_groups_by_the_body() {
    let more = ["--group-by", "/order/customer"];
    local(13, GroupSource::Body, &more).await;
}

#[tokio::test]
async fn lesson_19_local_queue_keeps_groups_by_an_attribute_in_batches() {
    let more = ["--group-by", "customer", "--batch-size", "10"];
    local(14, GroupSource::Attribute, &more).await;
}
