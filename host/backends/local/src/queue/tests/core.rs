//! Tests of the core on a database in memory, with their own clock.

use crate::queue::claim::{ClaimedMessages, claim, load, receive};
use crate::queue::deliver::{
    DeliveryTerms, GROUP_HAS, HOLDING, MEMBERS, NEWEST, NEXT_DUE, READ_ONE, READY, UNANSWERED,
    holding, next_due, send,
};
use crate::queue::groups::{FIRST, HEAD};
use crate::queue::look::{DEPTH, VISIBLE, depth, names, peek, queue_id};
use crate::queue::schema::{in_memory, index_by_age};
use crate::queue::settings::{self, QueueSettings, Redrive};
use crate::queue::settle::{MOVED, Origin, SettleResult, extend, settle};
use crate::queue::time::StoreTime;
use crate::queue::turn::{LocalDelivery, Turn};
use dispatcher_core::memory::{Budget, HeldBytes, LEAST};
use dispatcher_core::message::{
    Attribute, AttributeValue, Message, Outcome, OutgoingMessage, Receipt,
};
use dispatcher_core::queue::{Ask, Depth, GroupShare, ItemError};
use dispatcher_core::queue::{DEAD_LETTER_REASON as REASON, DEAD_LETTER_SOURCE as SOURCE};
use dispatcher_core::telemetry::events::ReasonKind;
use rusqlite::types::Null;
use rusqlite::{Connection, StatementStatus, params_from_iter};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

struct QueueWorld {
    connection: Connection,
    now: StoreTime,
    origin: Origin,
}

impl QueueWorld {
    fn new() -> Self {
        let connection = in_memory();
        let id = queue_id(&connection, "q").unwrap();
        Self {
            connection,
            now: StoreTime(1_000_000),
            origin: Origin {
                id,
                name: "q".into(),
                dead_letter: Some("q.dead".into()),
            },
        }
    }

    fn turn(&self) -> Turn<'_> {
        Turn::new(&self.connection, self.now)
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    fn send(&self, body: &str, group: Option<&str>, delay: Duration) -> String {
        let item = OutgoingMessage {
            body: body.into(),
            delay,
            group: group.map(Into::into),
            ..OutgoingMessage::default()
        };
        let mut answers = send(&mut self.turn(), self.origin.id, &[item]).unwrap();
        answers.remove(0).unwrap()
    }

    fn receive_for(&self, max: usize, visibility: Duration) -> Vec<Message> {
        let ask = Ask {
            max,
            visibility,
            wait: Duration::ZERO,
            newest_first: false,
            ..Ask::PLAIN
        };
        let received = receive(&mut self.turn(), self.origin.id, "local:q", ask).unwrap();
        assert_eq!(received.drained, received.messages.len() < max);
        received.messages
    }

    fn receive(&self, max: usize) -> Vec<Message> {
        self.receive_for(max, 30 * SECOND)
    }

    fn bodies(&self) -> Vec<String> {
        self.receive(10).into_iter().map(|m| m.body).collect()
    }

    fn settle(&self, message: &Message, outcome: Outcome) -> SettleResult {
        let delivery = LocalDelivery::parse(&message.receipt).unwrap();
        settle(&mut self.turn(), &self.origin, delivery, &outcome).unwrap()
    }

    fn extend(&self, message: &Message, more: Duration) -> SettleResult {
        let delivery = LocalDelivery::parse(&message.receipt).unwrap();
        extend(&mut self.turn(), self.origin.id, delivery, more).unwrap()
    }

    fn depth(&self) -> Depth {
        depth(&self.turn(), self.origin.id).unwrap()
    }
}

