//! The same on SQS, spoken to through its SDK.

use crate::lambda::scene::queue_with_redrive;
use crate::scene::{field, printed, prints, run};
use dispatcher_tests::child::{Program, RunningProgram, Signal, Stream};
use dispatcher_tests::proxy::Proxy;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::{Counts, SqsServer};

/// A new queue on the shared server: the server, the queue's name and its URL.
pub(crate) async fn queue(hint: &str, attributes: &[(&str, &str)]) -> (SqsServer, String, String) {
    let server = SqsServer::at(&MiniStack::shared().url());
    let name = SqsServer::fresh_name(hint);
    let url = server.create(&name, attributes).await;
    (server, name, url)
}

fn start(endpoint: &str, queue: &str, more: &[&str]) -> RunningProgram {
    let arguments = [&["--queues", queue, "--poll-for", "1"], more].concat();
    run("verdicts", &arguments).aws(endpoint).start()
}

#[tokio::test]
async fn run_drains_a_queue_and_leaves_nothing_behind() {
    let (server, name, url) = queue("drain", &[]).await;
    server
        .send_many(&url, (0..500).map(|n| format!("print:{n}")))
        .await;
    let mut running = start(&MiniStack::shared().url(), &name, &["--concurrency", "50"]);
    running.wait_for_lines(500, printed);
    running.stop();
    let mut handled = prints(&running);
    handled.sort();
    handled.dedup();
    assert_eq!(handled.len(), 500);
    let left = server.counts(&url).await;
    assert_eq!((left.waiting, left.in_flight, left.delayed), (0, 0, 0));
}

#[tokio::test]
async fn lesson_01_message_of_a_poll_after_the_stop_is_not_stranded() {
    let (server, name, url) = queue("stop", &[("VisibilityTimeout", "600")]).await;
    // Five seconds: the poll is still parked when the signal comes.
    let arguments = ["--queues", &name, "--poll-for", "5"];
    let proxy = Proxy::before(MiniStack::shared().address());
    let mut running = run("verdicts", &arguments).aws(&proxy.url()).start();
    // The first poll only proves that the queue is empty; the second is parked.
    proxy.wait_until_seen(2, "ReceiveMessage");
    running.signal(Signal::TERM);
    running.wait_for_line(|line| line.contains("stopping"));
    server.send_many(&url, ["print:late".to_owned()]).await;
    assert_eq!(running.wait_exit(), 0);
    let left = server.counts(&url).await;
    assert_eq!(left.in_flight, 0, "invisible for ten minutes");
    assert_eq!(left.waiting + prints(&running).len() as u64, 1);
    let given_back = proxy.seen("ChangeMessageVisibilityBatch");
    assert_eq!(
        given_back + prints(&running).len(),
        1,
        "the poll brought it after the stop"
    );
}

#[tokio::test]
async fn finding_14_idle_stop_logs_at_once_what_it_waits_for() {
    let (_, name, _) = queue("idle", &[]).await;
    let proxy = Proxy::before(MiniStack::shared().address());
    // Everything as it is by default.
    let mut running = run("verdicts", &["--queues", &name])
        .aws(&proxy.url())
        .start();
    // One proves that the queue is empty, one waits for messages when the signal comes.
    proxy.wait_until_seen(2, "ReceiveMessage");
    running.signal(Signal::TERM);
    let waits = running.wait_for_line(|line| line.contains("waiting for outstanding receives"));
    let polls = proxy.requests("ReceiveMessage", "");
    let answered = polls.iter().filter(|(_, answered)| *answered).count();
    assert_eq!(
        (polls.len(), answered),
        (2, 1),
        "it is logged before the answer"
    );
    assert_eq!(field(&waits, "queues"), name);
    let at_most: f64 = field(&waits, "at_most_s").parse().expect("a number");
    assert!(at_most > 0.0 && at_most <= 20.0, "{waits}");
    assert_eq!(running.wait_exit(), 0);
    let events = running.lines(|line| line.contains("\"message\":"));
    let order = [
        "stopping;",
        "waiting for outstanding",
        "outstanding receives answered",
        "stopped",
    ];
    let places = order.map(|event| {
        let at = events
            .iter()
            .position(|line| field(line, "message").starts_with(event));
        at.unwrap_or_else(|| panic!("no {event}: {events:?}"))
    });
    assert!(places.is_sorted(), "{events:?}");
    let planned: f64 = field(&events[places[0]], "at_most_s")
        .parse()
        .expect("a number");
    assert!(
        planned <= 28.0,
        "{planned}: Kubernetes and ECS kill after 30 s"
    );
}

