//! Tests of requests and responses, without a network.

use super::*;
use crate::testing;

#[test]
fn status_decides_between_success_retry_and_rejection() {
    let of = |status| Response::new(status).with_body("why").succeeded();
    let why = |status: u16| format!("the response: {status} why");
    for status in [200, 204, 299] {
        assert_eq!(of(status).map(|answer| answer.status), Ok(status));
    }
    for status in [401, 403, 408, 425, 429, 500, 503] {
        assert_eq!(of(status), Err(Failure::retry_because(why(status))));
    }
    for status in [302, 400, 404, 410, 422] {
        assert_eq!(of(status), Err(Failure::reject(why(status))));
    }
}

#[test]
fn retry_after_header_sets_the_delay() {
    let of = |after: &str| {
        Response::new(503)
            .with_header("Retry-After", after)
            .succeeded()
    };
    let why = "the response: 503";
    let later = Retry::after(Duration::from_secs(120)).because(why);
    assert_eq!(of(" 120"), Err(later.into()));
    for none in ["0", "Wed, 21 Oct 2026 07:28:00 GMT"] {
        assert_eq!(of(none), Err(Failure::retry_because(why)), "{none}");
    }
}

#[test]
fn http_error_maps_to_the_matching_failure() {
    let of = |error: fn(String) -> Error| Failure::from(error("why".into()));
    assert!(matches!(of(Error::Invalid), Failure::Reject(_)));
    assert!(matches!(of(Error::Busy), Failure::Busy { .. }));
    // A message must not stop its route because of the host that it names.
    for error in [
        Error::Refused,
        Error::Unreachable,
        Error::TimedOut,
        Error::Broken,
    ] {
        assert!(matches!(of(error), Failure::Retry(_)));
    }
    assert!(matches!(
        Failure::from(Error::TooLarge(1)),
        Failure::Retry(_)
    ));
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
    let cut = request.clone().limit(4).truncated().send();
    assert_eq!(cut.map(|response| response.body), Ok(b"1234".to_vec()));
    assert_eq!(
        request.limit(5).send().map(|answer| answer.body.len()),
        Ok(5)
    );
}
