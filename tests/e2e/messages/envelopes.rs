//! Messages come out of their envelope, and bodies that are in S3 are named as such.

use crate::scene::{depth, field, prints, run, send, until_depth};
use dispatcher_core::queue::Depth;
use dispatcher_tests::child::Program;
use dispatcher_tests::service::{JobService, ServiceStep};
use serde_json::json;

fn notification(message: &str) -> String {
    json!({
        "Type": "Notification",
        "MessageId": "n-1",
        "TopicArn": "arn:aws:sns:us-east-1:123456789012:orders",
        "Message": message,
        "MessageAttributes": {"kind": {"Type": "String", "Value": "order"}},
    })
    .to_string()
}

fn pointer() -> String {
    let class = "software.amazon.payloadoffloading.PayloadS3Pointer";
    json!([class, {"s3BucketName": "large", "s3Key": "k-1"}]).to_string()
}

#[tokio::test]
async fn handler_gets_the_message_within_a_notification() {
    let filter =
        r#"{"body": {"order": [1, 2]}, "messageAttributes": {"kind": {"stringValue": ["order"]}}}"#;
    let more = ["--envelope", "sns", "--filter", filter];
    let mut running = run("hello", &more).start();
    let data = running.data().clone();
    let bodies = [r#"{"order":1}"#, r#"{"order":3}"#].map(notification);
    send(data.path(), "default", bodies).await;
    until_depth(data.path(), "default", |depth| depth == Depth::default()).await;
    running.stop();
    assert_eq!(prints(&running), [r#"{"order":1}"#]);
}

#[tokio::test]
async fn dead_letter_keeps_its_notification() {
    let mut running = run("verdicts", &["--envelope", "sns"]).start();
    let data = running.data().clone();
    let bodies = [notification("reject:no such customer"), "done".to_owned()];
    send(data.path(), "default", bodies).await;
    let line = running.wait_for_line(|line| line.contains("dead-lettered"));
    assert_eq!(field(&line, "reason"), "no such customer");
    until_depth(data.path(), "default", |depth| depth == Depth::default()).await;
    running.stop();
    let letters = Program::new(["peek", "local:default.dead", "--json"]).sharing(&data);
    let letters = letters.run().stdout;
    assert!(letters.contains("TopicArn"), "{letters}");
}

#[tokio::test]
async fn body_in_s3_is_dead_lettered_with_its_place_or_passed_on() {
    let mut running = run("hello", &[]).start();
    let data = running.data().clone();
    send(data.path(), "default", [pointer()]).await;
    let line = running.wait_for_line(|line| line.contains("dead-lettered"));
    assert_eq!(field(&line, "reason_kind"), "unreadable");
    let reason = field(&line, "reason");
    assert!(reason.contains("bucket large, key k-1"), "{reason}");
    running.stop();
    assert_eq!(prints(&running), [""; 0]);

    let mut running = run("hello", &["--s3-pointers", "pass"])
        .sharing(&data)
        .start();
    send(data.path(), "default", [pointer()]).await;
    until_depth(data.path(), "default", |depth| depth == Depth::default()).await;
    running.stop();
    assert_eq!(prints(&running), [pointer()]);

    // What is behind a forwarder gets what it gets from Lambda.
    let service = JobService::start(|_| ServiceStep::status(200));
    let arguments = ["run", "--forward", &service.url()];
    let mut running = Program::new(arguments).sharing(&data).start();
    send(data.path(), "default", [pointer()]).await;
    assert_eq!(service.wait_for(1)[0].body, pointer());
    until_depth(data.path(), "default", |depth| depth == Depth::default()).await;
    running.stop();
    assert_eq!(depth(data.path(), "default.dead").await.waiting, 1);
}
