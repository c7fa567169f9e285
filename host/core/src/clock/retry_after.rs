//! Reads how long an HTTP server asks its clients to wait. Pure: the current date is an argument.

use super::Timestamp;
use std::time::{Duration, UNIX_EPOCH};

/// Returns the wait that the header `Retry-After` (RFC 9110, section 10.2.3) asks for: seconds, or
/// the time until a date. The wait is zero for a past date. Seconds may have fractions, as some
/// services write them. Returns `None` if the text is neither.
pub fn retry_after(text: &str, today: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let since_1970 = httpdate::parse_http_date(text)
        .ok()?
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let date = Timestamp(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX));
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
        for (text, wait_ms) in [
            (" 2 ", Some(2_000)),
            ("0", Some(0)),
            ("0.5", Some(500)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(90_000)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(90_000)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("", None),
            ("-1", None),
            ("soon", None),
            ("NaN", None),
            ("inf", None),
            ("1e300", None),
        ] {
            let wait = wait_ms.map(Duration::from_millis);
            assert_eq!(retry_after(text, today), wait, "{text}");
        }
    }
}
