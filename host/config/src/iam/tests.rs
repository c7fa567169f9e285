//! Whole policies, as people will paste them.

use crate::flags::Flags;
use crate::iam::{AccountKeys, policy};
use crate::section::WrittenValue;
use crate::tests::from_file;
use dispatcher_core::backend::QueueKey;

fn of(list: &[(&str, &str)]) -> String {
    let mut flags = Flags::default();
    for (flag, text) in list {
        flags.take(flag, WrittenValue::new(format!("--{flag}"), *text));
    }
    let (settings, problems) = crate::settings(&flags);
    assert_eq!(problems, []);
    policy(&settings, &AccountKeys::new())
}

fn resources(list: &[(&str, &str)]) -> Vec<String> {
    let policy: serde_json::Value = serde_json::from_str(&of(list)).expect("JSON");
    let statements = policy["Statement"].as_array().expect("a list");
    let resources = statements.iter().flat_map(|statement| {
        let resources = statement["Resource"].as_array().expect("a list");
        resources.iter().filter_map(|resource| resource.as_str())
    });
    let mut all: Vec<String> = resources.map(str::to_owned).collect();
    all.sort();
    all.dedup();
    all
}

/// All statements that there are.
const WHOLE: &str = r#"{
  "Version": "2012-10-17",
  "Statement": [
    {
      "Sid": "TakeMessages",
      "Effect": "Allow",
      "Action": [
        "sqs:ChangeMessageVisibility",
        "sqs:DeleteMessage",
        "sqs:GetQueueAttributes",
        "sqs:GetQueueUrl",
        "sqs:ReceiveMessage"
      ],
      "Resource": [
        "arn:aws:sqs:*:*:payments",
        "arn:aws:sqs:*:*:submissions"
      ]
    },
    {
      "Sid": "SendDeadLetters",
      "Effect": "Allow",
      "Action": [
        "sqs:GetQueueAttributes",
        "sqs:GetQueueUrl",
        "sqs:SendMessage"
      ],
      "Resource": [
        "arn:aws:sqs:*:*:dead"
      ]
    },
    {
      "Sid": "InvokeFunctions",
      "Effect": "Allow",
      "Action": [
        "lambda:InvokeFunction"
      ],
      "Resource": [
        "arn:aws:lambda:*:*:function:my-function:live"
      ]
    },
    {
      "Sid": "LookAtFunctions",
      "Effect": "Allow",
      "Action": [
        "lambda:GetFunctionConcurrency",
        "lambda:GetFunctionConfiguration"
      ],
      "Resource": [
        "arn:aws:lambda:*:*:function:my-function",
        "arn:aws:lambda:*:*:function:my-function:live"
      ]
    },
    {
      "Sid": "PublishMetrics",
      "Effect": "Allow",
      "Action": [
        "cloudwatch:PutMetricData"
      ],
      "Resource": [
        "*"
      ],
      "Condition": {
        "StringEquals": {
          "cloudwatch:namespace": "Dispatcher-my-app"
        }
      }
    }
  ]
}"#;

#[test]
fn policy_covers_a_run_in_classic_mode() {
    let policy = of(&[
        ("function", "my-function:live"),
        ("queues", "submissions:2,payments:3"),
        ("dead-letter", "dead"),
        ("name", "my-app"),
    ]);
    assert_eq!(policy, WHOLE);
}

#[test]
fn policy_grants_no_unneeded_action() {
    let empty = "{\n  \"Version\": \"2012-10-17\",\n  \"Statement\": []\n}";
    assert_eq!(of(&[("plugin", "p.wasm")]), empty);
    let to_stdout = [("plugin", "p.wasm"), ("name", "a"), ("metrics", "emf")];
    assert_eq!(of(&to_stdout), empty);
    let only = of(&[("plugin", "p.wasm"), ("allow-lambda", "img-*\ndoc:live")]);
    assert!(
        !only.contains("GetFunction") && !only.contains("sqs:"),
        "{only}"
    );
}

