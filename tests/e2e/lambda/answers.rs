//! A function's answer names the messages that failed, in forms that libraries do not expect.

use crate::lambda::scene::{forward_to, wait};
use crate::scene::{field, send, until_depth};
use dispatcher_core::queue::Depth;
use dispatcher_tests::child::RunningProgram;
use dispatcher_tests::faulty_lambda::{FaultyLambda, Invocation, LambdaStep};
use serde_json::json;
use std::sync::Arc;

const IGNORED: &str =
    "function lists failures where Lambda does not look; its messages count as done";

/// A run on a local queue that waits for the function, which answers as the script says.
fn run(
    script: impl FnMut(&Invocation) -> LambdaStep + Send + 'static,
    more: &[&str],
) -> (Arc<FaultyLambda>, RunningProgram) {
    let lambda = FaultyLambda::start();
    lambda.script(script);
    let more = [more, &["--partial-failures"]].concat();
    let running = forward_to(&lambda, "local:q", &more).start();
    (Arc::new(lambda), running)
}

#[tokio::test]
async fn answer_names_failed_messages_beside_any_json() {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    for odd in [r#""\ud83d""#.to_owned(), "1e400".to_owned(), deep] {
        let answer = move |invocation: &Invocation| {
            let bad = invocation
                .records
                .iter()
                .filter(|record| record.body == "bad");
            let first = bad.filter(|record| record.before == 0);
            let failures = first.map(|record| json!({"itemIdentifier": record.id}));
            let failures = serde_json::Value::from_iter(failures);
            LambdaStep::answer(&format!(
                r#"{{"x":{odd},"batchItemFailures":{failures},"\ud83d":{odd}}}"#
            ))
        };
        let batch = ["--batch-size", "2", "--batch-window", "5"];
        let (lambda, mut running) = run(answer, &batch);
        let data = running.data().clone();
        send(data.path(), "q", ["good", "bad"].map(String::from)).await;
        let invoked =
            |body: &'static str| wait(&lambda, move |state| Some(state.of(body)?.invoked));
        until_depth(data.path(), "q", |depth| depth == Depth::default()).await;
        running.stop();
        assert_eq!((invoked("good").await, invoked("bad").await), (1, 2));
    }
}

#[tokio::test]
async fn list_of_failures_that_lambda_ignores_is_logged_once() {
    for answer in [
        r#"{"BatchItemFailures":[{"ItemIdentifier":"ID"}]}"#,
        r#""{\"batchItemFailures\":[{\"itemIdentifier\":\"ID\"}]}""#,
    ] {
        let answers = move |invocation: &Invocation| {
            let id = &invocation.records[0].id;
            LambdaStep::answer(&answer.replace("ID", id))
        };
        let (lambda, mut running) = run(answers, &[]);
        let data = running.data().clone();
        send(data.path(), "q", ["one", "two"].map(String::from)).await;
        until_depth(data.path(), "q", |depth| depth == Depth::default()).await;
        running.stop();
        assert_eq!(
            lambda.state().executions.len(),
            2,
            "as Lambda: both are done"
        );
        let lines = running.lines(|line| line.contains(IGNORED));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(field(&lines[0], "level"), "WARN");
        assert_eq!(field(&lines[0], "function"), "f");
        let response = field(&lines[0], "response").to_lowercase();
        assert!(response.contains("batchitemfailures"), "{response}");
    }
}
