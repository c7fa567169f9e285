//! What only SQS has: addresses, its limits, and what `open` says when there is no queue.

use crate::backend::Backend;
use crate::backend::{Handy, LONG, QueueNeeds, grouped, plain};
use dispatcher_core::message::{Outcome, OutgoingMessage};
use dispatcher_core::queue::{ErrorKind, ItemError, Queue};
use dispatcher_sqs::queue::Sqs;
use dispatcher_tests::servers::{MiniStack, free_port};
use dispatcher_tests::sqs::{Counts, SqsServer, configuration};
use std::time::Duration;

fn sqs() -> Sqs {
    Sqs::connect(&configuration(&MiniStack::shared().url()))
}

#[tokio::test]
async fn queue_opens_by_name_url_and_arn() {
    let server = SqsServer::at(&MiniStack::shared().url());
    let name = SqsServer::fresh_name("addressed");
    let url = server.create(&name, &[("VisibilityTimeout", "77")]).await;
    let sqs = sqs();
    let by_name = sqs.open(&name, None).await.expect("by name");
    let arn = by_name.identity().source.clone();
    assert!(arn.starts_with("arn:aws:sqs:us-east-1:"), "{arn}");
    for address in [&name, &url, &arn] {
        let queue = sqs.open(address, None).await.expect(address);
        let identity = queue.identity();
        assert_eq!(&identity.name, address);
        assert_eq!(identity.source, arn);
        assert_eq!(identity.visibility, Duration::from_secs(77));
        assert_eq!(identity.batch, 10);
        assert!(!identity.ordered_groups);
    }
    assert!(sqs.names(None).await.expect("names").contains(&name));
}

#[tokio::test]
async fn missing_queue_is_not_found_and_named() {
    let error = sqs().open("no-such-queue", None).await.expect_err("none");
    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    assert!(error.message.contains("`no-such-queue`"), "{error}");
    let server = SqsServer::at(&MiniStack::shared().url());
    let name = SqsServer::fresh_name("graveless");
    server.create(&name, &[]).await;
    let error = sqs().open(&name, Some("no-such-queue")).await;
    let error = error.expect_err("no dead-letter queue");
    assert!(error.message.contains("`no-such-queue`"), "{error}");
    let error = sqs().open(&name, Some(&name)).await.expect_err("itself");
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
}

#[tokio::test]
async fn no_server_is_unreachable() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let sqs = Sqs::connect(&configuration(&url));
    for error in [
        sqs.open("any", None).await.expect_err("no server"),
        sqs.names(None).await.expect_err("no server"),
    ] {
        assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
        assert!(error.message.contains(&url), "{error}");
        assert!(!error.message.contains('\n'), "{error}");
    }
}

#[tokio::test]
async fn missing_credentials_are_access_denied_with_a_clear_message() {
    let config = configuration(&MiniStack::shared().url());
    let mut bare = config.to_builder();
    bare.set_credentials_provider(None);
    let error = Sqs::connect(&bare.build()).open("any", None).await;
    let error = error.expect_err("no credentials");
    assert_eq!(error.kind, ErrorKind::AccessDenied, "{error}");
    assert!(error.message.contains("credentials"), "{error}");
}

#[tokio::test]
async fn missing_region_is_refused_with_the_fix() {
    let mut bare = configuration("http://127.0.0.1:1").to_builder();
    bare.set_region(None);
    bare.set_endpoint_url(None);
    let error = Sqs::connect(&bare.build()).open("any", None).await;
    let error = error.expect_err("no region");
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    assert!(error.message.contains("AWS_REGION"), "{error}");
}

#[tokio::test]
async fn sends_are_split_by_bytes_and_oversized_ones_refused() {
    let queue = Backend::sqs().plain().await;
    let large = "x".repeat(400_000);
    let too_large = "x".repeat(1_048_577);
    let too_late = OutgoingMessage {
        delay: Duration::from_secs(901),
        ..plain("late")
    };
    let mut messages: Vec<OutgoingMessage> = (0..6).map(|_| plain(&large)).collect();
    messages.insert(1, plain(&too_large));
    messages.insert(3, too_late);
    messages.push(plain(""));
    let answers = queue.send(&messages).await;
    for (at, answer) in answers.iter().enumerate() {
        let refused = matches!(answer, Err(ItemError::Refused(_)));
        assert_eq!(refused, [1, 3, 8].contains(&at), "{at}: {answer:?}");
        assert!(refused || answer.is_ok());
    }
    let received = queue.take(6, LONG).await;
    assert!(received.iter().all(|message| message.body == large));
}

#[tokio::test]
async fn fifo_dead_letter_keeps_its_group() {
    let wanted = QueueNeeds {
        ordered: true,
        dead_letter_queue: true,
    };
    let opened = Backend::sqs().open(wanted).await;
    let (queue, dead_letter_queue) = (
        opened.queue,
        opened.dead_letter_queue.expect("one was wanted"),
    );
    queue.send_all(&[grouped("g", "poison")]).await;
    let message = queue.next(LONG).await;
    let names: Vec<&str> = message
        .system_attributes
        .iter()
        .map(|(name, _)| &**name)
        .collect();
    let in_order = [
        "ApproximateReceiveCount",
        "SentTimestamp",
        "SequenceNumber",
        "MessageGroupId",
        "SenderId",
        "MessageDeduplicationId",
        "ApproximateFirstReceiveTimestamp",
    ];
    assert_eq!(names, in_order);
    queue
        .settle_one(&message, Outcome::DeadLetter("why".into()))
        .await;
    let dead = dead_letter_queue.next(LONG).await;
    assert_eq!(dead.body, "poison");
    assert_eq!(dead.group.as_deref(), Some("g"));
}

#[tokio::test]
async fn unsupported_fifo_features_are_refused() {
    let wanted = QueueNeeds {
        ordered: true,
        ..QueueNeeds::default()
    };
    let queue = Backend::sqs().open(wanted).await.queue;
    assert!(queue.identity().ordered_groups);
    let delayed = OutgoingMessage {
        delay: Duration::from_secs(1),
        ..grouped("g", "late")
    };
    let answers = queue.send(&[plain("no group"), delayed]).await;
    for answer in &answers {
        assert!(matches!(answer, Err(ItemError::Refused(_))), "{answers:?}");
    }
}

#[tokio::test]
async fn peek_is_refused() {
    let queue = Backend::sqs().plain().await;
    let error = queue.peek(1).await.expect_err("SQS cannot");
    assert_eq!(error.kind, ErrorKind::Invalid);
}

#[tokio::test]
async fn independent_client_agrees_with_the_program() {
    let server = SqsServer::at(&MiniStack::shared().url());
    let name = SqsServer::fresh_name("seen");
    let url = server.create(&name, &[]).await;
    server.send_many(&url, (0..12).map(|n| n.to_string())).await;
    let queue = sqs().open(&name, None).await.expect("it was just made");
    let queue: &dyn Queue = &queue;
    let taken = queue.take(2, LONG).await;
    let counts = Counts {
        waiting: 10,
        in_flight: 2,
        delayed: 0,
    };
    assert_eq!(server.counts(&url).await, counts);
    for message in &taken {
        let now = Outcome::Release(Duration::ZERO);
        queue.settle_one(message, now).await;
    }
    assert_eq!(server.drain(&url).await.len(), 12);
}