#[test]
fn finding_02_fifo_queue_needs_access_to_its_redrive_target() {
    let arn = "arn:aws:sqs:eu-west-1:123456789012:orders.fifo";
    let policy = of(&[("plugin", "p.wasm"), ("queues", arn)]);
    let target = "arn:aws:sqs:eu-west-1:123456789012:*.fifo";
    assert!(policy.contains("SendToRedriveTargets"), "{policy}");
    assert!(policy.contains(target) && policy.contains("sqs:SendMessage"));
    for list in [
        &[("queues", "orders")][..],
        &[("queues", "orders.fifo"), ("dead-letter", "dead.fifo")],
    ] {
        let policy = of(&[&[("plugin", "p.wasm")], list].concat());
        assert!(!policy.contains("SendToRedriveTargets"), "{policy}");
    }
}

#[test]
fn known_region_account_and_partition_are_in_the_policy() {
    let arn = "arn:aws:sqs:eu-west-1:123456789012:payments";
    for (queue, wanted) in [
        (arn, arn),
        (
            "https://sqs.eu-west-1.amazonaws.com/123456789012/payments",
            arn,
        ),
        (
            "https://vpce-1.sqs.eu-west-1.vpce.amazonaws.com/123456789012/payments",
            arn,
        ),
        (
            "https://eu-west-1.queue.amazonaws.com/123456789012/payments",
            arn,
        ),
        (
            "https://sqs.cn-north-1.amazonaws.com.cn/123456789012/q",
            "arn:aws-cn:sqs:cn-north-1:123456789012:q",
        ),
        (
            "http://127.0.0.1:4566/000000000000/q",
            "arn:aws:sqs:*:000000000000:q",
        ),
        ("http://127.0.0.1:9324/queue/q", "arn:aws:sqs:*:*:q"),
    ] {
        assert_eq!(resources(&[("plugin", "p"), ("queues", queue)]), [wanted]);
    }
    for (function, wanted) in [
        (
            "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:f",
            &[
                "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:f",
                "arn:aws-us-gov:sqs:*:*:q",
            ][..],
        ),
        (
            "123456789012:function:f:$LATEST",
            &[
                "arn:aws:lambda:*:123456789012:function:f",
                "arn:aws:lambda:*:123456789012:function:f:$LATEST",
                "arn:aws:sqs:*:*:q",
            ],
        ),
    ] {
        assert_eq!(
            resources(&[("function", function), ("queues", "q")]),
            wanted
        );
    }
    let patterns = "img-*\n123456789012:function:x\narn:aws:lambda:*:*:function:y";
    assert_eq!(
        resources(&[("plugin", "p"), ("allow-lambda", patterns)]),
        [
            "arn:aws:lambda:*:*:function:img-*",
            "arn:aws:lambda:*:*:function:y",
            "arn:aws:lambda:*:123456789012:function:x",
        ]
    );
}

#[test]
fn keys_of_encrypted_queues_are_in_the_policy() {
    let mut flags = Flags::default();
    flags.take("queues", WrittenValue::new("--queues", "payments"));
    flags.take("function", WrittenValue::new("--function", "f"));
    let (settings, _) = crate::settings(&flags);
    let key = |key: &str| QueueKey {
        key: key.into(),
        queue: "arn:aws:sqs:eu-west-1:123456789012:payments".into(),
    };
    let keys = [
        key("1234abcd-12ab-34cd-56ef-1234567890ab"),
        key("arn:aws:kms:us-east-1:210987654321:key/mrk-1"),
        key("alias/orders"),
    ];
    let policy: serde_json::Value = serde_json::from_str(&policy(
        &settings,
        &AccountKeys::from([(None, keys.to_vec())]),
    ))
    .expect("JSON");
    let find = |sid: &str| {
        let all = policy["Statement"].as_array().expect("a list");
        let found = all.iter().find(|statement| statement["Sid"] == sid);
        found.expect(sid).clone()
    };
    let by_id = find("UseKeys");
    assert_eq!(
        by_id["Action"],
        serde_json::json!(["kms:Decrypt", "kms:GenerateDataKey"])
    );
    assert_eq!(
        by_id["Resource"],
        serde_json::json!([
            "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",
            "arn:aws:kms:us-east-1:210987654321:key/mrk-1",
        ])
    );
    let by_alias = find("UseKeysByAlias");
    assert_eq!(
        by_alias["Resource"],
        serde_json::json!(["arn:aws:kms:eu-west-1:123456789012:key/*"])
    );
    assert_eq!(
        by_alias["Condition"],
        serde_json::json!({"ForAnyValue:StringEquals": {"kms:ResourceAliases": ["alias/orders"]}})
    );
}

