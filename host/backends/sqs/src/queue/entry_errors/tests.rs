//! The meaning of SQS's answers, as tables.

use super::*;

fn entry(code: &str, message: &str, sender_fault: bool) -> BatchResultErrorEntry {
    BatchResultErrorEntry::builder()
        .id("0")
        .code(code)
        .message(message)
        .sender_fault(sender_fault)
        .build()
        .expect("id, code and fault are set")
}

#[test]
fn entry_errors_are_classified_by_code_text_and_fault() {
    let expired =
        "Value AQ for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.";
    for (code, text) in [
        (
            "ReceiptHandleIsInvalid",
            "the input receipt handle is not valid",
        ),
        ("AWS.SimpleQueueService.MessageNotInflight", "not in flight"),
        ("MessageNotInflight", "not in flight"),
        ("InvalidParameterValue", expired),
    ] {
        let error = entry_failed(&entry(code, text, true));
        assert!(matches!(error, ItemError::Gone(_)), "{code}: {error}");
    }
    for (code, fault) in [
        ("InternalError", false),
        ("InternalError", true),
        ("RequestThrottled", true),
        ("SomethingNew", false),
    ] {
        let error = entry_failed(&entry(code, "later", fault));
        assert!(matches!(error, ItemError::Transient(_)), "{code}: {error}");
    }
    let error = entry_failed(&entry("InvalidMessageContents", "bad\ncharacters", true));
    assert_eq!(
        error,
        ItemError::Refused("InvalidMessageContents: bad characters".into())
    );
}

#[test]
fn visibility_ceiling_differs_from_a_stale_receipt() {
    let beyond = "Value 43200 for parameter VisibilityTimeout is invalid. Reason: Total \
                  VisibilityTimeout for the message is beyond the limit [43200 seconds]";
    let error = entry_failed(&entry("InvalidParameterValue", beyond, true));
    assert!(is_beyond_ceiling(&error), "{error}");
    assert!(!is_beyond_ceiling(&ItemError::Gone(beyond.into())));
}

#[test]
fn failed_call_fails_every_entry() {
    let of = |kind| {
        every_item(&QueueError {
            kind,
            message: "m".into(),
        })
    };
    let passing = ItemError::Transient("m".into());
    assert_eq!(of(ErrorKind::Transient), passing);
    assert_eq!(of(ErrorKind::Unreachable), passing);
    assert_eq!(of(ErrorKind::AccessDenied), passing);
    assert_eq!(of(ErrorKind::NotFound), ItemError::Gone("m".into()));
    assert_eq!(of(ErrorKind::Invalid), ItemError::Refused("m".into()));
}
