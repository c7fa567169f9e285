//! Messages for later on SQS: they wait in a table, in the shape of Shoryuken::Waiter, and go to
//! their queue in time, each once.

use crate::scene::{field, printed, prints};
use crate::schedule::scene::{ScheduleScene, call, good, list, scene, start, start_mover};
use aws_sdk_sqs::types::DeleteMessageBatchRequestEntry;
use dispatcher_tests::child::{RunningProgram, Signal};
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::SqsServer;
use dispatcher_tests::waiting::{Item, of_waiter, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Instant;

#[tokio::test]
async fn delay_beyond_fifteen_minutes_needs_an_existing_table() {
    let server = SqsServer::at(&MiniStack::shared().url());
    let queue = SqsServer::fresh_name("later");
    let url = server.create(&queue, &[]).await;
    let words = ["send", &queue, "print:far", "--delay", "36h"];
    let refused = call(&words);
    assert_eq!(refused.code, 2, "{refused:?}");
    let hint = format!("`dispatcher schedule init {queue}` creates it");
    assert!(refused.stderr.contains(&hint), "{refused:?}");
    let made = good(&["schedule", "init", &queue]);
    assert!(made.stderr.contains("created table"), "{made:?}");
    let again = good(&["schedule", "init", &queue]);
    assert!(again.stderr.contains("already exists"), "{again:?}");
    let id = good(&words).stdout.trim().to_owned();
    assert_eq!(server.counts(&url).await.delayed, 0);
    // Within 15 minutes the queue itself waits.
    let soon = good(&[
        "schedule",
        "add",
        &queue,
        "--in",
        "14m",
        "--body",
        "print:soon",
    ]);
    assert!(
        soon.stderr.contains("can no longer be cancelled"),
        "{soon:?}"
    );
    assert_eq!(server.counts(&url).await.delayed, 1);
    let listed = list(&queue);
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["id"], id.as_str());
    good(&["schedule", "cancel", &id]);
    assert_eq!(list(&queue).len(), 0);
    assert_eq!(call(&["schedule", "cancel", &id]).code, 1);
}

#[tokio::test]
async fn jobs_due_within_fifteen_minutes_are_sent_and_others_stay() {
    let scene = scene("within", "", &[]).await;
    let body = |n: i32| format!("print:{n}");
    for (n, seconds) in [
        (0, -5.0),
        (1, 2.0),
        (2, 600.0),
        (3, 1_800.0),
        (4, 129_600.0),
    ] {
        let mut item = of_waiter(&format!("job-{n}"), &scene.queue, "x", seconds);
        let text = aws_sdk_dynamodb::types::AttributeValue::S(body(n));
        item.insert("sqs_message_body".into(), text);
        scene.waiting.put(vec![item]).await;
    }
    let mut running = start(&scene.queue, &[]);
    running.wait_for_lines(2, printed);
    running.stop();
    let mut handled = prints(&running);
    handled.sort();
    assert_eq!(handled, ["0", "1"]);
    assert_eq!(scene.server.counts(&scene.url).await.delayed, 1);
    let left: BTreeSet<String> = scene
        .waiting
        .items()
        .await
        .iter()
        .map(|item| text(item, "job_id"))
        .collect();
    assert_eq!(left.into_iter().collect::<Vec<_>>(), ["job-3", "job-4"]);
}

#[tokio::test]
async fn job_of_shoryuken_waiter_is_sent_as_it_would_send_it() {
    let scene = scene("original", "", &[]).await;
    let item = of_waiter("6b5d1f0e-2d3c", &scene.queue, "a@b.c", 1.5);
    scene.waiting.put(vec![item]).await;
    let mut running = start_mover(&scene).await;
    running.wait_for_line(|line| line.contains("scheduled messages sent"));
    let asked = scene.server.client.receive_message();
    let asked = asked.queue_url(&scene.url).wait_time_seconds(5);
    let answer = asked.message_attribute_names("All").send().await;
    let message = answer
        .expect("an answer")
        .messages
        .expect("it came")
        .remove(0);
    let body: Value = serde_json::from_str(message.body().expect("a body")).expect("JSON");
    let wanted = serde_json::json!({
        "job_class": "ReminderJob", "job_id": "6b5d1f0e-2d3c", "queue_name": scene.queue,
        "arguments": ["a@b.c", 7], "locale": "en",
    });
    assert_eq!(body, wanted);
    let attributes = message.message_attributes().expect("it has some");
    let class = attributes["shoryuken_class"].string_value();
    assert_eq!(
        class,
        Some("ActiveJob::QueueAdapters::ShoryukenAdapter::JobWrapper")
    );
    assert_eq!(attributes.len(), 1);
    running.stop();
    assert_eq!(scene.waiting.items().await.len(), 0);
}

#[tokio::test]
async fn active_job_is_written_as_shoryuken_waiter_reads_it() {
    let scene = scene("written", "", &[]).await;
    let body = format!(
        r#"{{"job_id":"j-1","job_class":"A","queue_name":"{}","arguments":[]}}"#,
        scene.queue
    );
    let words = [
        "schedule",
        "add",
        &scene.queue,
        "--in",
        "36h",
        "--body",
        &body,
    ];
    let id = good(&words).stdout;
    assert_eq!(id.trim(), format!("{}/j-1", scene.queue));
    let item = scene.waiting.items().await.remove(0);
    // What `Querier` asks for, and what `Enqueuer` takes from it.
    assert_eq!(text(&item, "scheduler"), "shoryuken-waiter");
    let map = item["sqs_message_body"].as_m().expect("a map");
    assert_eq!(
        (text(map, "queue_name"), text(map, "job_id")),
        (scene.queue.clone(), "j-1".into())
    );
    assert!(item["sqs_message_attributes"].is_m() && item["perform_at"].is_n());
    // It is there already.
    assert_eq!(call(&words).code, 2);
    // What the Waiter could not read stands where it does not look.
    good(&[
        "schedule",
        "add",
        &scene.queue,
        "--in",
        "36h",
        "--body",
        "plain",
    ]);
    let items = scene.waiting.items().await;
    let plain = items.iter().find(|item| item["sqs_message_body"].is_s());
    assert_eq!(text(plain.expect("it waits"), "scheduler"), "dispatcher");
    assert_eq!(list(&scene.queue).len(), 2);
}