#[test]
fn deleting_done_tasks_of_a_table_needs_one_action_more() {
    let of_table = |completed: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("dispatcher.toml");
        let text = format!(
            "[backend.dynamodb]\ncompleted = \"{completed}\"\n\
             [plugin.forward]\nfunction = \"f\"\n\
             [[route]]\nplugin = \"forward\"\nqueues = [\"dynamodb:tasks\"]\n"
        );
        std::fs::write(&file, text).expect("it can be written");
        of(&[("config", file.to_str().expect("a path of UTF-8"))])
    };
    assert!(of_table("delete").contains("dynamodb:DeleteItem"));
    assert!(!of_table("keep").contains("dynamodb:DeleteItem"));
}

#[test]
fn store_of_the_fleet_needs_its_table_with_and_without_limits() {
    for limits in ["\"api\"", ""] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("dispatcher.toml");
        let text = format!(
            "[fleet]\nstore = \"dynamodb:Limits\"\n[limit.api]\nrate = \"1/s\"\n\
             [plugin.forward]\nfunction = \"f\"\n\
             [[route]]\nqueues = [\"payments\"]\nlimits = [{limits}]\n"
        );
        std::fs::write(&file, text).expect("it can be written");
        let policy = of(&[("config", file.to_str().expect("a path of UTF-8"))]);
        for part in [
            "KeepLimits",
            "dynamodb:BatchGetItem",
            "dynamodb:PutItem",
            "dynamodb:Query",
            "arn:aws:dynamodb:*:*:table/Limits\"",
        ] {
            assert!(policy.contains(part), "{part}: {policy}");
        }
    }
}

#[test]
fn pattern_needs_permission_in_each_account_that_may_have_its_queues() {
    let text = "[account.a]\nqueues = ['prod-a-*']\n[account.b]\nqueues = ['test-*']\n\
                [account.c]\n[plugin.p]\nfile = 'p.wasm'\n\
                [[route]]\nname = 'open'\nqueues = ['prod-*']\n\
                [[route]]\nname = 'c'\naccount = 'c'\nqueues = ['jobs-*']\n";
    let (settings, problems) = from_file(text, &[]);
    assert_eq!(problems, [""; 0]);
    let all = policy(&settings, &AccountKeys::new());
    let all: serde_json::Value = serde_json::from_str(&all).expect("JSON");
    let accounts = &all["accounts"];
    for (policy, patterns) in [
        (&all["process"], &["prod-*"][..]),
        (&accounts["a"]["policy"], &["prod-*"]),
        (&accounts["b"]["policy"], &[]),
        (&accounts["c"]["policy"], &["jobs-*"]),
    ] {
        let statements = policy["Statement"].as_array().expect("a list").iter();
        let of = |sid: &str| {
            let mut found = statements.clone().filter(|one| one["Sid"] == sid);
            found.next().map(|one| one["Resource"].clone())
        };
        let names = patterns
            .iter()
            .map(|name| format!("arn:aws:sqs:*:*:{name}"));
        let queues = (!patterns.is_empty()).then(|| names.collect::<Vec<_>>().into());
        assert_eq!(of("FindQueues"), queues, "{patterns:?}");
        assert_eq!(of("TakeMessages"), queues, "{patterns:?}");
        let every = serde_json::json!(["*"]);
        assert_eq!(of("ListQueues"), queues.map(|_| every), "{patterns:?}");
    }
}

