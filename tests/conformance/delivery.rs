//! Sending and receiving: what comes, how often, in which order, and how a queue says that there
//! is no more.

use crate::backend::{Backend, Handy, LONG, PATIENT, QueueNeeds, SHORT, bodies, grouped, plain};
use dispatcher_core::message::{Attribute, AttributeValue, Outcome, OutgoingMessage};
use std::collections::HashSet;
use std::time::Duration;

pub(crate) async fn sent_message_is_received(backend: &Backend) {
    let queue = backend.plain().await;
    let awkward = "grüße 👋 \t\r\n <&\"'>\\ \u{fffd} {\"json\": null}";
    let ids = queue.send_all(&[plain(awkward)]).await;
    let message = queue.next(LONG).await;
    assert_eq!(message.body, awkward);
    assert_eq!(message.id, ids[0]);
    assert_eq!(message.queue, queue.identity().name);
    assert_eq!(message.source, queue.identity().source);
    assert_eq!(message.receive_count, 1);
    assert!(message.attributes.is_empty());
    assert!(message.sent_at.is_some() && message.first_received_at.is_some());
    queue.expect_nothing().await;
}

pub(crate) async fn message_ids_are_returned_by_send(backend: &Backend) {
    let queue = backend.plain().await;
    let batch = queue.identity().batch;
    let messages: Vec<OutgoingMessage> = (0..batch).map(|n| plain(&n.to_string())).collect();
    let sent: HashSet<String> = queue.send_all(&messages).await.into_iter().collect();
    assert_eq!(sent.len(), batch, "every message has its own id");
    let received = queue.take(batch, LONG).await;
    assert_eq!(
        received.into_iter().map(|m| m.id).collect::<HashSet<_>>(),
        sent
    );
}

pub(crate) async fn attributes_survive(backend: &Backend) {
    let queue = backend.plain().await;
    let attribute = |name: &str, data_type: &str, value| Attribute {
        name: name.into(),
        data_type: data_type.into(),
        value,
    };
    let attributes = vec![
        attribute(
            "a.binary",
            "Binary",
            AttributeValue::Binary((0..=255).collect()),
        ),
        attribute("b-custom", "Binary.gif", AttributeValue::Binary(vec![0])),
        attribute("c_number", "Number", AttributeValue::Text("-12.5".into())),
        attribute(
            "d",
            "String",
            AttributeValue::Text("grüße 👋 \n <&>".into()),
        ),
        attribute("e", "String.uuid", AttributeValue::Text("x".into())),
    ];
    let message = OutgoingMessage {
        attributes: attributes.clone(),
        ..plain("with attributes")
    };
    queue.send_all(&[message]).await;
    let mut received = queue.next(LONG).await.attributes;
    received.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(received, attributes);
}

pub(crate) async fn receive_returns_at_most_the_maximum(backend: &Backend) {
    let queue = backend.plain().await;
    let messages: Vec<OutgoingMessage> = (0..5).map(|n| plain(&n.to_string())).collect();
    queue.send_all(&messages).await;
    let proof = queue.identity().proof_wait;
    let first = queue.receive_up_to(2, LONG, proof).await;
    assert!((1..=2).contains(&first.messages.len()));
    assert!(!first.drained || first.messages.len() < 2);
    let mut all = first.messages;
    all.extend(queue.take(5 - all.len(), LONG).await);
    assert_eq!(bodies(&all), ["0", "1", "2", "3", "4"]);
}

pub(crate) async fn receives_are_counted(backend: &Backend) {
    let queue = backend.plain().await;
    queue.send_all(&[plain("again")]).await;
    let mut receipts = HashSet::new();
    let mut first_received = HashSet::new();
    for count in 1..=3 {
        let message = queue.next(LONG).await;
        assert_eq!(message.receive_count, count);
        receipts.insert(message.receipt.clone());
        first_received.insert(message.first_received_at);
        queue
            .settle_one(&message, Outcome::Release(Duration::ZERO))
            .await;
    }
    assert_eq!(receipts.len(), 3, "every delivery has its own receipt");
    assert_eq!(first_received.len(), 1, "the first receive stays the first");
}

pub(crate) async fn order_is_kept_where_supported(backend: &Backend) {
    let wanted = QueueNeeds {
        ordered: true,
        ..QueueNeeds::default()
    };
    let queue = backend.open(wanted).await.queue;
    if !queue.identity().ordered_groups {
        return;
    }
    let numbers: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    let messages: Vec<OutgoingMessage> = numbers.iter().map(|n| grouped("g", n)).collect();
    queue.send_all(&messages).await;
    let mut received = Vec::new();
    while received.len() < numbers.len() {
        for message in queue.take(1, LONG).await {
            assert_eq!(message.group.as_deref(), Some("g"));
            queue.settle_one(&message, Outcome::Delete).await;
            received.push(message.body);
        }
    }
    assert_eq!(received, numbers);
}

