//! What the store offers beyond the port, and that older files open.

use crate::queue::service::LeaseCheck;
use crate::queue::*;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(600);

fn store() -> (LocalStore, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (LocalStore::open(folder.path()).unwrap(), folder)
}

async fn made(store: &LocalStore, name: &str, settings: QueueSettings) -> KnownQueue {
    store.create(name, settings).await.unwrap();
    store.find(name).await.unwrap().expect("it was just made")
}

fn draft(body: &str) -> QueuedSend {
    QueuedSend {
        message: OutgoingMessage {
            body: body.into(),
            ..OutgoingMessage::default()
        },
        ..QueuedSend::default()
    }
}

fn once(id: &str, body: &str) -> QueuedSend {
    QueuedSend {
        once: Some(id.into()),
        ..draft(body)
    }
}

async fn send(store: &LocalStore, queue: &KnownQueue, drafts: Vec<QueuedSend>) -> Vec<SentMessage> {
    let answers = store.send_to(queue.id, drafts).await.unwrap();
    answers.into_iter().collect::<Result<_, _>>().unwrap()
}

async fn take(store: &LocalStore, queue: &KnownQueue, visibility: Duration) -> Vec<Message> {
    let ask = Ask {
        max: 10,
        visibility,
        wait: Duration::ZERO,
        newest_first: false,
        ..Ask::PLAIN
    };
    let hurry = CancellationToken::new();
    store
        .receive_from(queue, ask, Budget::new(u64::MAX), &hurry)
        .await
        .unwrap()
        .messages
}

async fn delete(
    store: &LocalStore,
    queue: &KnownQueue,
    message: &Message,
    ordered: bool,
) -> LeaseCheck {
    let receipts = vec![message.receipt.clone()];
    let mut answers = store
        .delete_from(queue.id, receipts, ordered)
        .await
        .unwrap();
    answers.remove(0)
}

#[tokio::test]
async fn deduplication_id_is_sent_once() {
    let (store, _folder) = store();
    let queue = made(&store, "q.fifo", QueueSettings::default()).await;
    let first = send(
        &store,
        &queue,
        vec![once("a", "1"), once("b", "2"), once("a", "3")],
    )
    .await;
    assert_eq!(first[0], first[2]);
    assert!(first[0].seq < first[1].seq);
    let taken = take(&store, &queue, LONG).await;
    assert_eq!(taken.len(), 2);
    assert_eq!(delete(&store, &queue, &taken[0], true).await, Ok(()));
    // Deleted or not, it was sent.
    assert_eq!(
        send(&store, &queue, vec![once("a", "4")]).await[0],
        first[0]
    );
    assert_eq!(take(&store, &queue, LONG).await, []);
    let other = made(&store, "other.fifo", QueueSettings::default()).await;
    assert_ne!(
        send(&store, &other, vec![once("a", "1")]).await[0].id,
        first[0].id
    );
}

#[tokio::test]
async fn exhausted_message_is_dead_lettered_unaltered() {
    let (store, _folder) = store();
    let redrive = Redrive {
        most_receives: 2,
        dead_letter_queue: "dead".into(),
    };
    let settings = QueueSettings {
        redrive: Some(redrive),
        ..QueueSettings::default()
    };
    let queue = made(&store, "q", settings).await;
    let attribute = dispatcher_core::message::Attribute::text("kind", "x");
    let mut sent = draft("poison");
    sent.message.attributes.push(attribute.clone());
    send(&store, &queue, vec![sent, draft("other")]).await;
    for _ in 0..2 {
        assert_eq!(take(&store, &queue, Duration::ZERO).await.len(), 2);
    }
    send(&store, &queue, vec![draft("new")]).await;
    let left = take(&store, &queue, LONG).await;
    assert_eq!(left.iter().map(|m| &*m.body).collect::<Vec<_>>(), ["new"]);
    let dead_letter_queue = store.find("dead").await.unwrap().expect("it was made");
    let dead = take(&store, &dead_letter_queue, Duration::ZERO).await;
    assert_eq!(dead.len(), 2);
    assert_eq!(
        (&*dead[0].body, &dead[0].attributes),
        ("poison", &vec![attribute])
    );
    assert_eq!(dead[0].receive_count, 3, "in both queues, as SQS counts");
    let port = store.queue("dead", None).unwrap();
    let peeked = port.peek(1).await.unwrap();
    assert_eq!(peeked[0].receive_count, 1, "a route counts its own");
    let from = ("DeadLetterQueueSourceArn".to_owned(), arn("q"));
    assert_eq!(dead[0].system_attributes, [from]);
    // The port knows where they go.
    let port = store.queue("q", None).unwrap();
    assert_eq!(port.identity().most_receives, Some(2));
    assert_eq!(port.origin.dead_letter.as_deref(), Some("dead"));
    assert_eq!(store.sources("dead").await.unwrap(), ["q"]);
}

