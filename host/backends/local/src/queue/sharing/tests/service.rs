//! Receives that wait, through the service.

use crate::queue::{LocalQueue, LocalStore};
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::queue::sharing::SharingRules;
use dispatcher_core::queue::{Ask, Queue};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const LONG: Duration = Duration::from_secs(20);

fn open(folder: &tempfile::TempDir, sharing: Option<SharingRules>) -> LocalQueue {
    let store = LocalStore::open(folder.path()).unwrap();
    let queue = store.queue("q", None).unwrap();
    if let Some(sharing) = sharing {
        queue.share_out(&Arc::new(sharing));
    }
    queue
}

fn by_group(parked: &[&str]) -> SharingRules {
    SharingRules {
        by_group: true,
        parked: parked.iter().map(|tenant| (*tenant).to_owned()).collect(),
        ..SharingRules::default()
    }
}

fn message(group: &str) -> OutgoingMessage {
    OutgoingMessage {
        body: group.into(),
        group: Some(group.into()),
        ..OutgoingMessage::default()
    }
}

async fn receive(queue: &LocalQueue, wait: Duration) -> Vec<String> {
    let ask = Ask {
        max: 10,
        wait,
        ..Ask::PLAIN
    };
    let hurry = CancellationToken::new();
    let received = queue.receive(ask, &hurry).await.unwrap();
    received.messages.into_iter().map(|one| one.body).collect()
}

#[tokio::test]
async fn waiting_receive_is_served_once_a_tenant_is_no_longer_parked() {
    let folder = tempfile::tempdir().unwrap();
    let queue = open(&folder, Some(by_group(&["a"])));
    queue.send(&[message("a"), message("a")]).await;
    assert_eq!(receive(&queue, Duration::ZERO).await, [""; 0]);
    let waits = receive(&queue, LONG);
    let unpark = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        queue.share_out(&Arc::new(by_group(&[])));
    };
    let begun = std::time::Instant::now();
    let (got, ()) = tokio::join!(waits, unpark);
    assert_eq!(got, ["a", "a"]);
    // Without being told, the queue looks once a second.
    assert!(begun.elapsed() < Duration::from_millis(900));
}

#[tokio::test]
async fn receives_with_and_without_rules_wait_beside_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    let shared = store.queue("q", None).unwrap();
    shared.share_out(&Arc::new(by_group(&["a"])));
    let plain = store.queue("q", None).unwrap();
    assert_eq!(receive(&shared, Duration::ZERO).await, [""; 0]);
    let beside = async {
        let send = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            plain.send(&[message("a")]).await;
        };
        let (got, ()) = tokio::join!(receive(&plain, LONG), send);
        plain.send(&[message("b")]).await;
        got
    };
    let begun = std::time::Instant::now();
    let (first, second) = tokio::join!(receive(&shared, LONG), beside);
    assert_eq!((first, second), (vec!["b".into()], vec!["a".into()]));
    assert!(begun.elapsed() < LONG / 2);
}

#[tokio::test]
async fn message_behind_another_of_its_group_wakes_a_receiver_of_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let (near, far) = (open(&folder, Some(by_group(&[]))), open(&folder, None));
    far.send(&[message("a")]).await;
    assert_eq!(receive(&near, Duration::ZERO).await, ["a"]);
    let send = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        far.send(&[message("a")]).await;
    };
    let begun = std::time::Instant::now();
    let (got, ()) = tokio::join!(receive(&near, LONG), send);
    assert_eq!(got, ["a"]);
    // The sender rings; without that, the receiver looks once a second.
    assert!(begun.elapsed() < Duration::from_millis(900));
}

#[tokio::test]
async fn message_behind_another_of_its_group_wakes_a_receiver_of_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let queue = open(&folder, Some(by_group(&[])));
    queue.send(&[message("a")]).await;
    assert_eq!(receive(&queue, Duration::ZERO).await, ["a"]);
    let send = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        queue.send(&[message("a")]).await;
    };
    let begun = std::time::Instant::now();
    let (got, ()) = tokio::join!(receive(&queue, LONG), send);
    assert_eq!(got, ["a"]);
    assert!(begun.elapsed() < LONG / 2);
}

/// An older program writes the columns that it knows.
#[tokio::test]
async fn messages_of_an_older_program_are_delivered() {
    let folder = tempfile::tempdir().unwrap();
    let queue = open(&folder, Some(by_group(&[])));
    queue.send(&[message("a")]).await;
    assert_eq!(receive(&queue, Duration::ZERO).await, ["a"]);
    let old = rusqlite::Connection::open(folder.path().join("local.db")).unwrap();
    for (group, head) in [("a", 0), ("b", 1)] {
        old.execute(
            "INSERT INTO entries (queue, head, visible_at, in_flight, receive_count, sent_at,
                                  message_group, moved_from, payload, attributes, system)
             VALUES (1, ?1, 0, 0, 0, 0, ?2, NULL, NULL, NULL, NULL)",
            rusqlite::params![head, group],
        )
        .unwrap();
        let seq = old.last_insert_rowid();
        old.execute(
            "INSERT INTO payloads (seq, id, body) VALUES (?1, ?1, ?2)",
            rusqlite::params![seq, group],
        )
        .unwrap();
    }
    drop(old);
    let got: BTreeSet<String> = receive(&queue, LONG).await.into_iter().collect();
    assert_eq!(got, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
}