#[tokio::test]
async fn finding_14_end_of_grace_returns_messages_during_an_outstanding_receive() {
    // Released, the second message would be dead-lettered by its queue: it is kept for an attempt
    // as long as there may be one.
    let ((server, busy, busy_url), _) = queue_with_redrive("busy", 1, "600").await;
    let ((_, last, last_url), _) = queue_with_redrive("last", 1, "600").await;
    let (_, idle, idle_url) = queue("idle", &[]).await;
    let queues = [busy, last, idle].join(",");
    let limits = [
        "--concurrency",
        "1",
        "--timeout",
        "1h",
        "--shutdown-grace",
        "1s",
    ];
    let arguments = [&["--queues", &queues, "--log-level", "debug"], &limits[..]].concat();
    let proxy = Proxy::before(MiniStack::shared().address());
    let mut running = run("verdicts", &arguments).aws(&proxy.url()).start();
    server.send_many(&busy_url, ["sleep:3600000".into()]).await;
    running.wait_for_line(|line| line.contains("an attempt begins"));
    server.send_many(&last_url, ["print:last".into()]).await;
    let is_held = |counts: Counts| counts.in_flight == 1;
    server.wait_until(&last_url, is_held).await;
    // A fresh receive at the idle queue, which outlasts the grace.
    let of_idle = idle_url.rsplit('/').next().expect("a name").to_owned();
    let begun = proxy.requests("ReceiveMessage", &of_idle).len();
    proxy.wait_until_seen_with("ReceiveMessage", &of_idle, begun + 1);
    running.signal(Signal::TERM);
    running.wait_for_line(|line| line.contains("waiting for outstanding receives"));
    running.wait_for_line(|line| line.contains("message dead-lettered by redrive policy"));
    let answered = running.lines(|line| line.contains("outstanding receives answered"));
    assert_eq!(answered, [""; 0], "it waited for the receive");
    assert_eq!(running.wait_exit(), 0);
    for url in [busy_url, last_url] {
        assert_eq!(server.counts(&url).await.in_flight, 0);
    }
}

#[tokio::test]
async fn lesson_03_outstanding_poll_is_never_cut_off() {
    let (_, name, _) = queue("whole", &[]).await;
    let proxy = Proxy::before(MiniStack::shared().address());
    let arguments = ["--queues", &name, "--poll-for", "4"];
    let mut running = run("verdicts", &arguments).aws(&proxy.url()).start();
    // One proves that the queue is empty, one is parked when the signal comes.
    proxy.wait_until_seen(2, "ReceiveMessage");
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let polls = proxy.requests("ReceiveMessage", "");
    let answered = polls.iter().filter(|(_, answered)| *answered).count();
    assert_eq!((polls.len(), answered), (2, 2), "the last was waited for");
}

#[tokio::test]
async fn lesson_04_slow_handler_keeps_its_lease() {
    let (server, name, url) = queue("slow", &[("VisibilityTimeout", "2")]).await;
    server.send_many(&url, ["sleep:7000".to_owned()]).await;
    let proxy = Proxy::before(MiniStack::shared().address());
    let mut running = run("verdicts", &["--queues", &name, "--poll-for", "1"])
        .aws(&proxy.url())
        .start();
    proxy.wait_until_seen(1, "DeleteMessageBatch");
    running.stop();
    assert!(proxy.seen("ChangeMessageVisibilityBatch") >= 3);
    assert_eq!(proxy.seen("DeleteMessageBatch"), 1, "it was handled once");
    let left = server.counts(&url).await;
    assert_eq!((left.waiting, left.in_flight), (0, 0));
}

#[tokio::test]
async fn message_arriving_late_in_a_long_poll_keeps_its_lease() {
    let (server, name, url) = queue("late", &[("VisibilityTimeout", "3")]).await;
    let (_, clock, clock_url) = queue("clock", &[]).await;
    server
        .send_many(&clock_url, ["sleep:5000".to_owned()])
        .await;
    let queues = format!("{clock},{name}");
    let endpoint = MiniStack::shared().url();
    let mut running = run("verdicts", &["--queues", &queues, "--poll-for", "20"])
        .aws(&endpoint)
        .start();
    // Once the other queue's message is done, this one's poll has waited longer than a lease lasts.
    server.wait_until_empty(&clock_url).await;
    server.send_many(&url, ["print:late".to_owned()]).await;
    running.wait_for_line(|line| line.contains("late") && printed(line));
    server.wait_until_empty(&url).await;
    assert!(
        !running.text(Stream::Err).contains("lost"),
        "{}",
        running.text(Stream::Err)
    );
    assert_eq!(prints(&running), ["late"]);
    running.signal(Signal::KILL);
    running.wait_exit();
}

