//! What the decisions promise, for any times.

use super::*;
use crate::schedule::cron::Periodic;
use crate::schedule::fakes::{FIFO, STANDARD};
use crate::schedule::samples::job;
use proptest::prelude::*;

const MINUTE: Duration = Duration::from_secs(60);
/// The embedded queue, where what waits delays its group.
const EMBEDDED: SendLimits = SendLimits {
    longest_delay: Duration::MAX,
    longest_delay_in_group: Duration::ZERO,
    own_delay: Duration::ZERO,
    batch: 100,
    ordered: true,
};
/// A FIFO queue whose every message waits a minute.
const SLOW_FIFO: SendLimits = SendLimits {
    own_delay: MINUTE,
    ..FIFO
};
const START: u64 = 1_800_000_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp(START.saturating_add_signed(seconds * 1_000))
}

fn periodic(pattern: &str, due: Timestamp) -> ScheduledJob {
    let every = Periodic::new(pattern, "UTC").expect(pattern);
    ScheduledJob {
        every: Some(every),
        ..job("periodic", due)
    }
}

fn planned(job: &ScheduledJob, reach: SendLimits, now: Timestamp) -> Option<DueJob> {
    plan(job, reach, MINUTE, now).expect("a good pattern")
}

#[test]
fn job_is_sent_once_its_queue_can_delay_it_for_the_rest() {
    for (reach, due, goes) in [
        (STANDARD, 900, true),
        (STANDARD, 901, false),
        (STANDARD, -5, true),
        (FIFO, 1, false),
        (FIFO, 0, true),
    ] {
        let job = job("one", at(due));
        assert_eq!(planned(&job, reach, at(0)).is_some(), goes, "{due}");
    }
    let delay = |due, reach| delay(&OutgoingMessage::default(), at(due), at(0), reach);
    assert_eq!(delay(700, STANDARD), Duration::from_secs(700));
    assert_eq!(delay(-700, STANDARD), Duration::ZERO);
    assert_eq!(delay(1, FIFO), Duration::ZERO);
}

#[test]
fn grouped_job_waits_outside_a_queue_that_it_would_block() {
    let mut job = job("one", at(60));
    assert!(planned(&job, EMBEDDED, at(0)).is_some());
    job.message.group = Some("g".into());
    assert_eq!(planned(&job, EMBEDDED, at(59)), None);
    assert!(planned(&job, EMBEDDED, at(60)).is_some());
    assert_eq!(
        delay(&job.message, at(61), at(60), EMBEDDED),
        Duration::ZERO
    );
    // On a standard queue of SQS a group holds nothing up.
    assert!(planned(&job, STANDARD, at(0)).is_some());
}

#[test]
fn job_is_sent_earlier_by_the_default_delay_of_its_queue() {
    let job = job("one", at(60));
    assert_eq!(ready_at(&job, SLOW_FIFO, MINUTE), at(0));
    assert_eq!(planned(&job, SLOW_FIFO, at(-1)), None);
    assert!(planned(&job, SLOW_FIFO, at(0)).is_some());
    let first = Timestamp(START / 60_000 * 60_000);
    let late = periodic("* * * * * *", first);
    let found = planned(&late, SLOW_FIFO, first + MINUTE).expect("it is due");
    assert_eq!(found.ticks, [first], "what is late fires once");
}

#[test]
fn claimed_job_waits_until_its_claim_expires() {
    let mut job = job("one", at(0));
    job.claim = Some(claim("other".into(), at(0)));
    assert_eq!(planned(&job, STANDARD, at(0)), None);
    assert_eq!(planned(&job, STANDARD, at(120)), None);
    assert!(planned(&job, STANDARD, at(121)).is_some());
}

#[test]
fn periodic_job_sends_every_tick_the_next_round_might_miss() {
    let first = Timestamp(START / 60_000 * 60_000);
    let found = planned(&periodic("*/20 * * * * *", first), STANDARD, first).expect("it is due");
    let seconds = |ms: &Timestamp| (ms.0 - first.0) / 1_000;
    let ticks: Vec<_> = found.ticks.iter().map(seconds).collect();
    assert_eq!(ticks, [0, 20, 40, 60, 80, 100, 120]);
    assert_eq!(found.next.as_ref().map(seconds), Some(140));
    assert_eq!(next_after(&found, 2), Some(found.ticks[2]));
    assert_eq!(next_after(&found, 7), found.next);
}

