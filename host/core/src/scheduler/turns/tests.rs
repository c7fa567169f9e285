//! Lines that tenants share, against what each of them should get.

use super::super::line::ReadyLine;
use super::super::ready::{Sequence, WaitingJob};
use super::*;
use crate::clock::{BootInstant, Timestamp};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct TenantJob {
    number: usize,
    tenant: String,
    priority: Priority,
    group: Option<&'static str>,
    hastens_ms: Option<u64>,
}

impl WaitingJob for TenantJob {
    fn group(&self) -> Option<&str> {
        self.group
    }

    fn sent_at(&self) -> Timestamp {
        Timestamp(self.number as u64)
    }

    fn tenant(&self) -> &str {
        &self.tenant
    }

    fn priority(&self) -> Priority {
        self.priority
    }

    fn hastens(&self) -> Option<BootInstant> {
        self.hastens_ms.map(at)
    }
}

fn at(ms: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_millis(ms))
}

fn job(number: usize, tenant: &str) -> TenantJob {
    TenantJob {
        number,
        tenant: tenant.to_owned(),
        ..TenantJob::default()
    }
}

fn urgent(number: usize, tenant: &str, priority: u64) -> TenantJob {
    TenantJob {
        priority: Priority::new(priority).expect("a priority"),
        ..job(number, tenant)
    }
}

fn shared(weights: &[(&str, u32)]) -> Arc<SharingRules> {
    let weights = weights
        .iter()
        .map(|(name, weight)| ((*name).to_owned(), *weight));
    Arc::new(SharingRules {
        by_group: true,
        weights: weights.collect(),
        ..SharingRules::default()
    })
}

fn line(weights: &[(&str, u32)]) -> ReadyLine<TenantJob> {
    ReadyLine::new(Sequence::Fifo, false, Some(shared(weights)))
}

fn numbers(jobs: &[TenantJob]) -> Vec<usize> {
    jobs.iter().map(|job| job.number).collect()
}

#[test]
fn small_tenant_does_not_wait_for_a_big_one() {
    let mut line = line(&[]);
    line.arrive((0..1_000).map(|number| job(number, "big")).collect(), at(0));
    assert_eq!(numbers(&line.take(3)), [0, 1, 2]);
    line.arrive(vec![job(9_001, "small"), job(9_002, "small")], at(1));
    assert_eq!(numbers(&line.take(5)), [9_001, 3, 9_002, 4, 5]);
}

#[test]
fn tenant_has_no_claim_on_the_time_that_it_did_not_use() {
    let mut line = line(&[]);
    line.arrive((0..500).map(|number| job(number, "a")).collect(), at(0));
    assert_eq!(line.take(400).len(), 400);
    line.arrive((0..50).map(|number| job(number, "b")).collect(), at(0));
    let next = line.take(20);
    let of_b = next.iter().filter(|job| job.tenant == "b").count();
    assert!((9..=11).contains(&of_b), "{of_b}");
}

#[test]
fn newest_first_holds_within_a_tenant() {
    let mut line = ReadyLine::new(Sequence::Lifo, false, Some(shared(&[])));
    line.arrive(vec![job(1, "a"), job(2, "a"), job(3, "b")], at(0));
    line.arrive(vec![job(4, "a")], at(1));
    assert_eq!(numbers(&line.take(9)), [4, 3, 2, 1]);
}

#[test]
fn urgent_messages_go_first_and_overdue_ones_before_them() {
    let mut line = line(&[]);
    let mut late = urgent(1, "a", 5);
    late.hastens_ms = Some(100);
    line.arrive(vec![late, urgent(2, "a", 4), urgent(3, "b", 1)], at(0));
    assert_eq!(line.hasten(at(99)), 0);
    assert_eq!(numbers(&line.take(1)), [3]);
    assert_eq!(line.hasten(at(100)), 1);
    assert_eq!(line.hasten(at(200)), 0, "it is counted once");
    assert_eq!(numbers(&line.take(9)), [1, 2]);
    assert!(line.is_empty());
}

#[test]
fn group_that_is_kept_in_order_stays_so_whatever_the_priority() {
    let mut line = ReadyLine::new(Sequence::Fifo, true, Some(shared(&[])));
    let grouped = |number, priority| TenantJob {
        group: Some("g"),
        hastens_ms: Some(0),
        ..urgent(number, "t", priority)
    };
    line.arrive(vec![grouped(1, 5), grouped(2, 1), urgent(3, "t", 2)], at(0));
    assert_eq!(line.hasten(at(9)), 0);
    assert_eq!(numbers(&line.take(9)), [3, 1, 2]);
}

