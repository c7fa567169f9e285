//! What the promises about Lambda share: a run that forwards, new queues, and a Lambda that
//! breaks on a queue server that does not.

use dispatcher_tests::child::{Program, RunningProgram};
use dispatcher_tests::faulty_lambda::{FaultyLambda, InvocationRecords};
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::SqsServer;

/// `dispatcher run` that forwards to a function, with everything on MiniStack.
pub(crate) fn forward(function: &str, queues: &str, more: &[&str]) -> Program {
    let mut arguments = vec!["run", "--log-format", "json", "--function", function];
    arguments.extend(["--queues", queues]);
    // A stop awaits the outstanding polls.
    if !more.contains(&"--poll-for") {
        arguments.extend(["--poll-for", "1"]);
    }
    arguments.extend(more);
    Program::new(arguments).aws(&MiniStack::shared().url())
}

/// The same with the function elsewhere.
pub(crate) fn forward_to(lambda: &FaultyLambda, queues: &str, more: &[&str]) -> Program {
    forward("f", queues, more).env("AWS_ENDPOINT_URL_LAMBDA", &lambda.url())
}

/// A new queue on the shared server: the server, the queue's name and its URL.
pub(crate) async fn queue(hint: &str, attributes: &[(&str, &str)]) -> (SqsServer, String, String) {
    let server = SqsServer::at(&MiniStack::shared().url());
    let name = SqsServer::fresh_name(hint);
    let url = server.create(&name, attributes).await;
    (server, name, url)
}

/// A queue whose messages are dead-lettered by the server if they are received more often: the
/// queue as above, and the URL of its dead-letter queue.
pub(crate) async fn queue_with_redrive(
    hint: &str,
    receives: u32,
    visibility: &str,
) -> ((SqsServer, String, String), String) {
    let (_, dead, dead_url) = queue("dead", &[]).await;
    let policy = format!(
        r#"{{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:{dead}","maxReceiveCount":"{receives}"}}"#
    );
    let attributes = [
        ("VisibilityTimeout", visibility),
        ("RedrivePolicy", policy.as_str()),
    ];
    (queue(hint, &attributes).await, dead_url)
}

/// Waits in its own thread, so that the test's other tasks continue.
pub(crate) async fn wait<T: Send + 'static>(
    lambda: &std::sync::Arc<FaultyLambda>,
    ask: impl Fn(&InvocationRecords) -> Option<T> + Send + 'static,
) -> T {
    let lambda = std::sync::Arc::clone(lambda);
    let waited = tokio::task::spawn_blocking(move || lambda.wait(ask)).await;
    waited.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// The address that `--admin 127.0.0.1:0` came to, as a URL, once a log line tells it.
pub(crate) fn admin(running: &RunningProgram) -> String {
    let address = |line: &str| {
        let at = line.find("127.0.0.1:")?;
        let rest = &line[at..];
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':'));
        Some(rest[..end.unwrap_or(rest.len())].to_owned())
    };
    let line = running.wait_for_line(|line| {
        line.contains("health and metrics served") && address(line).is_some()
    });
    format!("http://{}", address(&line).expect("it was just found"))
}
