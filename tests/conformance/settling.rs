//! The ends of a delivery, one answer for each.

use crate::backend::{Backend, Handy, LONG, QueueNeeds, SHORT, bodies, plain, text};
use dispatcher_core::message::{Attribute, Message, Outcome, OutgoingMessage, Receipt};
use dispatcher_core::queue::{ItemError, Queue};
use std::time::Duration;

const DEAD_LETTER_QUEUE: QueueNeeds = QueueNeeds {
    ordered: false,
    dead_letter_queue: true,
};

async fn depth(queue: &dyn Queue) -> (u64, u64) {
    let depth = queue.depth().await.expect("an open queue counts");
    (depth.waiting + depth.delayed, depth.in_flight)
}

/// What was never a receipt will not become one.
pub(crate) fn is_final(answer: &Result<(), ItemError>) -> bool {
    matches!(answer, Err(ItemError::Gone(_) | ItemError::Refused(_)))
}

pub(crate) async fn deleted_message_is_not_redelivered(backend: &Backend) {
    let queue = backend.plain().await;
    queue.send_all(&[plain("done")]).await;
    let message = queue.next(SHORT).await;
    queue.settle_one(&message, Outcome::Delete).await;
    assert_eq!(depth(&*queue).await, (0, 0));
    queue.expect_nothing().await;
    assert_eq!(queue.settle(&[]).await, []);
}

pub(crate) async fn settling_twice_has_no_effect(backend: &Backend) {
    let queue = backend.plain().await;
    queue.send_all(&[plain("done"), plain("other")]).await;
    let messages = queue.take(2, LONG).await;
    queue.settle_one(&messages[0], Outcome::Delete).await;
    let again = queue
        .settle(&[(messages[0].clone(), Outcome::Delete)])
        .await;
    let harmless = matches!(again[..], [Ok(()) | Err(ItemError::Gone(_))]);
    assert!(harmless, "{again:?}");
    assert_eq!(depth(&*queue).await, (0, 1), "the other is still in flight");
}

pub(crate) async fn released_message_is_redelivered(backend: &Backend) {
    let queue = backend.plain().await;
    queue.send_all(&[plain("again")]).await;
    let first = queue.next(LONG).await;
    queue
        .settle_one(&first, Outcome::Release(Duration::ZERO))
        .await;
    let second = queue.next(LONG).await;
    assert_eq!(second.id, first.id);
    assert_eq!(second.receive_count, 2);
}

pub(crate) async fn released_message_respects_its_delay(backend: &Backend) {
    let queue = backend.plain().await;
    queue.send_all(&[plain("slow"), plain("quick")]).await;
    let messages = queue.take(2, LONG).await;
    let after = |message: &Message| match &*message.body {
        "slow" => Outcome::Release(Duration::from_secs(43_200)),
        _ => Outcome::Release(Duration::from_millis(700)),
    };
    let items: Vec<_> = messages.iter().map(|m| (m.clone(), after(m))).collect();
    assert_eq!(queue.settle(&items).await, [Ok(()), Ok(())]);
    assert_eq!(queue.next(LONG).await.body, "quick");
    queue.expect_nothing().await;
}

pub(crate) async fn settle_results_are_in_order(backend: &Backend) {
    let queue = backend.plain().await;
    queue.send_all(&[plain("a"), plain("b"), plain("c")]).await;
    let messages = queue.take(3, LONG).await;
    let mut stranger = messages[1].clone();
    stranger.id = "no message of ours".into();
    stranger.receipt = Receipt("no receipt of ours".into());
    let mut items: Vec<_> = messages
        .iter()
        .map(|m| (m.clone(), Outcome::Delete))
        .collect();
    items.insert(1, (stranger, Outcome::Delete));
    let answers = queue.settle(&items).await;
    assert_eq!(answers.len(), 4);
    assert!(is_final(&answers[1]), "{answers:?}");
    for at in [0, 2, 3] {
        assert_eq!(answers[at], Ok(()));
    }
    assert_eq!(depth(&*queue).await, (0, 0));
}

pub(crate) async fn stale_receipt_does_not_settle_a_newer_delivery(backend: &Backend) {
    let queue = backend.plain().await;
    queue.send_all(&[plain("twice")]).await;
    let stale = queue.next(SHORT).await;
    let fresh = queue.next(LONG).await;
    let release = Outcome::Release(Duration::ZERO);
    let answers = queue.settle(&[(stale.clone(), release)]).await;
    // SQS may take an old receipt and do nothing; no backend may give the message to a third.
    let fenced = matches!(answers[..], [Ok(()) | Err(ItemError::Gone(_))]);
    assert!(fenced, "{answers:?}");
    queue.expect_nothing().await;
    let answers = queue.settle(&[(stale, Outcome::Delete)]).await;
    let fenced = matches!(answers[..], [Ok(()) | Err(ItemError::Gone(_))]);
    assert!(fenced, "{answers:?}");
    queue.settle_one(&fresh, Outcome::Delete).await;
    assert_eq!(depth(&*queue).await, (0, 0));
}

