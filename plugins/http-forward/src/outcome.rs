//! What a response, or none, says about the messages of its request.

use dispatcher_guest::http::{Error, Response};
use dispatcher_guest::{Failure, Retry};
use std::time::{Duration, SystemTime};

/// The most characters of a response that a reason quotes.
const QUOTED: usize = 200;

/// `Ok` is done. What was certainly not handled waits in its lease and spends no receive; what may
/// have been handled comes again when the attempt would have been over, which is in `left`, since the
/// service may still be at it; what failed is retried by the route's policy. Each failure has its
/// reason, with the status where there is one.
pub fn of(
    response: &Result<Response, Error>,
    left: Duration,
    now: SystemTime,
) -> Result<(), Failure> {
    let response = match response {
        Ok(response) => response,
        // Nobody has the request.
        Err(error @ (Error::Unreachable(_) | Error::Busy(_))) => {
            return Err(busy(None, error.to_string()));
        }
        // The URL is the configuration's: no message fares better.
        Err(error @ Error::Refused(_)) => return Err(Failure::Closed(error.to_string())),
        // URL and headers of the configuration were looked at when it was read: it is the message.
        Err(error @ Error::Invalid(_)) => {
            let why = format!("no request can carry the message and its attributes: {error}");
            return Err(Failure::reject(why));
        }
        Err(error @ (Error::TimedOut(_) | Error::Broken(_))) => {
            return Err(may_have_run(&error.to_string(), left));
        }
        Err(error) => return Err(retry(None, error.to_string())),
    };
    let after = retry_after(response, now);
    match response.status {
        200..=299 => Ok(()),
        429 | 503 => Err(busy(after, quoted(response))),
        // A gateway has given up waiting.
        504 if after.is_none() => Err(may_have_run(&quoted(response), left)),
        401 | 405 | 407 => Err(Failure::Closed(quoted(response))),
        // Of this message, or of the credential: then others must not be lost by it.
        403 | 408 | 425 | 300..=399 | 500..=599 => Err(retry(after, quoted(response))),
        400..=499 => Err(Failure::reject(quoted(response))),
        _ => Err(retry(None, quoted(response))),
    }
}

fn busy(after: Option<Duration>, reason: String) -> Failure {
    Failure::Busy { after, reason }
}

fn retry(after: Option<Duration>, why: String) -> Failure {
    let retry = after.map_or_else(Retry::by_policy, Retry::after);
    retry.because(why).into()
}

fn may_have_run(why: &str, left: Duration) -> Failure {
    let why = format!("the service may have handled it: {why}");
    retry(Some(left), why)
}

/// How long `Retry-After` says to wait: seconds, or a date. The date is compared with the response's
/// own `Date` where it has one, since the two clocks may differ.
fn retry_after(response: &Response, now: SystemTime) -> Option<Duration> {
    let text = response.header("retry-after")?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok()?,
        Err(_) => {
            let sent = response.header("date").map(str::trim);
            let sent = sent.and_then(|date| httpdate::parse_http_date(date).ok());
            let until = httpdate::parse_http_date(text).ok()?;
            until.duration_since(sent.unwrap_or(now)).ok()?
        }
    };
    // Without a pause all attempts would be used up at once.
    (!wait.is_zero()).then_some(wait)
}

/// The status and the beginning of the body.
fn quoted(response: &Response) -> String {
    let status = response.status;
    let text = without_markup(response.text().trim());
    let text: String = text.chars().take(QUOTED).collect();
    if text.is_empty() {
        return format!("HTTP status {status}");
    }
    format!("HTTP status {status}: {}", printable(&text))
}

