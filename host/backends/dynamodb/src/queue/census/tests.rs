//! Each expired task is counted, and once, whatever order tasks expire in and however few pages one
//! sweep reads.

use super::*;
use crate::queue::item::{Readiness, TTL, number, readiness};
use proptest::prelude::*;

/// Where dates are told from seconds.
const START: u64 = 1_600_000_000_000;

/// A key of the index: tasks by when they were created.
#[derive(Debug, Default)]
struct IndexKey(Vec<TaskItem>);

impl IndexKey {
    fn task(created: u64, life: Option<u64>) -> TaskItem {
        let mut item = TaskItem::from([(CREATED.to_owned(), number(START + created))]);
        item.extend(life.map(|life| (TTL.to_owned(), number(START + created + life))));
        item
    }

    fn created(item: &TaskItem) -> Timestamp {
        item::date(item, CREATED).expect("every task has it")
    }

    fn page(
        &self,
        above: Option<&AttributeValue>,
        after: Option<&TaskItem>,
        size: usize,
    ) -> Vec<TaskItem> {
        let of = |value: &AttributeValue| {
            let item = TaskItem::from([(CREATED.to_owned(), value.clone())]);
            Self::created(&item)
        };
        let from = above.map(of).max(after.map(Self::created));
        let later = self
            .0
            .iter()
            .filter(|item| Some(Self::created(item)) > from);
        later.take(size).cloned().collect()
    }

    /// One sweep that reads so many pages at most; how many were news.
    fn sweep(&self, census: &mut KeyCount, now: u64, pages: usize, size: usize) -> u64 {
        let (above, mut after) = census.begin(Timestamp(START + now));
        let mut count = 0;
        for _ in 0..pages {
            let items = self.page(above.as_ref(), after.as_ref(), size);
            // DynamoDB names a next page whenever one was full.
            let next = items.last().filter(|_| items.len() == size).cloned();
            let counted = census.page(&items, next.clone());
            count += counted.news;
            if !counted.goes_on {
                break;
            }
            after = next;
        }
        count
    }

    fn expired(&self, now: u64) -> u64 {
        let now = Timestamp(START + now);
        let expired = |item: &&TaskItem| readiness(item, now) == Readiness::Expired;
        self.0.iter().filter(expired).count() as u64
    }
}

#[test]
fn unexpired_task_does_not_hide_expired_ones_behind_it() {
    let mut key = IndexKey(vec![IndexKey::task(0, None)]);
    key.0
        .extend((1..500).map(|at| IndexKey::task(at, Some(10))));
    let mut census = KeyCount::default();
    assert_eq!(key.sweep(&mut census, 10_000, 10, PAGE), 499);
    assert_eq!(key.sweep(&mut census, 20_000, 10, PAGE), 0);
    key.0
        .extend((500..600).map(|at| IndexKey::task(at, Some(10))));
    assert_eq!(key.sweep(&mut census, 30_000, 10, PAGE), 100);
}

#[test]
fn count_covers_tasks_that_dynamodb_has_not_deleted_yet() {
    let key = IndexKey((0..50_000).map(|at| IndexKey::task(at, Some(10))).collect());
    let mut census = KeyCount::default();
    let sweep = |n: u64| key.sweep(&mut census, 100_000 + n * 10_000, 10, PAGE);
    let counts: Vec<u64> = (0..60).map(sweep).collect();
    assert_eq!(counts.iter().sum::<u64>(), 50_000);
    assert!(counts[..50].iter().all(|count| *count == 1_000));
}

#[test]
fn sweep_does_not_read_counted_tasks_again() {
    let key = IndexKey((0..1_000).map(|at| IndexKey::task(at, Some(10))).collect());
    let mut census = KeyCount::default();
    key.sweep(&mut census, 10_000, 100, PAGE);
    let (floor, rest) = census.begin(Timestamp(START + 20_000));
    assert_eq!(rest, None);
    assert_eq!(floor, Some(number(START + 998)), "but for the very last");
}

proptest! {
    /// Lives of all lengths, one without an end; tasks that come and are deleted between sweeps.
    #[test]
    fn each_expired_task_is_counted_once(
        lives in prop::collection::vec(1_u64..20_000, 1..200),
        sweeps in prop::collection::vec((1_u64..200, 1_usize..4, any::<u64>()), 1..60),
        size in 2_usize..8,
    ) {
        let mut lives = lives.into_iter();
        let mut key = IndexKey(vec![IndexKey::task(0, None)]);
        let mut census = KeyCount::default();
        let (mut now, mut counted, mut gone) = (10, 0, 0);
        for (pause, pages, dice) in sweeps {
            let more = lives.by_ref().take((dice % 7) as usize);
            key.0.extend((now..).zip(more).map(|(at, life)| IndexKey::task(at, Some(life))));
            now += pause * 10;
            counted += key.sweep(&mut census, now, pages, size);
            prop_assert!(counted <= gone + key.expired(now));
            if census.rest.is_some() {
                continue;
            }
            // DynamoDB deletes some of what was counted.
            let mut dice = dice;
            let before = key.0.len();
            key.0.retain(|item| {
                dice = dice.rotate_left(1);
                let is_counted = IndexKey::created(item) <= census.reached
                    && readiness(item, census.began) == Readiness::Expired;
                !is_counted || dice % 3 != 0
            });
            gone += (before - key.0.len()) as u64;
        }
        now += 100_000;
        // Until a pass has begun after the last end, and has ended.
        for _ in 0..500 {
            now += 1;
            counted += key.sweep(&mut census, now, 1, size);
        }
        prop_assert_eq!(counted, gone + key.expired(now));
    }
}
