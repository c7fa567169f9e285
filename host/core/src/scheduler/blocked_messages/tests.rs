//! The memory of stopped groups: by example, and against a model that remembers everything.

use super::*;
use proptest::prelude::*;

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_secs(seconds))
}

fn sent(ms: u64) -> Timestamp {
    Timestamp(ms)
}

#[test]
fn lesson_19_group_is_blocked_until_its_failed_message_returns_and_ends() {
    let mut stopped = BlockedMessages::default();
    let first = stopped.arrived("g", "1", sent(1));
    let second = stopped.arrived("g", "2", sent(2));
    let other = stopped.arrived("h", "3", sent(2));
    assert!(stopped.may_go("g", second));
    stopped.left("1", at(0));
    stopped.due("1", at(7));
    assert!(!stopped.may_go("g", second) && stopped.may_go("h", other));
    assert_eq!(stopped.resumes("g", second), Some(at(7)));
    let again = stopped.arrived("g", "1", sent(1));
    assert_eq!(again, first);
    assert!(stopped.may_go("g", first), "it is let through itself");
    assert!(
        stopped.may_go("g", second),
        "whose turn it is, is not asked here"
    );
    assert_eq!(stopped.ended("1").as_deref(), Some("g"));
    assert_eq!(stopped.ended("1"), None);
}

#[test]
fn earlier_message_does_not_wait_for_a_later_one() {
    let mut stopped = BlockedMessages::default();
    stopped.arrived("g", "late", sent(9));
    stopped.left("late", at(0));
    let early = stopped.arrived("g", "early", sent(1));
    assert!(stopped.may_go("g", early));
}

#[test]
fn messages_sent_at_the_same_time_keep_their_order_of_arrival() {
    let mut stopped = BlockedMessages::default();
    let first = stopped.arrived("g", "a", sent(1));
    let second = stopped.arrived("g", "b", sent(1));
    stopped.left("a", at(0));
    assert!(first < second);
    assert_eq!(stopped.arrived("g", "a", sent(1)), first);
}

#[test]
fn message_the_queue_no_longer_holds_is_given_up() {
    let mut stopped = BlockedMessages::default();
    stopped.arrived("g", "1", sent(1));
    let second = stopped.arrived("g", "2", sent(2));
    stopped.left("1", at(0));
    // As long as nobody knows when it may come, no answer says anything.
    assert!((1..9).all(|s| stopped.drained(at(s)).is_empty()));
    stopped.due("1", at(10));
    assert!((10..14).all(|s| stopped.drained(at(s)).is_empty()));
    assert_eq!(stopped.drained(at(14)), ["g"]);
    assert!(stopped.may_go("g", second));
}

#[test]
fn blocked_group_stops_waiting_after_the_longest_wait() {
    let mut stopped = BlockedMessages::default();
    stopped.arrived("g", "1", sent(1));
    stopped.left("1", at(0));
    stopped.due("1", at(100));
    assert!(
        stopped
            .expire(at(100 + LONGEST_WAIT.as_secs() - 1))
            .is_empty()
    );
    assert_eq!(stopped.expire(at(100 + LONGEST_WAIT.as_secs())), ["g"]);
    assert!(!stopped.is_waiting());
}

#[test]
fn blocked_messages_are_bounded() {
    let mut stopped = BlockedMessages::default();
    let mut freed = Vec::new();
    for n in 0..MOST_AWAITED as u64 + 3 {
        let name = n.to_string();
        stopped.arrived(&name, &name, Timestamp::default());
        freed.extend(stopped.left(&name, at(n)));
    }
    assert_eq!(freed, ["0", "1", "2"], "those awaited for longest");
    assert_eq!(stopped.places.len(), MOST_AWAITED);
    assert_eq!(stopped.groups.len(), MOST_AWAITED);
}

#[derive(Debug, Clone, Copy)]
enum StoppedStep {
    Arrive(u8),
    Leave(u8),
    End(u8),
    Due(u8, u8),
    Drained,
    Wait(u16),
}