/// Jobs that are due, by their numbers, half of them in each part of the table.
fn many(scene: &ScheduleScene, count: usize) -> Vec<Item> {
    let job = |n: usize| {
        let mut item = of_waiter(&format!("job-{n:05}"), &scene.queue, "x", -1.0);
        let s = |text: String| aws_sdk_dynamodb::types::AttributeValue::S(text);
        item.insert("sqs_message_body".into(), s(format!("print:{n}")));
        item.insert("dispatcher_queue".into(), s(scene.queue.clone()));
        if n.is_multiple_of(2) {
            item.insert("scheduler".into(), s("dispatcher".into()));
        }
        item
    };
    (0..count).map(job).collect()
}

#[tokio::test]
async fn two_dispatchers_send_thousands_of_jobs_once_each() {
    const JOBS: usize = 2_000;
    let scene = scene("many", "", &[]).await;
    scene.waiting.put(many(&scene, JOBS)).await;
    let begun = Instant::now();
    let mut both = [start_mover(&scene).await, start_mover(&scene).await];
    until_sent(&both, JOBS).await;
    let took = begun.elapsed();
    both.iter_mut().for_each(RunningProgram::stop);
    let mut bodies = drain(&scene).await;
    bodies.sort();
    let sent = bodies.len();
    bodies.dedup();
    assert_eq!((bodies.len(), sent), (JOBS, JOBS));
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let rate = JOBS as f64 / took.as_secs_f64();
    println!("{JOBS} jobs from table to queue in {took:.2?}, start-up included: {rate:.0} jobs/s");
}

/// Receives and deletes in tens until nothing comes; all bodies.
async fn drain(scene: &ScheduleScene) -> Vec<String> {
    let client = &scene.server.client;
    let mut bodies = Vec::new();
    loop {
        let asked = client.receive_message().queue_url(&scene.url);
        let asked = asked.max_number_of_messages(10).wait_time_seconds(1);
        let answer = asked.send().await.expect("the queue exists");
        let messages = answer.messages.unwrap_or_default();
        if messages.is_empty() {
            return bodies;
        }
        let mut gone = client.delete_message_batch().queue_url(&scene.url);
        for (at, message) in messages.into_iter().enumerate() {
            let entry = DeleteMessageBatchRequestEntry::builder().id(at.to_string());
            let entry = entry.set_receipt_handle(message.receipt_handle);
            gone = gone.entries(entry.build().expect("id and receipt are set"));
            bodies.push(message.body.unwrap_or_default());
        }
        gone.send().await.expect("they were just received");
    }
}

/// Returns once they have said that they sent so many.
async fn until_sent(both: &[RunningProgram; 2], count: usize) {
    let of = |running: &RunningProgram| -> usize {
        let said = running.lines(|line| line.contains("scheduled messages sent"));
        let sent = said.iter().map(|line| field(line, "sent").parse::<usize>());
        sent.map(|number| number.expect("a number")).sum()
    };
    let looking = async {
        while both.iter().map(of).sum::<usize>() < count {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let found = tokio::time::timeout(dispatcher_tests::MOST_PATIENCE, looking).await;
    found.expect("all are sent");
}

#[tokio::test]
async fn kill_loses_no_job_and_repeats_only_claimed_ones() {
    const JOBS: usize = 400;
    let scene = scene("killed", "", &[]).await;
    scene.waiting.put(many(&scene, JOBS)).await;
    let mut killed = start_mover(&scene).await;
    scene.waiting.until_left(JOBS - 50).await;
    killed.signal(Signal::KILL);
    killed.wait_exit();
    let claimed: BTreeSet<String> = scene
        .waiting
        .let_claims_run_out()
        .await
        .into_iter()
        .collect();
    let mut running = start_mover(&scene).await;
    scene.waiting.until_left(0).await;
    running.stop();
    let bodies = drain(&scene).await;
    let mut seen = BTreeSet::new();
    let mut twice = Vec::new();
    for body in &bodies {
        if !seen.insert(body.clone()) {
            twice.push(body.clone());
        }
    }
    assert_eq!(seen.len(), JOBS, "some were lost");
    for body in &twice {
        let number: usize = body["print:".len()..].parse().expect("a number");
        assert!(
            claimed.contains(&format!("job-{number:05}")),
            "{body} came twice"
        );
    }
    println!(
        "{} of {JOBS} were claimed at the kill, {} came twice",
        claimed.len(),
        twice.len()
    );
}

#[tokio::test]
async fn periodic_job_fires_repeatedly() {
    let scene = scene("cron", "", &[]).await;
    let words = [
        "schedule",
        "add",
        &scene.queue,
        "--cron",
        "* * * * * *",
        "--body",
        "print:tick",
    ];
    let id = good(&words).stdout;
    let mut running = start(&scene.queue, &[]);
    running.wait_for_lines(3, printed);
    // Not while it runs, and may be sending it at that moment.
    running.stop();
    good(&["schedule", "cancel", id.trim()]);
    assert_eq!(scene.waiting.items().await.len(), 0);
}
