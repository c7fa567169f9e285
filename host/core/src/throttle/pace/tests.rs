//! The control by itself: its bounds, its direction, what it remembers and forgets.

use super::*;
use proptest::prelude::*;

fn at(ms: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_millis(1_000_000 + ms))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Two at once, one message each, SQS's calls, a visibility of 30 s.
const PLAIN: Bounds = Bounds {
    attempts: 2,
    batch: 1,
    call: 10,
    prefetch: 1_000,
    horizon: Duration::from_secs(15),
};

#[test]
fn in_flight_limit_is_what_starts_within_the_horizon() {
    assert_eq!(PLAIN.in_flight(Some(ms(100))), 2 + 300);
    assert_eq!(PLAIN.in_flight(Some(ms(1_000))), 2 + 30);
    // Parallelism counts, and so do batches.
    let wide = Bounds {
        attempts: 20,
        ..PLAIN
    };
    assert_eq!(wide.in_flight(Some(ms(1_000))), 20 + 300);
    let batches = Bounds { batch: 5, ..wide };
    assert_eq!(batches.in_flight(Some(ms(10_000))), 100 + 150);
    // Never less than a call is worth, never more than was allowed.
    assert_eq!(PLAIN.in_flight(Some(ms(60_000))), 2 + 10);
    assert_eq!(PLAIN.in_flight(Some(ms(1))), 2 + 1_000);
    assert_eq!(PLAIN.in_flight(None), 2 + 1_000);
    let none = Bounds {
        prefetch: 0,
        ..PLAIN
    };
    assert_eq!(none.in_flight(Some(ms(1))), 2);
}

#[test]
fn pace_waits_for_a_full_call_unless_workers_would_idle() {
    let wide = Bounds {
        attempts: 10,
        ..PLAIN
    };
    assert_eq!(wide.wait(Some(ms(50)), None, true), ms(75));
    assert_eq!(wide.wait(Some(ms(50)), None, false), ms(5));
    assert_eq!(wide.wait(Some(ms(300)), None, false), ms(30));
    assert_eq!(wide.wait(Some(ms(10_000)), None, true), ms(100));
    assert_eq!(wide.wait(Some(ms(10_000)), None, false), ms(100));
    assert_eq!(wide.wait(None, None, true), ms(5));
    let wider = Bounds {
        attempts: 1_000,
        ..PLAIN
    };
    assert_eq!(wider.wait(Some(ms(2_000)), None, true), ms(30));
}

#[test]
fn finding_11_pace_waits_for_quick_attempts_beside_slow_calls() {
    let bounds = Bounds {
        attempts: 10,
        ..PLAIN
    };
    let wait = |median, call| bounds.wait(Some(ms(median)), Some(ms(call)), false);
    // Three medians, at most a quarter of the call.
    assert_eq!((wait(3, 60), wait(10, 60)), (ms(9), ms(15)));
    // A tenth of both where that is more.
    assert_eq!(wait(10, 390), ms(40));
    // Not quick: as without a slow server.
    assert_eq!((wait(16, 60), wait(300, 60)), (ms(5), ms(30)));
    let join = |median, call| bounds.join(Some(ms(median)), call);
    assert_eq!(join(3, Some(ms(60))), ms(126));
    assert_eq!(join(3, Some(ms(1_000))), ms(250));
    assert_eq!((join(16, Some(ms(60))), join(3, None)), (ms(0), ms(0)));
    assert_eq!(bounds.join(None, Some(ms(60))), ms(0));
}

#[test]
fn pause_resets_the_pace_and_rest_does_not() {
    let mut pace = Pace::default();
    pace.begins(at(0));
    pace.ended(ms(500), at(500));
    assert!(!pace.begins(at(60_499)), "that was no pause yet");
    pace.broken_off(at(60_500));
    assert_eq!(pace.hand_over(), Some(ms(500)));
    // One long attempt is no pause, however long nothing else happens.
    pace.begins(at(60_500));
    assert!(!pace.begins(at(260_500)));
    pace.ended(ms(10), at(260_510));
    pace.ended(ms(200_000), at(260_520));
    assert!(pace.begins(at(320_520)));
    assert_eq!(pace.hand_over(), None);
}