/// What one receive brings of a queue as a route asks it.
async fn spread(queue: &LocalQueue) -> Vec<Message> {
    let ask = Ask {
        max: 2,
        groups: GroupShare::Spread(500),
        ..Ask::PLAIN
    };
    let received = queue.receive(ask, &CancellationToken::new()).await;
    received.unwrap().messages
}

/// A redrive policy counts receives: what comes behind others of its group may go back unattempted
/// with one that fails, or be lost with its holder, and that may cost it one receive at most.
#[tokio::test]
async fn finding_12_group_with_a_redrive_policy_is_received_in_batches() {
    const MESSAGES: usize = 200;
    for (most_receives, receives) in [(1, MESSAGES), (2, MESSAGES), (3, 4), (10, 4)] {
        let (store, _folder) = store();
        let redrive = Redrive {
            most_receives,
            dead_letter_queue: "dead".into(),
        };
        let settings = QueueSettings {
            redrive: Some(redrive),
            ..QueueSettings::default()
        };
        made(&store, "q.fifo", settings).await;
        let queue = store.queue("q.fifo", None).unwrap();
        let bodies: Vec<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
        for body in &bodies {
            let message = OutgoingMessage {
                body: body.clone(),
                group: Some("g".into()),
                ..OutgoingMessage::default()
            };
            queue.send(&[message]).await[0].clone().unwrap();
        }
        let mut handled = Vec::new();
        let mut calls = 0;
        while handled.len() < MESSAGES {
            let messages = spread(&queue).await;
            handled.extend(messages.iter().map(|message| message.body.clone()));
            calls += 1;
            let done = messages
                .into_iter()
                .map(|message| (message, Outcome::Delete));
            let done: Vec<_> = done.collect();
            assert!(queue.settle(&done).await.iter().all(Result::is_ok));
        }
        assert_eq!(handled, bodies);
        assert_eq!(calls, receives, "at most {most_receives} receives");
    }
}

#[tokio::test]
async fn finding_12_redelivered_message_is_received_only_as_first_of_its_group() {
    let (store, _folder) = store();
    let redrive = Redrive {
        most_receives: 3,
        dead_letter_queue: "dead".into(),
    };
    let settings = QueueSettings {
        redrive: Some(redrive),
        ..QueueSettings::default()
    };
    made(&store, "q.fifo", settings).await;
    let queue = store.queue("q.fifo", None).unwrap();
    for body in ["1", "2", "3"] {
        let message = OutgoingMessage {
            body: body.into(),
            group: Some("g".into()),
            ..OutgoingMessage::default()
        };
        queue.send(&[message]).await[0].clone().unwrap();
    }
    let counts = |messages: &[Message]| -> Vec<(String, u32)> {
        let count = |message: &Message| (message.body.clone(), message.receive_count);
        messages.iter().map(count).collect()
    };
    let wanted = |all: &[(&str, u32)]| -> Vec<(String, u32)> {
        all.iter()
            .map(|(body, count)| ((*body).into(), *count))
            .collect()
    };
    let first = spread(&queue).await;
    assert_eq!(counts(&first), wanted(&[("1", 1), ("2", 1), ("3", 1)]));
    let back = Outcome::Release(Duration::ZERO);
    let back: Vec<_> = first
        .into_iter()
        .map(|message| (message, back.clone()))
        .collect();
    assert!(queue.settle(&back).await.iter().all(Result::is_ok));
    for count in [2, 3] {
        let head = spread(&queue).await;
        assert_eq!(counts(&head), wanted(&[("1", count)]));
        let back = Outcome::Release(Duration::ZERO);
        assert_eq!(queue.settle(&[(head[0].clone(), back)]).await, [Ok(())]);
    }
    let next = spread(&queue).await;
    assert_eq!(
        counts(&next),
        wanted(&[("2", 2)]),
        "the first is a dead letter"
    );
}

