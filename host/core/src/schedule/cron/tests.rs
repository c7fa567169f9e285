//! Patterns where clocks are set, and that time only goes forward.

use super::*;
use crate::schedule::when::{read, write};
use proptest::prelude::*;

const BERLIN: &str = "Europe/Berlin";

fn fires(pattern: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let periodic = Periodic::new(pattern, zone).expect(pattern);
    let mut last = read(after).expect("a date");
    let mut found = Vec::new();
    while found.len() < count {
        last = periodic
            .next(last)
            .expect("it was checked")
            .expect("it goes on");
        found.push(write(last, Some(zone)));
    }
    found
}

#[test]
fn cron_uses_the_clock_of_its_time_zone() {
    assert_eq!(
        fires("0 9 * * MON-FRI", BERLIN, "2026-11-20T12:00:00Z", 2),
        ["2026-11-23T09:00:00+01:00", "2026-11-24T09:00:00+01:00"]
    );
    assert_eq!(
        fires("*/20 * * * * *", "UTC", "2026-11-20T12:00:05Z", 2),
        ["2026-11-20T12:00:20+00:00", "2026-11-20T12:00:40+00:00"]
    );
}

/// On 2026-03-29 Berlin has no time between 02:00 and 03:00.
#[test]
fn daily_time_in_a_dst_gap_fires_at_its_end() {
    assert_eq!(
        fires("30 2 * * *", BERLIN, "2026-03-28T12:00:00Z", 2),
        ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]
    );
}

/// On 2026-10-25 Berlin has the time between 02:00 and 03:00 twice.
#[test]
fn ambiguous_daily_time_fires_at_the_first() {
    assert_eq!(
        fires("30 2 * * *", BERLIN, "2026-10-24T12:00:00Z", 2),
        ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]
    );
}

#[test]
fn repetition_within_a_day_follows_the_wall_clock() {
    assert_eq!(
        fires("30 * * * *", BERLIN, "2026-03-29T00:00:00Z", 2),
        ["2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"]
    );
    assert_eq!(
        fires("30 * * * *", BERLIN, "2026-10-25T00:00:00Z", 3),
        [
            "2026-10-25T02:30:00+02:00",
            "2026-10-25T02:30:00+01:00",
            "2026-10-25T03:30:00+01:00"
        ]
    );
}

#[test]
fn cron_error_names_the_expected_form() {
    for (pattern, zone, wanted) in [
        ("", BERLIN, "written like `0 9"),
        ("0 25 * * *", BERLIN, "`0 25 * * *` is not a cron pattern"),
        ("0 9 * *", BERLIN, "written like `0 9"),
        (
            "0 9 * * *",
            "Europe/Nowhere",
            "`Europe/Nowhere` is not a time zone",
        ),
        ("0 0 30 2 *", "UTC", "never fires"),
    ] {
        let why = Periodic::new(pattern, zone).expect_err(pattern);
        assert!(why.contains(wanted), "{why}");
    }
}

proptest! {
    #[test]
    fn next_time_is_always_later(
        minute in 0..60_u8, hour in 0..24_u8, which in 0..4_usize, start in 0..4_000_000_000_000_u64,
    ) {
        let pattern = [
            format!("{minute} {hour} * * *"),
            format!("{minute} * * * *"),
            format!("*/{} {hour} * * *", minute.max(1)),
            format!("{minute} {hour} 1 * *"),
        ][which].clone();
        for zone in [BERLIN, "America/New_York", "Australia/Lord_Howe", "UTC"] {
            let periodic = Periodic::new(&pattern, zone).unwrap();
            let first = periodic.next(Timestamp(start)).unwrap().unwrap();
            let second = periodic.next(first).unwrap().unwrap();
            prop_assert!(first > Timestamp(start) && second > first, "{} {}", pattern, zone);
        }
    }
}