#[test]
fn received_message_equals_the_sent_one() {
    let mut world = QueueWorld::new();
    let item = OutgoingMessage {
        body: "\0 ü \u{10ffff}".into(),
        attributes: vec![
            Attribute::text("colour", "r\0t"),
            Attribute {
                name: "raw".into(),
                data_type: "Binary.png".into(),
                value: AttributeValue::Binary(vec![0, 255, 10]),
            },
        ],
        ..OutgoingMessage::default()
    };
    let sent = send(
        &mut world.turn(),
        world.origin.id,
        std::slice::from_ref(&item),
    )
    .unwrap();
    let sent_at = world.turn().date(world.now);
    world.pass(SECOND);
    let got = world.receive(1).remove(0);
    assert_eq!(Ok(&got.id), sent[0].as_ref());
    assert_eq!((&got.body, &got.attributes), (&item.body, &item.attributes));
    assert_eq!((got.receive_count, got.sent_at), (1, Some(sent_at)));
    assert_eq!(got.first_received_at, Some(world.turn().date(world.now)));
    world.pass(31 * SECOND);
    let again = world.receive(1).remove(0);
    assert_eq!((&again.id, again.receive_count), (&got.id, 2));
    assert_eq!(again.first_received_at, got.first_received_at);
}

#[test]
fn messages_are_ordered_by_visibility_then_by_sending() {
    let mut world = QueueWorld::new();
    world.send("late", None, 5 * SECOND);
    world.send("first", None, Duration::ZERO);
    world.send("second", None, Duration::ZERO);
    assert_eq!(world.bodies(), ["first", "second"]);
    world.pass(5 * SECOND);
    assert_eq!(world.bodies(), ["late"]);
    world.pass(60 * SECOND);
    let again = ["late", "first", "second"];
    assert_eq!(
        world.bodies(),
        again,
        "what comes again is where it was sent"
    );
}

#[test]
fn delay_may_be_years_or_forever() {
    let mut world = QueueWorld::new();
    let years = SECOND * 60 * 60 * 24 * 365 * 30;
    world.send("far", None, years);
    world.send("never", None, Duration::MAX);
    world.pass(years - SECOND);
    assert!(world.receive(1).is_empty());
    assert_eq!(
        next_due(&world.turn(), world.origin.id).unwrap(),
        Some(world.now + SECOND)
    );
    world.pass(SECOND);
    assert_eq!(world.bodies(), ["far"]);
    assert_eq!(world.depth().delayed, 1);
}

#[test]
fn message_whose_delivery_ended_comes_before_what_was_sent_later() {
    let mut world = QueueWorld::new();
    world.send("1", None, Duration::ZERO);
    world.send("2", None, Duration::ZERO);
    assert_eq!(world.receive(1)[0].body, "1");
    world.pass(10 * SECOND);
    world.send("3", None, Duration::ZERO);
    let released = world.receive(1).remove(0);
    assert_eq!(released.body, "2");
    let later = Outcome::Release(SECOND);
    assert_eq!(world.settle(&released, later), Ok(()));
    world.pass(20 * SECOND);
    assert_eq!(
        world.bodies(),
        ["1", "3", "2"],
        "a retry waits for its turn"
    );
}

#[test]
fn group_is_delivered_one_by_one_and_blocked_by_its_head() {
    let mut world = QueueWorld::new();
    world.send("a1", Some("a"), 10 * SECOND);
    world.send("a2", Some("a"), Duration::ZERO);
    world.send("b1", Some("b"), Duration::ZERO);
    world.send("b2", Some("b"), Duration::ZERO);
    let b1 = world.receive(10);
    assert_eq!(b1.len(), 1);
    assert_eq!(world.settle(&b1[0], Outcome::Release(20 * SECOND)), Ok(()));
    world.pass(10 * SECOND);
    let a1 = world.receive(10);
    assert_eq!(a1[0].body, "a1");
    assert_eq!(world.settle(&a1[0], Outcome::Delete), Ok(()));
    assert_eq!(world.bodies(), ["a2"]);
    world.pass(10 * SECOND);
    assert_eq!(world.bodies(), ["b1"], "what was released stays the head");
}

