//! What is wrong in the environment of AWS's clients is said before a call, in words that name the
//! variable: no value of it is printed where it may be a key, and nothing panics.

use crate::scene::{send, until_depth};
use dispatcher_tests::child::{ExitedProgram, Program};
use dispatcher_tests::served::LocalServer;
use dispatcher_tests::service::{JobService, PostedRequest, ServiceAnswer, ServiceStep};

/// Commands that need AWS: a queue and a function.
fn commands() -> [Program; 3] {
    let local = ["run", "--queues", "local:q", "--function", "f"];
    [
        Program::new(["send", "orders", "x"]),
        Program::new([
            "run",
            "--queues",
            "orders",
            "--forward",
            "http://127.0.0.1:9/",
        ]),
        Program::new(local),
    ]
}

/// Each command with these variables beside a valid environment.
fn ended(variables: &[(&str, &str)]) -> Vec<ExitedProgram> {
    let with = |program: Program| {
        let whole = program.aws("http://127.0.0.1:9");
        let set = |program: Program, (name, value): &(&str, &str)| program.env(name, value);
        variables.iter().fold(whole, set).run()
    };
    commands().into_iter().map(with).collect()
}

fn is_usage(ended: &ExitedProgram, words: &str) {
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains(words), "{}", ended.stderr);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

#[test]
fn key_with_a_line_break_is_refused_by_the_name_of_its_variable() {
    for name in [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
    ] {
        for ended in ended(&[(name, "hunter2\n")]) {
            is_usage(&ended, &format!("{name} ends with a line break"));
            assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
        }
    }
}

#[test]
fn endpoint_without_a_scheme_is_refused_by_the_name_of_its_variable() {
    for name in [
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_SQS",
        "AWS_ENDPOINT_URL_LAMBDA",
    ] {
        for ended in ended(&[(name, "localhost:4566")]) {
            is_usage(
                &ended,
                &format!("{name} is `localhost:4566`; wanted http://HOST"),
            );
        }
    }
}

#[test]
fn misspelt_profile_is_named() {
    for ended in ended(&[("AWS_PROFILE", "wrok")]) {
        is_usage(
            &ended,
            "AWS_PROFILE names the profile `wrok`, which is not in /dev/null",
        );
    }
}

#[test]
fn bundle_of_authorities_that_cannot_be_used_is_named() {
    for ended in ended(&[("AWS_CA_BUNDLE", "/dev/null/ca.pem")]) {
        is_usage(&ended, "AWS_CA_BUNDLE: /dev/null/ca.pem");
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let both = [
        ("AWS_SECRET_ACCESS_KEY", "hunter2\r"),
        ("AWS_ENDPOINT_URL_SQS", "sqs"),
    ];
    for ended in ended(&both) {
        is_usage(&ended, "AWS_SECRET_ACCESS_KEY ends with");
        is_usage(&ended, "AWS_ENDPOINT_URL_SQS is `sqs`");
    }
}

/// A proxy that nobody runs stands in front of a server at an IP address.
#[test]
fn error_through_a_proxy_names_it_and_addresses_and_networks_are_excepted() {
    let server = LocalServer::start();
    let sent = |excepted: &str| {
        let program = Program::new(["send", "orders", "x"]).aws(server.url());
        let proxied = program.env("HTTP_PROXY", "http://me:hunter2@127.0.0.1:9");
        proxied.env("NO_PROXY", excepted).run().stderr
    };
    for excepted in ["127.0.0.1", "a.test, 127.0.0.0/8", "*"] {
        let stderr = sent(excepted);
        assert!(stderr.contains("there is no queue"), "{excepted}: {stderr}");
    }
    for excepted in ["", "127.0.0.2", "10.0.0.0/8"] {
        let stderr = sent(excepted);
        let named = "through the proxy http://127.0.0.1:9: ";
        assert!(stderr.contains(named), "{excepted}: {stderr}");
        assert!(!stderr.contains("hunter2"), "{stderr}");
    }
}

/// The first credentials end at once, so the SDK asks for others before each call.
#[tokio::test]
async fn keys_renewed_in_the_file_are_used_without_a_restart() {
    let lambda = JobService::start(|request: &PostedRequest| {
        let key = request.header("authorization").unwrap_or_default();
        if key.contains("Credential=NEW/") {
            return ServiceStep::Answer(ServiceAnswer::new(200).body("{}"));
        }
        let expired = "{\"Message\":\"The security token included in the request is expired\"}";
        let answer = ServiceAnswer::new(403).body(expired);
        ServiceStep::Answer(answer.header("x-amzn-errortype", "ExpiredTokenException"))
    });
    let endpoint = lambda.url().replace("/jobs", "");
    let process = "date -u -d '+5 seconds' '+{\"Version\":1,\"AccessKeyId\":\"OLD\",\"SecretAccessKey\":\"s\",\"SessionToken\":\"t\",\"Expiration\":\"%Y-%m-%dT%H:%M:%SZ\"}'";
    let old = format!("[default]\ncredential_process = {process}\n");
    let program = Program::new(["run", "--function", "f", "--queues", "local:a"]);
    let mut running = program
        .file("credentials", &old)
        .env("AWS_SHARED_CREDENTIALS_FILE", "credentials")
        .env("AWS_ENDPOINT_URL", &endpoint)
        .env("AWS_REGION", "us-east-1")
        .start();
    running.wait_for_line(|line| line.contains("running"));
    let data = running.data().path().to_owned();
    send(&data, "a", ["x".to_owned()]).await;
    running.wait_for_line(|line| line.contains("is expired"));
    let new = "[default]\naws_access_key_id = NEW\naws_secret_access_key = s\n";
    std::fs::write(data.join("credentials"), new).expect("the folder is ours");
    running.wait_for_line(|line| line.contains("AWS credentials read again"));
    until_depth(&data, "a", |depth| {
        depth.waiting + depth.in_flight + depth.delayed == 0
    })
    .await;
    running.stop();
}
