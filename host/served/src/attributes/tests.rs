//! Numbers within the bounds of SQS, policies that can be kept, and that what is set is shown.

use super::*;
use std::collections::BTreeMap;

fn texts(pairs: &[(&str, &str)]) -> Texts {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn kind(name: &str, pairs: &[(&str, &str)]) -> FaultKind {
    let made = new(name, &texts(pairs), BTreeMap::new());
    made.map(drop).expect_err("it must be refused").kind
}

#[test]
fn numeric_attributes_respect_the_bounds_of_sqs() {
    for (name, least, most) in NUMBERS {
        for good in [least, most] {
            let given = texts(&[(name, &good.to_string())]);
            assert!(new("q", &given, BTreeMap::new()).is_ok(), "{name}={good}");
        }
        let below = least.checked_sub(1).map(|below| below.to_string());
        for bad in [
            below.unwrap_or("-1".into()),
            (most + 1).to_string(),
            "x".into(),
        ] {
            assert_eq!(
                kind("q", &[(name, &bad)]),
                FaultKind::InvalidAttributeValue,
                "{name}={bad}"
            );
        }
    }
}

#[test]
fn unknown_attributes_are_refused() {
    assert_eq!(
        kind("q", &[("Colour", "red")]),
        FaultKind::InvalidAttributeName
    );
    assert_eq!(
        kind("q", &[("QueueArn", "x")]),
        FaultKind::InvalidAttributeName
    );
    assert_eq!(
        kind("q", &[("ContentBasedDeduplication", "true")]),
        FaultKind::InvalidAttributeName
    );
    assert_eq!(
        kind("q", &[("FifoQueue", "true")]),
        FaultKind::InvalidAttributeValue
    );
    assert_eq!(kind("q.fifo", &[]), FaultKind::InvalidParameterValue);
}

#[test]
fn redrive_policy_has_target_and_maximum() {
    let policy = |target: &str, most: &str| {
        format!("{{\"deadLetterTargetArn\":\"{target}\",\"maxReceiveCount\":{most}}}")
    };
    let arn = arn("dead");
    for most in ["1", "1000", "\"3\""] {
        let given = texts(&[("RedrivePolicy", &policy(&arn, most))]);
        let settings = new("q", &given, BTreeMap::new()).unwrap();
        assert_eq!(settings.redrive.unwrap().dead_letter_queue, "dead");
    }
    for bad in [
        policy(&arn, "0"),
        policy(&arn, "1001"),
        policy("dead", "1"),
        policy(&super::arn("q"), "1"),
        policy(&super::arn("dead.fifo"), "1"),
        "{}".into(),
        "no JSON".into(),
        format!("{{\"deadLetterTargetArn\":\"{arn}\"}}"),
    ] {
        assert_eq!(
            kind("q", &[("RedrivePolicy", &bad)]),
            FaultKind::InvalidParameterValue,
            "{bad}"
        );
    }
    let mut settings = QueueSettings {
        redrive: Some(Redrive {
            most_receives: 1,
            dead_letter_queue: "dead".into(),
        }),
        ..QueueSettings::default()
    };
    apply(&mut settings, "q", &texts(&[("RedrivePolicy", "")])).unwrap();
    assert_eq!(settings.redrive, None, "nothing takes it away");
}

#[test]
fn stored_attributes_are_shown_and_compare_equal() {
    let given = texts(&[
        ("FifoQueue", "true"),
        ("ContentBasedDeduplication", "true"),
        ("DeduplicationScope", "messageGroup"),
        ("FifoThroughputLimit", "perMessageGroupId"),
        ("DelaySeconds", "5"),
        ("MaximumMessageSize", "2048"),
        ("MessageRetentionPeriod", "60"),
        ("ReceiveMessageWaitTimeSeconds", "20"),
        ("VisibilityTimeout", "0"),
        ("Policy", "{}"),
    ]);
    let known = KnownQueue {
        id: 1,
        name: "q.fifo".into(),
        settings: new("q.fifo", &given, BTreeMap::new()).unwrap(),
        configured: true,
        paused: false,
    };
    let shown = all(&known, &Depth::default());
    for (name, value) in &given {
        let found = shown.iter().find(|(shown, _)| shown == name);
        assert_eq!(found.map(|(_, value)| value), Some(value), "{name}");
        assert!(is_known(name));
    }
    assert!(shown.iter().all(|(name, _)| is_known(name)));
    assert_eq!(differences(&known, &given).unwrap(), [""; 0]);
    let other = texts(&[("FifoQueue", "true"), ("DelaySeconds", "6")]);
    assert_eq!(differences(&known, &other).unwrap(), ["DelaySeconds"]);
}
