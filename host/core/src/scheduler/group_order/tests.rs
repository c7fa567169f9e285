//! Turns by example: what is handed on, what is kept aside, what is released.

use super::*;
use crate::clock::Timestamp;

#[derive(Debug, PartialEq)]
struct TurnJob {
    id: &'static str,
    sent: u64,
    /// Whether it can be released.
    spare: bool,
}

impl WaitingJob for TurnJob {
    fn group(&self) -> Option<&str> {
        Some("g")
    }

    fn id(&self) -> &str {
        self.id
    }

    fn sent_at(&self) -> Timestamp {
        Timestamp(self.sent)
    }

    fn may_be_given_back(&self) -> bool {
        self.spare
    }

    fn expires(&self) -> Option<BootInstant> {
        (self.id == "old").then(|| at(5))
    }
}

const MS: Duration = Duration::from_millis(1);

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_secs(seconds))
}

fn job(id: &'static str, sent: u64) -> TurnJob {
    let spare = true;
    TurnJob { id, sent, spare }
}

fn turns(most: usize, jobs: &[(&'static str, u64)]) -> GroupOrder<TurnJob> {
    let mut turns = GroupOrder::new(most);
    for (id, sent) in jobs {
        turns.arrive(job(id, *sent), MS, at(0));
    }
    turns
}

fn next(turns: &mut GroupOrder<TurnJob>) -> Option<&'static str> {
    turns.promote("g").map(|job| job.id)
}

#[test]
fn group_runs_one_at_a_time_in_order_of_sending() {
    let mut turns = turns(9, &[("2", 20), ("1", 10), ("3", 30)]);
    assert_eq!(next(&mut turns), Some("1"));
    assert_eq!(next(&mut turns), None);
    turns.done(&job("1", 10));
    assert_eq!(next(&mut turns), Some("2"));
    assert_eq!(turns.follow("g", at(1)).map(|job| job.id), Some("3"));
    turns.done(&job("2", 20));
    assert_eq!((next(&mut turns), turns.len()), (None, 0));
    assert!(!turns.arrive(job("4", 40), MS, at(0)));
    assert_eq!(next(&mut turns), None, "the third still runs");
    turns.done(&job("3", 30));
    assert_eq!(next(&mut turns), Some("4"));
}

#[test]
fn group_waits_for_failed_and_for_earlier_returned_messages() {
    let mut turns = turns(9, &[("1", 10), ("2", 20), ("3", 30)]);
    assert_eq!(next(&mut turns), Some("1"));
    turns.failed(&job("1", 10), at(1));
    assert_eq!(next(&mut turns), None);
    turns.arrive(job("1", 10), MS, at(2));
    assert_eq!(next(&mut turns), Some("1"));
    turns.done(&job("1", 10));
    assert_eq!(next(&mut turns), Some("2"));
    turns.failed(&job("2", 20), at(3));
    assert_eq!(turns.settled("2", Some(at(9))), None);
    assert_eq!(turns.settled("2", None).as_deref(), Some("g"), "it is dead");
    assert_eq!(next(&mut turns), Some("3"));
}

#[test]
fn late_arrival_goes_before_messages_not_yet_started() {
    let mut turns = turns(9, &[("2", 20)]);
    let second = turns.promote("g").expect("its turn");
    assert!(turns.arrive(job("1", 10), MS, at(0)));
    assert!(!turns.arrive(job("3", 30), MS, at(0)));
    turns.take_back(vec![second]);
    assert_eq!(next(&mut turns), Some("1"));
}

#[test]
fn surplus_messages_are_returned_unless_they_must_stay() {
    let mut turns = turns(2, &[("1", 10)]);
    assert_eq!(next(&mut turns), Some("1"));
    for (id, sent) in [("2", 20), ("3", 30), ("4", 40)] {
        turns.arrive(job(id, sent), Duration::from_secs(4), at(0));
    }
    let last = TurnJob {
        spare: false,
        ..job("5", 50)
    };
    turns.arrive(last, MS, at(0));
    assert_eq!((turns.len(), turns.spare()), (3, 2), "one takes room");
    let surplus = turns.surplus();
    // Two are ahead of it, and one runs: it is wanted in three attempts' time.
    assert_eq!(surplus, [(job("4", 40), Duration::from_secs(12))]);
    assert!(turns.surplus().is_empty());
    for (id, sent) in [("1", 10), ("2", 20), ("3", 30)] {
        turns.done(&job(id, sent));
        let expected = ["2", "3"].into_iter().find(|next| *next > id);
        assert_eq!(next(&mut turns), expected, "the fourth is waited for");
    }
    turns.arrive(job("4", 40), MS, at(12));
    assert_eq!(next(&mut turns), Some("4"));
    turns.done(&job("4", 40));
    assert_eq!(next(&mut turns), Some("5"));
}

#[test]
fn message_that_others_wait_for_always_has_a_place() {
    let mut turns = turns(1, &[("1", 10)]);
    assert_eq!(next(&mut turns), Some("1"));
    turns.arrive(job("2", 20), MS, at(0));
    turns.failed(&job("1", 10), at(1));
    turns.arrive(job("1", 10), MS, at(2));
    assert!(turns.surplus().is_empty());
    assert_eq!(next(&mut turns), Some("1"));
}

#[test]
fn unblocked_group_is_never_returned() {
    let mut turns = turns(0, &[("1", 10)]);
    assert_eq!(next(&mut turns), Some("1"));
    assert!(turns.surplus().is_empty());
}

#[test]
fn finding_02_messages_kept_at_a_stop_do_not_wait_for_messages_in_the_queue() {
    let mut turns = turns(9, &[("1", 10), ("2", 20), ("3", 30)]);
    assert_eq!(turns.promote("g").map(|job| job.id), Some("1"));
    turns.failed(&job("1", 10), at(1));
    assert!(turns.promote("g").is_none(), "it waits for the first");
    let back: Vec<_> = turns
        .give_back(|job| job.id == "3", true)
        .iter()
        .map(|job| job.id)
        .collect();
    assert_eq!(back, ["3"]);
    assert_eq!(turns.promote("g").map(|job| job.id), Some("2"));
    assert_eq!(turns.len(), 0);
}

#[test]
fn expired_message_shares_no_attempt_and_has_its_turn() {
    let mut turns = turns(9, &[("1", 10), ("old", 20)]);
    assert_eq!(next(&mut turns), Some("1"));
    assert_eq!(turns.follow("g", at(5)), None);
    turns.done(&job("1", 10));
    assert_eq!(next(&mut turns), Some("old"), "where it is shed");
}
