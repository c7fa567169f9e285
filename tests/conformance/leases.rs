//! Visibility: what is not settled comes back, and what is extended does not.

use crate::backend::{Backend, Handy, LONG, SHORT, plain};
use crate::settling::is_final;
use dispatcher_core::message::{Outcome, Receipt};
use dispatcher_core::queue::ItemError;
use std::time::Duration;

pub(crate) async fn unsettled_message_is_redelivered(backend: &Backend) {
    let queue = backend.plain().await;
    queue.send_all(&[plain("crash")]).await;
    let first = queue.next(SHORT).await;
    let second = queue.next(LONG).await;
    assert_eq!((&second.id, &second.body), (&first.id, &first.body));
    assert_eq!(second.receive_count, 2);
    assert_ne!(second.receipt, first.receipt);
}

pub(crate) async fn extended_message_stays_invisible(backend: &Backend) {
    let queue = backend.plain().await;
    queue.send_all(&[plain("kept"), plain("left")]).await;
    let messages = queue.take(2, SHORT).await;
    let (kept, left) = match &*messages[0].body {
        "kept" => (&messages[0], &messages[1]),
        _ => (&messages[1], &messages[0]),
    };
    let answers = queue.extend(&[(kept.receipt.clone(), LONG)]).await;
    assert_eq!(answers, [Ok(())]);
    // Both were received together, so once the one is back the other would be as well.
    let back = queue.next(LONG).await;
    assert_eq!(back.id, left.id);
    queue.expect_nothing().await;
    queue.settle_one(kept, Outcome::Delete).await;
}

pub(crate) async fn zero_extension_releases_the_message(backend: &Backend) {
    let queue = backend.plain().await;
    queue.send_all(&[plain("back")]).await;
    let first = queue.next(LONG).await;
    let answers = queue.extend(&[(first.receipt, Duration::ZERO)]).await;
    assert_eq!(answers, [Ok(())]);
    assert_eq!(queue.next(LONG).await.id, first.id);
}

pub(crate) async fn each_extension_has_its_own_result(backend: &Backend) {
    let queue = backend.plain().await;
    queue.send_all(&[plain("a"), plain("b")]).await;
    let messages = queue.take(2, LONG).await;
    let deleted = &messages[0];
    queue.settle_one(deleted, Outcome::Delete).await;
    let answers = queue
        .extend(&[
            (deleted.receipt.clone(), LONG),
            (messages[1].receipt.clone(), LONG),
            (Receipt("no receipt of ours".into()), LONG),
        ])
        .await;
    assert_eq!(answers.len(), 3);
    assert!(matches!(answers[0], Err(ItemError::Gone(_))), "{answers:?}");
    assert_eq!(answers[1], Ok(()));
    assert!(is_final(&answers[2]), "{answers:?}");
    assert_eq!(queue.extend(&[]).await, []);
}
