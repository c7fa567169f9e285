//! Batches: nothing is lost, nothing is answered for another.

use super::*;
use crate::queue::tests::delivery;
use proptest::prelude::*;
use std::time::Duration;

fn failure(id: &str) -> BatchResultErrorEntry {
    BatchResultErrorEntry::builder()
        .id(id)
        .code("ReceiptHandleIsInvalid")
        .sender_fault(true)
        .build()
        .expect("id, code and fault are set")
}

#[test]
fn results_are_matched_to_their_entries() {
    let ids = EntryIds::fresh();
    let done = [(ids.at(2), "c"), (ids.at(0), "a"), ("4".to_owned(), "e")];
    let failed = [failure(&ids.at(1)), failure(&ids.at(9)), failure("x")];
    let list = answers(&ids, 5, done, &failed);
    assert_eq!(list[0], Ok("a"));
    assert!(matches!(list[1], Err(ItemError::Gone(_))));
    assert_eq!(list[2], Ok("c"));
    assert!(matches!(list[3], Err(ItemError::Transient(_))));
    assert!(matches!(list[4], Err(ItemError::Transient(_))));
}

#[test]
fn entry_that_is_mentioned_twice_has_failed() {
    let ids = EntryIds::fresh();
    let done = [(ids.at(0), ()), (ids.at(0), ()), (ids.at(1), ())];
    let list = answers(&ids, 2, done, &[failure(&ids.at(1))]);
    for answer in list {
        assert!(matches!(answer, Err(ItemError::Transient(_))), "{answer:?}");
    }
}

#[test]
fn duplicate_message_is_settled_once_with_its_newest_receipt() {
    let items = [
        (delivery("a", 2), Outcome::Delete),
        (delivery("b", 1), Outcome::Delete),
        (delivery("a", 1), Outcome::Delete),
        (delivery("b", 1), Outcome::Delete),
    ];
    let plan = Plan::of(&items);
    let receipts: Vec<&str> = plan.steps.iter().map(|s| &*s.receipt().0).collect();
    assert_eq!(receipts, ["a/2", "b/1"]);
    let gone = Err(ItemError::Gone("b".into()));
    assert_eq!(
        plan.spread(&[Ok(()), gone.clone()]),
        [Ok(()), gone.clone(), Ok(()), gone]
    );
}

#[test]
fn most_final_outcome_of_a_duplicate_wins() {
    let release = Outcome::Release(Duration::ZERO);
    let dead = Outcome::DeadLetter("why".into());
    for (first, second, expected) in [
        (&Outcome::Delete, &release, &Outcome::Delete),
        (&release, &Outcome::Delete, &Outcome::Delete),
        (&dead, &Outcome::Delete, &Outcome::Delete),
        (&release, &dead, &dead),
    ] {
        let items = [
            (delivery("a", 1), first.clone()),
            (delivery("a", 2), second.clone()),
        ];
        let plan = Plan::of(&items);
        assert_eq!(plan.steps.len(), 1);
        assert_eq!(plan.steps[0].outcome, expected);
        assert_eq!(plan.steps[0].message.receive_count, 2);
    }
}

proptest! {
    #[test]
    fn calls_cover_all_entries_in_order_within_the_limits(
        sizes in prop::collection::vec(prop_oneof![0..5_000_usize, 0..MOST_BYTES + 9], 0..40)
    ) {
        let ranges = calls(&sizes, 10);
        let covered: Vec<usize> = ranges.iter().cloned().flatten().collect();
        prop_assert_eq!(covered, (0..sizes.len()).collect::<Vec<_>>());
        for range in ranges {
            let entries = range.len();
            let bytes: usize = sizes[range].iter().sum();
            prop_assert!((1..=10).contains(&entries));
            prop_assert!(bytes <= MOST_BYTES || entries == 1);
        }
    }

    #[test]
    fn every_item_gets_the_result_of_its_step(ids in prop::collection::vec(0..5_u8, 0..10)) {
        let items: Vec<_> = ids
            .iter()
            .zip(1_u32..)
            .map(|(id, count)| (delivery(&id.to_string(), count), Outcome::Delete))
            .collect();
        let plan = Plan::of(&items);
        let steps = plan.steps.len();
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        prop_assert_eq!(steps, distinct.len());
        let answers: Vec<_> = plan.steps.iter()
            .map(|s| Err(ItemError::Gone(s.message.id.clone())))
            .collect();
        for (answer, id) in plan.spread(&answers).iter().zip(&ids) {
            prop_assert_eq!(answer, &Err(ItemError::Gone(id.to_string())));
        }
    }
}
