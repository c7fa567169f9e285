//! What may be sent to which kind of queue, and the ids of batches.

use super::*;
use crate::input;
use dispatcher_local::queue::QueueSettings;
use std::collections::BTreeMap;

fn queue(name: &str) -> KnownQueue {
    KnownQueue {
        id: 1,
        name: name.into(),
        settings: QueueSettings {
            fifo: is_fifo(name),
            delay_s: 7,
            longest: 2048,
            ..QueueSettings::default()
        },
        configured: true,
        paused: false,
    }
}

fn plain(body: &str) -> Send {
    Send {
        message_body: Some(body.into()),
        ..Send::default()
    }
}

fn fifo(body: &str) -> Send {
    Send {
        message_group_id: Some("g".into()),
        message_deduplication_id: Some("once".into()),
        ..plain(body)
    }
}

fn kind(queue: &KnownQueue, asked: Send) -> FaultKind {
    check(queue, asked, Call::Single)
        .map(drop)
        .expect_err("refused")
        .kind
}

#[test]
fn default_delay_of_the_queue_applies_unless_the_message_has_one() {
    let delay = |name, seconds, asked| {
        let asked = Send {
            delay_seconds: seconds,
            ..asked
        };
        check(&queue(name), asked, Call::Single)
            .map(|checked| checked.draft.message.delay.as_secs())
    };
    assert_eq!(delay("q", None, plain("x")).unwrap(), 7);
    assert_eq!(delay("q", Some(0), plain("x")).unwrap(), 0);
    assert_eq!(delay("q", Some(900), plain("x")).unwrap(), 900);
    assert_eq!(delay("q.fifo", None, fifo("x")).unwrap(), 7);
    assert!(delay("q", Some(901), plain("x")).is_err());
    assert!(delay("q", Some(-1), plain("x")).is_err());
    assert!(delay("q.fifo", Some(5), fifo("x")).is_err());
}

#[test]
fn fifo_queues_require_a_group_and_an_id() {
    let standard = queue("q");
    let grouped = Send {
        message_deduplication_id: None,
        ..fifo("x")
    };
    let checked = check(&standard, grouped, Call::Single).unwrap();
    assert_eq!(checked.draft.message.group.as_deref(), Some("g"));
    assert_eq!(checked.draft.system, [], "it is said once");
    assert_eq!(kind(&standard, fifo("x")), FaultKind::InvalidParameterValue);

    let mut ordered = queue("q.fifo");
    assert_eq!(kind(&ordered, plain("x")), FaultKind::MissingParameter);
    let no_id = || Send {
        message_deduplication_id: None,
        ..fifo("x")
    };
    assert_eq!(kind(&ordered, no_id()), FaultKind::InvalidParameterValue);
    ordered.settings.ids_from_content = true;
    let of_body = check(&ordered, no_id(), Call::Single)
        .unwrap()
        .draft
        .once
        .unwrap();
    assert_eq!(
        of_body,
        "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    );
    assert_eq!(
        check(&ordered, fifo("x"), Call::Single)
            .unwrap()
            .draft
            .once
            .unwrap(),
        "once"
    );
    ordered.settings.ids_by_group = true;
    assert_eq!(
        check(&ordered, fifo("x"), Call::Single)
            .unwrap()
            .draft
            .once
            .unwrap(),
        "g once"
    );
    for bad in ["", "a b", "é", &"x".repeat(129)] {
        let asked = Send {
            message_group_id: Some(bad.into()),
            ..fifo("x")
        };
        assert_eq!(
            kind(&ordered, asked),
            FaultKind::InvalidParameterValue,
            "{bad}"
        );
    }
}

#[test]
fn message_size_is_limited_by_its_queue() {
    let body = "x".repeat(2048);
    assert!(check(&queue("q"), plain(&body), Call::Single).is_ok());
    let attributes = BTreeMap::from([(
        "a".to_owned(),
        input::Attribute {
            data_type: Some("String".into()),
            string_value: Some("x".into()),
            binary_value: None,
        },
    )]);
    let more = Send {
        message_attributes: Some(attributes),
        ..plain(&body)
    };
    assert_eq!(kind(&queue("q"), more), FaultKind::InvalidParameterValue);
    for (call, wanted) in [
        (Call::Single, "are invalid"),
        (Call::Batch, "cannot be validated"),
    ] {
        let long = plain(&"x".repeat(2049));
        let refused = check(&queue("q"), long, call).map(drop).unwrap_err();
        let reason = "Reason: Message must be shorter than 2048 bytes.";
        let wanted = format!("One or more parameters {wanted}. {reason}");
        assert_eq!(refused.message, wanted);
    }
}

#[test]
fn batch_to_a_fifo_queue_needs_every_group_and_id() {
    let ordered = queue("q.fifo");
    let group = Send {
        message_group_id: None,
        ..fifo("x")
    };
    let id = || Send {
        message_deduplication_id: None,
        ..fifo("x")
    };
    for (bad, wanted) in [
        (
            group,
            "The request must contain the parameter MessageGroupId.",
        ),
        (id(), NO_DEDUPLICATION_ID),
    ] {
        let refused = check_order(&ordered, &[fifo("x"), bad]).unwrap_err();
        let wanted = (FaultKind::InvalidParameterValue, wanted.to_owned());
        assert_eq!((refused.kind, refused.message), wanted);
    }
    let mut by_content = ordered;
    by_content.settings.ids_from_content = true;
    assert_eq!(check_order(&by_content, &[id()]), Ok(()));
    assert_eq!(check_order(&queue("q"), &[plain("x")]), Ok(()));
}

#[test]
fn trace_of_the_request_is_that_of_a_message_without_one() {
    let mut checked = check(&queue("q"), plain("x"), Call::Single).unwrap();
    checked.trace(None);
    assert_eq!(checked.draft.system, []);
    checked.trace(Some("Root=1"));
    checked.trace(Some("Root=2"));
    assert_eq!(checked.draft.system, [(TRACE.into(), "Root=1".into())]);
    assert_eq!(checked.system_md5, None, "its sender does not know it");
}

#[test]
fn batch_has_up_to_ten_entries_with_distinct_ids() {
    let ids = |ids: &[&str]| {
        let ids: Vec<_> = ids.iter().map(|id| Some(*id)).collect();
        batch_ids("SendMessageBatch", ids.into_iter()).map_err(|fault| fault.kind)
    };
    assert_eq!(ids(&["b", "a-1", "_"]).unwrap(), ["b", "a-1", "_"]);
    assert_eq!(ids(&[]), Err(FaultKind::EmptyBatchRequest));
    assert_eq!(
        ids(&["x"; 11]),
        Err(FaultKind::TooManyEntriesInBatchRequest)
    );
    assert_eq!(
        ids(&["a", "b", "a"]),
        Err(FaultKind::BatchEntryIdsNotDistinct)
    );
    for bad in ["", "a b", "a.b", &"x".repeat(81)] {
        assert_eq!(ids(&[bad]), Err(FaultKind::InvalidBatchEntryId), "{bad}");
    }
}
