//! The messages that are sent, and the verdicts that follow from the answers.

use super::*;
use crate::handler::Deadline;
use crate::message::{Attribute, AttributeValue, Outcome, Receipt, TRACE_HEADER, samples};
use crate::queue::{Ask, Depth, Identity, QueueError, QueueFacts, ReceivedMessages};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

const MINUTE: Duration = Duration::from_secs(60);

/// A queue that refuses bodies that begin with `bad`, and fails for those that begin with `later`.
struct Target {
    identity: Identity,
    in_order: bool,
    calls: Mutex<Vec<Vec<OutgoingMessage>>>,
}

#[async_trait::async_trait]
impl Queue for Target {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn facts(&self) -> QueueFacts {
        QueueFacts {
            sends_groups_in_order: self.in_order,
            ..QueueFacts::default()
        }
    }

    async fn send(&self, items: &[OutgoingMessage]) -> Vec<SendAnswer> {
        self.calls.lock().push(items.to_vec());
        let answers = items.iter().map(|item| match &*item.body {
            body if body.starts_with("bad") => Err(ItemError::Refused("too large".into())),
            body if body.starts_with("later") => Err(ItemError::Transient("throttled".into())),
            body => Ok(body.to_owned()),
        });
        answers.collect()
    }

    async fn receive(&self, _: Ask, _: &CancellationToken) -> Result<ReceivedMessages, QueueError> {
        unreachable!("a relay only sends")
    }

    async fn extend(&self, _: &[(Receipt, Duration)]) -> Vec<Result<(), ItemError>> {
        unreachable!("a relay only sends")
    }

    async fn settle(&self, _: &[(Message, Outcome)]) -> Vec<Result<(), ItemError>> {
        unreachable!("a relay only sends")
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        unreachable!("a relay only sends")
    }

    async fn peek(&self, _: usize) -> Result<Vec<Message>, QueueError> {
        unreachable!("a relay only sends")
    }
}

/// A message whose id is its body; its group is what follows a slash.
fn message(body: &str) -> Message {
    Message {
        body: body.into(),
        group: body.split_once('/').map(|(_, group)| group.into()),
        ..samples::message(body)
    }
}

fn attempt(bodies: &[&str], timeout: Duration) -> Attempt {
    Attempt {
        messages: bodies.iter().map(|body| message(body)).collect(),
        cancelled: bodies.iter().map(|_| CancellationToken::new()).collect(),
        tries: Vec::new(),
        deadline: Deadline::after(timeout),
    }
}

fn target(in_order: bool) -> Arc<Target> {
    Arc::new(Target {
        identity: Identity {
            name: "t".into(),
            source: "t".into(),
            visibility: MINUTE,
            batch: 3,
            longest_wait: Duration::ZERO,
            proof_wait: Duration::ZERO,
            ordered_groups: true,
            deduplicates: false,
            dead_letters: false,
            most_receives: None,
            redrive_target: false,
        },
        in_order,
        calls: Mutex::default(),
    })
}

async fn relay(target: &Arc<Target>, attempt: Attempt) -> Vec<String> {
    let relay = Relay::new(target.clone(), Arc::default(), Handle::current());
    let verdicts = relay.handle(Arc::new(attempt)).await;
    let words = verdicts.into_iter().map(|verdict| match verdict {
        Verdict::Done => "done".to_owned(),
        Verdict::Reject(why) => why,
        Verdict::Retry { after: None, why } => why.to_string(),
        other => panic!("{other:?}"),
    });
    words.collect()
}

fn calls(target: &Target) -> Vec<Vec<String>> {
    let calls = target.calls.lock();
    let bodies = |call: &Vec<OutgoingMessage>| call.iter().map(|one| one.body.clone()).collect();
    calls.iter().map(bodies).collect()
}

#[tokio::test]
async fn verdict_is_what_the_queue_answers() {
    let target = target(true);
    let all = attempt(&["a", "bad", "later", "b"], MINUTE);
    let found = relay(&target, all).await;
    let wanted = [
        "done",
        "`t` refuses it: too large",
        "the handler failed: it was not sent to `t`: throttled",
        "done",
    ];
    assert_eq!(found, wanted);
    assert_eq!(calls(&target), [vec!["a", "bad", "later"], vec!["b"]]);
}

#[tokio::test]
async fn messages_of_a_group_are_sent_one_by_one_where_a_call_may_mix_them_up() {
    let bodies = ["1/g", "2/g", "1/h", "later/i", "2/i", "3/g"];
    let (mixing, ordered) = (target(false), target(true));
    let found = relay(&mixing, attempt(&bodies, MINUTE)).await;
    assert_eq!(
        calls(&mixing),
        [vec!["1/g", "1/h", "later/i"], vec!["2/g"], vec!["3/g"]]
    );
    let behind = "it was not sent to `t`: an earlier message of its group was not sent";
    assert_eq!(found[4], format!("the handler failed: {behind}"));
    assert_eq!(found.iter().filter(|one| *one == "done").count(), 4);
    relay(&ordered, attempt(&bodies, MINUTE)).await;
    assert_eq!(calls(&ordered)[0], ["1/g", "2/g", "1/h"]);
}

#[tokio::test]
async fn nothing_is_sent_for_a_lost_lease_or_without_time_for_a_call() {
    let target = target(true);
    let lost = attempt(&["a/g", "b/g", "c"], MINUTE);
    lost.cancelled[0].cancel();
    let found = relay(&target, lost).await;
    assert!(found[0].ends_with("its lease is lost"), "{found:?}");
    assert_eq!(
        (calls(&target), &*found[2]),
        (vec![vec!["c".to_owned()]], "done")
    );
    let late = relay(&target, attempt(&["d"], CALL / 2)).await;
    assert!(late[0].ends_with("no time left"), "{late:?}");
    assert_eq!(calls(&target).len(), 1);
}

#[test]
fn copy_has_everything_and_the_same_deduplication_id_each_time() {
    let attributes = vec![
        Attribute {
            name: "thumb".into(),
            data_type: "Binary.jpeg".into(),
            value: AttributeValue::Binary(vec![0, 255]),
        },
        Attribute::text("kind", "order"),
    ];
    let carried = Attribute::text(TRACE_HEADER, "Root=1-2");
    let mut sent = Message {
        attributes: [&attributes[..], &[carried]].concat(),
        ..message("a/g")
    };
    let copy = copy_of(&sent);
    let wanted = OutgoingMessage {
        body: "a/g".into(),
        attributes,
        group: Some("g".into()),
        trace_header: Some("Root=1-2".into()),
        deduplication: copy.deduplication.clone(),
        ..OutgoingMessage::default()
    };
    assert_eq!(copy, wanted);
    sent.receipt = Receipt("another delivery".into());
    sent.receive_count = 2;
    assert_eq!(copy_of(&sent), wanted);
    sent.id = "b".into();
    assert_ne!(copy_of(&sent).deduplication, wanted.deduplication);
    sent.system_attributes = vec![(DEDUPLICATION_ID.into(), "own".into())];
    assert_eq!(copy_of(&sent).deduplication.as_deref(), Some("own"));
}