/// Returns the text of an HTML or XML page, in one line. Other texts stay as they are.
fn without_markup(body: &str) -> String {
    if !body.starts_with('<') {
        return body.to_owned();
    }
    let mut text = String::new();
    let mut rest = body;
    while let Some(start) = rest.find('<') {
        text.push_str(&rest[..start]);
        text.push(' ');
        let tag = &rest[start..];
        // Styles and scripts are not text.
        let hidden = ["style", "script"].into_iter().find(|name| {
            let begins = tag.get(1..=name.len());
            begins.is_some_and(|begins| begins.eq_ignore_ascii_case(name))
        });
        let tag = match hidden {
            Some(name) => tag.find(&format!("</{name}")).map_or("", |at| &tag[at..]),
            None => tag,
        };
        rest = tag.find('>').map_or("", |end| &tag[end + 1..]);
    }
    text.push_str(rest);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Without characters that would break a line of the log.
fn printable(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    const LEFT: Duration = Duration::from_secs(5);

    /// Wed, 21 Oct 2026 07:28:00 GMT.
    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_792_567_680)
    }

    fn outcome(response: Result<Response, Error>) -> Result<(), Failure> {
        of(&response, LEFT, now())
    }

    fn of_status(status: u16) -> Result<(), Failure> {
        outcome(Ok(Response::new(status)))
    }

    fn status(status: u16) -> String {
        format!("HTTP status {status}")
    }

    #[test]
    fn the_status_is_the_outcome_and_in_the_reason() {
        for done in [200, 201, 202, 204, 299] {
            assert_eq!(of_status(done), Ok(()));
        }
        for rejected in [400, 404, 409, 410, 413, 415, 418, 422, 451] {
            let why = status(rejected);
            assert_eq!(of_status(rejected), Err(Failure::reject(why)));
        }
        for failed in [301, 302, 307, 403, 408, 425, 500, 502, 599, 600] {
            assert_eq!(of_status(failed), Err(retry(None, status(failed))));
        }
        for throttled in [429, 503] {
            assert_eq!(of_status(throttled), Err(busy(None, status(throttled))));
        }
        for refused in [401, 405, 407] {
            let closed = Failure::Closed(status(refused));
            assert_eq!(of_status(refused), Err(closed));
        }
    }

    #[test]
    fn retry_after_is_heeded() {
        let with = |status, after: &str| {
            outcome(Ok(Response::new(status).with_header("Retry-After", after)))
        };
        let seconds = Some(Duration::from_secs(7));
        for failed in [408, 425, 500, 502, 504] {
            assert_eq!(with(failed, "7"), Err(retry(seconds, status(failed))));
        }
        for throttled in [429, 503] {
            assert_eq!(
                with(throttled, " 7 "),
                Err(busy(seconds, status(throttled)))
            );
        }
        let half = Some(Duration::from_millis(500));
        assert_eq!(with(500, "0.5"), Err(retry(half, status(500))));
        for none in [
            "0",
            "soon",
            "-1",
            "NaN",
            "1e300",
            "Wed, 21 Oct 2026 07:28:00 GMT",
        ] {
            assert_eq!(with(500, none), Err(retry(None, status(500))), "{none}");
        }
    }

    #[test]
    fn date_of_retry_after_is_compared_with_the_response_s_own_date() {
        let date = "Wed, 21 Oct 2026 07:28:07 GMT";
        let response = Response::new(503).with_header("Retry-After", date);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let waits = |response| outcome(Ok(response));
        assert_eq!(
            waits(response.clone()),
            Err(busy(seconds(7), status(503))),
            "without a Date"
        );
        for (its_own, wait) in [
            ("Wed, 21 Oct 2026 06:28:00 GMT", seconds(3_607)),
            ("Wed, 21 Oct 2026 08:28:00 GMT", None),
            ("today", seconds(7)),
        ] {
            let response = response.clone().with_header("Date", its_own);
            assert_eq!(waits(response), Err(busy(wait, status(503))), "{its_own}");
        }
    }

    #[test]
    fn without_a_response_it_counts_whether_the_service_may_have_run() {
        let of = |error| outcome(Err(error)).expect_err("none");
        let words = || "why".to_owned();
        for never in [Error::Unreachable(words()), Error::Busy(words())] {
            assert!(matches!(of(never), Failure::Busy { .. }));
        }
        let is_late = |failure: &Failure| {
            matches!(failure, Failure::Retry(Retry { after: Some(LEFT), reason: Some(why) })
                if why.starts_with("the service may have handled it"))
        };
        for maybe in [Error::TimedOut(words()), Error::Broken(words())] {
            assert!(is_late(&of(maybe)));
        }
        assert!(is_late(&of_status(504).expect_err("it failed")));
        assert!(matches!(of(Error::Refused(words())), Failure::Closed(_)));
        assert!(matches!(of(Error::Invalid(words())), Failure::Reject(_)));
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

    #[test]
    fn html_page_is_quoted_as_text() {
        let page = "<html><head><title>502 Bad Gateway</title><STYLE>p {}</style></head>\n\
                    <body><center><h1>502 Bad Gateway</h1></center><hr>nginx</body></html>";
        for (body, text) in [
            (page, "502 Bad Gateway 502 Bad Gateway nginx"),
            ("<p>a<script>cut off", "a"),
            ("<", ""),
            ("a < b", "a < b"),
            (r#"{"error": "<b>"}"#, r#"{"error": "<b>"}"#),
        ] {
            assert_eq!(without_markup(body), text);
        }
    }
}
