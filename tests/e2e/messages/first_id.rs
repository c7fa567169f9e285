//! A dead letter is found by the id that its message had first.

use crate::scene::{field, run, send};
use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::queue::origin::{FIRST_ID, FIRST_RECEIVED, FIRST_SOURCE};
use dispatcher_core::queue::{Queue, REDRIVEN};
use dispatcher_sqs::queue::Sqs;
use dispatcher_tests::child::{ExitedProgram, Program};
use dispatcher_tests::served::LocalServer;
use dispatcher_tests::sqs::{SqsServer, configuration};
use serde_json::Value;

/// What a command printed with `--json`.
fn report(ended: &ExitedProgram) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

#[tokio::test]
async fn a_dead_letter_of_sqs_is_found_by_its_first_id_after_redrives() {
    let server = LocalServer::start();
    let sqs = SqsServer::at(server.url());
    let names = ["orders", "orders-dlq"].map(SqsServer::fresh_name);
    for name in &names {
        sqs.create(name, &[]).await;
    }
    let (own, dead) = (&*names[0], &*names[1]);
    let called = |words: &[&str]| {
        let words = words.iter().copied();
        report(&Program::new(words).aws(server.url()).run())
    };
    let queue = Sqs::connect(&configuration(server.url()));
    let queue = queue.open(own, None).await.expect("it is there");
    let message = OutgoingMessage {
        body: "reject:no such customer".into(),
        attributes: vec![Attribute::text("tenant", "7")],
        ..OutgoingMessage::default()
    };
    let sent = queue.send(&[message]).await;
    let first = sent[0].clone().expect("sent");
    let mut id = first.clone();
    for redrives in 0..2 {
        let words = ["--queues", own, "--dead-letter", dead];
        let mut running = run("verdicts", &words).aws(server.url()).start();
        let line = running.wait_for_line(|line| line.contains("\"message dead-lettered\""));
        running.stop();
        assert_eq!(field(&line, "message_id"), id);
        assert_eq!(line.contains("first_id"), redrives > 0, "{line}");
        let dead_letter = field(&line, "dead_letter_id");
        let peeked = called(&["peek", dead, "--receive", "--json", "--id", &first]);
        assert_eq!(peeked.as_array().map(Vec::len), Some(1), "{peeked}");
        assert_eq!(peeked[0]["id"], *dead_letter);
        assert_eq!(peeked[0]["first_id"], *first);
        let moved = called(&["redrive", dead, "--json", "--id", &first, "--apply"]);
        assert_eq!((&moved["moved"], &moved["missing"]), (&1.into(), &0.into()));
        let there = called(&["peek", own, "--receive", "--json"]);
        let names = there[0]["attributes"].as_array().into_iter().flatten();
        let mut names: Vec<_> = names.filter_map(|one| one["name"].as_str()).collect();
        names.sort_unstable();
        let wanted = [FIRST_ID, FIRST_RECEIVED, FIRST_SOURCE, REDRIVEN, "tenant"];
        assert_eq!(names, wanted);
        id = there[0]["id"].as_str().expect("a text").to_owned();
    }
}

#[tokio::test]
async fn a_dead_letter_of_the_embedded_queue_is_found_by_its_first_id_after_redrives() {
    let mut running = run("verdicts", &["--queues", "local:q"]).start();
    let data = running.data().clone();
    send(data.path(), "q", ["reject:no such customer".into()]).await;
    let is_dead = |line: &str| line.contains("\"message dead-lettered\"");
    let first = field(&running.wait_for_line(is_dead), "message_id");
    for lines in 2..4 {
        let peek = ["peek", "local:q.dead", "--json", "--id", &first];
        let peeked = report(&Program::new(peek).sharing(&data).run());
        assert_eq!(peeked.as_array().map(Vec::len), Some(1), "{peeked}");
        let redrive = ["redrive", "local:q.dead", "--id", &first, "--apply"];
        let moved = Program::new(redrive).sharing(&data).run();
        assert_eq!(moved.code, 0, "{moved:?}");
        let line = running.wait_for_lines(lines, is_dead).pop();
        let line = line.expect("as many as were asked for");
        assert_eq!(field(&line, "first_id"), first);
        assert_ne!(field(&line, "message_id"), first);
    }
    running.stop();
}
