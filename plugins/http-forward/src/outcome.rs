//! What a response, or none, says about the messages of its request.

use dispatcher_guest::Failure;
use dispatcher_guest::http::{Error, Response};
use std::time::Duration;

/// The most characters of a response that a reason quotes.
const QUOTED: usize = 200;

/// What was sent.
pub struct Sent {
    /// `message ID` or `batch of N`, for the log.
    pub about: String,
    /// How long the attempt may still take.
    pub left: Duration,
}

impl Sent {
    fn may_have_run(&self, why: &str) -> Failure {
        let Self { about, left } = self;
        eprintln!(
            "{about}: the service may have handled it, and gets it again in {left:.1?}: {why}"
        );
        Failure::retry_after(*left)
    }
}

/// `Ok` is done. What was certainly not handled waits in its lease and spends no receive; what may
/// have been handled comes again when the attempt would have been over, since the service may still
/// be at it; what failed is retried by the route's policy. A line says why: `sent` is what was sent.
pub fn of(response: &Result<Response, Error>, sent: &Sent) -> Result<(), Failure> {
    let about = &sent.about;
    let response = match response {
        Ok(response) => response,
        // Nobody has the request.
        Err(error @ (Error::Unreachable(_) | Error::Busy(_))) => {
            return Err(Failure::busy(error.to_string()));
        }
        // The URL is the configuration's: no message fares better.
        Err(error @ (Error::Invalid(_) | Error::Refused(_))) => {
            return Err(Failure::closed(error.to_string()));
        }
        Err(error @ (Error::TimedOut(_) | Error::Broken(_))) => {
            return Err(sent.may_have_run(&error.to_string()));
        }
        Err(error) => {
            eprintln!("{about}: {error}");
            return Err(Failure::retry());
        }
    };
    let after = retry_after(response);
    match response.status {
        200..=299 => Ok(()),
        429 | 503 => Err(match after {
            Some(after) => Failure::busy_for(after, quoted(response)),
            None => Failure::busy(quoted(response)),
        }),
        // A gateway has given up waiting.
        504 if after.is_none() => Err(sent.may_have_run(&quoted(response))),
        401 | 403 | 405 | 407 => Err(Failure::closed(quoted(response))),
        408 | 425 | 300..=399 | 500..=599 => {
            eprintln!("{about}: {}", quoted(response));
            Err(after.map_or_else(Failure::retry, Failure::retry_after))
        }
        400..=499 => Err(Failure::reject(quoted(response))),
        _ => {
            eprintln!("{about}: {}", quoted(response));
            Err(Failure::retry())
        }
    }
}

/// Seconds of `Retry-After`. Dates are left out: the two clocks may differ.
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.header("retry-after")?.trim().parse().ok()?;
    // Without a pause all attempts would be used up at once.
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// The status and the beginning of the body.
fn quoted(response: &Response) -> String {
    let status = response.status;
    let text: String = response.text().trim().chars().take(QUOTED).collect();
    if text.is_empty() {
        return format!("HTTP status {status}");
    }
    format!("HTTP status {status}: {}", printable(&text))
}

/// Without characters that would break a line of the log.
fn printable(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: Duration = Duration::from_secs(5);

    fn outcome(response: Result<Response, Error>) -> Result<(), Failure> {
        let about = "message m".to_owned();
        of(&response, &Sent { about, left: LEFT })
    }

    fn of_status(status: u16) -> Result<(), Failure> {
        outcome(Ok(Response::new(status)))
    }

    #[test]
    fn the_status_is_the_outcome() {
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(of_status(status), Ok(()));
        }
        for status in [400, 404, 409, 410, 413, 415, 418, 422, 451] {
            let why = format!("HTTP status {status}");
            assert_eq!(of_status(status), Err(Failure::reject(why)));
        }
        for status in [301, 302, 307, 408, 425, 500, 502, 599, 600] {
            assert_eq!(of_status(status), Err(Failure::retry()));
        }
        for status in [429, 503] {
            let why = format!("HTTP status {status}");
            assert_eq!(of_status(status), Err(Failure::busy(why)));
        }
        for status in [401, 403, 405, 407] {
            let why = format!("HTTP status {status}");
            assert_eq!(of_status(status), Err(Failure::closed(why)));
        }
    }

    #[test]
    fn retry_after_is_heeded() {
        let with = |status, after: &str| {
            outcome(Ok(Response::new(status).with_header("Retry-After", after)))
        };
        let seconds = Duration::from_secs(7);
        for status in [408, 425, 500, 502, 504] {
            assert_eq!(with(status, "7"), Err(Failure::retry_after(seconds)));
        }
        for status in [429, 503] {
            let why = format!("HTTP status {status}");
            assert_eq!(with(status, " 7 "), Err(Failure::busy_for(seconds, why)));
        }
        for none in ["0", "soon", "Wed, 21 Oct 2026 07:28:00 GMT", "-1"] {
            assert_eq!(with(500, none), Err(Failure::retry()), "{none}");
        }
    }

    #[test]
    fn without_a_response_it_counts_whether_the_service_may_have_run() {
        let of = |error| outcome(Err(error)).expect_err("none");
        let words = || "why".to_owned();
        for never in [Error::Unreachable(words()), Error::Busy(words())] {
            assert!(matches!(of(never), Failure::Busy { .. }));
        }
        for maybe in [Error::TimedOut(words()), Error::Broken(words())] {
            assert_eq!(of(maybe), Failure::retry_after(LEFT));
        }
        assert_eq!(of_status(504), Err(Failure::retry_after(LEFT)));
        assert_eq!(of(Error::TooLarge(1)), Failure::retry());
        for configured in [Error::Refused(words()), Error::Invalid(words())] {
            assert!(matches!(of(configured), Failure::Closed(_)));
        }
    }

    #[test]
    fn a_reason_quotes_the_beginning_of_the_response() {
        let body = format!("no\nsuch {}", "x".repeat(500));
        let Err(Failure::Reject(why)) = outcome(Ok(Response::new(422).with_body(body))) else {
            panic!("rejected");
        };
        assert!(why.starts_with("HTTP status 422: no such xxx"), "{why}");
        assert!(why.chars().count() < 230, "{why}");
    }
}