#[test]
fn resumed_job_goes_before_others_of_its_tenant() {
    let mut line = line(&[]);
    line.arrive(vec![job(1, "a"), job(2, "a"), job(3, "b")], at(0));
    let first = line.take(1);
    line.resume(first);
    assert_eq!(numbers(&line.take(9)), [3, 1, 2], "a has had its turn");
}

#[test]
fn memory_of_tenants_is_bounded() {
    let mut turns = Turns::new(shared(&[]));
    let stays = turns.add(Priority::default(), "stays");
    for number in 0..100_000 {
        let number = turns.add(Priority::default(), &number.to_string());
        turns.charge(number);
        turns.remove(number, Lack::Worker);
    }
    assert!(turns.len() <= MOST_IDLE + 2, "{}", turns.len());
    let order = turns.order(Lack::Worker).map(|place| place.number);
    assert_eq!(order.collect::<Vec<_>>(), [stays]);
    turns.charge(stays);
    turns.remove(stays, Lack::Worker);
}

/// A step of a random run.
#[derive(Debug, Clone)]
enum LineStep {
    Arrive(u8, u64),
    Take(usize),
    Extract(u8),
}

fn steps() -> impl Strategy<Value = Vec<LineStep>> {
    let step = prop_oneof![
        4 => (0..4_u8, 1..=5_u64).prop_map(|(tenant, priority)| LineStep::Arrive(tenant, priority)),
        2 => (1..4_usize).prop_map(LineStep::Take),
        1 => (0..4_u8).prop_map(LineStep::Extract),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn nothing_is_lost_and_no_priority_is_passed_over(steps in steps()) {
        let mut line = line(&[("t1", 3)]);
        let mut waiting: BTreeMap<usize, TenantJob> = BTreeMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                LineStep::Arrive(tenant, priority) => {
                    let new = urgent(number, &format!("t{tenant}"), priority);
                    waiting.insert(number, new.clone());
                    line.arrive(vec![new], at(number as u64));
                }
                LineStep::Take(most) => {
                    let wanted = most.min(waiting.len());
                    let taken = line.take(most);
                    prop_assert_eq!(taken.len(), wanted);
                    for one in taken {
                        let best = waiting.values().map(|job| job.priority).min();
                        prop_assert_eq!(Some(one.priority), best);
                        let mut own = waiting.values().filter(|job| {
                            (&job.tenant, job.priority) == (&one.tenant, one.priority)
                        });
                        prop_assert_eq!(own.next().map(|job| job.number), Some(one.number));
                        waiting.remove(&one.number);
                    }
                }
                LineStep::Extract(tenant) => {
                    let name = format!("t{tenant}");
                    for one in line.extract(|job| job.tenant == name) {
                        waiting.remove(&one.number);
                    }
                    prop_assert!(waiting.values().all(|job| job.tenant != name));
                }
            }
            prop_assert_eq!(line.len(), waiting.len());
        }
        prop_assert_eq!(line.take(usize::MAX).len(), waiting.len());
    }

    /// While tenants have messages, none is ahead of another, by its weight, by more than one
    /// message of each.
    #[test]
    fn backlogged_tenants_get_their_shares(
        weights in proptest::collection::vec(1..6_u32, 2..5),
        takes in 20..120_usize,
    ) {
        let names: Vec<String> = (0..weights.len()).map(|at| format!("t{at}")).collect();
        let given: Vec<(&str, u32)> = names.iter().map(String::as_str).zip(weights).collect();
        let mut line = line(&given);
        let all = (0..1_000).flat_map(|number| names.iter().map(move |name| job(number, name)));
        line.arrive(all.collect(), at(0));
        let mut had: BTreeMap<String, f64> = BTreeMap::new();
        for _ in 0..takes {
            for one in line.take(1) {
                *had.entry(one.tenant).or_default() += 1.0;
            }
            for (one, weight) in &given {
                for (other, other_weight) in &given {
                    let share = had.get(*one).copied().unwrap_or_default() / f64::from(*weight);
                    let others = had.get(*other).copied().unwrap_or_default();
                    let ahead = share - others / f64::from(*other_weight);
                    let most = 1.0 / f64::from(*weight) + 1.0 / f64::from(*other_weight);
                    prop_assert!(ahead <= most + 1e-3, "{one} is {ahead} ahead of {other}");
                }
            }
        }
    }
}