#[test]
fn receipt_is_void_after_the_message_is_received_again() {
    let mut world = QueueWorld::new();
    world.send("x", None, Duration::ZERO);
    let first = world.receive(1).remove(0);
    world.pass(30 * SECOND);
    assert_eq!(world.extend(&first, 30 * SECOND), Ok(()), "nobody has it");
    world.pass(30 * SECOND);
    let second = world.receive(1).remove(0);
    for outcome in [
        Outcome::Delete,
        Outcome::Release(SECOND),
        Outcome::DeadLetter("x".into()),
    ] {
        let answer = world.settle(&first, outcome);
        assert!(matches!(answer, Err(ItemError::Gone(_))), "{answer:?}");
    }
    assert!(matches!(
        world.extend(&first, SECOND),
        Err(ItemError::Gone(_))
    ));
    assert_eq!(world.settle(&second, Outcome::Delete), Ok(()));
    assert_eq!(world.settle(&second, Outcome::Delete), Ok(()), "harmless");
    assert!(matches!(
        world.extend(&second, SECOND),
        Err(ItemError::Gone(_))
    ));
}

#[test]
fn extension_is_capped_at_twelve_hours_from_the_receive() {
    let mut world = QueueWorld::new();
    world.send("x", None, Duration::ZERO);
    let message = world.receive_for(1, 43_200 * SECOND).remove(0);
    world.pass(43_100 * SECOND);
    assert_eq!(world.extend(&message, 100 * SECOND), Ok(()));
    let answer = world.extend(&message, 101 * SECOND);
    assert!(matches!(answer, Err(ItemError::Refused(_))), "{answer:?}");
    world.now = StoreTime(0);
    assert_eq!(
        world.extend(&message, SECOND),
        Ok(()),
        "the clock went back"
    );
}

#[test]
fn dead_letter_keeps_its_id_and_names_reason_and_source() {
    let mut world = QueueWorld::new();
    let id = world.send("x", Some("g"), Duration::ZERO);
    world.send("y", Some("g"), Duration::ZERO);
    let message = world.receive(10).remove(0);
    let outcome = Outcome::DeadLetter("bad \"day\"".into());
    assert_eq!(world.settle(&message, outcome.clone()), Ok(()));
    assert_eq!(world.settle(&message, outcome), Ok(()), "harmless");
    assert_eq!(world.bodies(), ["y"], "the group goes on");
    assert_eq!(names(&world.turn()).unwrap(), ["q", "q.dead"]);
    world.origin.id = queue_id(&world.connection, "q.dead").unwrap();
    let dead = world.receive(10);
    assert_eq!(dead.len(), 1);
    assert_eq!((&dead[0].id, dead[0].receive_count), (&id, 1));
    assert_eq!(dead[0].group.as_deref(), Some("g"));
    assert_eq!(
        dead[0].attributes,
        [
            Attribute::text(REASON, "bad \"day\""),
            Attribute::text(SOURCE, "local:q")
        ]
    );
    world.origin.dead_letter = None;
    let answer = world.settle(&dead[0], Outcome::DeadLetter(String::new()));
    assert!(matches!(answer, Err(ItemError::Refused(_))), "{answer:?}");
}

#[test]
fn foreign_or_malformed_receipt_is_an_error() {
    let mut world = QueueWorld::new();
    world.send("x", None, Duration::ZERO);
    let message = world.receive(1).remove(0);
    world.origin.id = queue_id(&world.connection, "other").unwrap();
    let answer = world.settle(&message, Outcome::Delete);
    assert!(matches!(answer, Err(ItemError::Gone(_))), "{answer:?}");
    for text in ["", "7", "a.b", "1.2.3"] {
        let answer = LocalDelivery::parse(&Receipt(text.into()));
        assert!(matches!(answer, Err(ItemError::Refused(_))), "{answer:?}");
    }
}

