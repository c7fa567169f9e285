//! Who comes from another tool finds the way: the classic tool's variables work and are named, and
//! `doctor` says what will hurt and what the role needs.

use crate::lambda::scene::queue;
use crate::scene::guest;
use dispatcher_tests::child::Program;
use dispatcher_tests::lambda::Function;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::SqsServer;
use serde_json::{Value, json};

#[tokio::test]
async fn variables_of_the_classic_tool_are_read_and_listed_once() {
    let server = MiniStack::shared().url();
    let function = Function::create(&server, "classic").await;
    let (sqs, name, url) = queue("classic", &[]).await;
    sqs.send_many(&url, (0..5).map(|n| n.to_string())).await;
    let queues = format!("{name}:1");
    let mut running = Program::new(["run"])
        .aws(&server)
        .env("WORKERLESS_FUNCTION", &function.name)
        .env("WORKERLESS_QUEUES", &queues)
        .env("WORKERLESS_CONCURRENCY", "3")
        .env("WORKERLESS_POLL_FOR", "1")
        .env("WORKERLESS_SLEEP", "0")
        .start();
    let notice = running.wait_for_line(|line| line.contains("WORKERLESS_"));
    for named in [
        "WORKERLESS_FUNCTION as DISPATCHER_FUNCTION",
        "DISPATCHER_POLL_FOR",
    ] {
        assert!(notice.contains(named), "{notice}");
    }
    running.wait_for_line(|line| line.contains("running") && line.contains("concurrency=3"));
    sqs.wait_until_empty(&url).await;
    running.stop();
    assert_eq!(function.calls().len(), 5);
    let notices = running.text(dispatcher_tests::child::Stream::Err);
    assert_eq!(notices.matches("classic tool").count(), 1, "{notices}");
}

#[tokio::test]
async fn invalid_value_names_the_classic_variable() {
    let ended = Program::new(["check", "--function", "f"])
        .env("WORKERLESS_CONCURRENCY", "many")
        .run();
    assert_eq!(ended.code, 2);
    assert!(
        ended.stderr.contains("WORKERLESS_CONCURRENCY: `many`"),
        "{}",
        ended.stderr
    );
}

#[tokio::test]
async fn doctor_reports_problematic_settings() {
    let server = MiniStack::shared().url();
    let function = Function::create(&server, "doctor").await;
    let (_, name, _) = queue("doctor", &[("VisibilityTimeout", "3")]).await;
    let look = |function: &str| {
        Program::new([
            "doctor",
            "--json",
            "--queues",
            &name,
            "--function",
            function,
        ])
        .aws(&server)
        .run()
    };
    let ended = look(&function.name);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let findings: Vec<Value> = serde_json::from_str(&ended.stdout).expect("an array");
    let found = |level: &str, about: &str, message: &str| {
        findings.iter().any(|finding| {
            let text = |key: &str| finding[key].as_str().unwrap_or_default();
            text("level") == level
                && text("about").contains(about)
                && text("message").contains(message)
        })
    };
    assert!(found("warn", &name, "redrive policy"), "{findings:?}");
    assert!(
        found("warn", &name, "visibility timeout is 3s"),
        "{findings:?}"
    );
    assert!(
        found("ok", &function.name, "an invocation may take"),
        "{findings:?}"
    );
    let ended = look("no-such-function");
    assert_eq!(ended.code, 2, "{}", ended.stdout);
    let findings: Vec<Value> = serde_json::from_str(&ended.stdout).expect("an array");
    let bad = findings.iter().filter(|finding| finding["level"] == "bad");
    assert_eq!(bad.count(), 1, "{findings:?}");
}

#[tokio::test]
async fn doctor_reports_dead_letters_that_are_kept_for_a_shorter_time() {
    let server = SqsServer::at(&MiniStack::shared().url());
    let [short, long, source] = ["short", "long", "source"].map(SqsServer::fresh_name);
    let kept = |seconds| [("MessageRetentionPeriod", seconds)];
    server.create(&short, &kept("3600")).await;
    server.create(&long, &kept("1209600")).await;
    let target = format!("arn:aws:sqs:us-east-1:000000000000:{short}");
    let policy = json!({"deadLetterTargetArn": target, "maxReceiveCount": 5}).to_string();
    let attributes = [
        ("RedrivePolicy", &*policy),
        ("MessageRetentionPeriod", "86400"),
    ];
    server.create(&source, &attributes).await;
    let look = |more: &[&str]| {
        let hello = guest("hello");
        let words = ["doctor", "--plugin", &hello, "--queues", &source];
        Program::new([&words, more].concat())
            .aws(&MiniStack::shared().url())
            .run()
    };
    let says = "keeps messages for 1h, the queue itself for 1day";
    let by_policy = look(&[]);
    assert_eq!(by_policy.code, 0, "{by_policy:?}");
    assert!(by_policy.stdout.contains(says), "{by_policy:?}");
    let of_route = look(&["--dead-letter", &short]);
    assert!(of_route.stdout.contains(says), "{of_route:?}");
    let kept = look(&["--dead-letter", &long]);
    assert!(!kept.stdout.contains("keeps messages for"), "{kept:?}");
    // For pipelines, a warning is an exit code.
    assert_eq!(look(&["--strict"]).code, 1);
}

#[test]
fn doctor_prints_the_required_policy_without_a_call() {
    let ended = Program::new([
        "doctor",
        "--iam",
        "--function",
        "my-function:live",
        "--queues",
        "payments:3,arn:aws:sqs:eu-west-1:123456789012:default:1",
        "--name",
        "app",
    ])
    .run();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let policy: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let text = policy.to_string();
    for wanted in [
        "arn:aws:sqs:eu-west-1:123456789012:default",
        ":payments",
        "lambda:InvokeFunction",
        "function:my-function:live",
        "cloudwatch:PutMetricData",
        "Dispatcher-app",
    ] {
        assert!(text.contains(wanted), "{wanted}: {}", ended.stdout);
    }
    assert!(
        !text.contains("SendMessage"),
        "there is no dead-letter queue: {text}"
    );
}