fn steps() -> impl Strategy<Value = Vec<StoppedStep>> {
    let id = || 0_u8..12;
    let step = prop_oneof![
        4 => id().prop_map(StoppedStep::Arrive),
        3 => id().prop_map(StoppedStep::Leave),
        2 => id().prop_map(StoppedStep::End),
        2 => (id(), 0_u8..20).prop_map(|(id, after)| StoppedStep::Due(id, after)),
        1 => Just(StoppedStep::Drained),
        1 => (1_u16..400).prop_map(StoppedStep::Wait),
    ];
    prop::collection::vec(step, 1..80)
}

/// Of a message: its group and when it was sent.
fn about(id: u8) -> (String, Timestamp) {
    (format!("g{}", id % 3), sent(u64::from(id / 4)))
}

proptest! {
    /// A message may go exactly when none before it is away, as a plain list remembers it; those
    /// given up are away no longer; and nothing is remembered of what has ended.
    #[test]
    fn lesson_19_message_starts_only_when_no_earlier_one_is_outstanding(steps in steps()) {
        let mut stopped = BlockedMessages::default();
        // By id: its place, and whether it is away and since when it is due.
        let mut model: BTreeMap<u8, (GroupPosition, Option<Option<BootInstant>>)> = BTreeMap::new();
        let mut now = 0;
        for step in steps {
            match step {
                StoppedStep::Arrive(id) => {
                    let (group, sent) = about(id);
                    let place = stopped.arrived(&group, &id.to_string(), sent);
                    if let Some((before, _)) = model.insert(id, (place, None)) {
                        prop_assert_eq!(before, place);
                    }
                }
                StoppedStep::Leave(id) => {
                    prop_assert_eq!(stopped.left(&id.to_string(), at(now)), None);
                    if let Some((_, away)) = model.get_mut(&id) {
                        *away = Some(None);
                    }
                }
                StoppedStep::End(id) => {
                    let ended = stopped.ended(&id.to_string());
                    prop_assert_eq!(ended.is_some(), model.remove(&id).is_some());
                }
                StoppedStep::Due(id, after) => {
                    let due = at(now + u64::from(after));
                    stopped.due(&id.to_string(), due);
                    if let Some((_, Some(away))) = model.get_mut(&id) {
                        *away = Some(due);
                    }
                }
                StoppedStep::Drained | StoppedStep::Wait(_) => {
                    let freed = match step {
                        StoppedStep::Wait(seconds) => {
                            now += u64::from(seconds);
                            stopped.expire(at(now))
                        }
                        _ => stopped.drained(at(now)),
                    };
                    // Who was given up can only have been away, and is gone.
                    let before = model.len();
                    model.retain(|id, (_, away)| away.is_none() || stopped.places.contains_key(&id.to_string()));
                    prop_assert_eq!(before - model.len(), freed.len());
                }
            }
            for (id, (place, _)) in &model {
                let (group, _) = about(*id);
                let blocked = model.iter().any(|(other, (earlier, away))| {
                    about(*other).0 == group && earlier < place && away.is_some()
                });
                prop_assert_eq!(stopped.may_go(&group, *place), !blocked);
            }
            let away = model.values().filter(|(_, away)| away.is_some()).count();
            prop_assert_eq!(stopped.awaited.len(), away);
            prop_assert_eq!(stopped.places.len(), model.len());
        }
    }
}

#[test]
fn late_report_of_an_older_delivery_shortens_no_wait() {
    let mut stopped = BlockedMessages::default();
    stopped.arrived("g", "1", sent(1));
    let second = stopped.arrived("g", "2", sent(2));
    stopped.left("1", at(0));
    stopped.due("1", at(8_000));
    stopped.due("1", at(1_000));
    for _ in 0..3 {
        stopped.drained(at(2_000));
    }
    assert!(!stopped.may_go("g", second));
}

#[test]
fn report_of_an_older_delivery_does_not_settle_the_newer_one() {
    let mut stopped = BlockedMessages::default();
    stopped.arrived("g", "1", sent(1));
    let second = stopped.arrived("g", "2", sent(2));
    stopped.left("1", at(0));
    stopped.arrived("g", "1", sent(1));
    stopped.left("1", at(20));
    stopped.due("1", at(2));
    for s in [21, 22, 23] {
        assert!(stopped.drained(at(s)).is_empty());
    }
    assert!(!stopped.may_go("g", second));
    stopped.due("1", at(25));
    for s in [27, 28] {
        assert!(stopped.drained(at(s)).is_empty());
    }
    assert_eq!(stopped.drained(at(29)), ["g"]);
}
