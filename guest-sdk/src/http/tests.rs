//! What requests and answers mean, without a network.

use super::*;
use crate::testing;

#[test]
fn status_decides_between_success_retry_and_rejection() {
    let of = |status| Response::new(status).with_body("why").succeeded();
    let rejected = |status| Err(Failure::reject(format!("the answer: {status} why")));
    for status in [200, 204, 299] {
        assert_eq!(of(status).map(|answer| answer.status), Ok(status));
    }
    for status in [401, 403, 408, 425, 429, 500, 503] {
        assert_eq!(of(status), Err(Failure::retry()));
    }
    for status in [302, 400, 404, 410, 422] {
        assert_eq!(of(status), rejected(status));
    }
}

#[test]
fn retry_after_header_sets_the_delay() {
    let of = |after: &str| {
        Response::new(503)
            .with_header("Retry-After", after)
            .succeeded()
    };
    let later = Failure::retry_after(Duration::from_secs(120));
    assert_eq!(of(" 120"), Err(later));
    assert_eq!(of("0"), Err(Failure::retry()));
    assert_eq!(of("Wed, 21 Oct 2026 07:28:00 GMT"), Err(Failure::retry()));
}

#[test]
fn http_error_maps_to_the_matching_failure() {
    let of = |error: fn(String) -> Error| Failure::from(error("why".into()));
    assert!(matches!(of(Error::Invalid), Failure::Reject(_)));
    assert!(matches!(of(Error::Busy), Failure::Busy { .. }));
    // No message stops its route by the host that it names.
    for error in [
        Error::Refused,
        Error::Unreachable,
        Error::TimedOut,
        Error::Broken,
    ] {
        assert_eq!(of(error), Failure::retry());
    }
    assert_eq!(Failure::from(Error::TooLarge(1)), Failure::retry());
}

#[test]
fn timeout_never_exceeds_the_attempt() {
    let request = Request::get("http://a/");
    assert_eq!(request.patience(), None);
    let minute = Duration::from_secs(60);
    assert_eq!(request.clone().timeout(minute).patience(), Some(minute));
    let past = attempt::until(1, || request.timeout(minute).patience());
    assert_eq!(past, Some(Duration::ZERO));
    let date = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let end_ms = (date.unwrap() + minute).as_millis().try_into().unwrap();
    let whole = attempt::until(end_ms, || Request::get("http://a/").patience());
    // Less than the attempt has, so that the handler hears of it.
    assert!(whole <= Some(minute * 9 / 10), "{whole:?}");
}

#[test]
fn denied_and_oversized_requests_are_refused() {
    {
        let _granted = testing::grant();
        let answer = Request::get("http://a/").send();
        assert!(matches!(answer, Err(Error::Refused(_))), "{answer:?}");
    }
    let _granted = testing::grant().http(|_| Ok(Response::new(200).with_body("12345")));
    let request = Request::get("http://a/");
    assert_eq!(request.clone().limit(4).send(), Err(Error::TooLarge(4)));
    assert_eq!(
        request.limit(5).send().map(|answer| answer.body.len()),
        Ok(5)
    );
}
