//! What this program sends to a queue that is set, receives of spent messages, and receipts of other
//! queues.

use crate::queue::*;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(600);

fn store() -> (LocalStore, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (LocalStore::open(folder.path()).unwrap(), folder)
}

async fn made(store: &LocalStore, name: &str, settings: QueueSettings) -> (KnownQueue, LocalQueue) {
    store.create(name, settings).await.unwrap();
    let known = store.find(name).await.unwrap().expect("it was just made");
    (known, store.queue(name, None).unwrap())
}

fn text(body: &str) -> OutgoingMessage {
    OutgoingMessage {
        body: body.into(),
        ..OutgoingMessage::default()
    }
}

fn grouped(body: &str, scheduled: Option<&str>) -> OutgoingMessage {
    OutgoingMessage {
        group: Some("g".into()),
        scheduled: scheduled.map(Into::into),
        ..text(body)
    }
}

async fn take(queue: &LocalQueue, max: usize, visibility: Duration) -> ReceivedMessages {
    let ask = Ask {
        max,
        visibility,
        wait: Duration::ZERO,
        newest_first: false,
        ..Ask::PLAIN
    };
    let hurry = CancellationToken::new();
    queue.receive(ask, &hurry).await.unwrap()
}

#[tokio::test]
async fn messages_get_the_default_delay_of_the_queue() {
    let (store, _folder) = store();
    let slow = QueueSettings {
        delay_s: 600,
        ..QueueSettings::default()
    };
    let (_, queue) = made(&store, "q", slow).await;
    let exact = OutgoingMessage {
        scheduled: Some("job/1".into()),
        ..text("exact")
    };
    let sooner = OutgoingMessage {
        delay: Duration::from_millis(1),
        ..text("sooner")
    };
    for sent in queue.send(&[text("usual"), exact, sooner]).await {
        sent.unwrap();
    }
    let at_once = take(&queue, 10, LONG).await.messages;
    assert_eq!(at_once[0].body, "exact");
    let depth = queue.depth().await.unwrap();
    assert!(depth.delayed >= 1 && depth.delayed <= 2, "{depth:?}");
    let known = store.delayed(Some("q"), 100).await.unwrap();
    let usual = known.iter().find(|one| one.message.body == "usual");
    assert!(usual.is_some(), "it waits for ten minutes");
}

#[tokio::test]
async fn message_above_the_queues_maximum_size_is_refused_and_the_rest_sent() {
    let (store, _folder) = store();
    let short = QueueSettings {
        longest: 10,
        ..QueueSettings::default()
    };
    let (_, queue) = made(&store, "q", short).await;
    let mut attributed = text("1");
    attributed.attributes = vec![dispatcher_core::message::Attribute::text("key", "v")];
    let sent = queue
        .send(&[text("0123456789"), text("0123456789+"), attributed])
        .await;
    assert!(sent[0].is_ok());
    for refused in &sent[1..] {
        let Err(ItemError::Refused(why)) = refused else {
            panic!("{refused:?}");
        };
        assert!(why.contains("11 bytes"), "{why}");
    }
    let other = store.queue("unset", None).unwrap();
    assert!(other.send(&[text(&"x".repeat(2_000_000))]).await[0].is_ok());
}

#[tokio::test]
async fn fifo_queue_deduplicates_messages_of_the_program() {
    let (store, _folder) = store();
    let fifo = |ids_from_content| QueueSettings {
        fifo: true,
        ids_from_content,
        ..QueueSettings::default()
    };
    let (_, by_content) = made(&store, "content.fifo", fifo(true)).await;
    let (_, by_id) = made(&store, "id.fifo", fifo(false)).await;
    let items = [
        grouped("same", None),
        grouped("same", None),
        grouped("same", Some("job/1")),
        grouped("same", Some("job/1")),
        grouped("same", Some("job/2")),
    ];
    for (queue, wanted) in [(by_content, 3), (by_id, 4)] {
        let ids = queue.send(&items).await;
        let ids: std::collections::BTreeSet<_> = ids.into_iter().map(Result::unwrap).collect();
        assert_eq!(ids.len(), wanted);
        let depth = queue.depth().await.unwrap();
        assert_eq!(depth.waiting, wanted as u64);
        let refused = queue.send(&[text("no group")]).await.remove(0);
        assert!(matches!(refused, Err(ItemError::Refused(_))), "{refused:?}");
    }
}