#[test]
fn depth_is_exact_and_peek_changes_nothing() {
    let mut world = QueueWorld::new();
    world.send("now", None, Duration::ZERO);
    world.pass(SECOND);
    world.send("g1", Some("g"), Duration::ZERO);
    world.send("g2", Some("g"), Duration::ZERO);
    world.send("later", None, 60 * SECOND);
    let peeked = peek(&world.turn(), world.origin.id, "local:q", 9).unwrap();
    let bodies: Vec<_> = peeked.iter().map(|m| m.body.as_str()).collect();
    assert_eq!(bodies, ["now", "g1", "g2"]);
    assert_eq!(peeked[0].receive_count, 0);
    assert_eq!(world.receive(1)[0].body, "now");
    let mut wanted = Depth {
        waiting: 2,
        in_flight: 1,
        delayed: 1,
        oldest: Some(Duration::ZERO),
    };
    assert_eq!(world.depth(), wanted);
    world.pass(30 * SECOND);
    wanted = Depth {
        waiting: 3,
        in_flight: 0,
        oldest: Some(31 * SECOND),
        ..wanted
    };
    assert_eq!(world.depth(), wanted);
}

/// What keeps every call cheap, whatever the size of a queue or group: no step sorts, and each
/// goes straight to its rows.
#[test]
fn every_query_uses_its_index() {
    let connection = in_memory();
    index_by_age(&connection).unwrap();
    let first = "COVERING INDEX ready (queue=? AND head=?)";
    let group = "COVERING INDEX groups (queue=? AND message_group=?)";
    let row = "INTEGER PRIMARY KEY (rowid=?)";
    for (sql, wanted) in [
        (
            READY,
            vec!["INDEX ready (queue=? AND head=? AND visible_at<?)", row],
        ),
        (NEWEST, vec!["INDEX newest (queue=? AND head=?)", row]),
        (
            MEMBERS,
            vec!["INDEX groups (queue=? AND message_group=?)", row],
        ),
        (VISIBLE, vec!["COVERING INDEX ready"]),
        (FIRST, vec!["INDEX groups (queue=? AND message_group=?)"]),
        (
            UNANSWERED,
            vec!["INDEX unanswered (queue=? AND visible_at<?)", row],
        ),
        (
            HEAD,
            vec!["COVERING INDEX gates (queue=? AND message_group=?)"],
        ),
        (NEXT_DUE, vec![first]),
        (GROUP_HAS, vec![group]),
        (MOVED, vec!["COVERING INDEX moved (moved_from=?)"]),
        (DEPTH, vec!["COVERING INDEX ready (queue=?)"]),
    ] {
        let mut plan = connection
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap();
        let nothing = params_from_iter(vec![Null; plan.parameter_count()]);
        let steps: Vec<String> = plan
            .query_map(nothing, |row| row.get(3))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(steps.len(), wanted.len(), "{sql}: {steps:?}");
        for (step, wanted) in steps.iter().zip(wanted) {
            assert!(step.contains(wanted), "{sql}: {step}");
        }
    }
}

#[test]
fn statements_of_a_receive_are_compiled_once() {
    let mut world = QueueWorld::new();
    for _ in 0..10 {
        for body in ["one", "two"] {
            world.send(body, None, Duration::ZERO);
        }
        assert_eq!(world.receive(1).len() + world.receive(10).len(), 2);
        next_due(&world.turn(), world.origin.id).unwrap();
        next_due(&world.turn(), world.origin.id + 1).unwrap();
        world.pass(SECOND);
    }
    for sql in [READY, READ_ONE, NEXT_DUE] {
        let statement = world.connection.prepare_cached(sql).unwrap();
        let (runs, again) = (StatementStatus::Run, StatementStatus::RePrepare);
        assert!(statement.get_status(runs) >= 20, "{sql}: it is in use");
        assert_eq!(statement.get_status(again), 0, "{sql}");
    }
}

