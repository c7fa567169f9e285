//! Queues that the configuration declares, on a store in memory: made, changed, and refused where
//! messages would be lost.

use crate::queue::*;
use dispatcher_core::backend::QueueDeclaration;

fn declared(name: &str) -> QueueDeclaration {
    QueueDeclaration {
        at: format!("dispatcher.toml:{}", name.len()),
        name: name.into(),
        ..QueueDeclaration::default()
    }
}

async fn declare(store: &LocalStore, queues: &[QueueDeclaration]) -> Vec<String> {
    let found = store.declare(queues.to_vec()).await.unwrap();
    let lines = found.iter().map(|one| format!("{}: {}", one.at, one.found));
    lines.collect()
}

async fn settings(store: &LocalStore, name: &str) -> QueueSettings {
    let known = store.find(name).await.unwrap();
    known.expect("the queue is there").settings
}

#[tokio::test]
async fn declared_queues_are_made_and_what_is_not_declared_stays() {
    let store = LocalStore::open_in_memory().unwrap();
    let minute = Duration::from_secs(60);
    let orders = QueueDeclaration {
        visibility: Some(minute),
        delay: Some(minute),
        redrive: Some(("given-up".into(), 3)),
        ..declared("orders")
    };
    let group = QueueDeclaration {
        fifo: true,
        ..declared("one.fifo")
    };
    let all = [orders.clone(), declared("given-up"), group];
    assert_eq!(declare(&store, &all).await, [""; 0]);
    let made = settings(&store, "orders").await;
    assert_eq!((made.visibility_s, made.delay_s), (60, 60));
    let redrive = made.redrive.clone().expect("a policy");
    assert_eq!(redrive.dead_letter_queue, "given-up");
    assert_eq!(redrive.most_receives, 3);
    assert!(settings(&store, "one.fifo").await.fifo);
    let usual = settings(&store, "given-up").await.retention_s;
    assert_eq!(usual, Some(345_600));

    // The same again changes nothing, another value what it says.
    assert_eq!(declare(&store, &all).await, [""; 0]);
    assert_eq!(settings(&store, "orders").await, made);
    let shorter = QueueDeclaration {
        visibility: Some(Duration::from_secs(5)),
        delay: None,
        ..orders
    };
    assert_eq!(declare(&store, &[shorter]).await, [""; 0]);
    let changed = settings(&store, "orders").await;
    assert_eq!((changed.visibility_s, changed.delay_s), (5, 60));
}

#[tokio::test]
async fn what_would_dead_letter_messages_is_refused_and_changes_nothing() {
    let store = LocalStore::open_in_memory().unwrap();
    let queue = store.queue("orders", None).unwrap();
    queue
        .send(&[OutgoingMessage::default()])
        .await
        .remove(0)
        .unwrap();
    let ask = Ask {
        visibility: Duration::ZERO,
        ..Ask::PLAIN
    };
    for _ in 0..2 {
        let hurry = CancellationToken::new();
        let received = queue.receive(ask, &hurry).await.unwrap();
        assert_eq!(received.messages.len(), 1);
    }
    let with = |most| QueueDeclaration {
        redrive: Some(("given-up".into(), most)),
        visibility: Some(Duration::from_secs(9)),
        ..declared("orders")
    };
    let refused = declare(&store, &[declared("other"), with(2)]).await;
    let wanted = "dispatcher.toml:6: 1 of the messages in `local:orders` were received 2 times or \
                  more and would be dead-lettered";
    assert_eq!(refused, [wanted]);
    assert_eq!(store.find("other").await.unwrap(), None);
    assert_eq!(settings(&store, "orders").await.visibility_s, 30);
    assert_eq!(declare(&store, &[with(3)]).await, [""; 0]);
}

#[tokio::test]
async fn a_reset_deletes_every_queue_and_makes_room_for_the_same_names() {
    let store = LocalStore::open_in_memory().unwrap();
    let queue = store.queue("orders", None).unwrap();
    queue
        .send(&[OutgoingMessage::default()])
        .await
        .remove(0)
        .unwrap();
    store.reset().await.unwrap();
    assert_eq!(store.names().unwrap(), [""; 0]);
    let again = store.queue("orders", None).unwrap();
    assert_eq!(again.depth().await.unwrap(), Depth::default());
}