#[tokio::test]
async fn dead_letters_are_redriven_to_their_source() {
    let (store, _folder) = store();
    let port = store.queue("q", None).unwrap();
    port.send(&[OutgoingMessage {
        body: "rejected".into(),
        ..OutgoingMessage::default()
    }])
    .await;
    let queue = store.find("q").await.unwrap().unwrap();
    let taken = take(&store, &queue, LONG).await.remove(0);
    port.settle(&[(taken.clone(), Outcome::DeadLetter("why".into()))])
        .await;
    assert!(store.start_move("one", "q.dead", None, None).await.unwrap());
    assert!(!store.start_move("two", "q.dead", None, None).await.unwrap());
    assert_eq!(store.running_moves().await.unwrap().len(), 1);
    assert_eq!(store.step_move("one", 10).await.unwrap(), Some(1));
    assert_eq!(store.step_move("one", 10).await.unwrap(), None);
    let back = take(&store, &queue, LONG).await.remove(0);
    assert_eq!((&*back.body, back.receive_count), ("rejected", 1));
    assert_eq!(
        (&back.attributes[..], &back.system_attributes[..]),
        (&[][..], &[][..])
    );
    let task = store.moves("q.dead", 10).await.unwrap().remove(0);
    assert_eq!(
        (task.status, task.moved, task.total),
        (Status::Completed, 1, 1)
    );

    assert!(
        store
            .start_move("two", "q.dead", None, Some(1))
            .await
            .unwrap()
    );
    let running = store.cancel_move("two").await.unwrap().unwrap();
    assert_eq!(running.status, Status::Running);
    assert_eq!(store.step_move("two", 10).await.unwrap(), None);
    assert_eq!(store.cancel_move("three").await.unwrap(), None);
}

