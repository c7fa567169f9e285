//! What becomes of orders, without WebAssembly: `cargo test`.

use super::*;

fn checked(body: &str) -> Result<(), Failure> {
    check(Message {
        body: body.into(),
        ..Message::default()
    })
}

#[test]
fn valid_order_is_done() {
    assert_eq!(checked(r#"{"id": "o-1", "amount": 250}"#), Ok(()));
    let ready = r#"{"id": "o-1", "amount": 250, "ready": true}"#;
    assert_eq!(checked(ready), Ok(()));
}

#[test]
fn malformed_order_is_rejected_with_the_reason() {
    let wanted = [
        (r#"{"amount": 250}"#, "`id`: wanted a string"),
        (
            r#"{"id": "o-1"}"#,
            "`amount`: wanted a whole number of cents",
        ),
        (
            r#"{"id": "o-1", "amount": 0}"#,
            "`amount`: wanted more than nothing",
        ),
        (
            r#"{"id": "o-1", "amount": 1, "ready": "no"}"#,
            "`ready`: wanted true or false",
        ),
    ];
    for (body, why) in wanted {
        assert_eq!(checked(body), Err(Failure::reject(why)), "{body}");
    }
    assert!(checked("no JSON").is_err());
}

#[test]
fn unready_order_is_retried() {
    let order = r#"{"id": "o-1", "amount": 250, "ready": false}"#;
    assert_eq!(checked(order), Err(Failure::retry_after(PATIENCE)));
    let order = r#"{"id": "o-1", "amount": 250, "ready": false, "ready_in_ms": 5}"#;
    let soon = Duration::from_millis(5);
    assert_eq!(checked(order), Err(Failure::retry_after(soon)));
}
