//! What the decisions promise, for any times.

use super::*;
use crate::schedule::cron::Periodic;
use crate::schedule::samples::job;
use proptest::prelude::*;

const MINUTE: Duration = Duration::from_secs(60);
const STANDARD: Reach = Reach {
    longest_delay: AHEAD,
    batch: 10,
    ordered: false,
};
const FIFO: Reach = Reach {
    longest_delay: Duration::ZERO,
    batch: 10,
    ordered: true,
};
const START: u64 = 1_800_000_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp(START.saturating_add_signed(seconds * 1_000))
}

fn periodic(pattern: &str, due: Timestamp) -> Job {
    let every = Periodic::new(pattern, "UTC").expect(pattern);
    Job {
        every: Some(every),
        ..job("periodic", due)
    }
}

fn planned(job: &Job, reach: Reach, now: Timestamp) -> Option<Planned> {
    plan(job, reach, MINUTE, now).expect("a good pattern")
}

#[test]
fn a_job_goes_when_its_queue_can_bear_the_rest_of_the_wait() {
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
    assert_eq!(delay(at(700), at(0), STANDARD), Duration::from_secs(700));
    assert_eq!(delay(at(-700), at(0), STANDARD), Duration::ZERO);
    assert_eq!(delay(at(1), at(0), FIFO), Duration::ZERO);
}

#[test]
fn what_is_claimed_waits_until_the_claim_has_run_out() {
    let mut job = job("one", at(0));
    job.claim = Some(claim("other".into(), at(0)));
    assert_eq!(planned(&job, STANDARD, at(0)), None);
    assert_eq!(planned(&job, STANDARD, at(120)), None);
    assert!(planned(&job, STANDARD, at(121)).is_some());
}

#[test]
fn a_claim_outlives_the_last_call_that_is_made_under_it() {
    let one_call = crate::aws::ATTEMPTS * (crate::aws::CONNECT_TIMEOUT + crate::aws::READ_TIMEOUT);
    let spare = LEASE - SEND_WITHIN - one_call;
    assert!(spare >= Duration::from_secs(45), "{spare:?}");
}

#[test]
fn a_periodic_job_fires_for_each_time_that_the_next_looks_might_miss() {
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
fn a_periodic_job_that_is_late_fires_once_for_all_that_it_missed() {
    let first = Timestamp(START / 86_400_000 * 86_400_000);
    let job = periodic("0 9 * * *", first);
    let now = Timestamp(first.0 + 3 * 86_400_000);
    let found = planned(&job, STANDARD, now).expect("it is late");
    assert_eq!(found.ticks, [first]);
    let next = found.next.expect("it goes on");
    assert!(next > now && next.since(now) <= Duration::from_secs(86_400));
}

#[test]
fn on_a_queue_without_delays_a_periodic_job_is_held_until_it_is_due() {
    let first = Timestamp(START / 60_000 * 60_000 + 60_000);
    let job = periodic("* * * * *", first);
    assert_eq!(planned(&job, FIFO, Timestamp(first.0 - 1)), None);
    let found = planned(&job, FIFO, first).expect("it is due");
    assert_eq!(found.ticks, [first]);
}

proptest! {
    #[test]
    fn nothing_is_sent_early_or_forgotten(
        due in -100_000_i64..100_000, now in -100_000_i64..100_000, fifo: bool,
    ) {
        let reach = if fifo { FIFO } else { STANDARD };
        let job = job("one", at(due));
        let ready = ready_at(&job, reach, MINUTE);
        match planned(&job, reach, at(now)) {
            Some(found) => {
                // It is visible when it is due, and later only if it is sent late.
                let visible = at(now) + delay(found.ticks[0], at(now), reach);
                prop_assert_eq!(visible, at(due.max(now)));
                prop_assert_eq!(found.next, None);
            }
            None => {
                prop_assert!(ready > at(now));
                // The next look comes in time.
                let look = at(now) + wait(at(now), MINUTE, Some(ready));
                prop_assert!(look <= ready || look == at(now) + MINUTE);
            }
        }
    }

    #[test]
    fn every_tick_is_sent_once_whatever_the_looks(
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