#[test]
fn median_of_before_a_pause_is_known_until_an_attempt_ends_after_it() {
    let mut pace = Pace::default();
    pace.begins(at(0));
    assert_eq!(pace.last_known(), None, "none has ended");
    pace.ended(ms(500), at(500));
    for pause in [100_000, 300_000] {
        pace.begins(at(pause));
        assert_eq!(pace.last_known(), Some(ms(500)));
        pace.broken_off(at(pause + 1));
    }
    pace.begins(at(500_000));
    pace.ended(ms(20), at(500_020));
    assert_eq!(pace.last_known(), Some(ms(20)));
}

#[test]
fn cancelled_attempt_counts_as_slow_and_never_as_quick() {
    let mut pace = Pace::default();
    (0..3).for_each(|_| pace.ended(ms(100), at(0)));
    (0..20).for_each(|_| pace.cut_short(ms(1), at(0)));
    assert_eq!(pace.hand_over(), Some(ms(100)));
    (0..20).for_each(|_| pace.cut_short(ms(30_000), at(0)));
    assert_eq!(pace.hand_over(), Some(ms(30_000)));
    let mut endless = Pace::default();
    endless.cut_short(ms(30_000), at(0));
    assert_eq!(endless.hand_over(), Some(ms(30_000)));
}

#[test]
fn tenfold_speed_change_is_followed_within_the_last_attempts() {
    for (before, after) in [(10, 100), (100, 10)] {
        let mut pace = Pace::default();
        (0..1_000).for_each(|_| pace.ended(ms(before), at(0)));
        (0..Median::LAST.div_ceil(2)).for_each(|_| pace.ended(ms(after), at(0)));
        assert_eq!(pace.hand_over(), Some(ms(after)));
    }
}

prop_compose! {
    fn bounds()(
        attempts in 1_usize..20_000,
        batch in 1_usize..10_000,
        call in 1_usize..200,
        prefetch in 0_usize..100_000,
        horizon in 1_000_u64..21_600_000,
    ) -> Bounds {
        Bounds { attempts, batch, call, prefetch, horizon: ms(horizon) }
    }
}

proptest! {
    #[test]
    fn pace_bounds_are_never_exceeded(bounds in bounds(), median in 0_u64..u64::MAX) {
        let median = Duration::from_nanos(median);
        for median in [None, Some(median)] {
            let in_flight = bounds.in_flight(median);
            prop_assert!(in_flight >= bounds.running() + bounds.prefetch.min(bounds.call).min(10));
            prop_assert!(in_flight <= bounds.running() + bounds.prefetch);
            for covered in [true, false] {
                for call_time in [None, Some(ms(1)), Some(ms(60)), Some(Duration::MAX)] {
                    let wait = bounds.wait(median, call_time, covered);
                    prop_assert!(wait >= ms(5) && wait <= ms(100));
                    prop_assert!(bounds.join(median, call_time) <= ms(250));
                }
            }
        }
    }

    #[test]
    fn slower_attempts_mean_fewer_in_flight_and_longer_waits(bounds in bounds(), one in 0_u64..100_000_000, other in 0_u64..100_000_000) {
        let (quick, slow) = (Some(Duration::from_micros(one.min(other))), Some(Duration::from_micros(one.max(other))));
        prop_assert!(bounds.in_flight(slow) <= bounds.in_flight(quick));
        for covered in [true, false] {
            prop_assert!(bounds.wait(slow, None, covered) >= bounds.wait(quick, None, covered));
        }
    }

    #[test]
    fn message_at_the_median_waits_no_longer_than_the_horizon(bounds in bounds(), median in 1_u64..100_000_000) {
        let median = Duration::from_micros(median);
        let ahead = bounds.in_flight(Some(median)) - bounds.running();
        let waits = median.as_nanos() * ahead as u128 / bounds.running() as u128;
        prop_assert!(ahead <= bounds.call.min(10) || waits <= bounds.horizon.as_nanos());
    }
}