#[test]
fn queues_that_hold_something_are_found_by_one_step_each() {
    let connection = in_memory();
    assert!(holding(&connection).unwrap().is_empty());
    let insert = "INSERT INTO entries (queue, head, visible_at, in_flight, receive_count, sent_at)
                  VALUES (?1, ?2, 0, ?3, 0, 0)";
    // Waiting, behind another of its group, in flight.
    for (queue, head, in_flight) in [(7, 1, 0), (7, 0, 0), (7, 1, 0), (2, 1, 1), (90, 1, 0)] {
        let entry = rusqlite::params![queue, head, in_flight];
        connection.execute(insert, entry).unwrap();
    }
    let found = holding(&connection).unwrap();
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [2, 7, 90]);
    let mut plan = connection
        .prepare(&format!("EXPLAIN QUERY PLAN {HOLDING}"))
        .unwrap();
    let steps = plan.query_map([], |row| row.get(3)).unwrap();
    let steps: Vec<String> = steps.collect::<Result<_, _>>().unwrap();
    let of_entries = |step: &&String| step.starts_with("SEARCH e");
    let of_entries: Vec<&String> = steps.iter().filter(of_entries).collect();
    assert!(!of_entries.is_empty(), "{steps:?}");
    for step in of_entries {
        assert!(step.contains("COVERING INDEX ready"), "{steps:?}");
    }
}

/// What a route with these terms would be delivered now.
fn claimed(
    world: &QueueWorld,
    ask: Ask,
    terms: &DeliveryTerms,
) -> (Vec<Message>, ClaimedMessages, Vec<HeldBytes>) {
    let mut turn = world.turn();
    let mut claimed = claim(&mut turn, world.origin.id, "local:q", ask, terms).unwrap();
    let facts = ClaimedMessages {
        drained: claimed.drained,
        short_of: claimed.short_of,
        refused: std::mem::take(&mut claimed.refused),
        ..ClaimedMessages::default()
    };
    let (messages, held) = load(&turn, claimed, "local:q", terms).unwrap();
    (messages, facts, held)
}

fn terms(budget: Option<u64>, attempts: Option<u32>) -> DeliveryTerms {
    DeliveryTerms {
        dead_letter: Some("q.dead".into()),
        attempts,
        budget: budget.map(Budget::new),
        reports: true,
        client_of: None,
        sharing: None,
    }
}

const TEN: Ask = Ask {
    max: 10,
    ..Ask::PLAIN
};

#[test]
fn finding_04_message_received_too_often_without_settlement_is_dead_lettered_unread() {
    let mut world = QueueWorld::new();
    world.send("kills", None, Duration::ZERO);
    let terms = terms(None, Some(3));
    for _ in 0..3 {
        assert_eq!(claimed(&world, TEN, &terms).0.len(), 1);
        world.pass(30 * SECOND);
    }
    let (messages, facts, _) = claimed(&world, TEN, &terms);
    assert_eq!(messages, []);
    assert_eq!(
        facts.refused[0].dead_letter_queue.as_deref(),
        Some("q.dead")
    );
    let bodies = "SELECT count(*), min(seq) FROM payloads WHERE body = 'kills'";
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let found: (i64, i64) = world.connection.query_row(bodies, [], row).unwrap();
    assert_eq!(found, (1, 1), "the body stays where it was");
    world.origin.id = queue_id(&world.connection, "q.dead").unwrap();
    let letter = world.receive(1).remove(0);
    assert_eq!((&*letter.body, letter.receive_count), ("kills", 1));
    let reason = letter.attributes.iter().find(|one| one.name == REASON);
    let Some(AttributeValue::Text(reason)) = reason.map(|one| &one.value) else {
        panic!("a reason: {letter:?}");
    };
    assert!(reason.contains("received 3 times"), "{reason}");
}

