//! Looking at what waits, taking what was chosen, and emptying a queue: where a backend can, and a
//! refusal with a reason where it cannot. And what a faithful copy of a message carries.

use crate::backend::{Backend, Handy, LONG, PATIENT, QueueNeeds, bodies, grouped, plain};
use dispatcher_core::clock;
use dispatcher_core::message::{
    Attribute, AttributeValue, Message, Outcome, OutgoingMessage, TRACE_HEADER,
};
use dispatcher_core::queue::{BrowseCursor, ErrorKind, Queue, QueueError};
use std::collections::BTreeSet;
use std::time::Duration;

const ORDERED: QueueNeeds = QueueNeeds {
    ordered: true,
    dead_letter_queue: false,
};

/// Every page from there on.
async fn listed(queue: &dyn Queue, after: Option<BrowseCursor>, max: usize) -> Vec<Message> {
    let mut after = after;
    let mut messages = Vec::new();
    loop {
        let page = queue
            .browse(after.as_ref(), max)
            .await
            .expect("it can be listed");
        assert!(page.messages.len() <= max);
        messages.extend(page.messages);
        after = page.next;
        if after.is_none() {
            return messages;
        }
    }
}

/// The same, until so many are listed: an index may be a little late.
async fn listed_in_time(
    queue: &dyn Queue,
    after: Option<BrowseCursor>,
    count: usize,
) -> Vec<Message> {
    let looking = async {
        loop {
            let messages = listed(queue, after.clone(), 4).await;
            if messages.len() == count {
                return messages;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENT, looking)
        .await
        .expect("all are listed")
}

fn is_refusal<T: std::fmt::Debug>(answer: Result<T, QueueError>) {
    let error = answer.expect_err("it cannot");
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.len() > 20, "{error}");
}

fn numbered(count: usize) -> Vec<OutgoingMessage> {
    (0..count)
        .map(|number| plain(&format!("{number:02}")))
        .collect()
}

pub(crate) async fn what_waits_is_listed_without_being_received(backend: &Backend) {
    let queue = backend.plain().await;
    if !queue.facts().can_browse {
        is_refusal(queue.browse(None, 10).await);
        is_refusal(queue.browse_end().await);
        is_refusal(queue.receive_these(&[], LONG).await);
        return;
    }
    queue.send_all(&numbered(10)).await;
    let held = queue.next(LONG).await;
    let later = OutgoingMessage {
        delay: Duration::from_secs(3_600),
        ..plain("later")
    };
    queue.send_all(&[later]).await;
    let messages = listed_in_time(&*queue, None, 9).await;
    assert!(
        messages
            .iter()
            .all(|one| one.receive_count == 0 && one.id != held.id)
    );
    let ids: BTreeSet<_> = messages.iter().map(|one| &one.id).collect();
    assert_eq!(ids.len(), 9, "none is listed twice");
    assert!(!bodies(&messages).contains(&"later"));
    let received = queue.take(9, LONG).await;
    assert!(received.iter().all(|one| one.receive_count == 1));
    assert_eq!(listed(&*queue, None, 4).await, []);
}

pub(crate) async fn what_waits_for_its_time_is_cancelled_by_its_id(backend: &Backend) {
    let queue = backend.plain().await;
    let hour = Duration::from_secs(3_600);
    let later = OutgoingMessage {
        delay: if backend.cancels_delayed() {
            hour
        } else {
            Duration::ZERO
        },
        ..plain("later")
    };
    let delayed = queue.send_all(&[later]).await.remove(0);
    if !backend.cancels_delayed() {
        let cancelled = queue.cancel_delayed(&delayed).await;
        assert!(matches!(cancelled, Ok(false)), "{cancelled:?}");
        return;
    }
    queue.send_all(&[plain("now")]).await;
    let held = queue.next(LONG).await;
    let cancel = async |id: &str| queue.cancel_delayed(id).await.expect("an answer");
    assert!(!cancel(&held.id).await, "it is in flight");
    queue.settle_one(&held, Outcome::Release(hour)).await;
    assert!(cancel(&held.id).await, "it waits for its retry");
    assert!(cancel(&delayed).await, "it waits for its first receive");
    for id in [&held.id, &delayed] {
        assert!(!cancel(id).await, "it is gone");
    }
    queue.expect_nothing().await;
}

/// Returns in a later millisecond of the wall clock, which servers on this machine share.
async fn until_clock_moves() {
    let before = clock::wall_clock_now();
    while clock::wall_clock_now().0 <= before.0 + 1 {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn what_comes_later_is_listed_after_the_end(backend: &Backend) {
    let queue = backend.plain().await;
    if !queue.facts().can_browse {
        return;
    }
    queue.send_all(&numbered(3)).await;
    listed_in_time(&*queue, None, 3).await;
    // So that ids that count milliseconds are later, too.
    until_clock_moves().await;
    let end = queue.browse_end().await.expect("it has an end");
    until_clock_moves().await;
    queue.send_all(&[plain("x"), plain("y")]).await;
    let messages = listed_in_time(&*queue, Some(end), 2).await;
    assert_eq!(bodies(&messages), ["x", "y"]);
}

pub(crate) async fn chosen_messages_are_received_and_no_others(backend: &Backend) {
    let queue = backend.plain().await;
    if !queue.facts().can_browse {
        return;
    }
    queue.send_all(&numbered(5)).await;
    let messages = listed_in_time(&*queue, None, 5).await;
    let chosen: Vec<_> = messages
        .iter()
        .filter(|one| ["01", "03"].contains(&&*one.body))
        .collect();
    let receipts: Vec<_> = chosen.iter().map(|one| one.receipt.clone()).collect();
    let taken = queue.receive_these(&receipts, LONG).await.expect("taken");
    assert_eq!(bodies(&taken), ["01", "03"]);
    assert!(taken.iter().all(|one| one.receive_count == 1));
    let again = queue
        .receive_these(&receipts, LONG)
        .await
        .expect("an answer");
    assert_eq!(again, [], "they are in flight");
    let others = queue.take(3, LONG).await;
    assert_eq!(bodies(&others), ["00", "02", "04"]);
    queue.expect_nothing().await;
    queue.settle_one(&taken[0], Outcome::Delete).await;
    queue
        .settle_one(&taken[1], Outcome::Release(Duration::ZERO))
        .await;
    let back = queue.next(LONG).await;
    assert_eq!((back.id, back.receive_count), (taken[1].id.clone(), 2));
    let again = queue
        .receive_these(&receipts, LONG)
        .await
        .expect("an answer");
    assert_eq!(again, [], "one is gone, one in flight");
}

pub(crate) async fn a_message_that_waits_is_found_by_its_id(backend: &Backend) {
    let queue = backend.open(ORDERED).await.queue;
    if !queue.facts().finds_by_id {
        is_refusal(queue.find_waiting("any").await);
        return;
    }
    let later = OutgoingMessage {
        delay: Duration::from_secs(3_600),
        ..plain("later")
    };
    let keeps_groups = queue.identity().ordered_groups;
    let one = |body: &str| {
        if keeps_groups {
            grouped("g", body)
        } else {
            plain(body)
        }
    };
    let sent = [one("first"), one("second"), plain("third"), later];
    let ids = queue.send_all(&sent).await;
    let find = async |id: &str| queue.find_waiting(id).await.expect("an answer");
    for (id, body) in ids.iter().zip(["first", "second", "third"]) {
        let found = find(id).await.expect("it waits");
        assert_eq!(
            (&found.id, &*found.body, found.receive_count),
            (id, body, 0)
        );
    }
    assert_eq!(find(&ids[3]).await, None, "it is delayed");
    assert_eq!(find("of nothing").await, None);
    let chosen = find(&ids[2]).await.expect("it waits").receipt;
    let taken = queue.receive_these(&[chosen], LONG).await.expect("taken");
    assert_eq!(bodies(&taken), ["third"]);
    assert_eq!(find(&ids[2]).await, None, "it is in flight");
    let release = Outcome::Release(Duration::ZERO);
    queue.settle_one(&taken[0], release).await;
    let found = find(&ids[2]).await.expect("it waits again");
    assert_eq!(found.receive_count, 1);
}

pub(crate) async fn a_chosen_message_does_not_overtake_one_of_its_group_in_flight(
    backend: &Backend,
) {
    let queue = backend.open(ORDERED).await.queue;
    if !queue.facts().can_browse || !queue.identity().ordered_groups {
        return;
    }
    queue
        .send_all(&[grouped("g", "1"), grouped("g", "2"), grouped("h", "3")])
        .await;
    let messages = listed_in_time(&*queue, None, 3).await;
    let receipt = |body: &str| {
        let found = messages.iter().find(|one| one.body == body);
        found.expect("listed").receipt.clone()
    };
    let first = queue
        .receive_these(&[receipt("1")], LONG)
        .await
        .expect("taken");
    assert_eq!(bodies(&first), ["1"]);
    let both = [receipt("2"), receipt("3")];
    let taken = queue.receive_these(&both, LONG).await.expect("an answer");
    assert_eq!(bodies(&taken), ["3"]);
    queue.settle_one(&first[0], Outcome::Delete).await;
    let taken = queue.receive_these(&both, LONG).await.expect("an answer");
    assert_eq!(bodies(&taken), ["2"]);
    queue.settle_one(&taken[0], Outcome::Delete).await;
    queue.expect_nothing().await;
}

pub(crate) async fn a_purge_removes_what_is_not_in_flight(backend: &Backend) {
    let queue = backend.plain().await;
    queue.send_all(&numbered(8)).await;
    let held = queue.next(LONG).await;
    let later = OutgoingMessage {
        delay: Duration::from_secs(600),
        ..plain("later")
    };
    queue.send_all(&[later]).await;
    let mut removed = Some(0);
    loop {
        let step = match queue.purge().await {
            Ok(step) => step,
            Err(error) => return is_refusal::<()>(Err(error)),
        };
        removed = removed
            .zip(step.removed)
            .map(|(before, more)| before + more);
        if !step.has_more {
            break;
        }
    }
    let gone =
        dispatcher_tests::queues::until_depth(&*queue, |depth| depth.waiting + depth.delayed == 0);
    let depth = gone.await;
    match removed {
        Some(removed) => {
            assert_eq!((removed, depth.in_flight), (8, 1));
            queue.settle_one(&held, Outcome::Delete).await;
        }
        None => assert_eq!(depth.in_flight, 0, "SQS removes what is in flight"),
    }
    queue.send_all(&[plain("new")]).await;
    assert_eq!(queue.next(LONG).await.body, "new");
}

pub(crate) async fn a_copy_carries_everything(backend: &Backend) {
    let queue = backend.open(ORDERED).await.queue;
    let keeps_groups = queue.identity().ordered_groups;
    let thumb = Attribute {
        name: "thumb".to_owned(),
        data_type: "Binary.jpeg".to_owned(),
        value: AttributeValue::Binary(vec![0, 1, 255]),
    };
    let count = Attribute {
        name: "count".to_owned(),
        data_type: "Number.int".to_owned(),
        value: AttributeValue::Text("7".to_owned()),
    };
    let header = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1";
    let sent = OutgoingMessage {
        attributes: vec![count.clone(), thumb.clone()],
        group: keeps_groups.then(|| "g".to_owned()),
        deduplication: Some("5f0c-1".to_owned()),
        trace_header: Some(header.to_owned()),
        ..plain("copied")
    };
    queue.send_all(std::slice::from_ref(&sent)).await;
    let message = queue.next(LONG).await;
    assert_eq!((&*message.body, &message.group), ("copied", &sent.group));
    let mut attributes = message.attributes.clone();
    attributes.retain(|one| one.name != TRACE_HEADER);
    assert_eq!(attributes, [count, thumb]);
    let system = message.system_attributes.iter();
    let system = system.filter(|(name, _)| name == TRACE_HEADER);
    let own = message
        .attributes
        .iter()
        .filter(|one| one.name == TRACE_HEADER);
    let own = own.filter_map(|one| match &one.value {
        AttributeValue::Text(text) => Some(text),
        AttributeValue::Binary(_) => None,
    });
    let carried: Vec<_> = system.map(|(_, value)| value).chain(own).collect();
    // MiniStack forgets it; AWS's own queues and the embedded server do not.
    if !(carried.is_empty() && matches!(backend, Backend::Sqs(_))) {
        assert_eq!(carried, [header]);
    }
}

pub(crate) async fn a_deduplication_id_counts_where_the_queue_has_one(backend: &Backend) {
    let opened = backend.open(ORDERED).await;
    let queue = opened.queue;
    let group = queue.identity().ordered_groups.then(|| "g".to_owned());
    let with = |body: &str, id: &str| OutgoingMessage {
        group: group.clone(),
        deduplication: Some(id.to_owned()),
        ..plain(body)
    };
    queue
        .send_all(&[with("a", "1-1"), with("same id", "1-1"), with("a", "1-2")])
        .await;
    let has_ids = opened.name.ends_with(".fifo");
    let count = if has_ids { 2 } else { 3 };
    let mut received = Vec::new();
    while received.len() < count {
        let message = queue.next(LONG).await;
        queue.settle_one(&message, Outcome::Delete).await;
        received.push(message);
    }
    let wanted: &[&str] = if has_ids {
        &["a", "a"]
    } else {
        &["a", "a", "same id"]
    };
    assert_eq!(bodies(&received), wanted);
    queue.expect_nothing().await;
}