pub(crate) async fn newest_come_first_where_supported(backend: &Backend) {
    let wanted = QueueNeeds {
        ordered: true,
        ..QueueNeeds::default()
    };
    let groups = backend.open(wanted).await.queue;
    if groups.identity().ordered_groups {
        groups
            .send_all(&[grouped("g", "first"), grouped("g", "second")])
            .await;
        // No wish for the newest parts a group.
        let first = groups.receive_newest(1).await;
        assert_eq!(bodies(&first), ["first"]);
    }
    let queue = backend.plain().await;
    let numbers: Vec<OutgoingMessage> = (0..6).map(|n| plain(&n.to_string())).collect();
    let sent: Vec<OutgoingMessage> = numbers.iter().take(4).cloned().collect();
    queue.send_all(&sent).await;
    let mut received = queue.receive_newest(2).await;
    queue.send_all(&numbers[4..]).await;
    while received.len() < numbers.len() {
        let more = queue.receive_newest(3).await;
        assert!(!more.is_empty(), "all are received, whatever was asked");
        received.extend(more);
    }
    if backend.can_choose() {
        let order: Vec<&str> = received.iter().map(|message| &*message.body).collect();
        assert_eq!(order, ["3", "2", "5", "4", "1", "0"]);
    }
    // One that comes back is as old as it was.
    queue.send_all(&[plain("6")]).await;
    let last = received.pop().expect("six were received");
    let released = Outcome::Release(Duration::ZERO);
    queue.settle_one(&last, released).await;
    let mut again = queue.receive_newest(2).await;
    while again.len() < 2 {
        again.extend(queue.receive_newest(1).await);
    }
    if backend.can_choose() {
        assert_eq!((&*again[0].body, &*again[1].body), ("6", &*last.body));
    }
}

pub(crate) async fn group_waits_for_its_first_message(backend: &Backend) {
    let wanted = QueueNeeds {
        ordered: true,
        ..QueueNeeds::default()
    };
    let queue = backend.open(wanted).await.queue;
    if !queue.identity().ordered_groups {
        return;
    }
    queue
        .send_all(&[grouped("a", "a1"), grouped("a", "a2"), grouped("b", "b1")])
        .await;
    let first = queue.next(LONG).await;
    assert_eq!(first.body, "a1");
    let other = queue.next(LONG).await;
    assert_eq!(other.body, "b1", "the other group need not wait");
    queue.expect_nothing().await;
    queue.settle_one(&first, Outcome::Delete).await;
    assert_eq!(queue.next(LONG).await.body, "a2");
}

pub(crate) async fn delay_is_respected(backend: &Backend) {
    let queue = backend.plain().await;
    let later = OutgoingMessage {
        delay: Duration::from_secs(2),
        ..plain("later")
    };
    queue.send_all(&[later, plain("now")]).await;
    let first = queue.next(LONG).await;
    assert_eq!(first.body, "now");
    let depth = queue.depth().await.expect("an open queue counts");
    assert_eq!((depth.waiting, depth.delayed), (0, 1));
    assert_eq!(queue.next(LONG).await.body, "later");
}

pub(crate) async fn long_poll_wakes_on_a_send(backend: &Backend) {
    let queue = backend.plain().await;
    let receive = queue.receive_up_to(1, LONG, PATIENT.min(queue.identity().longest_wait));
    let send = async {
        // The poll is polled first and so is on its way.
        queue.send_all(&[plain("wake")]).await
    };
    let (received, ids) = tokio::join!(biased; receive, send);
    assert_eq!(received.messages.len(), 1, "the long poll saw the message");
    assert_eq!(received.messages[0].id, ids[0]);
}

pub(crate) async fn empty_queue_is_drained(backend: &Backend) {
    let queue = backend.plain().await;
    queue.expect_nothing().await;
}

pub(crate) async fn partial_answer_to_a_long_poll_is_drained(backend: &Backend) {
    let queue = backend.plain().await;
    queue.send_all(&[plain("only")]).await;
    let proof = queue.identity().proof_wait;
    let received = queue
        .receive_up_to(queue.identity().batch, SHORT, proof)
        .await;
    assert_eq!(received.messages.len(), 1);
    assert!(received.drained);
    // One that is invisible is none that could be received.
    queue
        .settle_one(&received.messages[0], Outcome::Delete)
        .await;
}

pub(crate) async fn depth_separates_waiting_from_in_flight(backend: &Backend) {
    let queue = backend.plain().await;
    let messages: Vec<OutgoingMessage> = (0..4).map(|n| plain(&n.to_string())).collect();
    queue.send_all(&messages).await;
    let taken = queue.take(1, LONG).await;
    let depth = queue.depth().await.expect("an open queue counts");
    assert_eq!((depth.waiting, depth.in_flight, depth.delayed), (3, 1, 0));
    queue.settle_one(&taken[0], Outcome::Delete).await;
    let depth = queue.depth().await.expect("an open queue counts");
    assert_eq!((depth.waiting, depth.in_flight, depth.delayed), (3, 0, 0));
}