/// A policy that permits one receive, to the queue `dead`.
fn permit_one_receive(world: &QueueWorld) {
    let redrive = Redrive {
        most_receives: 1,
        dead_letter_queue: "dead".into(),
    };
    let settings = QueueSettings {
        redrive: Some(redrive),
        ..QueueSettings::default()
    };
    settings::write(&world.turn(), world.origin.id, &settings).unwrap();
}

#[test]
fn finding_05_message_unsettled_at_its_last_receive_is_reported_when_moved() {
    let world = QueueWorld::new();
    permit_one_receive(&world);
    let id = world.send("x", None, Duration::ZERO);
    assert_eq!(world.receive_for(1, Duration::ZERO).len(), 1);
    let (_, facts, _) = claimed(&world, TEN, &terms(None, None));
    let letter = facts.refused[0].dead_lettered().expect("reported");
    assert_eq!(
        (&*letter.id, letter.receive_count, &*letter.to),
        (&*id, 1, "local:dead")
    );
    assert_eq!(letter.max_receive_count, Some(1));
    assert_eq!(letter.reason.kind, ReasonKind::NoAnswer);
}

#[test]
fn finding_05_message_released_at_its_last_receive_is_not_reported_again() {
    let world = QueueWorld::new();
    permit_one_receive(&world);
    world.send("x", None, Duration::ZERO);
    let message = world.receive(1).remove(0);
    let released = Outcome::Release(Duration::ZERO);
    assert_eq!(world.settle(&message, released), Ok(()));
    let (_, facts, _) = claimed(&world, TEN, &terms(None, None));
    assert_eq!(facts.refused[0].dead_letter_queue.as_deref(), Some("dead"));
    assert_eq!(facts.refused[0].dead_lettered(), None);
}

#[test]
fn finding_04_released_messages_are_not_dead_lettered_by_the_attempt_limit() {
    let world = QueueWorld::new();
    world.send("x", None, Duration::ZERO);
    let terms = terms(None, Some(2));
    for _ in 0..4 {
        let message = claimed(&world, TEN, &terms).0.remove(0);
        let released = Outcome::Release(Duration::ZERO);
        assert_eq!(world.settle(&message, released), Ok(()));
    }
}

#[test]
fn finding_04_message_larger_than_the_memory_limit_is_dead_lettered_unread() {
    let mut world = QueueWorld::new();
    let least = usize::try_from(LEAST).unwrap();
    world.send(&"x".repeat(least + 1), None, Duration::ZERO);
    world.send("good", None, Duration::ZERO);
    let (messages, facts, _) = claimed(&world, TEN, &terms(Some(LEAST), None));
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].body, "good");
    assert!(facts.refused[0].reason.contains("too large"), "{facts:?}");
    world.origin.id = queue_id(&world.connection, "q.dead").unwrap();
    assert_eq!(world.receive(1)[0].body.len(), least + 1);
}

#[test]
fn finding_04_oversized_message_without_a_dead_letter_queue_is_delayed_a_minute() {
    let mut world = QueueWorld::new();
    let least = usize::try_from(LEAST).unwrap();
    world.send(&"x".repeat(least + 1), None, Duration::ZERO);
    let nowhere = DeliveryTerms {
        dead_letter: None,
        ..terms(Some(LEAST), None)
    };
    let (messages, facts, _) = claimed(&world, TEN, &nowhere);
    assert_eq!((messages.len(), facts.refused.len()), (0, 1));
    assert_eq!(facts.refused[0].dead_letter_queue, None);
    assert_eq!(claimed(&world, TEN, &nowhere).1.refused.len(), 0);
    world.pass(60 * SECOND);
    assert_eq!(claimed(&world, TEN, &nowhere).1.refused.len(), 1);
}