#[test]
fn each_account_has_its_policy_and_the_trust_of_its_role() {
    let text = "[account.a]\nrole = 'arn:aws:iam::111122223333:role/r'\nexternal-id = 'x1'\n\
                queues = ['team-a-*']\nfunctions = ['f']\n\
                [account.b]\nprofile = 'p'\n\
                [plugin.f]\nfunction = 'f'\n\
                [[route]]\nqueues = ['team-a-jobs', 'own']\n\
                [[route]]\nname = 'b'\naccount = 'b'\nqueues = ['jobs']\ndead-letter = 'dead'\n";
    let (settings, problems) = from_file(text, &[]);
    assert_eq!(problems, [""; 0]);
    let all = policy(&settings, &AccountKeys::new());
    let all: serde_json::Value = serde_json::from_str(&all).expect("JSON");
    let resources = |policy: &serde_json::Value| {
        let statements = policy["Statement"].as_array().expect("a list").iter();
        let pairs = statements.map(|one| (one["Sid"].clone(), one["Resource"].clone()));
        pairs.collect::<Vec<_>>()
    };
    let role = "arn:aws:iam::111122223333:role/r";
    let queue = |name: &str| format!("arn:aws:sqs:*:*:{name}").into();
    let function: serde_json::Value = "arn:aws:lambda:*:*:function:f".into();
    let list = |value: serde_json::Value| serde_json::json!([value]);
    let found = |pairs: Vec<(serde_json::Value, serde_json::Value)>, sid: &str| {
        let mut pairs = pairs.into_iter();
        pairs.find(|(name, _)| name == sid).map(|(_, of)| of)
    };
    let process = resources(&all["process"]);
    assert_eq!(
        found(process.clone(), "TakeMessages"),
        Some(list(queue("own")))
    );
    assert_eq!(found(process.clone(), "InvokeFunctions"), None);
    assert_eq!(found(process, "AssumeRoles"), Some(list(role.into())));
    let a = &all["accounts"]["a"];
    let of_a = resources(&a["policy"]);
    assert_eq!(
        found(of_a.clone(), "TakeMessages"),
        Some(list(queue("team-a-jobs")))
    );
    assert_eq!(found(of_a, "InvokeFunctions"), Some(list(function)));
    assert_eq!(a["role"], role);
    let trust = &a["trust"]["Statement"][0];
    assert_eq!(trust["Action"], "sts:AssumeRole");
    assert_eq!(trust["Condition"]["StringEquals"]["sts:ExternalId"], "x1");
    let b = &all["accounts"]["b"];
    assert_eq!(
        (&b["profile"], &b["trust"]),
        (&"p".into(), &serde_json::Value::Null)
    );
    let of_b = resources(&b["policy"]);
    assert_eq!(
        found(of_b.clone(), "TakeMessages"),
        Some(list(queue("jobs")))
    );
    assert_eq!(found(of_b, "SendDeadLetters"), Some(list(queue("dead"))));
}

#[test]
fn queue_that_messages_are_sent_to_may_be_sent_to() {
    let policy = of(&[("queues", "redis:outbox"), ("send-to", "payments")]);
    let policy: serde_json::Value = serde_json::from_str(&policy).expect("JSON");
    let statements = policy["Statement"].as_array().expect("a list");
    assert_eq!(statements.len(), 1, "{policy}");
    let actions = [
        "sqs:GetQueueAttributes",
        "sqs:GetQueueUrl",
        "sqs:SendMessage",
    ];
    assert_eq!(statements[0]["Action"], serde_json::json!(actions));
    let resource = serde_json::json!(["arn:aws:sqs:*:*:payments"]);
    assert_eq!(statements[0]["Resource"], resource);
}