#[test]
fn late_periodic_job_fires_once_for_all_missed_ticks() {
    let first = Timestamp(START / 86_400_000 * 86_400_000);
    let job = periodic("0 9 * * *", first);
    let now = Timestamp(first.0 + 3 * 86_400_000);
    let found = planned(&job, STANDARD, now).expect("it is late");
    assert_eq!(found.ticks, [first]);
    let next = found.next.expect("it goes on");
    assert!(next > now && next.since(now) <= Duration::from_secs(86_400));
}

#[test]
fn periodic_job_is_held_until_due_on_a_queue_without_delays() {
    let first = Timestamp(START / 60_000 * 60_000 + 60_000);
    let job = periodic("* * * * *", first);
    assert_eq!(planned(&job, FIFO, Timestamp(first.0 - 1)), None);
    let found = planned(&job, FIFO, first).expect("it is due");
    assert_eq!(found.ticks, [first]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_job_is_sent_early_or_forgotten(
        due in -100_000_i64..100_000, now in -100_000_i64..100_000, which in 0..4_usize, group: bool,
    ) {
        let reach = [STANDARD, FIFO, SLOW_FIFO, EMBEDDED][which];
        let mut job = job("one", at(due));
        job.message.group = group.then(|| "g".into());
        // Looked at whenever `wait` says, from `now` on, it goes at the first look that can bear it.
        let mut look = at(now);
        let found = loop {
            if let Some(found) = planned(&job, reach, look) {
                break found;
            }
            prop_assert!(look < job.due);
            let next = wait(look, MINUTE, Some(ready_at(&job, reach, MINUTE)));
            prop_assert!(!next.is_zero() && next <= MINUTE);
            look = look + next;
        };
        prop_assert_eq!(found.next, None);
        let visible = look + delay(&job.message, found.ticks[0], look, reach) + reach.own_delay;
        // At the very time, or where there was too little time for that, as soon as can be.
        prop_assert_eq!(visible, job.due.max(at(now) + reach.own_delay));
    }

    /// Looks come when `wait` says, or sooner since another job wanted one, and each costs some time.
    #[test]
    fn every_tick_is_sent_in_time_while_rounds_run(
        sooner in proptest::collection::vec(0_u64..120_000, 1..60), every in 1_u64..180,
        interval in 1_u64..300, which in 0..3_usize,
    ) {
        let reach = [FIFO, STANDARD, SLOW_FIFO][which];
        let interval = Duration::from_secs(interval);
        let first = Timestamp(START / 3_600_000 * 3_600_000 + 3_600_000);
        let pattern = match every {
            1..60 => format!("*/{every} * * * * *"),
            _ => format!("0 */{} * * * *", every / 60),
        };
        let mut job = periodic(&pattern, first);
        let pattern = job.every.clone().unwrap();
        let mut now = Timestamp(first.0 - 1_800_000);
        let mut last = None;
        for sooner in sooner {
            let found = plan(&job, reach, interval, now).expect("a good pattern");
            let held = match found {
                None => ready_at(&job, reach, interval),
                Some(found) => {
                    for tick in found.ticks {
                        let in_order = last.map_or(Ok(Some(first)), |last| pattern.next(last));
                        prop_assert_eq!(in_order, Ok(Some(tick)), "one was left out or came twice");
                        let visible = now + delay(&job.message, tick, now, reach) + reach.own_delay;
                        prop_assert_eq!(visible, tick);
                        last = Some(tick);
                    }
                    job.due = found.next.unwrap();
                    ready_at(&job, reach, interval)
                }
            };
            let next = wait(now, interval, Some(held));
            now = now + next.min(Duration::from_millis(sooner.max(1)));
        }
    }

    #[test]
    fn every_tick_is_sent_once_whatever_the_rounds(
        looks in proptest::collection::vec(1_u64..300, 1..40), every in 1_u64..60,
    ) {
        let first = Timestamp(START / 3_600_000 * 3_600_000);
        let mut job = periodic(&format!("*/{every} * * * * *"), first);
        let (mut now, mut sent, mut late) = (first, Vec::new(), 0);
        for look in looks {
            if let Some(found) = planned(&job, STANDARD, now) {
                late += u32::from(found.ticks[0] < now);
                sent.extend(found.ticks);
                job.due = found.next.unwrap();
            }
            now = now + Duration::from_secs(look);
        }
        prop_assert!(sent.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", sent);
        // Ticks are left out only where a look came after one was due.
        let pattern = job.every.as_ref().unwrap();
        let gaps = sent.windows(2).filter(|pair| pattern.next(pair[0]) != Ok(Some(pair[1])));
        prop_assert!(gaps.count() <= late as usize);
    }
}