#[tokio::test]
async fn deleted_queues_key_is_not_reused() {
    let (store, _folder) = store();
    let queue = made(&store, "q", QueueSettings::default()).await;
    send(&store, &queue, vec![draft("gone")]).await;
    assert!(store.delete_queue("q").await.unwrap());
    assert!(!store.delete_queue("q").await.unwrap());
    assert_eq!(store.find("q").await.unwrap(), None);
    assert_eq!(store.names().unwrap(), [""; 0]);
    let other = made(&store, "other", QueueSettings::default()).await;
    assert_ne!(other.id, queue.id);
    let again = made(&store, "q", QueueSettings::default()).await;
    assert_eq!(again.id, queue.id);
    assert_eq!(take(&store, &again, LONG).await, []);
    assert_eq!(store.list("", "", 10).await.unwrap(), ["other", "q"]);
    assert_eq!(store.list("o", "", 10).await.unwrap(), ["other"]);
    assert_eq!(store.list("", "other", 10).await.unwrap(), ["q"]);
    assert_eq!(store.list("%", "", 10).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn first_create_decides_the_queue_attributes() {
    let (store, _folder) = store();
    store.queue("q", None).unwrap();
    let wished = |seconds| QueueSettings {
        visibility_s: seconds,
        ..QueueSettings::default()
    };
    assert_eq!(store.create("q", wished(1)).await.unwrap(), None);
    let there = store.create("q", wished(2)).await.unwrap().unwrap();
    assert_eq!(there.settings.visibility_s, 1);
    let port = store.queue("q", None).unwrap();
    assert_eq!(port.identity().visibility, Duration::from_secs(1));
    let changed = store
        .change("q", |settings| settings.visibility_s = 5)
        .await;
    assert!(changed.unwrap());
    assert!(!store.change("none", |_| {}).await.unwrap());
}

#[tokio::test]
async fn late_delete_is_an_error_only_on_fifo_queues() {
    let (store, _folder) = store();
    let queue = made(&store, "q", QueueSettings::default()).await;
    send(&store, &queue, vec![draft("x")]).await;
    let first = take(&store, &queue, Duration::ZERO).await.remove(0);
    assert_eq!(
        delete(&store, &queue, &first, true).await,
        Err(SettleRefusal::Expired)
    );
    let second = take(&store, &queue, Duration::ZERO).await.remove(0);
    assert_eq!(
        delete(&store, &queue, &first, true).await,
        Err(SettleRefusal::Expired)
    );
    assert_eq!(
        delete(&store, &queue, &first, false).await,
        Ok(()),
        "and nothing is deleted"
    );
    assert_eq!(
        delete(&store, &queue, &second, false).await,
        Ok(()),
        "late, but the newest"
    );
    assert_eq!(take(&store, &queue, LONG).await, []);
    assert_eq!(
        delete(&store, &queue, &second, true).await,
        Ok(()),
        "it is gone already"
    );
}

#[tokio::test]
async fn visibility_is_changed_only_while_it_lasts() {
    let (store, _folder) = store();
    let queue = made(&store, "q", QueueSettings::default()).await;
    send(&store, &queue, vec![draft("x")]).await;
    let change = async |message: &Message, more| {
        let items = vec![(message.receipt.clone(), more)];
        let answers = store.change_visibility(queue.id, items, true).await;
        answers.unwrap().remove(0)
    };
    let first = take(&store, &queue, LONG).await.remove(0);
    let ceiling = VISIBILITY_CEILING + Duration::from_secs(1);
    assert_eq!(
        change(&first, ceiling).await,
        Err(SettleRefusal::BeyondCeiling)
    );
    assert_eq!(change(&first, Duration::ZERO).await, Ok(()));
    assert_eq!(change(&first, LONG).await, Err(SettleRefusal::Visible));
    let second = take(&store, &queue, LONG).await.remove(0);
    assert_eq!(change(&first, LONG).await, Err(SettleRefusal::Expired));
    assert_eq!(delete(&store, &queue, &second, false).await, Ok(()));
    assert_eq!(change(&second, LONG).await, Err(SettleRefusal::Vanished));
}

#[tokio::test]
async fn any_receipt_changes_the_visibility_on_a_queue_without_order() {
    let (store, _folder) = store();
    let queue = made(&store, "q", QueueSettings::default()).await;
    send(&store, &queue, vec![draft("x")]).await;
    let change = async |receipt: &Receipt, more| {
        let items = vec![(receipt.clone(), more)];
        let answers = store.change_visibility(queue.id, items, false).await;
        answers.unwrap().remove(0)
    };
    let first = take(&store, &queue, Duration::ZERO).await.remove(0);
    assert_eq!(
        change(&first.receipt, LONG).await,
        Ok(()),
        "its time is over"
    );
    assert_eq!(take(&store, &queue, LONG).await, []);
    assert_eq!(change(&first.receipt, Duration::ZERO).await, Ok(()));
    let second = take(&store, &queue, LONG).await.remove(0);
    assert_eq!(
        change(&first.receipt, Duration::ZERO).await,
        Ok(()),
        "older"
    );
    assert_eq!(
        take(&store, &queue, LONG).await,
        [],
        "the newer delivery keeps its time"
    );
    let guessed = LocalDelivery::parse(&second.receipt).unwrap();
    let guessed = LocalDelivery {
        count: guessed.count + 1,
        ..guessed
    };
    assert_eq!(
        change(&guessed.receipt(), LONG).await,
        Err(SettleRefusal::Unreadable)
    );
    assert_eq!(delete(&store, &queue, &first, false).await, Ok(()));
    assert_eq!(
        change(&second.receipt, LONG).await,
        Ok(()),
        "it is not deleted"
    );
}

#[tokio::test]
async fn purge_forgets_what_was_sent_before() {
    let (store, _folder) = store();
    let queue = made(&store, "q.fifo", QueueSettings::default()).await;
    let first = send(&store, &queue, vec![once("a", "x"), once("b", "y")]).await;
    store.purge(queue.id).await.unwrap();
    let second = send(&store, &queue, vec![once("a", "again")]).await;
    assert_ne!(first[0], second[0]);
    let taken = take(&store, &queue, LONG).await;
    assert_eq!(taken.len(), 1);
    send(&store, &queue, vec![once("c", "waits")]).await;
    let port = store.queue("q.fifo", None).unwrap();
    assert_eq!(port.purge().await.unwrap().removed, Some(1));
    let third = send(
        &store,
        &queue,
        vec![once("a", "in flight"), once("c", "new")],
    )
    .await;
    assert_eq!(third[0], second[0], "it is there still");
    assert_eq!(take(&store, &queue, LONG).await.len(), 1);
}

/// SQS takes a redrive policy whose target is its own queue.
#[tokio::test]
async fn queue_can_be_its_own_dead_letter_queue() {
    let (store, _folder) = store();
    let redrive = Redrive {
        most_receives: 1,
        dead_letter_queue: "q".into(),
    };
    let settings = QueueSettings {
        redrive: Some(redrive),
        ..QueueSettings::default()
    };
    let queue = made(&store, "q", settings).await;
    send(&store, &queue, vec![draft("x")]).await;
    for count in 1..=3 {
        let taken = take(&store, &queue, Duration::ZERO).await;
        assert_eq!(taken.len(), 1);
        assert_eq!(taken[0].receive_count, count);
    }
    let port = store.queue("q", None).unwrap();
    assert_eq!(port.dead_letter_queue().as_deref(), Some("local:q.dead"));
    assert_eq!(port.identity().most_receives, None);
}

#[tokio::test]
async fn receive_of_a_deleted_queue_takes_nothing_of_the_next_of_its_name() {
    for is_reset in [false, true] {
        let (store, _folder) = store();
        let queue = made(&store, "q", QueueSettings::default()).await;
        let ask = Ask {
            wait: Duration::from_secs(20),
            ..Ask::PLAIN
        };
        let hurry = CancellationToken::new();
        let budget = || Budget::new(u64::MAX);
        let waiting = store.receive_from(&queue, ask, budget(), &hurry);
        let replaced = async {
            if is_reset {
                store.reset().await.unwrap();
            } else {
                assert!(store.delete_queue("q").await.unwrap());
            }
            let next = made(&store, "q", QueueSettings::default()).await;
            assert_eq!(next.id, queue.id);
            send(&store, &next, vec![draft("x")]).await;
            next
        };
        let (received, next) = tokio::join!(waiting, replaced);
        assert_eq!(received.unwrap().messages, [], "answered at once");
        let late = store.receive_from(&queue, ask, budget(), &hurry).await;
        assert_eq!(late.unwrap().messages, [], "it knows the queue that was");
        let taken = take(&store, &next, LONG).await;
        assert_eq!((taken.len(), taken[0].receive_count), (1, 1));
    }
}

#[tokio::test]
async fn tasks_of_a_deleted_queue_move_nothing_of_the_next_of_its_name() {
    let (store, _folder) = store();
    for name in ["dead", "target"] {
        made(&store, name, QueueSettings::default()).await;
    }
    let target = || Some("target".to_owned());
    assert!(
        store
            .start_move("one", "dead", target(), None)
            .await
            .unwrap()
    );
    assert!(store.delete_queue("target").await.unwrap());
    let task = store.moves("dead", 10).await.unwrap().remove(0);
    assert_eq!(task.status, Status::Failed);
    let why = task.failure.as_deref();
    assert_eq!(why, Some("AWS.SimpleQueueService.NonExistentQueue"));
    made(&store, "target", QueueSettings::default()).await;
    assert!(
        store
            .start_move("two", "dead", target(), None)
            .await
            .unwrap()
    );
    assert!(store.delete_queue("dead").await.unwrap());
    let next = made(&store, "dead", QueueSettings::default()).await;
    send(&store, &next, vec![draft("x")]).await;
    assert_eq!(store.step_move("two", 10).await.unwrap(), None);
    assert_eq!(store.moves("dead", 10).await.unwrap(), []);
    assert_eq!(take(&store, &next, LONG).await.len(), 1);
}

#[tokio::test]
async fn move_task_fails_with_the_reason_of_sqs() {
    let (store, _folder) = store();
    let port = store.queue("q", None).unwrap();
    let dead = made(&store, "q.dead", QueueSettings::default()).await;
    port.send(&[draft("x").message]).await;
    let queue = store.find("q").await.unwrap().unwrap();
    let taken = take(&store, &queue, LONG).await.remove(0);
    let outcome = Outcome::DeadLetter("why".into());
    assert_eq!(port.settle(&[(taken, outcome)]).await, [Ok(())]);
    assert!(store.delete_queue("q").await.unwrap());
    let failure = async |handle: &str| {
        assert!(
            store
                .start_move(handle, "q.dead", None, None)
                .await
                .unwrap()
        );
        store.step_move(handle, 10).await.unwrap();
        store.moves("q.dead", 1).await.unwrap().remove(0).failure
    };
    let gone = Some("AWS.SimpleQueueService.NonExistentQueue".to_owned());
    assert_eq!(failure("one").await, gone);
    assert_eq!(take(&store, &dead, LONG).await.len(), 1, "it stays");
    store.purge(dead.id).await.unwrap();
    send(&store, &dead, vec![draft("sent by hand")]).await;
    let unknown = Some("CouldNotDetermineMessageSource".to_owned());
    assert_eq!(failure("two").await, unknown);
}

#[tokio::test]
async fn message_past_retention_is_not_received() {
    let (store, _folder) = store();
    let none = QueueSettings {
        retention_s: Some(0),
        ..QueueSettings::default()
    };
    let short = made(&store, "short", none).await;
    let mut grouped = draft("of a group");
    grouped.message.group = Some("g".into());
    let many: Vec<_> = (0..250).map(|_| draft("old")).collect();
    send(&store, &short, many).await;
    send(&store, &short, vec![grouped]).await;
    assert_eq!(take(&store, &short, LONG).await, []);
}

#[tokio::test]
async fn receive_attempt_is_repeated_only_while_its_messages_are_unchanged() {
    let (store, _folder) = store();
    let queue = made(&store, "q.fifo", QueueSettings::default()).await;
    send(&store, &queue, vec![draft("1"), draft("2")]).await;
    let taken = take(&store, &queue, LONG).await;
    let receipts: Vec<_> = taken
        .iter()
        .map(|message| message.receipt.clone())
        .collect();
    let until = store
        .until(queue.id, receipts[0].clone())
        .await
        .unwrap()
        .unwrap();
    let again = async |until| {
        let again = store.take_again(&queue, receipts.clone(), until, 2 * LONG);
        again.await.unwrap()
    };
    let (messages, later) = again(until).await.expect("nothing has changed");
    assert!(later > until);
    let same = |list: &[Message]| -> Vec<_> {
        let one = |one: &Message| (one.id.clone(), one.body.clone(), one.receipt.clone());
        list.iter().map(one).collect()
    };
    assert_eq!(same(&messages), same(&taken));
    assert_eq!(messages[0].receive_count, 1);
    assert_eq!(again(until).await, None, "it was repeated since");
    assert_eq!(delete(&store, &queue, &taken[0], true).await, Ok(()));
    assert_eq!(again(later).await, None, "one is deleted");
}

#[tokio::test]
async fn messages_past_retention_are_dropped() {
    let (store, _folder) = store();
    let none = QueueSettings {
        retention_s: Some(0),
        ..QueueSettings::default()
    };
    let short = made(&store, "short", none).await;
    let long = made(&store, "long", QueueSettings::default()).await;
    let delayed = OutgoingMessage {
        delay: LONG,
        ..draft("not due yet").message
    };
    let delayed = QueuedSend {
        message: delayed,
        ..draft("")
    };
    send(&store, &short, vec![delayed]).await;
    let mut grouped = draft("of a group");
    grouped.message.group = Some("g".into());
    send(&store, &short, vec![draft("old"), grouped.clone(), grouped]).await;
    send(&store, &long, vec![draft("kept")]).await;
    assert!(!store.drop_old().await.unwrap(), "there is no more");
    assert_eq!(take(&store, &short, LONG).await, []);
    assert_eq!(take(&store, &long, LONG).await.len(), 1);
    let depth = store.queue("short", None).unwrap().depth().await.unwrap();
    assert_eq!(depth.delayed, 1, "it was never there to be received");
}

#[tokio::test]
async fn finding_13_many_queues_are_counted_in_one_call() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    let full = store.queue("full", None).unwrap();
    store.queue("empty", None).unwrap();
    let message = OutgoingMessage {
        body: "x".into(),
        ..OutgoingMessage::default()
    };
    full.send(&[message]).await[0].clone().unwrap();
    let names = ["empty", "none", "full"].map(str::to_owned).to_vec();
    let depths = store.depths(names).await.unwrap();
    let waiting: Vec<_> = depths
        .iter()
        .map(|depth| depth.map(|depth| depth.waiting))
        .collect();
    assert_eq!(waiting, [Some(0), None, Some(1)]);
    assert_eq!(
        store.names().unwrap(),
        ["empty", "full"],
        "a look makes none"
    );
}
