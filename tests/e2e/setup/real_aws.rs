//! The suites for a real AWS account, as far as they can be tried without one: they refuse to begin
//! without a limit, remove what they made, also after a kill, and say what differs. MiniStack stands for
//! the account.

use dispatcher_tests::PATIENCE;
use dispatcher_tests::account::Account;
use dispatcher_tests::servers::MiniStack;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

/// A role that MiniStack does not look at.
const ROLE: &str = "arn:aws:iam::000000000000:role/tests";

fn suites(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_real-aws"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command
        .args(arguments)
        .env("AWS_CONFIG_FILE", "/dev/null")
        .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("DISPATCHER_BINARY", dispatcher_tests::child::binary())
        .stdin(Stdio::null());
    command
}

fn ended(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = suites(arguments).output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code(), text(stdout), text(stderr))
}

async fn remains(prefix: &str) -> Vec<String> {
    let url = MiniStack::shared().url();
    let account = Account::connect(Some(&url), prefix, 1.0).await;
    let remains = account.expect("a prefix").remains().await.expect("lists");
    remains.iter().map(ToString::to_string).collect()
}

#[test]
fn nothing_is_called_without_a_limit() {
    let (code, out, err) = ended(&["run"]);
    assert_eq!((code, &*out), (Some(2), ""), "{err}");
    assert!(err.contains("--spend-up-to"), "{err}");
    let (code, out, err) = ended(&["run", "--spend-up-to", "0.0001"]);
    assert_eq!((code, &*out), (Some(2), ""), "{err}");
    assert!(err.contains("a run may cost $"), "{err}");
    let (code, out, _) = ended(&["estimate"]);
    assert_eq!(code, Some(0));
    let estimate = out.trim().strip_prefix("at most $").expect("an estimate");
    let estimate: f64 = estimate
        .trim_end_matches(" a run")
        .parse()
        .expect("dollars");
    assert!((0.01..1.0).contains(&estimate), "{out}");
}

#[test]
fn missing_region_or_invalid_prefix_names_the_fix() {
    let (code, _, err) = ended(&["run", "--spend-up-to", "1"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("AWS_REGION"), "{err}");
    let bad = ["run", "--spend-up-to", "1", "--prefix", "no_underscores"];
    let (code, _, err) = ended(&bad);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("letters, digits and dashes"), "{err}");
}

#[tokio::test]
async fn resources_of_a_run_are_deleted_when_it_ends() {
    let url = MiniStack::shared().url();
    let prefix = "ends-cleanly";
    let common = [
        "run",
        "--spend-up-to",
        "1",
        "--endpoint-url",
        &url,
        "--prefix",
        prefix,
    ];
    let only = ["--role", ROLE, "--only", "redelivered"];
    let (code, out, err) = ended(&[&common[..], &only].concat());
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(!out.contains("DIFFERS"), "{out}");
    for name in [
        "sqs leases::unsettled_message_is_redelivered",
        "dynamodb settling::released_message_is_redelivered",
        "classic message_is_redelivered_after_the_function_raises",
        "classic only_the_failed_message_of_a_batch_is_redelivered",
    ] {
        assert!(out.contains(&format!("ok        {name}")), "{out}{err}");
    }
    assert!(out.contains("spent at most $"), "{out}");
    assert!(err.contains("created queue ends-cleanly-"), "{err}");
    assert_eq!(remains(prefix).await, [""; 0]);
}

#[tokio::test]
async fn clean_deletes_resources_of_a_killed_run() {
    let url = MiniStack::shared().url();
    let prefix = "is-killed";
    let place = ["--endpoint-url", &url, "--prefix", prefix];
    let run = ["run", "--spend-up-to", "1", "--only", "sqs leases"];
    let mut child = suites(&[&run[..], &place].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let created = lines
        .map_while(Result::ok)
        .find(|line| line.starts_with("created queue"));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(created.is_some(), "it made a queue within {PATIENCE:?}");
    assert_ne!(remains(prefix).await, [""; 0], "a kill leaves something");
    let (code, _, err) = ended(&[&["clean"][..], &place].concat());
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("removed queue is-killed-"), "{err}");
    assert_eq!(remains(prefix).await, [""; 0]);
}