const FAILED: &str = r#"{"Successful":[],"Failed":[{"Id":"0","SenderFault":false,"Code":"InternalError","Message":"try again"}]}"#;

#[tokio::test]
async fn lesson_12_failed_delete_is_retried() {
    let (server, name, url) = queue("failed", &[]).await;
    let proxy = Proxy::before(MiniStack::shared().address());
    proxy.answer_next(2, "DeleteMessageBatch", 200, FAILED);
    server.send_many(&url, ["print:once".to_owned()]).await;
    let mut running = start(&proxy.url(), &name, &[]);
    proxy.wait_until_seen(3, "DeleteMessageBatch");
    running.stop();
    assert_eq!(prints(&running), ["once"]);
    let left = server.counts(&url).await;
    assert_eq!((left.waiting, left.in_flight), (0, 0));
}

#[tokio::test]
async fn lesson_12_redelivery_of_a_done_message_is_deleted_without_running() {
    let (server, name, url) = queue("redelivered", &[("VisibilityTimeout", "2")]).await;
    let proxy = Proxy::before(MiniStack::shared().address());
    proxy.answer_next(1_000, "DeleteMessageBatch", 500, "{}");
    server.send_many(&url, ["print:once".to_owned()]).await;
    let log = ["--log-level", "info,message=debug"];
    let mut running = start(&proxy.url(), &name, &log);
    running.wait_for_line(|line| {
        line.contains("message not settled") && field(line, "wanted") == "done"
    });
    proxy.forget_answers();
    running.wait_for_line(|line| line.contains("duplicate dropped"));
    server.wait_until_empty(&url).await;
    running.stop();
    assert_eq!(prints(&running), ["once"]);
}

#[tokio::test]
async fn rejected_message_goes_to_the_dead_letter_queue_with_its_reason() {
    let (server, name, url) = queue("reject", &[]).await;
    let (_, dead, dead_url) = queue("dead", &[]).await;
    server
        .send_many(&url, ["reject:bad address".to_owned()])
        .await;
    let mut running = start(&MiniStack::shared().url(), &name, &["--dead-letter", &dead]);
    running.wait_for_line(|line| line.contains("dead-lettered") && line.contains("bad address"));
    running.stop();
    assert_eq!(server.counts(&url).await.waiting, 0);
    let letter = server
        .client
        .receive_message()
        .queue_url(&dead_url)
        .message_attribute_names("All")
        .send()
        .await;
    let letter = letter
        .expect("received")
        .messages
        .unwrap_or_default()
        .remove(0);
    let reason =
        &letter.message_attributes.expect("has attributes")["dispatcher-dead-letter-reason"];
    assert_eq!(reason.string_value(), Some("bad address"));
}

#[tokio::test]
async fn kill_loses_nothing() {
    let (server, name, url) = queue("kill", &[("VisibilityTimeout", "2")]).await;
    server
        .send_many(&url, (0..200).map(|n| format!("print:{n}")))
        .await;
    let mut handled = Vec::new();
    for after in [20, 40, 60] {
        let mut running = start(&MiniStack::shared().url(), &name, &["--concurrency", "5"]);
        running.wait_for_lines(after, printed);
        running.signal(Signal::KILL);
        running.wait_exit();
        handled.extend(prints(&running));
    }
    let mut running = start(&MiniStack::shared().url(), &name, &["--concurrency", "5"]);
    server.wait_until_empty(&url).await;
    running.stop();
    handled.extend(prints(&running));
    handled.sort();
    handled.dedup();
    assert_eq!(handled.len(), 200);
}

#[tokio::test]
async fn commands_work_with_sqs() {
    let (server, name, url) = queue("commands", &[]).await;
    let endpoint = MiniStack::shared().url();
    let call = |arguments: &[&str]| Program::new(arguments).aws(&endpoint).run();
    let sent = call(&["send", &name, "hello", "--attribute", "colour=blue"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    assert_eq!(server.counts(&url).await.waiting, 1);
    let queues = call(&["queues", &name, "--json"]);
    assert!(queues.stdout.contains("\"waiting\":1"), "{queues:?}");
    let peek = call(&["peek", &name]);
    assert_eq!(peek.code, 2, "{peek:?}");
    assert!(peek.stderr.contains("receiv"), "{peek:?}");
}