pub(crate) async fn dead_lettered_message_moves_with_its_reason(backend: &Backend) {
    let opened = backend.open(DEAD_LETTER_QUEUE).await;
    let (queue, dead_letter_queue) = (
        opened.queue,
        opened.dead_letter_queue.expect("one was wanted"),
    );
    assert!(queue.identity().dead_letters);
    let tenant = Attribute::text("tenant", "7");
    let message = OutgoingMessage {
        attributes: vec![tenant.clone()],
        ..plain("poison")
    };
    queue.send_all(&[message]).await;
    let message = queue.next(LONG).await;
    let reason = "it burnt: grüße\0";
    queue
        .settle_one(&message, Outcome::DeadLetter(reason.into()))
        .await;
    assert_eq!(depth(&*queue).await, (0, 0));
    let dead = dead_letter_queue.next(LONG).await;
    assert_eq!(dead.body, "poison");
    assert_eq!(text(&dead, "tenant"), Some(&tenant));
    let reason = text(&dead, "dispatcher-dead-letter-reason").expect("a reason");
    let source = text(&dead, "dispatcher-dead-letter-source").expect("a source");
    let starts = |attribute: &Attribute, with: &str| match &attribute.value {
        dispatcher_core::message::AttributeValue::Text(text) => text.starts_with(with),
        dispatcher_core::message::AttributeValue::Binary(_) => false,
    };
    assert!(starts(reason, "it burnt: grüße"), "{reason:?}");
    assert!(starts(source, &queue.identity().source), "{source:?}");
}

pub(crate) async fn dead_lettering_without_a_dead_letter_queue_is_refused(backend: &Backend) {
    let queue = backend.plain().await;
    if queue.identity().dead_letters {
        return;
    }
    queue.send_all(&[plain("poison")]).await;
    let message = queue.next(LONG).await;
    let answers = queue
        .settle(&[(message.clone(), Outcome::DeadLetter("why".into()))])
        .await;
    assert!(
        matches!(answers[..], [Err(ItemError::Refused(_))]),
        "{answers:?}"
    );
    queue.settle_one(&message, Outcome::Delete).await;
}

pub(crate) async fn message_may_be_settled_twice_in_one_call(backend: &Backend) {
    let queue = backend.plain().await;
    queue.send_all(&[plain("twice"), plain("once")]).await;
    let messages = queue.take(2, LONG).await;
    let (twice, once) = (messages[0].clone(), messages[1].clone());
    let answers = queue
        .settle(&[
            (twice.clone(), Outcome::Delete),
            (once, Outcome::Delete),
            (twice, Outcome::Delete),
        ])
        .await;
    assert_eq!(answers, [Ok(()), Ok(()), Ok(())]);
    assert_eq!(depth(&*queue).await, (0, 0));
}

pub(crate) async fn outcomes_of_one_call_may_be_mixed(backend: &Backend) {
    let opened = backend.open(DEAD_LETTER_QUEUE).await;
    let (queue, dead_letter_queue) = (
        opened.queue,
        opened.dead_letter_queue.expect("one was wanted"),
    );
    let kinds = ["delete", "release", "dead-letter"];
    let count = queue.identity().batch;
    let sent: Vec<OutgoingMessage> = (0..count).map(|n| plain(kinds[n % 3])).collect();
    queue.send_all(&sent).await;
    let messages = queue.take(count, LONG).await;
    let outcome = |message: &Message| match &*message.body {
        "delete" => Outcome::Delete,
        "release" => Outcome::Release(Duration::ZERO),
        _ => Outcome::DeadLetter("why".into()),
    };
    let items: Vec<_> = messages.iter().map(|m| (m.clone(), outcome(m))).collect();
    assert!(queue.settle(&items).await.iter().all(Result::is_ok));
    let of_kind = |kind: &str| sent.iter().filter(|m| m.body == kind).count();
    let back = queue.take(of_kind("release"), LONG).await;
    assert!(bodies(&back).iter().all(|body| *body == "release"));
    queue.expect_nothing().await;
    let dead = dead_letter_queue.take(of_kind("dead-letter"), LONG).await;
    assert!(bodies(&dead).iter().all(|body| *body == "dead-letter"));
    dead_letter_queue.expect_nothing().await;
}
