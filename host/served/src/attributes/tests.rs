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
}

#[test]
fn attributes_of_fifo_queues_are_refused_on_others() {
    let message = |name: &str, value: &str| {
        let refused = new("q", &texts(&[(name, value)]), BTreeMap::new()).unwrap_err();
        assert_eq!(
            refused.kind,
            FaultKind::InvalidAttributeName,
            "{name}={value}"
        );
        refused.message
    };
    for (name, value) in [
        ("FifoQueue", "true"),
        ("FifoQueue", "false"),
        ("ContentBasedDeduplication", "false"),
    ] {
        assert_eq!(message(name, value), format!("Unknown Attribute {name}."));
    }
    for (name, value) in [("DeduplicationScope", "queue"), (THROUGHPUT, PER_QUEUE)] {
        let wanted = format!("You can specify the {name} only when FifoQueue is set to true.");
        assert_eq!(message(name, value), wanted);
    }
}

#[test]
fn flags_are_read_in_any_case() {
    let given = texts(&[("FifoQueue", "True"), ("ContentBasedDeduplication", "TRUE")]);
    assert!(wants_fifo(&given));
    let settings = new("q.fifo", &given, BTreeMap::new()).unwrap();
    assert!(settings.fifo && settings.ids_from_content);
    let refused = new("q.fifo", &texts(&[("FifoQueue", "False")]), BTreeMap::new()).unwrap_err();
    let wanted = "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not \
                  supported.";
    assert_eq!(refused.message, wanted);
    for name in ["FifoQueue", "ContentBasedDeduplication", SSE] {
        assert_eq!(
            kind("q.fifo", &[(name, "1")]),
            FaultKind::InvalidAttributeValue
        );
    }
}

#[test]
fn throughput_by_group_needs_ids_by_group() {
    let both = [
        ("DeduplicationScope", "messageGroup"),
        (THROUGHPUT, PER_GROUP),
    ];
    let mut settings = new("q.fifo", &texts(&both), BTreeMap::new()).unwrap();
    assert_eq!(kind("q.fifo", &both[1..]), FaultKind::InvalidAttributeValue);
    assert_eq!(
        kind("q.fifo", &[(THROUGHPUT, "perMessage")]),
        FaultKind::InvalidAttributeValue
    );
    let queue = ("DeduplicationScope", "queue");
    assert!(apply(&mut settings.clone(), "q.fifo", &texts(&[queue])).is_err());
    let back = texts(&[queue, (THROUGHPUT, PER_QUEUE)]);
    assert!(apply(&mut settings, "q.fifo", &back).is_ok());
}

/// What a queue shows of its encryption after each of these changes.
fn encryption(changes: &[&[(&str, &str)]]) -> Vec<(&'static str, String)> {
    let mut known = KnownQueue {
        id: 1,
        name: "q".into(),
        settings: QueueSettings::default(),
        configured: true,
        paused: false,
    };
    for change in changes {
        apply(&mut known.settings, "q", &texts(change)).unwrap();
    }
    let mut shown = set_by_people(&known);
    shown.retain(|(name, _)| [SSE, KEY, KEY_PERIOD].contains(name));
    shown
}

#[test]
fn queue_has_one_kind_of_encryption() {
    let key: &[_] = &[(KEY, "k"), (KEY_PERIOD, "6000")];
    let own = |enabled: &str| (SSE, enabled.to_owned());
    assert_eq!(encryption(&[]), [own("true")]);
    let with_key = [
        own("false"),
        (KEY, "k".to_owned()),
        (KEY_PERIOD, "6000".to_owned()),
    ];
    assert_eq!(encryption(&[key]), with_key);
    let unset: &[_] = &[(KEY, ""), (KEY_PERIOD, "300")];
    assert_eq!(encryption(&[key, unset]), [own("false")]);
    assert_eq!(encryption(&[key, unset, &[(SSE, "True")]]), [own("true")]);
    let replaced = encryption(&[key, &[(SSE, "true"), (KEY_PERIOD, "300")]]);
    assert_eq!(replaced, [own("true")]);
    let refused = new("q", &texts(&[(KEY, "k"), (SSE, "true")]), BTreeMap::new()).unwrap_err();
    assert_eq!(refused.kind, FaultKind::InvalidAttributeName);
}

#[test]
fn policies_that_cannot_be_read_are_refused() {
    for bad in ["{not json", "[]", "\"x\"", "{}"] {
        let refused = new("q", &texts(&[("Policy", bad)]), BTreeMap::new()).unwrap_err();
        assert_eq!(refused.kind, FaultKind::InvalidAttributeValue, "{bad}");
        assert_eq!(refused.message, "Invalid value for the parameter Policy.");
        assert_eq!(
            kind("q", &[(ALLOW_POLICY, bad)]),
            FaultKind::InvalidParameterValue
        );
    }
    for good in [
        "",
        r#"{"redrivePermission":"denyAll"}"#,
        r#"{"redrivePermission":"byQueue","sourceQueueArns":["arn:aws:sqs:r:1:q"]}"#,
    ] {
        let set = new("q", &texts(&[(ALLOW_POLICY, good)]), BTreeMap::new()).unwrap();
        assert_eq!(set.other.contains_key(ALLOW_POLICY), !good.is_empty());
    }
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
    let own = texts(&[("RedrivePolicy", &policy(&super::arn("q"), "1"))]);
    assert!(new("q", &own, BTreeMap::new()).is_ok(), "as on SQS");
    for bad in [
        policy(&arn, "0"),
        policy(&arn, "1001"),
        policy("dead", "1"),
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
        ("Policy", r#"{"Statement":[{"Effect":"Allow"}]}"#),
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
