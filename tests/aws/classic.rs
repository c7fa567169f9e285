//! Classic mode against a real function: what becomes of messages when it succeeds, fails, fails for
//! some, and is throttled. The function itself complains of an event that is not as Lambda makes it.

use dispatcher_tests::account::Account;
use dispatcher_tests::child::{Program, RunningProgram};
use dispatcher_tests::sqs::SqsServer;

/// The checks.
pub(crate) const NAMES: [&str; 4] = [
    "what_the_function_handles_is_deleted",
    "message_is_redelivered_after_the_function_raises",
    "only_the_failed_message_of_a_batch_is_redelivered",
    "what_always_fails_is_dead_lettered",
];

/// Runs one of them.
pub(crate) async fn check(account: &Account, role: String, name: &str) {
    let (bodies, flags, dead): (&[&str], &[&str], usize) = match name {
        "what_the_function_handles_is_deleted" => (&["done", "done too"], &[], 0),
        "message_is_redelivered_after_the_function_raises" => (&["raise-until:2"], &[], 0),
        "only_the_failed_message_of_a_batch_is_redelivered" => (
            &["done", "fail-until:2", "done"],
            &[
                "--batch-size",
                "10",
                "--batch-window",
                "1",
                "--partial-failures",
            ],
            0,
        ),
        "what_always_fails_is_dead_lettered" => (&["reject-always"], &["--max-attempts", "2"], 1),
        other => panic!("no such check: {other}"),
    };
    let function = account.create_function("function", &role).await;
    let queue = account
        .create_queue("classic", &[("VisibilityTimeout", "60")])
        .await;
    let dead_letter_queue = account.create_queue("classic-dead", &[]).await;
    let sqs = account.sqs();
    let url = url(&sqs, &queue).await;
    sqs.send_many(&url, bodies.iter().map(|body| (*body).to_owned()))
        .await;
    let mut running = start(account, &function, &queue, &dead_letter_queue, flags);
    sqs.wait_until_empty(&url).await;
    running.stop();
    let dead_letter_queue = self::url(&sqs, &dead_letter_queue).await;
    assert_eq!(
        sqs.drain(&dead_letter_queue).await.len(),
        dead,
        "dead letters"
    );
}

fn start(
    account: &Account,
    function: &str,
    queue: &str,
    dead_letter_queue: &str,
    flags: &[&str],
) -> RunningProgram {
    let mut arguments = vec!["run", "--log-format", "json", "--function", function];
    arguments.extend([
        "--queues",
        queue,
        "--dead-letter",
        dead_letter_queue,
        "--poll-for",
        "1",
    ]);
    arguments.extend(flags);
    let running = account.program(Program::new(arguments)).start();
    running.wait_for_line(|line| line.contains("\"running\""));
    running
}

async fn url(sqs: &SqsServer, name: &str) -> String {
    let call = sqs.client.get_queue_url().queue_name(name).send();
    let answer = call.await.expect("it was just made");
    answer.queue_url.expect("a queue has a URL")
}
