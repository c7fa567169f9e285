//! Reads how long an HTTP server wants to be left alone. Pure: the date of today is an argument.

use super::Timestamp;
use std::time::{Duration, UNIX_EPOCH};

/// How long the header `Retry-After` (RFC 9110, section 10.2.3) says to wait: seconds, or a date; that
/// is zero if it is past. Seconds may have fractions, as services write them. `None` if it is neither.
pub fn retry_after(text: &str, today: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(text).ok()?;
    let date = date.duration_since(UNIX_EPOCH).unwrap_or_default();
    let date = Timestamp(u64::try_from(date.as_millis()).unwrap_or(u64::MAX));
    Some(date.since(today))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const DATE: Timestamp = Timestamp(784_111_777_000);

    #[test]
    fn seconds_and_dates_are_waits_and_nothing_else_is() {
        let today = Timestamp(DATE.0 - 90_000);
        let ms = |ms| Some(Duration::from_millis(ms));
        for (text, wait) in [
            (" 2 ", ms(2_000)),
            ("0", ms(0)),
            ("0.5", ms(500)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", ms(90_000)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", ms(90_000)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", ms(0)),
            ("", None),
            ("-1", None),
            ("soon", None),
            ("NaN", None),
            ("inf", None),
            ("1e300", None),
        ] {
            assert_eq!(retry_after(text, today), wait, "{text}");
        }
    }
}