/// As after a limit was lowered below what many messages have been received.
#[tokio::test]
async fn many_exhausted_messages_are_moved_in_several_transactions() {
    const SPENT: usize = 350;
    let (store, _folder) = store();
    let (_, queue) = made(&store, "q", QueueSettings::default()).await;
    let mut spent = Vec::new();
    for batch in (0..SPENT).collect::<Vec<_>>().chunks(100) {
        let items: Vec<_> = batch.iter().map(|n| text(&n.to_string())).collect();
        queue.send(&items).await;
        let taken = take(&queue, 100, LONG).await.messages.into_iter();
        spent.extend(taken.map(|one| (one, Outcome::Release(Duration::ZERO))));
    }
    assert_eq!(spent.len(), SPENT);
    for batch in spent.chunks(100) {
        queue.settle(batch).await;
    }
    let (_, dead_letter_queue) = made(&store, "dead", QueueSettings::default()).await;
    let redrive = Redrive {
        most_receives: 1,
        dead_letter_queue: "dead".into(),
    };
    let lower = move |settings: &mut QueueSettings| settings.redrive = Some(redrive.clone());
    assert!(store.change("q", lower).await.unwrap());
    let first = take(&queue, 10, LONG).await;
    assert_eq!((first.messages.len(), first.drained), (0, false));
    assert_eq!(dead_letter_queue.depth().await.unwrap().waiting, 100);
    // Whoever waits gets what is behind them all.
    queue.send(&[text("good")]).await.remove(0).unwrap();
    let ask = Ask {
        max: 10,
        visibility: LONG,
        wait: Duration::from_secs(20),
        newest_first: false,
        ..Ask::PLAIN
    };
    let hurry = CancellationToken::new();
    let good = queue.receive(ask, &hurry).await.unwrap().messages;
    assert_eq!(good.len(), 1);
    assert_eq!(good[0].body, "good");
    assert_eq!(
        dead_letter_queue.depth().await.unwrap().waiting,
        SPENT as u64
    );
    let last = take(&queue, 10, LONG).await;
    assert_eq!((last.messages.len(), last.drained), (0, true));
}

#[tokio::test]
async fn receipt_of_another_queue_is_refused() {
    let (store, _folder) = store();
    let (one, queue) = made(&store, "one", QueueSettings::default()).await;
    let (other, _) = made(&store, "other", QueueSettings::default()).await;
    queue.send(&[text("x")]).await.remove(0).unwrap();
    let receipt = take(&queue, 1, LONG).await.messages.remove(0).receipt;
    for ordered in [false, true] {
        let receipts = vec![receipt.clone()];
        let told = store
            .delete_from(other.id, receipts, ordered)
            .await
            .unwrap();
        assert_eq!(told, [Err(SettleRefusal::Unreadable)]);
    }
    let changes = vec![(receipt.clone(), LONG)];
    let told = store
        .change_visibility(other.id, changes, false)
        .await
        .unwrap();
    assert_eq!(told, [Err(SettleRefusal::Unreadable)]);
    let told = store
        .delete_from(one.id, vec![receipt.clone()], false)
        .await;
    assert_eq!(told.unwrap(), [Ok(())]);
    // Of what is gone nobody knows whose it was; SQS says nothing then either.
    let told = store.delete_from(other.id, vec![receipt], false).await;
    assert_eq!(told.unwrap(), [Ok(())]);
}
