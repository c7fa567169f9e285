//! SQS when the network or the service fails: whose failure is whose, and in which words.

use crate::backend::{Handy, LONG, plain};
use dispatcher_core::message::{Message, Outcome};
use dispatcher_core::queue::{Ask, ErrorKind, ItemError, Queue};
use dispatcher_sqs::queue::{Sqs, SqsQueue};
use dispatcher_tests::proxy::{Mode, Proxy};
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::{SqsServer, configuration};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A proxy, and an open queue behind it.
async fn behind_proxy() -> (Proxy, SqsQueue) {
    let server = MiniStack::shared();
    let proxy = Proxy::before(server.address());
    let name = SqsServer::fresh_name("faults");
    SqsServer::at(&server.url()).create(&name, &[]).await;
    let sqs = Sqs::connect(&configuration(&proxy.url()));
    let queue = sqs.open(&name, None).await.expect("it was just made");
    (proxy, queue)
}

async fn three_taken(queue: &SqsQueue) -> Vec<Message> {
    let queue: &dyn Queue = queue;
    queue.send_all(&[plain("a"), plain("b"), plain("c")]).await;
    queue.take(3, LONG).await
}

fn deletes(messages: &[Message]) -> Vec<(Message, Outcome)> {
    let delete = |message: &Message| (message.clone(), Outcome::Delete);
    messages.iter().map(delete).collect()
}

fn ask() -> Ask {
    Ask {
        max: 10,
        visibility: LONG,
        wait: Duration::ZERO,
        newest_first: false,
        ..Ask::PLAIN
    }
}

#[tokio::test]
async fn partial_failure_is_reported_entry_by_entry() {
    let (proxy, queue) = behind_proxy().await;
    let messages = three_taken(&queue).await;
    let answer = serde_json::json!({
        "Successful": [{"Id": "ID-2"}],
        "Failed": [{"Id": "ID-0", "Code": "InternalError", "SenderFault": false, "Message": "busy"}],
    });
    proxy.answer_next(1, "DeleteMessageBatch", 200, &answer.to_string());
    let answers = queue.settle(&deletes(&messages)).await;
    let words = ItemError::Transient("InternalError: busy".into());
    assert_eq!(answers[0], Err(words));
    assert!(
        matches!(answers[1], Err(ItemError::Transient(_))),
        "silence"
    );
    assert_eq!(answers[2], Ok(()));
}

#[tokio::test]
async fn call_error_fails_every_entry() {
    let (proxy, queue) = behind_proxy().await;
    let messages = three_taken(&queue).await;
    let error = r#"{"__type": "com.amazonaws.sqs#InternalError", "message": "on fire"}"#;
    proxy.answer_next(2, "DeleteMessageBatch", 500, error);
    let answers = queue.settle(&deletes(&messages)).await;
    assert_eq!(answers.len(), 3);
    for answer in &answers {
        let Err(ItemError::Transient(words)) = answer else {
            panic!("{answers:?}");
        };
        assert!(words.contains("DeleteMessageBatch") && words.contains("on fire"));
    }
    assert_eq!(proxy.seen("DeleteMessageBatch"), 2, "the SDK tries twice");
    // The trouble has passed and the receipts are still good.
    let answers = queue.settle(&deletes(&messages)).await;
    assert_eq!(answers, [Ok(()), Ok(()), Ok(())]);
}

#[tokio::test]
async fn throttling_is_transient_and_denial_is_access_denied() {
    let (proxy, queue) = behind_proxy().await;
    let throttled = r#"{"__type": "com.amazonaws.sqs#RequestThrottled", "message": "slow"}"#;
    proxy.answer_next(2, "ReceiveMessage", 400, throttled);
    let error = queue
        .receive(ask(), &CancellationToken::new())
        .await
        .expect_err("throttled");
    assert_eq!(error.kind, ErrorKind::Transient, "{error}");
    let denied =
        r#"{"__type": "com.amazon.coral.service#AccessDeniedException", "message": "not you"}"#;
    proxy.answer_next(1, "ReceiveMessage", 403, denied);
    let error = queue
        .receive(ask(), &CancellationToken::new())
        .await
        .expect_err("denied");
    assert_eq!(error.kind, ErrorKind::AccessDenied, "{error}");
    assert!(error.message.contains("ReceiveMessage"), "{error}");
    assert!(error.message.contains("not you"), "{error}");
}

#[tokio::test]
async fn deleted_queue_is_not_found() {
    let (proxy, queue) = behind_proxy().await;
    let gone = r#"{"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "no such queue"}"#;
    proxy.answer_next(1, "ReceiveMessage", 400, gone);
    let error = queue
        .receive(ask(), &CancellationToken::new())
        .await
        .expect_err("gone");
    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
}

