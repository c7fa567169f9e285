//! A FIFO queue with a redrive policy: a message that always fails goes to the dead-letter queue
//! after as many attempts as it has, and what waits behind it in its group runs.

use crate::lambda::scene::forward_to;
use crate::scene::{field, prints, run};
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use dispatcher_tests::child::{Program, RunningProgram};
use dispatcher_tests::faulty_lambda::{FaultyLambda, LambdaStep};
use dispatcher_tests::proxy::Proxy;
use dispatcher_tests::served::LocalServer;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::SqsServer;
use std::sync::{Arc, Mutex};

/// The group of all messages here.
const GROUP: &str = "customer-1";

/// A FIFO queue with a redrive policy, and the queue that the policy names.
struct RedriveQueues {
    endpoint: String,
    server: SqsServer,
    name: String,
    url: String,
    dead_url: String,
}

impl RedriveQueues {
    async fn on(endpoint: &str, receives: u32) -> Self {
        let server = SqsServer::at(endpoint);
        let fifo = [("FifoQueue", "true"), ("VisibilityTimeout", "30")];
        let dead_name = SqsServer::fresh_name("dead") + ".fifo";
        let dead_url = server.create(&dead_name, &fifo[..1]).await;
        let dead_arn = arn(&server, &dead_url).await;
        let policy =
            format!(r#"{{"deadLetterTargetArn":"{dead_arn}","maxReceiveCount":"{receives}"}}"#);
        let name = SqsServer::fresh_name("redrive") + ".fifo";
        let attributes = [fifo[0], fifo[1], ("RedrivePolicy", policy.as_str())];
        let url = server.create(&name, &attributes).await;
        Self {
            endpoint: endpoint.to_owned(),
            server,
            name,
            url,
            dead_url,
        }
    }

    async fn send(&self, bodies: &[&str]) {
        for (number, body) in bodies.iter().enumerate() {
            let call = self.server.client.send_message().queue_url(&self.url);
            let call = call.message_group_id(GROUP).message_body(*body);
            let call = call.message_deduplication_id(number.to_string());
            call.send().await.expect("sent");
        }
    }

    /// What is in the dead-letter queue.
    async fn dead(&self) -> Vec<Message> {
        let call = self
            .server
            .client
            .receive_message()
            .queue_url(&self.dead_url);
        let call = call.max_number_of_messages(10).wait_time_seconds(1);
        let call = call
            .message_attribute_names("All")
            .message_system_attribute_names(MessageSystemAttributeName::All);
        let answer = call.send().await.expect("the queue exists");
        answer.messages.unwrap_or_default()
    }
}

async fn arn(server: &SqsServer, url: &str) -> String {
    let call = server.client.get_queue_attributes().queue_url(url);
    let call = call.attribute_names(QueueAttributeName::QueueArn);
    let answer = call.send().await.expect("the queue exists");
    let attributes = answer.attributes.expect("it has attributes");
    attributes[&QueueAttributeName::QueueArn].clone()
}

fn verdicts(queues: &RedriveQueues, more: &[&str]) -> Program {
    let arguments = [
        &["--queues", &queues.name, "--poll-for", "1"],
        &["--log-level", "debug"][..],
        more,
    ]
    .concat();
    run("verdicts", &arguments).aws(&queues.endpoint)
}

/// The ids of the messages of the attempts so far.
fn attempts(running: &RunningProgram) -> Vec<String> {
    let lines = running.lines(|line| line.contains("an attempt begins"));
    lines.iter().map(|line| field(line, "message_id")).collect()
}

/// The head is dead after as many attempts as it has, in its group, with what tells why.
async fn only_the_head_is_dead(queues: &RedriveQueues, body: &str) -> String {
    let dead = queues.dead().await;
    let bodies: Vec<_> = dead.iter().filter_map(Message::body).collect();
    assert_eq!(bodies, [body], "only the one that failed is a dead letter");
    let group = &dead[0].attributes.as_ref().expect("attributes")
        [&MessageSystemAttributeName::MessageGroupId];
    assert_eq!(group, GROUP);
    let own = dead[0].message_attributes.as_ref().expect("attributes");
    let text = |name: &str| own[name].string_value().expect("a text").to_owned();
    assert!(text("dispatcher-dead-letter-source").contains(&queues.name));
    text("dispatcher-dead-letter-reason")
}

/// A handler that takes one message at a time.
async fn a_head_that_always_fails(endpoint: &str) {
    for receives in [3, 5, 1] {
        let queues = RedriveQueues::on(endpoint, receives).await;
        queues
            .send(&["retry:300", "print:after1", "print:after2"])
            .await;
        let mut running = verdicts(&queues, &[]).start();
        running.wait_for_line(|line| line.contains("after2"));
        queues.server.wait_until_empty(&queues.url).await;
        running.stop();
        assert_eq!(prints(&running), ["after1", "after2"], "{receives}");
        let attempts = attempts(&running);
        let head = attempts.iter().filter(|id| **id == attempts[0]).count();
        assert_eq!(head, receives as usize, "attempts of the head");
        let why = only_the_head_is_dead(&queues, "retry:300").await;
        let wanted = format!("not handled in {receives} attempts");
        assert!(why.contains(&wanted), "{why}");
    }
}

#[tokio::test]
async fn finding_02_messages_behind_a_failing_one_in_their_group_run() {
    a_head_that_always_fails(&MiniStack::shared().url()).await;
}

#[tokio::test]
async fn finding_02_messages_behind_a_failing_one_in_their_batch_run() {
    let queues = RedriveQueues::on(&MiniStack::shared().url(), 3).await;
    queues.send(&["retry:300", "done", "done"]).await;
    let arguments = ["--queues", &queues.name, "--poll-for", "1"];
    let batches = ["--batch-size", "10", "--log-level", "debug"];
    let mut running = run("batch-verdicts", &[&arguments[..], &batches].concat())
        .aws(&queues.endpoint)
        .start();
    queues.server.wait_until_empty(&queues.url).await;
    running.stop();
    let attempts = attempts(&running);
    let of = |at: usize| attempts.iter().filter(|id| **id == attempts[at]).count();
    assert_eq!(of(0), 3, "attempts of the head");
    let last = attempts.len() - 1;
    assert!(
        of(last) >= 1 && attempts[last] != attempts[0],
        "{attempts:?}"
    );
    only_the_head_is_dead(&queues, "retry:300").await;
}

#[tokio::test]
async fn finding_02_messages_behind_a_failing_one_run_on_the_served_queue() {
    let local = LocalServer::start();
    a_head_that_always_fails(local.url()).await;
}

/// On the embedded queue, where a receive brings what follows in the group, too.
#[tokio::test]
async fn finding_12_messages_behind_a_failing_one_run_on_the_embedded_queue() {
    for receives in [3, 1] {
        let local = LocalServer::start();
        let queues = RedriveQueues::on(local.url(), receives).await;
        let mut bodies = vec!["retry:300", "print:after1", "print:after2"];
        bodies.splice(0..0, ["print:before"; 2]);
        queues.send(&bodies).await;
        let name = format!("local:{}", queues.name);
        let arguments = ["--queues", &name, "--log-level", "debug"];
        let mut running = run("verdicts", &arguments).sharing(local.data()).start();
        running.wait_for_line(|line| line.contains("after2"));
        queues.server.wait_until_empty(&queues.url).await;
        running.stop();
        let wanted = ["before", "before", "after1", "after2"];
        assert_eq!(prints(&running), wanted, "{receives}");
        let attempts = running.lines(|line| line.contains("an attempt begins"));
        let once: Vec<_> = attempts
            .iter()
            .filter(|line| field(line, "receive_count") != "1")
            .collect();
        assert!(receives == 1 || once.is_empty(), "received once: {once:?}");
        only_the_head_is_dead(&queues, "retry:300").await;
    }
}

/// What a function was invoked with: bodies and receive counts.
type SeenMessages = Arc<Mutex<Vec<(String, u32)>>>;

/// A function that lists the first as failed, and what it was invoked with.
fn failing_function() -> (FaultyLambda, SeenMessages) {
    let lambda = FaultyLambda::start();
    let seen = SeenMessages::default();
    let shared = Arc::clone(&seen);
    lambda.script(move |invocation| {
        let mut seen = shared.lock().expect("nothing panics with it");
        let mut failed = Vec::new();
        for record in &invocation.records {
            seen.push((record.body.clone(), record.receive_count));
            if record.body == "fails" {
                failed.push(record.id.clone());
            }
        }
        LambdaStep::failures(failed)
    });
    (lambda, seen)
}

async fn partial_failures(endpoint: &str) {
    for (receives, batch) in [(3, "1"), (3, "10"), (5, "10")] {
        let queues = RedriveQueues::on(endpoint, receives).await;
        queues.send(&["fails", "after1", "after2"]).await;
        let (lambda, seen) = failing_function();
        let more = ["--partial-failures", "--batch-size", batch];
        let mut running = forward_to(&lambda, &queues.name, &more)
            .aws(&queues.endpoint)
            .env("AWS_ENDPOINT_URL_LAMBDA", &lambda.url())
            .start();
        queues.server.wait_until_empty(&queues.url).await;
        running.stop();
        let seen = seen.lock().expect("nothing panics with it").clone();
        let of = |body: &str| -> Vec<u32> {
            let of = seen.iter().filter(|(other, _)| other == body);
            of.map(|(_, count)| *count).collect()
        };
        assert_eq!(of("fails").len(), receives as usize, "{seen:?}");
        let last: Vec<&str> = seen.iter().map(|(body, _)| body.as_str()).collect();
        assert_eq!(last[last.len() - 2..], ["after1", "after2"], "{seen:?}");
        // The event shows the queue's own count: what waited was received once.
        let waited = seen.iter().filter(|(body, _)| body != "fails");
        assert!(waited.clone().all(|(_, count)| *count == 1), "{seen:?}");
        only_the_head_is_dead(&queues, "fails").await;
    }
}

#[tokio::test]
async fn finding_02_messages_behind_a_partial_failure_in_their_group_run() {
    partial_failures(&MiniStack::shared().url()).await;
}

#[tokio::test]
async fn finding_02_messages_behind_a_partial_failure_run_on_the_served_queue() {
    let local = LocalServer::start();
    partial_failures(local.url()).await;
}

#[tokio::test]
async fn finding_02_rejected_message_costs_no_receive_of_those_behind_it() {
    let queues = RedriveQueues::on(&MiniStack::shared().url(), 1).await;
    let dead = SqsServer::fresh_name("rejected") + ".fifo";
    let dead_url = queues.server.create(&dead, &[("FifoQueue", "true")]).await;
    queues
        .send(&["reject:first", "reject:second", "print:after"])
        .await;
    let mut running = verdicts(&queues, &["--dead-letter", &dead]).start();
    running.wait_for_line(|line| line.contains("\"after\""));
    queues.server.wait_until_empty(&queues.url).await;
    running.stop();
    assert_eq!(prints(&running), ["after"]);
    assert!(queues.dead().await.is_empty(), "the queue's own policy");
    let rejected = queues.server.drain(&dead_url).await;
    assert_eq!(rejected, ["reject:first", "reject:second"]);
}

/// Where nothing fails a message costs as many calls as ever: no call but the usual ones is made.
#[tokio::test]
async fn finding_02_no_extra_calls_are_made_where_nothing_fails() {
    let queues = RedriveQueues::on(&MiniStack::shared().url(), 3).await;
    let proxy = Proxy::before(MiniStack::shared().address());
    let bodies: Vec<String> = (0..20).map(|n| format!("print:{n}")).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    queues.send(&bodies).await;
    let arguments = ["--queues", &queues.name, "--poll-for", "1"];
    let mut running = run("verdicts", &arguments).aws(&proxy.url()).start();
    queues.server.wait_until_empty(&queues.url).await;
    running.stop();
    let wanted: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    assert_eq!(prints(&running), wanted);
    for call in ["SendMessage", "ChangeMessageVisibility"] {
        assert_eq!(proxy.seen(call), 0, "{call}");
    }
    // One deletion for each at most; receives that bring nothing are the last ones.
    assert!(proxy.seen("DeleteMessage") <= 20);
}
