//! The handler, natively: `cargo test` in this folder.

use super::*;
use dispatcher_guest::http::Response;
use dispatcher_guest::testing::{self, Draft, Granted};

fn grant(answer: impl Fn() -> Result<Response, http::Error> + 'static) -> Granted {
    testing::grant()
        .setting("CUSTOMERS", "http://customers")
        .setting("ENRICHED", "local:enriched")
        .queue("local:enriched")
        .store("names")
        .http(move |_| answer())
}

fn order() -> Draft {
    testing::json(r#"{"id": "o-1", "customer": "c-7"}"#)
}

#[test]
fn customer_is_requested_once() {
    let granted = grant(|| Ok(Response::new(200).with_body(r#"{"name": "Ada"}"#)));
    assert_eq!(testing::run_async(enrich, order()), Ok(()));
    assert_eq!(testing::run_async(enrich, order()), Ok(()));
    let asked = granted.requests();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].url, "http://customers/c-7");
    let sent = granted.sent("local:enriched");
    assert_eq!(sent.len(), 2);
    let body = r#"{"id":"o-1","customer":"c-7","name":"Ada"}"#;
    assert_eq!(sent[1].body, body);
}

#[test]
fn unknown_customer_is_rejected_and_unavailable_service_retried() {
    for (status, means) in [
        (404, Failure::reject("the response: 404")),
        (503, Failure::retry_because("the response: 503")),
    ] {
        let granted = grant(move || Ok(Response::new(status)));
        assert_eq!(testing::run_async(enrich, order()), Err(means));
        assert_eq!(granted.sent("local:enriched"), []);
        assert_eq!(granted.stored("names", "c-7"), None);
    }
}

#[test]
fn invalid_order_is_rejected_without_a_request() {
    let granted = grant(|| Ok(Response::new(200)));
    let answer = testing::run_async(enrich, testing::message("two shoes"));
    assert!(matches!(answer, Err(Failure::Reject(_))), "{answer:?}");
    assert_eq!(granted.requests(), []);
}

#[test]
fn missing_settings_close_the_route() {
    let _granted = testing::grant().store("names");
    let answer = testing::run_async(enrich, order());
    assert!(matches!(answer, Err(Failure::Closed(_))), "{answer:?}");
}