#[test]
fn finding_04_messages_are_delivered_as_memory_is_released() {
    let world = QueueWorld::new();
    let half = usize::try_from(LEAST / 2).unwrap();
    for _ in 0..4 {
        world.send(&"x".repeat(half), None, Duration::ZERO);
    }
    let terms = terms(Some(LEAST), None);
    let (messages, facts, held) = claimed(&world, TEN, &terms);
    assert_eq!((messages.len(), facts.short_of), (2, Some(LEAST / 2)));
    assert!(!facts.drained);
    let (none, facts, _) = claimed(&world, TEN, &terms);
    assert_eq!((none.len(), facts.short_of), (0, Some(LEAST / 2)));
    let beyond = Ask {
        overdraw: true,
        ..TEN
    };
    let (one, _, over) = claimed(&world, beyond, &terms);
    assert_eq!(one.len(), 1, "one, and no more, goes beyond");
    assert_eq!(claimed(&world, beyond, &terms).0.len(), 0);
    drop((held, over));
    let (messages, facts, _) = claimed(&world, TEN, &terms);
    assert_eq!((messages.len(), facts.drained), (1, true));
}

/// What a receive brings.
fn take(world: &QueueWorld, max: usize, groups: GroupShare) -> Vec<Message> {
    let ask = Ask { max, groups, ..TEN };
    claimed(world, ask, &DeliveryTerms::default()).0
}

fn bodies(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| &*message.body).collect()
}

/// SQS delivers of three received messages what is released ahead of the first in flight.
#[test]
fn group_is_delivered_up_to_its_first_message_in_flight() {
    let released = || Outcome::Release(Duration::ZERO);
    for (back, wanted) in [
        (&[0][..], &["a1"][..]),
        (&[1, 2], &[]),
        (&[1, 0], &["a1", "a2"]),
        (&[2, 0], &["a1"]),
        (&[2, 1, 0], &["a1", "a2", "a3", "a4"]),
    ] {
        let world = QueueWorld::new();
        for body in ["a1", "a2", "a3", "a4"] {
            world.send(body, Some("a"), Duration::ZERO);
        }
        let first = take(&world, 3, GroupShare::Fill);
        assert_eq!(bodies(&first), ["a1", "a2", "a3"]);
        assert_eq!(take(&world, 3, GroupShare::Fill), []);
        for at in back {
            assert_eq!(world.settle(&first[*at], released()), Ok(()));
        }
        let again = take(&world, 10, GroupShare::Fill);
        assert_eq!(bodies(&again), wanted, "{back:?} went back");
    }
}

#[test]
fn group_waits_for_its_first_message_and_other_groups_do_not() {
    let mut world = QueueWorld::new();
    for body in ["a1", "a2", "a3", "a4"] {
        world.send(body, Some("a"), Duration::ZERO);
    }
    world.send("b1", Some("b"), Duration::ZERO);
    let first = take(&world, 3, GroupShare::Fill);
    assert_eq!(bodies(&first), ["a1", "a2", "a3"]);
    let other = take(&world, 3, GroupShare::Fill);
    assert_eq!(bodies(&other), ["b1"], "another group does not wait");
    assert_eq!(world.settle(&first[0], Outcome::Delete), Ok(()));
    let none = take(&world, 3, GroupShare::Fill);
    assert_eq!(none, [], "the next is in flight");
    assert_eq!(
        next_due(&world.turn(), world.origin.id).unwrap(),
        Some(world.now + 30 * SECOND)
    );
    world.pass(30 * SECOND);
    let again = take(&world, 3, GroupShare::Spread(0));
    let wanted = ["a2", "a3", "b1"];
    assert_eq!(bodies(&again), wanted, "one of each, then what follows");
    world.pass(30 * SECOND);
    let again = take(&world, 2, GroupShare::Spread(9));
    let wanted = ["a2", "b1"];
    assert_eq!(bodies(&again), wanted, "nothing follows while groups wait");
    world.pass(30 * SECOND);
    let again = take(&world, 3, GroupShare::Spread(9));
    let wanted = ["a2", "a3", "a4", "b1"];
    assert_eq!(bodies(&again), wanted, "then more than asked for");
}
