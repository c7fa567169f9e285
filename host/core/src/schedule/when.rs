//! Parses and formats dates. Pure: `now` is an argument.

use crate::clock::Timestamp;
use jiff::tz::TimeZone;
use jiff::{Timestamp as Instant, Zoned};
use std::time::Duration;

/// The latest date: the last millisecond that is in the year 9999 in every time zone.
pub const NEVER: Timestamp = Timestamp(253_402_207_200_000);

/// Reads a date with its offset in the format of RFC 3339: `2026-12-24T18:00:00+01:00`.
pub fn read(text: &str) -> Result<Timestamp, String> {
    let instant: Instant = text.trim().parse().map_err(|_| wrong(text, ""))?;
    let ms = u64::try_from(instant.as_millisecond()).map_err(|_| wrong(text, " after 1970"))?;
    match Timestamp(ms) {
        date if date <= NEVER => Ok(date),
        _ => Err(wrong(text, " before the year 9999")),
    }
}

fn wrong(text: &str, lacks: &str) -> String {
    format!(
        "`{text}` is not a date with a time and an offset{lacks}; written like 2026-12-24T18:00:00+01:00"
    )
}

/// Returns the date after this delay; `None` if that is later than the latest date.
pub fn after(now: Timestamp, delay: Duration) -> Option<Timestamp> {
    let ms = u64::try_from(delay.as_millis()).ok()?;
    let date = Timestamp(now.0.checked_add(ms)?);
    (date <= NEVER).then_some(date)
}

/// Formats a date by the clock of a time zone, UTC if `None`: `2026-12-24T18:00:00+01:00`.
pub fn write(date: Timestamp, zone: Option<&str>) -> String {
    let zone = zone.and_then(|name| TimeZone::get(name).ok());
    let Some(zoned) = zoned(date, zone.unwrap_or(TimeZone::UTC)) else {
        return format!("{} ms after 1970", date.0);
    };
    let whole = zoned.subsec_nanosecond() == 0;
    let format = if whole {
        "%Y-%m-%dT%H:%M:%S%:z"
    } else {
        "%Y-%m-%dT%H:%M:%S%.3f%:z"
    };
    zoned.strftime(format).to_string()
}

/// Returns the time until a date in words, rounded up to seconds.
pub fn distance(now: Timestamp, date: Timestamp) -> String {
    match date.since(now).as_millis().div_ceil(1_000) {
        0 => "now".to_owned(),
        seconds => {
            let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
            format!(
                "in {}",
                humantime::format_duration(Duration::from_secs(seconds))
            )
        }
    }
}

pub(super) fn zoned(date: Timestamp, zone: TimeZone) -> Option<Zoned> {
    let ms = i64::try_from(date.0).ok()?;
    Some(Instant::from_millisecond(ms).ok()?.to_zoned(zone))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_are_parsed_with_any_offset() {
        let date = read("2026-12-24T18:00:00+01:00").expect("a date");
        assert_eq!(date, read("2026-12-24T17:00:00Z").expect("the same"));
        assert_eq!(write(date, None), "2026-12-24T17:00:00+00:00");
        assert_eq!(
            write(date, Some("Europe/Berlin")),
            "2026-12-24T18:00:00+01:00"
        );
        let odd = Timestamp(date.0 + 7);
        assert_eq!(write(odd, None), "2026-12-24T17:00:00.007+00:00");
    }

    #[test]
    fn invalid_date_is_refused_with_an_example() {
        for text in [
            "",
            "tomorrow",
            "2026-12-24",
            "2026-12-24T18:00:00",
            "1969-12-31T00:00:00Z",
        ] {
            let why = read(text).expect_err(text);
            assert!(why.contains("written like 2026-"), "{why}");
        }
    }

    #[test]
    fn distances_are_shown_in_whole_seconds() {
        assert_eq!(
            distance(Timestamp(0), Timestamp(129_600_000)),
            "in 1day 12h"
        );
        assert_eq!(distance(Timestamp(0), Timestamp(1)), "in 1s");
        assert_eq!(distance(Timestamp(9), Timestamp(1)), "now");
    }

    proptest! {
        #[test]
        fn formatted_dates_can_be_parsed(ms in 0..=NEVER.0) {
            prop_assert_eq!(read(&write(Timestamp(ms), None)), Ok(Timestamp(ms)));
        }
    }
}
