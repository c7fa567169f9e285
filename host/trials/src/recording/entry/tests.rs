//! Entries as JSON and as words, and back.

use super::*;
use proptest::prelude::*;

fn verdicts() -> Vec<Verdict> {
    let after = Some(Duration::from_secs(90));
    let retry = |after, why| Verdict::Retry { after, why };
    vec![
        Verdict::Done,
        retry(after, FailureReason::Requested),
        retry(None, FailureReason::Trapped("unreachable".into())),
        retry(None, FailureReason::TimedOut(Duration::from_secs(1))),
        Verdict::Reject("no".into()),
        Verdict::Busy {
            after,
            why: "throttled".into(),
        },
        Verdict::Closed("gone".into()),
    ]
}

#[test]
fn recorded_verdicts_are_readable_as_text_and_json() {
    let answers: Vec<RecordedVerdict> = verdicts().iter().map(RecordedVerdict::of).collect();
    assert_eq!(
        answers[1].to_string(),
        "retry after 1m 30s: the handler asked for a retry"
    );
    assert_eq!(answers[4].to_string(), "reject: no");
    let json = |at: usize| serde_json::to_string(&answers[at]).expect("JSON");
    assert_eq!(json(0), r#"{"verdict":"done"}"#);
    assert_eq!(json(4), r#"{"verdict":"reject","why":"no"}"#);
    assert!(json(1).starts_with(r#"{"verdict":"retry","after_ms":90000,"cause":"asked""#));
    for (at, one) in answers.iter().enumerate() {
        for (other, two) in answers.iter().enumerate() {
            assert_eq!(one.is_like(two), at == other, "{one} {two}");
        }
    }
}

#[test]
fn answer_without_guest_text_keeps_only_host_facts() {
    let secret = "4111-1111";
    let retry = |why| Verdict::Retry { after: None, why };
    for guests in [
        retry(FailureReason::RequestedWith(secret.into())),
        retry(FailureReason::Failed(secret.into())),
        retry(FailureReason::Trapped(secret.into())),
        retry(FailureReason::Host(secret.into())),
        Verdict::Reject(secret.into()),
        Verdict::Busy {
            after: Some(Duration::from_secs(1)),
            why: secret.into(),
        },
        Verdict::Closed(secret.into()),
    ] {
        let whole = RecordedVerdict::of(&guests);
        let left = whole.clone().without_guest_text();
        assert!(!format!("{left:?}").contains(secret), "{left:?}");
        assert!(left.to_string().contains(BLOT), "{left}");
        assert!(left.is_like(&whole), "{left}");
    }
    for ours in [
        FailureReason::TimedOut(Duration::from_secs(1)),
        FailureReason::OutOfMemory(1),
    ] {
        let whole = RecordedVerdict::of(&retry(ours));
        assert_eq!(whole.clone().without_guest_text(), whole);
    }
}

#[test]
fn truncated_last_line_is_skipped_and_damaged_line_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.jsonl");
    let entry = RecordedMessage::new("p", "1", Message::default(), &Verdict::Done, Duration::ZERO);
    let line = serde_json::to_string(&entry).expect("JSON");
    std::fs::write(&file, format!("{line}\n\n{line}\n{}", &line[..40])).expect("written");
    assert_eq!(read(&file).expect("entries").len(), 2);
    std::fs::write(&file, format!("{line}\nnonsense\n{line}\n")).expect("written");
    let error = read(&file).expect_err("damaged");
    assert!(
        error.contains("a.jsonl:2: not a recorded message"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn recorded_message_round_trips(body: String, id: String, value: Vec<u8>, group: Option<String>) {
        let message = Message {
            id, body, group,
            receive_count: 3,
            attributes: vec![Attribute {
                name: "a".into(),
                data_type: "Binary".into(),
                value: AttributeValue::Binary(value),
            }],
            receipt: Receipt("recorded".into()),
            ..Message::default()
        };
        let entry = RecordedMessage::new("p", "1", message.clone(), &Verdict::Done, Duration::ZERO);
        let line = serde_json::to_string(&entry).expect("JSON");
        prop_assert!(!line.contains('\n'));
        let back: RecordedMessage = serde_json::from_str(&line).expect("an entry");
        prop_assert_eq!(&back, &entry);
        prop_assert_eq!(Message::from(back.message), message);
    }
}

#[test]
fn finding_03_recorded_message_without_body_is_refused() {
    let line = |message: &str| {
        format!(
            r#"{{"at":1,"plugin":"p","version":"v","took_us":1,"message":{message},"answer":{{"verdict":"done"}}}}"#
        )
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("recorded.jsonl");
    std::fs::write(&file, line(r#"{"id":"m","body":""}"#)).expect("written");
    assert_eq!(read(&file).expect("an entry").len(), 1);
    std::fs::write(&file, line(r#"{"id":"m"}"#)).expect("written");
    let why = read(&file).expect_err("no body");
    assert!(why.contains("missing field `body`"), "{why}");
}