#[tokio::test]
async fn unreachable_server_is_reported_until_it_is_up() {
    let (proxy, queue) = behind_proxy().await;
    let messages = three_taken(&queue).await;
    proxy.set(Mode::Refuse);
    let error = queue
        .receive(ask(), &CancellationToken::new())
        .await
        .expect_err("refused");
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
    assert!(!error.message.contains('\n'), "{error}");
    let answers = queue.settle(&deletes(&messages)).await;
    for answer in &answers {
        assert!(
            matches!(answer, Err(ItemError::Transient(_))),
            "{answers:?}"
        );
    }
    proxy.set(Mode::Pass);
    let answers = queue.settle(&deletes(&messages)).await;
    assert_eq!(answers, [Ok(()), Ok(()), Ok(())]);
}

#[tokio::test]
async fn truncated_response_settles_no_message() {
    let (proxy, queue) = behind_proxy().await;
    let messages = three_taken(&queue).await;
    proxy.set(Mode::Cut);
    let answers = queue.settle(&deletes(&messages)).await;
    for answer in &answers {
        assert!(
            matches!(answer, Err(ItemError::Transient(_))),
            "{answers:?}"
        );
    }
}

#[tokio::test]
async fn release_beyond_the_visibility_ceiling_is_retried_with_half_the_delay() {
    let (proxy, queue) = behind_proxy().await;
    let messages = three_taken(&queue).await;
    let beyond = "Value 43195 for parameter VisibilityTimeout is invalid. Reason: Total \
                  VisibilityTimeout for the message is beyond the limit [43200 seconds]";
    let answer = serde_json::json!({
        "Successful": [{"Id": "ID-0"}, {"Id": "ID-2"}],
        "Failed": [
            {"Id": "ID-1", "Code": "InvalidParameterValue", "SenderFault": true, "Message": beyond},
        ],
    });
    proxy.answer_next(1, "ChangeMessageVisibilityBatch", 200, &answer.to_string());
    let long = Outcome::Release(Duration::from_secs(43_200));
    let items: Vec<_> = messages.iter().map(|m| (m.clone(), long.clone())).collect();
    assert_eq!(queue.settle(&items).await, [Ok(()), Ok(()), Ok(())]);
    assert_eq!(proxy.seen("ChangeMessageVisibilityBatch"), 2);
}

#[tokio::test]
async fn repeated_dead_lettering_leaves_one_copy() {
    let server = MiniStack::shared();
    let proxy = Proxy::before(server.address());
    let (name, dead_letter_queue) = (
        SqsServer::fresh_name("faults"),
        SqsServer::fresh_name("dead"),
    );
    let account = SqsServer::at(&server.url());
    account.create(&name, &[]).await;
    let dead_letter_queue_url = account.create(&dead_letter_queue, &[]).await;
    let sqs = Sqs::connect(&configuration(&proxy.url()));
    let queue = sqs
        .open(&name, Some(&dead_letter_queue))
        .await
        .expect("both exist");
    let messages = three_taken(&queue).await;
    let dead = Outcome::DeadLetter("why".into());
    let items: Vec<_> = messages.iter().map(|m| (m.clone(), dead.clone())).collect();
    let error = r#"{"__type": "com.amazonaws.sqs#InternalError", "message": "on fire"}"#;
    proxy.answer_next(2, "DeleteMessageBatch", 500, error);
    let answers = queue.settle(&items).await;
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    assert_eq!(queue.settle(&items).await, [Ok(()), Ok(()), Ok(())]);
    assert_eq!(account.counts(&dead_letter_queue_url).await.waiting, 3);
}

#[tokio::test]
async fn fifo_receive_with_a_lost_answer_is_repeated_with_the_same_id() {
    let server = MiniStack::shared();
    let proxy = Proxy::before(server.address());
    let name = format!("{}.fifo", SqsServer::fresh_name("lost"));
    let attributes = [("FifoQueue", "true"), ("ContentBasedDeduplication", "true")];
    SqsServer::at(&server.url())
        .create(&name, &attributes)
        .await;
    let sqs = Sqs::connect(&configuration(&proxy.url()));
    let queue = sqs.open(&name, None).await.expect("it was just made");
    let go_on = CancellationToken::new();
    let error = r#"{"__type": "com.amazonaws.sqs#InternalError", "message": "on fire"}"#;
    proxy.answer_next(2, "ReceiveMessage", 500, error);
    let failed = queue.receive(ask(), &go_on).await;
    assert!(matches!(failed, Err(error) if error.kind == ErrorKind::Transient));
    for _ in 0..2 {
        queue.receive(ask(), &go_on).await.expect("the fire is out");
    }
    let ids: Vec<String> = proxy
        .requests("ReceiveMessage", "")
        .iter()
        .map(|(body, _)| {
            let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
            body["ReceiveRequestAttemptId"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    // Two tries of the SDK, then ours; then another receive.
    assert_eq!(ids.len(), 4);
    assert!(!ids[0].is_empty() && ids[0] == ids[1] && ids[1] == ids[2]);
    assert_ne!(ids[2], ids[3]);
}
